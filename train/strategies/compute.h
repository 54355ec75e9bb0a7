/* Forward and backward of one share's part of a step, on this rank alone. */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include "state.h"

/* Takes the next batches of the loader, images in all: one, or with --accumulate several. Every parameter's gradient
 * becomes the mean over these images, and ready is then told, once for each, last layer first. *outcome: of all of
 * them; the share's loss_sums grows by its loss. False after a line on standard error. */
bool compute_step(struct trainer *trainer, uint32_t share, uint32_t images, gradient_ready ready, void *context,
	struct outcome *outcome);
/* The same for one batch of the caller. */
bool compute_batch(struct trainer *trainer, uint32_t share, const struct batch *batch, gradient_ready ready,
	void *context, struct outcome *outcome);
/* The loader's next batch, for who does not want it computed at once. */
bool compute_load(struct trainer *trainer, struct batch *batch);
/* A gradient_ready for who goes on when all are. */
bool compute_till_all(void *context, uint32_t parameter);

#endif
