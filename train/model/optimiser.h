/* Updates values from gradients, as PyTorch's optimisers do, and computes the learning rate over time. Plain loops
 * over dense arrays, the same bits on every rank. */
#ifndef TRAIN_OPTIMISER_H
#define TRAIN_OPTIMISER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

enum optimiser { OPTIMISER_SGD, OPTIMISER_ADAMW };

struct optimiser_inputs {
	enum optimiser optimiser;
	float rate, weight_decay;
	float momentum;     /* SGD */
	bool nesterov;      /* SGD */
	uint32_t step;      /* AdamW: from 1 */
};

/* SGD: gradient += weight_decay value; velocity = momentum velocity + gradient; value -= rate velocity, or with
 * Nesterov rate (gradient + momentum velocity). AdamW: value -= rate weight_decay value; mean and square follow the
 * gradient with 0.9 and 0.999, corrected for their start at 0; value -= rate mean / (sqrt(square) + 1e-8). (Loshchilov
 * and Hutter, "Decoupled Weight Decay Regularization", 2019.) Needs value, gradient and velocity of every parameter,
 * AdamW also squares. */
void optimiser_update(const struct model *model, const struct optimiser_inputs *inputs);

/* The same for any range of elements. Each element is updated by itself, so how a model is cut changes no bit. */
struct element_range {
	float *value, *velocity, *squares;
	const float *gradient;
	uint64_t count;
};
void optimiser_update_range(const struct element_range *range, const struct optimiser_inputs *inputs);

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE };

struct schedule {
	enum schedule_kind kind;
	float rate;           /* at its highest */
	uint64_t warmup;      /* steps of linear growth to it; 0: none */
	uint64_t steps;       /* COSINE: after which the rate is 0 */
	uint64_t every;       /* STEP: after so many steps, again and again, ... */
	float factor;         /* ... the rate is multiplied by this */
};

/* Before step 0, 1, ... */
float schedule_rate(const struct schedule *schedule, uint64_t step);

#endif
