/* Scales the loss in f16, so that small gradients do not underflow. Gradients are divided by the factor before use.
 * The factor is halved, and the step skipped, if a gradient overflows on any rank that shares the step. It is
 * doubled after SCALING_PATIENCE good steps. (Micikevicius et al., "Mixed Precision Training", 2018.) */
#ifndef TRAIN_SCALING_H
#define TRAIN_SCALING_H

#include <stdbool.h>
#include <stdint.h>

enum { SCALING_PATIENCE = 2000 };

struct scaling {
	float factor;        /* 1: nothing is scaled, and no gradient looked at */
	bool dynamic;
	uint32_t good_steps; /* since the factor changed */
	uint64_t skipped;    /* steps, in all */
};

void scaling_init(struct scaling *scaling, bool dynamic);
/* The factor after a step whose gradients were all finite, or not. */
void scaling_update(struct scaling *scaling, bool finite);

/* Multiplies; false if any of the values is infinite or not a number. */
bool scaling_multiply(float *values, uint64_t count, float factor);

struct trainer;

/* Collective. Divides the parameters' gradients by the factor, and updates it. *take, the same on every rank, tells
 * whether the optimiser may take the step. Returns false after a line on standard error. */
bool scaling_unscale(struct trainer *trainer, bool *take);
/* The second half, for who has divided, or has no gradients: finite: whether all of this rank's gradients were. */
bool scaling_agree(struct trainer *trainer, bool finite, bool *take);
/* Not collective: where each rank takes a step of its own, it has a factor of its own. */
bool scaling_unscale_local(struct trainer *trainer, bool *take);

#endif
