/* Walks a program's steps in virtual time, in the model of cost.h. Tests compare the formulas with it. */
#ifndef COLLET_TESTS_SIMULATE_H
#define COLLET_TESTS_SIMULATE_H

#include "walk.h"

/* Returns when the slowest rank ends, in seconds. shape: any rank's. */
double simulate(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model);

#endif
