/* Holds one rank's state of tune. tune_rank.c decides who is measured, tune_candidates.c with which cuts;
 * tune_batch.c measures. */
#ifndef BENCH_TUNE_SWEEP_H
#define BENCH_TUNE_SWEEP_H

#include "measure/collet_library.h"
#include "options.h"

enum {
	TUNE_KINDS = 2,          /* of buffers, at most: tune_kinds() */
	TUNE_TURNS = 2,          /* of each algorithm, size and kind in a pass; of long batches, half as many */
	TUNE_PASSES = 2,         /* of everybody, then of who may be chosen, */
	TUNE_FINAL_TURNS = 4,    /* then of those close to the best, with so many turns, */
	TUNE_CONTESTS = 5,       /* and so often again, of those whose order is still undecided */
	TUNE_STAGES = TUNE_PASSES + 1 + TUNE_CONTESTS,
	TUNE_BATCHES = TUNE_PASSES * TUNE_TURNS + (1 + TUNE_CONTESTS) * TUNE_FINAL_TURNS,
	TUNE_ALGORITHMS = 16,    /* of a collective, at most */
	TUNE_CANDIDATES = 64           /* of a collective and size: algorithms, each with several cuts */
};

/* A kind of buffers, and its part in a point's time. */
struct tune_kind {
	enum bench_buffer_kind buffers;
	double part;
};

/* One algorithm at one size with one cut. */
struct tune_candidate {
	const collet_algorithm_info *algorithm;
	uint64_t bytes;              /* as the call has them: what divides */
	uint64_t calls[TUNE_KINDS];  /* in a batch; 0: not known yet */
	double predicted_ns;
	uint32_t segment_bytes, channels;
	uint32_t most_segment_bytes; /* for which there is room */
	bool chosen;                 /* by the library, left to itself */
	bool repeat;                  /* repeats the chosen one */
	bool eliminated;                    /* of what is still measured */
	bool checked;
	uint64_t ns[TUNE_KINDS][TUNE_BATCHES]; /* of each turn's batch, here, then on the slowest rank; 0: none */
};

/* One collective at one size. */
struct tune_call {
	struct tune_candidate candidate[TUNE_CANDIDATES];
	size_t count;
	double ns[TUNE_CANDIDATES];        /* of a call, as far as is known */
	bool undecided;               /* which is the best, when all turns were over */
};

struct tune_sweep {
	const struct bench_options *options;
	struct collet_library collet;     /* of what all share: choices, agreements, memory of collet_mem_alloc */
	/* Connections learn the best protocol from calls, whatever the algorithm. A caller has trained them with the
	 * chosen algorithm. So each algorithm has connections of its own here, by its index in its collective's
	 * list. */
	struct collet_library own[TUNE_ALGORITHMS];
	size_t own_count;
	collet_algorithm_info algorithms[BENCH_COLLECTIVES][TUNE_ALGORITHMS];
	size_t algorithm_count[BENCH_COLLECTIVES];
	uint32_t cores;              /* that the ranks have together */
	bool shared_memory;          /* where further channels have nothing to offer: one core copies for all of them */
	bool any_memory;             /* the transport copies from the library's as from any other */
	struct tune_call *calls;     /* collective by collective, size by size */
};

/* Creates another communicator of all ranks, which are on one host. Nonzero after printing the reason. */
int tune_connect(struct collet_library *collet, const char *transport, unsigned number);

/* Says what failed, in the library's words. 1. */
int tune_complain(const struct tune_sweep *s, const char *what);

/* Do ranks come to be ahead of each other? They do where there is a root. */
bool tune_runs_ahead(enum bench_collective collective);

/* The kinds of buffers that count; any: one is like the other. Returns how many. */
size_t tune_kinds(bool any, const struct tune_kind **kinds);

/* Times so many calls on all ranks, with as many untimed ones before and after. The time runs from when the last
 * rank ended the calls before, to when the last one ended these. Ranks that run ahead are faster at first and slower
 * later. All ranks are on one host, which has one clock, and all get the same time. Nonzero: a call failed. */
int tune_run_amid(collet_comm *comm, struct bench_run *run, uint64_t calls, uint64_t *ns);

/* Returns how many turns each candidate takes in a pass; the last passes have more. */
size_t tune_turns(const struct tune_sweep *s, const struct bench_run *run, bool last);

/* The plan for an algorithm (NULL: the library's choice), cut like this (0: as chosen). */
const void *tune_plan(struct collet_library *collet, const struct bench_work *work, uint64_t count,
	const char *algorithm, uint32_t segment_bytes, uint32_t channels);

/* Lists the algorithms for this size, and the library's choice among them. */
void tune_list_candidates(struct tune_sweep *s, const struct bench_work *work, uint64_t count, struct tune_call *call);

/* Adds candidates with other cuts after the first pass, for those that are not eliminated. */
void tune_add_candidates(const struct tune_sweep *s, struct tune_call *call);

/* If `best` has shorter or longer pieces than usual, still shorter or longer ones, once; both then take part. */
void tune_extend(struct tune_call *call, size_t best);

/* Runs one batch of a candidate with buffers of this kind (run has them), and stores its time at `turn`. The first
 * batch checks the result before. Nonzero after printing the reason. */
int tune_batch(struct tune_sweep *s, struct bench_run *run, struct tune_candidate *candidate, size_t kind, size_t turn);

#endif
