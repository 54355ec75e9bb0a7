/* Implements --shards N: one rank does the work of N in turn, in the order of an all-reduce that adds in rank order.
 * It proves that distribution changes nothing but who works. */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "state.h"

struct shards;

/* The arrays of all gradients; they do not move. NULL after a line on standard error. */
struct shards *shards_create(struct trainer *trainer, const struct array *gradients, uint32_t count);
void shards_destroy(struct shards *shards);  /* NULL is fine */

/* compute_step() of every shard; then the gradients are the mean over all, and all are ready. *outcome: the last
 * shard's. */
bool shards_compute(
	struct shards *shards, uint32_t images, gradient_ready ready, void *context, struct outcome *outcome);

#endif
