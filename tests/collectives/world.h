/* The memory of a run: each call's buffers on each rank, before and after. */
#ifndef COLLET_TESTS_WORLD_H
#define COLLET_TESTS_WORLD_H

#include "interpret.h"

struct buffer {
	expression *values; /* NULL: the rank has no such buffer */
	uint64_t count;
};

/* One rank's side of one call. */
struct side {
	struct collet_shape shape;
	bool in_place;
	struct buffer buffer[3]; /* by enum collet_buffer; in place they share memory */
	expression *memory;      /* memory of INPUT and RESULT */
	uint64_t *counts, *displacements, *more_counts, *more_displacements;
};

struct world {
	const struct run *run;
	struct expression_store *store;
	struct side *sides; /* by call, then by rank */
};

struct world *world_create(const struct run *run);
void world_destroy(struct world *world);
struct side *world_side(const struct world *world, uint32_t call, uint32_t rank);
/* Returns the memory of a segment on this rank; NULL: out of bounds. */
expression *world_at(const struct side *side, enum collet_buffer buffer, struct collet_span span);
/* Checks that all ranks have the result that the collective promises. */
struct finding world_check(const struct world *world);

#endif
