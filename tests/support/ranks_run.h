/* Shared by the files of this folder that run ranks. */
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
	GRACE_MS = 3 * 1000,         /* for ranks to end after an abort */
#ifdef UNDER_SANITIZER
	SLOWNESS = 4
#else
	SLOWNESS = 1
#endif
};

/* Memory that all ranks map. */
struct shared {
	_Atomic uint32_t events[RANKS_EVENTS];
	_Atomic int64_t sign_ns;     /* of the last progress of a rank or of the test */
	struct rank_report reports[RANKS_MOST];
};

/* The test's part of one rank. */
struct rank_slot {
	struct rank rank;
	pid_t pid;                   /* 0: a thread */
	pthread_t thread;
	int end_fd;                  /* reads as end of file when the rank has ended */
	int own_end_fd;              /* the rank's own end of it */
	int order_fd;                /* watched by a process: a byte means that the deadline has passed */
	int own_order_fd;            /* the process's own end of it */
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
	struct rank_slot slots[];
};

static inline int64_t ranks_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Postpones the deadline. Relaxed: the time orders nothing. */
static inline void ranks_give_sign(struct ranks *ranks)
{
	atomic_store_explicit(&ranks->shared->sign_ns, ranks_now_ns(), memory_order_relaxed);
}

static inline int64_t ranks_deadline(const struct ranks *ranks)
{
	return atomic_load_explicit(&ranks->shared->sign_ns, memory_order_relaxed) + ranks->patience_ns;
}

/* Runs a rank from its creation to its end, in its own thread or process (rank.c). */
void rank_run(struct rank *rank, ranks_body *body);
/* Ends a rank at the deadline: prints what it was doing, and aborts what it waits for. Called by any thread. */
void rank_end_stuck(struct rank *rank);

#endif
