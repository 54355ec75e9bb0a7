/* Runs step programs as badly as step.h allows, on memory whose elements are expression trees, and says by name what is
 * wrong with them.
 *
 * Programs are a dataflow: every conduit has one writer and one reader, and what can happen stays possible until it
 * does. So whether they get stuck does not depend on the order in which things happen; what memory holds when it is
 * read may, and that order is drawn from a seed. */
#ifndef COLLET_TESTS_INTERPRET_H
#define COLLET_TESTS_INTERPRET_H

#include "expression.h"
#include "walk.h"

enum defect {
	DEFECT_NONE,
	DEFECT_MALFORMED,     /* a step that is no move */
	DEFECT_OUT_OF_BOUNDS, /* a span outside its buffer, or a buffer that the rank does not have */
	DEFECT_UNMATCHED_SEND,
	DEFECT_UNMATCHED_RECEIVE,
	DEFECT_UNEQUAL_LENGTHS,  /* of a send and its receive */
	DEFECT_ENDS_DISAGREE,    /* about where on a peer something is, or goes */
	DEFECT_STUCK,            /* nothing can happen, and not all is done */
	DEFECT_LENT_OVERWRITTEN, /* a span changed between being lent to a peer and being fetched by it */
	DEFECT_INPUT_WRITTEN,    /* which is not in place */
	DEFECT_TWICE,            /* a contribution is in a sum twice */
	DEFECT_ELEMENTS_MIXED,   /* different elements were combined */
	DEFECT_FINISHED_EARLY,   /* last_touch, or combined after it, before all contributions were in */
	DEFECT_UNFINISHED,       /* a result without its last touch */
	DEFECT_MISSING,          /* a result without some contribution, or no result at all */
	DEFECT_RESULTS_DIFFER,   /* between ranks */
	DEFECT_OUT_OF_ORDER,     /* a program that says `ordered` is not */
	DEFECT_WRONG_ELEMENT,    /* a result that belongs elsewhere */
	DEFECT_LEFT_EARLY,       /* a barrier, before all ranks had come */
	DEFECT_COUNT
};

const char *defect_name(enum defect defect);

enum transfer_mode {
	TRANSFER_RENDEZVOUS,  /* no slot: a send waits for its receive */
	TRANSFER_ONE_SLOT,    /* a conduit holds one message */
	TRANSFER_REMOTE_READ, /* the receiver fetches from the sender's memory, late */
	TRANSFER_MODES
};

/* One collective call. */
struct call {
	const struct collet_program *program;
	uint32_t root;
	uint64_t count;
	struct walk_cut cut;
	uint64_t in_place;     /* a bit for each rank */
	bool listed;           /* as a v-form, with counts drawn from the seed */
	const uint32_t *order; /* as in collet_shape */
	const uint32_t *host_first;
	uint32_t hosts;
	bool first_leads;
};

struct run {
	uint32_t size;
	const struct call *calls; /* by all ranks, in this order */
	uint32_t call_count;
	uint32_t overlap; /* how many a rank has going at once */
	enum transfer_mode mode;
	uint64_t seed;
	uint32_t late_rank; /* comes when nothing else can happen; size: nobody */
};

struct finding {
	enum defect defect;
	char text[240];
};

/* The first defect found. */
struct finding interpret(const struct run *run);

/* A seeded sequence: the next number below `below` (0: anything). */
uint64_t draw(uint64_t *seed, uint64_t below);

#endif
