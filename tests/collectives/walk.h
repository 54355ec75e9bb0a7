/* Walks a program's items in the order in which an executor issues them (step.h), and splits a step into what one rank
 * reads, writes, sends and receives. The interpreter and the simulator use it. */
#ifndef COLLET_TESTS_WALK_H
#define COLLET_TESTS_WALK_H

#include "collectives/program.h"

/* How spans are cut. */
struct walk_cut {
	uint64_t segment; /* elements */
	uint32_t pass_segments; /* segments of a step per pass, of a segmented program */
};

/* One segment of one step. */
struct walk_item {
	struct collet_step step;
	uint64_t segment; /* number of the segment */
	uint64_t offset; /* elements before it in the span */
	uint64_t length; /* of a span that has so many; is_per_peer: at most */
};

struct walk {
	const struct collet_program *program;
	const struct collet_shape *shape;
	struct walk_cut cut;
	uint32_t part;
	uint64_t steps;
	uint64_t pass;
	uint64_t step; /* the first of a pair, or the only one */
	uint64_t turn; /* in this pass: by segment; of paired steps, twice as many */
	bool has_more; /* a step has segments for another pass */
	bool is_loaded; /* one and other belong to `step` */
	struct collet_step one, other;
	uint64_t one_segments, other_segments;
};

void walk_start(struct walk *walk, const struct collet_program *program, const struct collet_shape *shape,
	uint32_t part, struct walk_cut cut);
/* Returns the next item; false if there is none. */
bool walk_next(struct walk *walk, struct walk_item *item);

/* What one rank does for an item, with one peer or with itself. */
struct walk_move {
	uint32_t peer;           /* the rank itself: an operand or a destination of its own */
	struct collet_buffer_range local; /* this rank's range, if it names one; span is the segment's */
	bool has_local;
	struct collet_buffer_range remote; /* as this rank names it */
	uint64_t length;
};

enum walk_side { WALK_OPERANDS, WALK_DESTINATIONS };

/* Writes the operands or the destinations of an item, in order, at most `capacity`, and returns how many there are. The
 * local range of an operand or destination is its own if it is on this rank; of an is_per_peer move it is on the other
 * side. */
uint32_t walk_moves(const struct walk_item *item, enum walk_side side, const struct collet_shape *shape,
	struct walk_cut cut, struct walk_move *moves, uint32_t capacity);

#endif
