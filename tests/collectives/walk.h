/* Walks a program's items in the order in which an executor issues them (step.h), and takes a step apart into what one
 * rank reads, writes, sends and receives. The interpreter and the simulator both stand on it. */
#ifndef COLLET_TESTS_WALK_H
#define COLLET_TESTS_WALK_H

#include "collectives/program.h"

/* How spans are cut. */
struct walk_cut {
	uint64_t piece; /* elements */
	uint32_t few;   /* pieces of a step in a pass, of a sliced program */
};

/* One piece of one step. */
struct walk_item {
	struct collet_step step;
	uint64_t piece;  /* which */
	uint64_t offset; /* elements before it in the span */
	uint64_t length; /* of a span that has so many; per_peer: at the most */
};

struct walk {
	const struct collet_program *program;
	const struct collet_shape *shape;
	struct walk_cut cut;
	uint32_t part;
	uint64_t steps;
	uint64_t pass;
	uint64_t step; /* the first of the pair, or the one */
	uint64_t turn; /* in this pass: piece by piece, of paired steps twice as many */
	bool more;     /* some step has pieces for another pass */
	bool loaded;   /* one and other are those of `step` */
	struct collet_step one, other;
	uint64_t one_pieces, other_pieces;
};

void walk_start(struct walk *walk, const struct collet_program *program, const struct collet_shape *shape,
	uint32_t part, struct walk_cut cut);
/* False: that was all. */
bool walk_next(struct walk *walk, struct walk_item *item);

/* What one rank does for an item with one peer or with itself. */
struct walk_move {
	uint32_t peer;           /* the rank itself: an operand or a destination of its own */
	struct collet_buffer_range local; /* this rank's end, if it names one: span is the piece's */
	bool has_local;
	struct collet_buffer_range remote; /* as this rank names it */
	uint64_t length;
};

enum walk_side { WALK_OPERANDS, WALK_DESTINATIONS };

/* The operands or the destinations of an item, in order; at most `capacity`. Returns how many there are. An operand's
 * and a destination's local end is its own if it is on this rank; of a per_peer move it is on the other side. */
uint32_t walk_moves(const struct walk_item *item, enum walk_side side, const struct collet_shape *shape,
	struct walk_cut cut, struct walk_move *moves, uint32_t capacity);

#endif
