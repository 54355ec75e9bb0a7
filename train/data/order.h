/* Decides which images a rank trains on and is tested with, in which order and batches. */
#ifndef TRAIN_ORDER_H
#define TRAIN_ORDER_H

#include "state.h"

/* Fills workers, shares, partitions, order and test_order of a trainer with loaded images and a known strategy.
 * Counts of batches are final; training indices come with each epoch. deinit accepts a partly filled trainer. */
bool order_init(struct trainer *trainer);
void order_deinit(struct trainer *trainer);

/* Steps in an epoch, the same on every rank. */
uint64_t order_steps(const struct trainer *trainer);
/* Images of each share in this step of an epoch. */
uint32_t order_step_images(const struct trainer *trainer, uint64_t step);
/* Images of all ranks' shares before this step of an epoch. */
uint64_t order_images_before(const struct trainer *trainer, uint64_t step);
/* Images of the largest batch that the loader gives. */
uint32_t order_largest_batch(const struct trainer *trainer);
/* Batches before this step of an epoch. */
uint64_t order_batches_before(const struct trainer *trainer, uint64_t step);

/* Deals out the images of an epoch (counted from 0) and hands them to the loader, from this step on. */
bool order_epoch(struct trainer *trainer, uint32_t epoch, uint64_t first_step);

#endif
