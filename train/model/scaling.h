/* The loss in f16 is multiplied by a factor, so that small gradients are not lost below what f16 can hold, and
 * gradients are divided by it before they are used. The factor is as large as it can be: halved, and the step skipped,
 * when a gradient is too large on any of the ranks that take one step together, and doubled after SCALING_PATIENCE
 * steps in which none was. (Micikevicius et al., "Mixed Precision Training", 2018.) */
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

/* Collective. Divides the parameters' gradients by the factor, follows, and says whether the optimiser may take the
 * step: the same on every rank. False after a line on standard error. */
bool scaling_unscale(struct trainer *trainer, bool *take);
/* The second half, for who has divided, or has no gradients: finite: whether all of this rank's gradients were. */
bool scaling_agree(struct trainer *trainer, bool finite, bool *take);
/* Not collective: where each rank takes a step of its own, it has a factor of its own. */
bool scaling_unscale_local(struct trainer *trainer, bool *take);

#endif
