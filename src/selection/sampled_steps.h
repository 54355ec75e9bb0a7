/* Walks the steps of many ranks, or a sample of them: some ranks, and of these some steps, each with a weight. So the
 * sums over all steps of a world cost hardly more in large worlds than in small ones. */
#ifndef COLLET_SELECTION_SAMPLED_STEPS_H
#define COLLET_SELECTION_SAMPLED_STEPS_H

#include "collectives/program.h"

/* One step of the walk, and how many it stands for. */
struct collet_sampled_step {
	const struct collet_shape *shape; /* of the rank that has it */
	uint32_t rank_index;    /* 0 for the first visited rank, 1 for the next, ... */
	struct collet_step step;
	double rank_weight; /* ranks that this rank stands for */
	double step_weight; /* steps of this rank that this step stands for */
};

/* Calls visit() for steps of the first `ranks` positions: rank by rank, and step by step. The weights of all visited
 * steps add up to about the number of steps. Of few ranks every step is visited. Deterministic. like: a shape of that
 * world. */
void collet_sample_steps(const struct collet_program *program, const struct collet_shape *like, uint32_t ranks,
	void (*visit)(void *argument, const struct collet_sampled_step *sampled), void *argument);

#endif
