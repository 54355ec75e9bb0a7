/* Runs a body as n ranks: processes, threads of the test, or some of each; with a deadline, which is put off as long as
 * any of them gets on (rank_doing(), rank_post()): a busy machine makes a run slow, not stuck.
 *
 * Every rank makes its communicator itself, from explicit options and a store that no other run has. Only the test
 * asserts: a rank reports, by rank_check() and its like, into memory that the test sees whatever becomes of the rank.
 * At the deadline every rank that is still there says what it was doing, dumps its flight recorder, has its
 * communicator aborted, and is killed if that does not end it. */
#ifndef COLLET_TESTS_SUPPORT_RANKS_H
#define COLLET_TESTS_SUPPORT_RANKS_H

#include <collet/collet.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* In the environment, COLLET_TEST_RANKS=processes or threads takes the place of all of them: a process that has used a
 * GPU can fork no other that uses one. */
enum ranks_mode {
	RANKS_PROCESSES,
	RANKS_THREADS,               /* of the calling process, each with a context of its own */
	RANKS_MIXED                  /* even ranks are threads, odd ones processes */
};

enum {
	RANKS_MOST = 64,
	RANKS_EVENTS = 16            /* see rank_post() */
};

/* Zero-initialise; size is the one field that must be set. Read until ranks_free(). */
struct ranks_options {
	enum ranks_mode mode;
	uint32_t size;
	const char *transport;       /* "shm", "tcp"; NULL: as the library likes. In the environment,
					COLLET_TEST_THROUGH=faulty: makes them "faulty:shm" and so on,
					and COLLET_TEST_INSTEAD=verbs makes them this one */
	const char *algorithm;       /* as COLLET_ALGORITHM; NULL: chosen by the library */
	int64_t timeout_ns;          /* of each call; 0: longer than the deadline, which then names who is stuck */
	int64_t deadline_ms;         /* since any rank got on; 0: two minutes. Four times that under a sanitizer */
	bool progress_thread;
	bool bare;                   /* the body makes its communicators itself, see rank_create() */
	size_t shared_bytes;         /* memory that all ranks and the test see */
	const void *initial_shared;  /* what is in it at first; NULL: zeros */
	const void *context;         /* the body's */
};

enum rank_end {
	RANK_RUNNING,
	RANK_RETURNED,               /* from the body */
	RANK_EXITED,                 /* left otherwise; code is the exit status */
	RANK_KILLED,                 /* code is the signal */
	RANK_STUCK                   /* at the deadline; ended by force */
};

struct rank_report {
	enum rank_end end;           /* filled in by ranks_wait() */
	int code;
	bool failed;                 /* some rank_check() did not hold: sentence says the first */
	bool returned;
	char doing[200];             /* the last rank_doing() */
	char sentence[1600];
};

struct ranks;

/* A rank, as its body sees it. */
struct rank {
	uint32_t rank, size;
	collet_comm *comm;           /* of all ranks; destroyed for the body when it returns, if it has not done so */
	const struct ranks_options *options;
	void *shared;                /* options->shared_bytes */
	bool leaks;                  /* the body was kept from giving back what it had: nobody looks for leaks */
	struct rank_report *report;
	struct ranks *run;
	pthread_mutex_t comm_lock;   /* comm may be looked at by another thread, at the deadline */
	pthread_mutex_t report_lock; /* report likewise, and a body may have threads that report */
};

typedef void ranks_body(struct rank *rank);

/* ---- For tests ---- */

/* Runs it, and fails the cmocka test with everything there is to say unless every rank returned with nothing to
 * report. */
void ranks_must_pass(const struct ranks_options *options, ranks_body *body);

/* The same for every mode over shm and tcp: six runs. options says the rest. */
void ranks_must_pass_everywhere(const struct ranks_options *options, ranks_body *body);

/* The same in parts, for tests that do something to the ranks meanwhile. NULL never: fails the test instead. */
struct ranks *ranks_start(const struct ranks_options *options, ranks_body *body);
/* 0 for a thread. */
pid_t ranks_pid(const struct ranks *ranks, uint32_t rank);
void *ranks_shared(struct ranks *ranks);
/* Until every rank has ended, or the deadline; false if some were stuck. */
bool ranks_wait(struct ranks *ranks);
/* After ranks_wait(). */
const struct rank_report *ranks_report(const struct ranks *ranks, uint32_t rank);
/* Did every rank return with nothing to report? Else says, on stderr, which did not and why. */
bool ranks_all_passed(const struct ranks *ranks);
/* Waits if that has not been done. */
void ranks_free(struct ranks **ranks);

/* Under a sanitizer: a test may do with less. */
bool ranks_are_slow(void);

/* ---- For bodies ---- */

/* What a rank's communicator is made from, for bodies that change something about it. A run may make several worlds,
 * one after the other or nested, if each has a number of its own. */
void rank_fill_options(const struct rank *rank, uint32_t world, collet_options *options, char store[64]);
/* rank->comm; reports and returns false on failure. */
bool rank_create(struct rank *rank);
/* The same with this tuning, which rank 0 alone has in its environment: for ranks that are processes. */
bool rank_create_tuned(struct rank *rank, const char *file);
bool rank_destroy(struct rank *rank);

/* Keeps the first thing that did not hold; returns ok. */
bool rank_check(struct rank *rank, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Is status the one wanted? Reports it with collet_last_error() if not. */
bool rank_status(struct rank *rank, collet_status status, collet_status wanted, const char *what);
bool rank_ok(struct rank *rank, collet_status status, const char *what);
/* How many of its communicator's calls were made by algorithms with this in their name ("allreduce:ring"). */
uint64_t rank_uses(struct rank *rank, const char *name);
/* What the communicator has sent by its transports, so far. */
struct rank_sent {
	uint64_t messages, bytes;
};
struct rank_sent rank_sent(struct rank *rank);
/* Messages that have come to it by this transport. */
uint64_t rank_received(struct rank *rank, const char *transport);
/* For whoever reads about a rank that is stuck or dead. */
void rank_doing(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Events order ranks, and the test, by other means than the library. Each counts how often it was posted. */
void rank_post(struct rank *rank, uint32_t event);
/* Until it has been posted count times in all; false (and reported) soon after the run's deadline. */
bool rank_await(struct rank *rank, uint32_t event, uint32_t count);
void ranks_post(struct ranks *ranks, uint32_t event);
/* false, with nothing reported, soon after the run's deadline. */
bool ranks_await(struct ranks *ranks, uint32_t event, uint32_t count);

#endif
