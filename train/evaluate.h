/* After an epoch: the loss, whether parameters are equal, and what the network has learnt. All collective; false after
 * a line on standard error. */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "state.h"

enum { EVALUATION_BATCH = 200 };

/* Computes the mean loss over all ranks' images, of which this rank saw so many. A loss that is no number is an
 * error. */
bool evaluate_loss(struct trainer *trainer, uint64_t images, double *loss);
/* All ranks' parameters bit for bit; *checksum is their common one. */
bool evaluate_equality(struct trainer *trainer, uint64_t *checksum);
/* The share of test images, each counted once, that are recognised, with rank 0's statistics. */
bool evaluate_accuracy(struct trainer *trainer, double *accuracy);

#endif
