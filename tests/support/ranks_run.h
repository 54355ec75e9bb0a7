/* What the files of this folder that run ranks share. */
#ifndef TESTS_SUPPORT_RANKS_RUN_H
#define TESTS_SUPPORT_RANKS_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "ranks.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#endif

enum {
	DEADLINE_MS = 120 * 1000,
	GRACE_MS = 3 * 1000,         /* for ranks to leave once they are aborted */
#ifdef UNDER_SANITIZER
	SLOWNESS = 4
#else
	SLOWNESS = 1
#endif
};

/* In memory that all ranks map. */
struct shared {
	_Atomic uint32_t events[RANKS_EVENTS];
	_Atomic int64_t sign_ns;     /* when a rank, or the test, last got on */
	struct rank_report reports[RANKS_MOST];
};

/* What the test has of one rank. */
struct held {
	struct rank rank;
	pid_t pid;                   /* 0: a thread */
	pthread_t thread;
	int ended;                   /* reads as end of file once the rank has ended */
	int ending;                  /* the other end, the rank's own */
	int order;                   /* a process watches it: a byte means that the deadline has passed */
	int ordered;                 /* the other end, a process's own */
};

struct ranks {
	struct ranks_options options;
	ranks_body *body;
	char store[40];
	char transport[64];
	int64_t patience_ns;
	struct shared *shared;
	size_t shared_bytes;
	bool waited, stuck;
	struct held held[];
};

static inline int64_t ranks_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Relaxed: a moment, which orders nothing. */
static inline void ranks_give_sign(struct ranks *ranks)
{
	atomic_store_explicit(&ranks->shared->sign_ns, ranks_now_ns(), memory_order_relaxed);
}

static inline int64_t ranks_deadline(const struct ranks *ranks)
{
	return atomic_load_explicit(&ranks->shared->sign_ns, memory_order_relaxed) + ranks->patience_ns;
}

/* rank.c: what a rank does from its creation to its end, in its own thread or process. */
void rank_run(struct rank *rank, ranks_body *body);
/* The deadline has passed: the rank says how far it is, and whatever it waits for ends. Any thread. */
void rank_end_stuck(struct rank *rank);

#endif
