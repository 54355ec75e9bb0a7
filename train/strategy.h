/* How ranks work together. What each trains on is settled (order.h); a strategy says where gradients live, and what
 * becomes of them and of the values in a step. One const table a strategy, one file each. */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H

#include "state.h"

struct strategy {
	const char *name;          /* as --strategy takes it */
	const char *sentence;      /* what happens in a step, for --help */
	/* Collective, as all of these. Makes trainer->strategy_state, gives every parameter memory for its gradient,
	 * and all ranks the same values. False, as everywhere below, after a line on standard error. */
	bool (*create)(struct trainer *trainer);
	/* Takes compute_step() and makes of its gradients a step of the optimiser. images: of each share; *outcome: of
	 * this rank's. steps_done is the caller's. */
	bool (*step)(struct trainer *trainer, uint32_t images, struct outcome *outcome);
	void (*destroy)(struct trainer *trainer);  /* takes what a failed create() has left */
	/* For checkpoints, between two steps: what this rank must keep for itself, besides what everybody can see in
	 * the trainer, to go on bit for bit. load() is given what the same rank of as many has saved. All may be NULL.
	 */
	bool (*saved_bytes)(struct trainer *trainer, uint64_t *bytes);
	bool (*save)(struct trainer *trainer, void *state, uint64_t bytes);
	bool (*load)(struct trainer *trainer, const void *state, uint64_t bytes);
};

extern const struct strategy strategy_allreduce;

/* What the optimiser does in this step. */
struct descent strategy_descent(const struct trainer *trainer);

#endif
