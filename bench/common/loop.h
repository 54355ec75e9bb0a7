/* Times calls in one loop, for collet and for every peer, in every mode.
 *
 * The loop knows a library only as a table of functions. It allocates nothing, and reads the clock twice a batch.
 * The percentile pass and --sync time single calls, and read it more often. */
#ifndef BENCH_LOOP_H
#define BENCH_LOOP_H

#include "buffers.h"

/* The arguments of one call. */
struct bench_call {
	const void *send;
	void *recv;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;
	uint32_t root;
	bool in_place;
	const void *how;   /* collet's collet_how; nobody else's business */
};

/* One rank's view of a library that has been set up. Functions give nonzero on failure, after which the library is not
 * called again; error() then says what happened. */
struct bench_library {
	void *context;
	uint32_t rank, size;
	/* NULL: it has no such collective. */
	int (*run[BENCH_COLLECTIVES])(void *context, const struct bench_call *call);
	/* Does it have this type and operation, with this count? NULL: it has everything. */
	bool (*supports)(void *context, const struct bench_work *work, uint64_t count);
	const char *(*error)(void *context);
	const struct bench_allocator *allocator;   /* NULL: it has no memory of its own */
	bool one_host;            /* ranks share a clock */
	bool in_place_at_start;   /* an in-place reduce_scatter leaves its result at the buffer's start, as MPI does */
};

bool bench_library_can(const struct bench_library *library, const struct bench_work *work, uint64_t count);

/* One size on one rank, ready to run. */
struct bench_run {
	const struct bench_library *library;
	struct bench_work work;
	struct bench_call call;
	struct bench_buffers buffers;
	uint8_t *mirror;   /* a slot where the host can fill and check it; NULL: it can where the slots are */
	uint32_t next_slot;
	uint64_t count;
};

/* The times of one batch on this rank. */
struct bench_times {
	int64_t elapsed_ns;   /* of all iterations, without what comes between them (--sync) */
	/* These cover the whole process, with its helper threads and barriers: */
	int64_t cpu_ns;
	int64_t page_faults;  /* that needed no disk */
	int64_t switches;     /* of a core from one of its threads to another's, for whatever reason */
};

/* A sample of single calls; the array is allocated before. */
struct bench_samples {
	int64_t *ns;
	size_t capacity, count;
};

int64_t bench_clock_ns(void);

/* Allocates and fills. NULL or what went wrong; r is then zero. */
const char *bench_run_init(struct bench_run *r, const struct bench_library *library, const struct bench_work *work,
	uint64_t count, enum bench_buffer_kind kind, bool cold, const void *how);
void bench_run_deinit(struct bench_run *r);

/* One call on freshly filled buffers, then the check. *wrong counts elements; *first is the first of them. */
int bench_run_checked(struct bench_run *r, uint64_t *wrong, uint64_t *first);
/* The same in three steps, for callers that wait between them: fill slot 0 and select it, call, verify slot 0. */
int bench_run_fill(struct bench_run *r);
int bench_run_call(struct bench_run *r);
int bench_run_verify(struct bench_run *r, uint64_t *wrong, uint64_t *first);
/* The call is at that slot, or the one after. */
void bench_run_select(struct bench_run *r, uint32_t slot);
void bench_run_next(struct bench_run *r);
/* A barrier of the library's own, if it has one, else none. */
int bench_run_barrier(struct bench_run *r);
/* Iterations back to back. */
int bench_run_batch(struct bench_run *r, uint64_t iterations, struct bench_times *times);
/* Times iterations with a barrier before each; the barrier is not timed. */
int bench_run_synced_batch(struct bench_run *r, uint64_t iterations, struct bench_times *times);
/* Back to back with a clock read between two calls. */
int bench_run_samples(struct bench_run *r, uint64_t iterations, struct bench_samples *samples);
/* Times single calls as a program makes them: before each the input is written again, after each the result is read.
 * A barrier precedes the call, which ranks of one host start at the same time. Only the call is timed. *wrong counts
 * the elements of all results that are wrong. */
int bench_run_rewritten(struct bench_run *r, uint64_t iterations, struct bench_samples *samples, uint64_t *wrong);

enum { BENCH_ITERATIONS_MAX = 10000000, BENCH_FIRST_CALLS = 128 };
/* Returns how many calls fit into so many seconds, if `iterations` of them took elapsed_ns. */
uint64_t bench_iterations_for(double seconds, uint64_t iterations, int64_t elapsed_ns);

/* Warms up, and finds out how many calls fill the time. Batches double until one takes a tenth of the time; the last
 * one is repeated. A library's first calls open connections and try protocols, so there are BENCH_FIRST_CALLS at
 * least, or as many as fit into the time. */
struct bench_calibration {
	double seconds;     /* of the timed calls */
	uint64_t batch;     /* calls of the next batch */
	uint64_t calls;     /* of all batches so far, and their time: */
	int64_t spent_ns;
	bool enough;        /* the last batch took a tenth of the time */
};

struct bench_calibration bench_calibration_begin(double seconds);
/* Takes the time of a batch on the slowest rank. Returns how many calls fill the time; 0: run the next batch. */
uint64_t bench_calibration_next(struct bench_calibration *calibration, int64_t elapsed_ns);
/* Returns how many untimed calls go right before a timed batch. They fill the caches again. */
uint64_t bench_warm_iterations(uint64_t iterations);
/* Returns how many calls bench_run_rewritten() makes where a batch has so many. Writing and reading takes a few times
 * as long as a call, and the median of 2000 calls is steady. */
uint64_t bench_rewritten_iterations(uint64_t iterations);

/* Sorts the sample; the value that part of it (0..1) does not exceed. 0 for none. */
int64_t bench_percentile(struct bench_samples *samples, double part);

#endif
