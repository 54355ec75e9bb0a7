/* Runs step programs as unfavourably as step.h allows, on memory whose elements are expression trees, and names their
 * defects.
 *
 * Programs are a dataflow: every endpoint has one writer and one reader, and what is possible stays possible until it
 * happens. So whether they deadlock does not depend on the order of events. What memory holds when it is read may
 * depend on it; that order is drawn from a seed. */
#ifndef COLLET_TESTS_INTERPRET_H
#define COLLET_TESTS_INTERPRET_H

#include "expression.h"
#include "walk.h"

enum defect {
	DEFECT_NONE,
	DEFECT_MALFORMED,     /* a step that is not a move */
	DEFECT_OUT_OF_BOUNDS, /* a span outside its buffer, or a buffer that the rank lacks */
	DEFECT_UNMATCHED_SEND,
	DEFECT_UNMATCHED_RECEIVE,
	DEFECT_UNEQUAL_LENGTHS,  /* a send and its receive differ in length */
	DEFECT_ENDS_DISAGREE,    /* ranks disagree on where data is on a peer */
	DEFECT_STUCK,            /* deadlock */
	DEFECT_SENT_OVERWRITTEN, /* a span changed while a peer was still to read it */
	DEFECT_INPUT_WRITTEN,    /* INPUT was written though not in place */
	DEFECT_TWICE,            /* a contribution is in a sum twice */
	DEFECT_ELEMENTS_MIXED,   /* different elements were combined */
	DEFECT_FINISHED_EARLY,   /* finished, or combined afterwards, before all contributions were in */
	DEFECT_UNFINISHED,       /* a result that was not finished */
	DEFECT_MISSING,          /* a result without some contribution, or no result */
	DEFECT_RESULTS_DIFFER,   /* ranks have different results */
	DEFECT_PARTIAL_SUM,      /* an operand is a sum, in a program that reduces once */
	DEFECT_OUT_OF_ORDER,     /* a program with rank_ordered set is not in rank order */
	DEFECT_WRONG_ELEMENT,    /* a result at the wrong place */
	DEFECT_LEFT_EARLY,       /* a barrier was left before all ranks had arrived */
	DEFECT_COUNT
};

const char *defect_name(enum defect defect);

enum transfer_mode {
	TRANSFER_RENDEZVOUS,  /* no buffering: a send waits for its receive */
	TRANSFER_ONE_SLOT,    /* an endpoint buffers one message */
	TRANSFER_REMOTE_READ, /* the receiver reads the sender's memory, late */
	TRANSFER_MODES
};

/* One collective call. */
struct call {
	const struct collet_program *program;
	uint32_t root;
	uint64_t count;
	struct walk_cut cut;
	uint64_t in_place;     /* one bit per rank */
	bool is_vector;        /* as a v-form, with counts drawn from the seed */
	const uint32_t *order; /* as in collet_shape */
	const uint32_t *host_first;
	uint32_t hosts;
	bool first_leads;
};

struct run {
	uint32_t size;
	const struct call *calls; /* made by all ranks in this order */
	uint32_t call_count;
	uint32_t overlap; /* calls that a rank may have in progress */
	enum transfer_mode mode;
	uint64_t seed;
	uint32_t late_rank; /* starts only when nothing else can happen; size: no such rank */
};

struct finding {
	enum defect defect;
	char text[240];
};

/* Runs the calls and returns the first defect found. */
struct finding interpret(const struct run *run);

/* Returns the next number below `below` (0: any) of a seeded sequence. */
uint64_t draw(uint64_t *seed, uint64_t below);

#endif
