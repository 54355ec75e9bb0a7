/* Runs a body as n ranks: processes, threads of the test, or some of each. Each run has a deadline. Progress of any
 * rank (rank_doing(), rank_post()) postpones it: a busy machine makes a run slow, not stuck.
 *
 * Every rank makes its communicator itself, from explicit options and a store that no other run has. Only the test
 * asserts. A rank reports, by rank_check() and its like, into memory that the test can read even if the rank dies.
 * At the deadline every running rank prints what it was doing and dumps its flight recorder. Its communicator is
 * aborted, and it is killed if that does not end it. */
#ifndef COLLET_TESTS_SUPPORT_RANKS_H
#define COLLET_TESTS_SUPPORT_RANKS_H

#include <collet/collet.h>

#include <pthread.h>
#include <sys/types.h>

/* COLLET_TEST_RANKS=processes or threads in the environment replaces all of them: a process that has used a GPU
 * cannot fork another one that uses it. */
enum ranks_mode {
	RANKS_PROCESSES,
	RANKS_THREADS,               /* of the calling process, each with a context of its own */
	RANKS_MIXED                  /* even ranks are threads, odd ones processes */
};

enum {
	RANKS_MOST = 64,
	RANKS_EVENTS = 16            /* see rank_post(); the last one is rank_barrier()'s */
};

/* Zero-initialise; only size must be set. Must stay valid until ranks_free(). */
struct ranks_options {
	enum ranks_mode mode;
	uint32_t size;
	const char *transport;       /* "shm", "tcp"; NULL: as the library likes. In the environment,
					COLLET_TEST_THROUGH=faulty: makes them "faulty:shm" and so on,
					and COLLET_TEST_INSTEAD=verbs makes them this one */
	const char *algorithm;       /* as COLLET_ALGORITHM; NULL: chosen by the library */
	int64_t timeout_ns;          /* of each call; 0: longer than the deadline, which then names the stuck rank */
	int64_t deadline_ms;         /* since the last progress; 0: two minutes. Four times that under a sanitizer */
	bool progress_thread;
	bool bare;                   /* the body makes its communicators by rank_create() */
	size_t shared_bytes;         /* memory that all ranks and the test see */
	const void *initial_shared;  /* what is in it at first; NULL: zeros */
	const void *context;         /* the body's */
};

enum rank_end {
	RANK_RUNNING,
	RANK_RETURNED,               /* from the body */
	RANK_EXITED,                 /* ended in another way; code is the exit status */
	RANK_KILLED,                 /* code is the signal */
	RANK_STUCK                   /* at the deadline; ended by force */
};

struct rank_report {
	enum rank_end end;           /* filled in by ranks_wait() */
	int code;
	bool failed;                 /* a rank_check() failed: sentence is the first one */
	bool returned;
	char doing[200];             /* the last rank_doing() */
	char sentence[1600];
};

struct ranks;

/* A rank, as its body uses it. */
struct rank {
	uint32_t rank, size;
	collet_comm *comm;           /* of all ranks; destroyed after the body, unless the body has done it */
	const struct ranks_options *options;
	void *shared;                /* options->shared_bytes */
	bool leaks;                  /* the body could not free its memory: no leak check */
	uint32_t barriers;           /* calls of rank_barrier() */
	struct rank_report *report;
	struct ranks *run;
	pthread_mutex_t comm_lock;   /* guards comm, which another thread reads at the deadline */
	pthread_mutex_t report_lock; /* guards report likewise; a body may have threads that report */
};

typedef void ranks_body(struct rank *rank);

/* ---- For tests ---- */

/* Runs the body. Fails the cmocka test, with all reports, unless every rank returned without a report. */
void ranks_must_pass(const struct ranks_options *options, ranks_body *body);

/* Does the same for every mode over shm and tcp: six runs. options says the rest. */
void ranks_must_pass_everywhere(const struct ranks_options *options, ranks_body *body);

/* Starts a run and returns, for tests that act on the ranks meanwhile. Fails the test instead of returning NULL. */
struct ranks *ranks_start(const struct ranks_options *options, ranks_body *body);
/* Returns 0 for a thread. */
pid_t ranks_pid(const struct ranks *ranks, uint32_t rank);
void *ranks_shared(struct ranks *ranks);
/* Waits until every rank has ended, or for the deadline; false if some were stuck. */
bool ranks_wait(struct ranks *ranks);
/* Valid after ranks_wait(). */
const struct rank_report *ranks_report(const struct ranks *ranks, uint32_t rank);
/* True if every rank returned without a report. Else prints to stderr which did not and why. */
bool ranks_all_passed(const struct ranks *ranks);
/* Frees a run; waits for it first if needed. */
void ranks_free(struct ranks **ranks);

/* True under a sanitizer: a test may run less. */
bool ranks_are_slow(void);

/* ---- For bodies ---- */

/* Fills the options of a rank's communicator, for bodies that change some. A run may make several worlds, one after
 * the other or nested, each with a number of its own. */
void rank_fill_options(const struct rank *rank, uint32_t world, collet_options *options, char store[64]);
/* Creates rank->comm; reports a failure and returns false. */
bool rank_create(struct rank *rank);
/* Does the same with this tuning, which only rank 0 has in its environment: for ranks that are processes. */
bool rank_create_tuned(struct rank *rank, const char *file);
bool rank_destroy(struct rank *rank);

/* Reports the first failed check; returns ok. */
bool rank_check(struct rank *rank, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Checks that status is the wanted one. Reports it with collet_last_error() if not. */
bool rank_status(struct rank *rank, collet_status status, collet_status wanted, const char *what);
bool rank_ok(struct rank *rank, collet_status status, const char *what);
/* Returns how many of its communicator's calls used algorithms with this in their name ("allreduce:ring"). */
uint64_t rank_uses(struct rank *rank, const char *name);
/* Returns what the communicator has sent by its transports so far. */
struct rank_sent {
	uint64_t messages, bytes;
};
struct rank_sent rank_sent(struct rank *rank);
/* Returns how many messages the communicator has received by this transport. */
uint64_t rank_received(struct rank *rank, const char *transport);
/* Notes what the rank is doing, for reports about a stuck or dead rank. */
void rank_doing(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Events order ranks, and the test, by other means than the library. Each counts its posts. */
void rank_post(struct rank *rank, uint32_t event);
/* Waits until an event has been posted count times. False, and reported, soon after the run's deadline. */
bool rank_await(struct rank *rank, uint32_t event, uint32_t count);
/* Waits until all ranks of the run have called it as often. False, and reported, as above. */
bool rank_barrier(struct rank *rank);
void ranks_post(struct ranks *ranks, uint32_t event);
/* Does the same, but reports nothing. */
bool ranks_await(struct ranks *ranks, uint32_t event, uint32_t count);

#endif
