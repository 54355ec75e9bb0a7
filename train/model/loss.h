/* Softmax cross-entropy: a few hundred numbers a batch, so plain C. */
#ifndef TRAIN_LOSS_H
#define TRAIN_LOSS_H

#include "backend.h"

/* outputs: count x classes, row by row. Fills *outcome and, unless gradient is NULL, the gradient of the mean loss. */
void loss_cross_entropy(const float *outputs, const uint8_t *labels, uint32_t count, uint32_t classes,
	struct outcome *outcome, float *gradient);

#endif
