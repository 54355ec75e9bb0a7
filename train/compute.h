/* Forward and backward of one share's part of a step, on this rank alone. */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include "state.h"

/* Takes the next batches of the feed, images in all: one, or with --accumulate several. Every parameter's gradient
 * becomes the mean over these images, and ready is then told, once for each, last layer first. *outcome: of all of
 * them; the share's loss_sum grows by its loss. False after a line on standard error. */
bool compute_step(struct trainer *trainer, uint32_t share, uint32_t images, gradient_ready ready, void *context,
	struct outcome *outcome);

#endif
