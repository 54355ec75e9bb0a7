/* Defines how ranks train together. order.h assigns the images. A strategy stores gradients, and turns them into new
 * values in a step. Each is one const table in one file, on collet's public interface alone. */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H

#include "state.h"

/* Options that only some strategies can do something with. */
enum strategy_support {
	SUPPORTS_COMPRESS = 1 << 0,
	SUPPORTS_ALGORITHM = 1 << 1,    /* --algorithm names that of the collective that carries gradients or values */
	SUPPORTS_CLIP = 1 << 2,
	SUPPORTS_ACCUMULATE = 1 << 3,
	SUPPORTS_SHARDS = 1 << 4,
	SUPPORTS_SERVERS = 1 << 5,
	SUPPORTS_STALENESS = 1 << 6,
	SUPPORTS_LOCAL_STEPS = 1 << 7,
	SUPPORTS_BUCKETS = 1 << 8,      /* --bucket-bytes, --no-overlap */
	SUPPORTS_SYNC_NORM = 1 << 9     /* all ranks compute batches, in the same number of steps */
};

/* Tells where the optimiser's state is (flat.velocity, flat.squares), for those who save or restore it. */
enum strategy_state {
	STATE_ALIKE,   /* all of it on every rank, the same bits */
	STATE_PARTS,   /* each rank has elements state_first .. + state_count, no element is twice */
	STATE_OWN      /* all of it on every rank that trains, each its own */
};

/* Payload. */
struct traffic {
	uint64_t sent, received;
};

struct strategy {
	const char *name;            /* as --strategy takes it */
	const char *sentence;        /* what happens in a step, for --help */
	unsigned supports;              /* of enum strategy_support */
	enum strategy_state state;
	bool deals;                  /* rank 0's loader gives one batch a step, of all ranks' images, rank by rank */
	/* Returns how many of the ranks, the last ones, are servers and train on nothing. NULL: none. */
	uint32_t (*servers)(const struct options *options);

	/* All below are collective and called on servers too. False: after a line on standard error. */

	/* Makes trainer->strategy_state, gives every parameter memory for its gradient and the optimiser its own, and
	 * all ranks the same values. */
	bool (*create)(struct trainer *trainer);
	/* Takes compute_step() and makes of its gradients a step of the optimiser. images: of each share; *outcome: of
	 * this rank's. steps_done is the caller's. */
	bool (*step)(struct trainer *trainer, uint32_t images, struct outcome *outcome);
	/* Run before the first step of an epoch, and after the last. After end_epoch() every rank has the same
	 * values, those that are evaluated. May be NULL. */
	bool (*begin_epoch)(struct trainer *trainer);
	bool (*end_epoch)(struct trainer *trainer);
	/* Frees strategy_state; takes what a failed create() has left. step_comm has gone. NULL: there is none. */
	void (*destroy)(struct trainer *trainer);
	/* Returns the bytes that this rank has moved in all steps so far. */
	bool (*traffic)(struct trainer *trainer, struct traffic *traffic);
	/* Adds what is special about this strategy (trainer.h), over all ranks. May be NULL. */
	bool (*report)(struct trainer *trainer, struct trainer_epoch *epoch);
	/* Save and restore, between two steps, the state that only this rank has and needs to continue bit for bit.
	 * load() gets what the same rank, of as many, has saved. All may be NULL. */
	bool (*saved_bytes)(struct trainer *trainer, uint64_t *bytes);
	bool (*save)(struct trainer *trainer, void *state, uint64_t bytes);
	bool (*load)(struct trainer *trainer, const void *state, uint64_t bytes);
};

/* The table by the name; NULL: there is none. */
const struct strategy *strategy_find(const char *name);
/* All of them, in the order in which they are best understood; ends with NULL. */
extern const struct strategy *const strategies[];

/* Returns true if the strategy of options exists and supports all that they ask for. */
bool strategy_fits(const struct options *options);

/* ---- For strategies ------------------------------------------------------------------------------------------- */

/* Memory for what the optimiser remembers of these elements of the model. */
bool strategy_state(struct trainer *trainer, uint64_t first, uint64_t count);
/* The optimiser's step: for all parameters, or for the part that this rank has the optimiser's memory of. */
bool strategy_update(struct trainer *trainer);
/* Returns the optimiser's inputs of this step. */
struct optimiser_inputs strategy_optimiser_inputs(const struct trainer *trainer);
bool strategy_update_part(struct trainer *trainer, const float *gradients);

/* Makes sure that all ranks have the same parameters, and gives them rank 0's values. */
bool strategy_broadcast_values(struct trainer *trainer);
/* Creates trainer->step_comm: a communicator of all ranks for the transfers of steps, so that they are counted
 * apart. */
bool strategy_create_step_comm(struct trainer *trainer);
bool strategy_step_traffic(struct trainer *trainer, struct traffic *traffic);

/* CLOCK_MONOTONIC. */
int64_t strategy_now_ns(void);
/* Waits for the computation, so that its result may be sent. For the timeline: between communicate() and arrived() a
 * model's worth of bytes was in flight, and this rank only waited. */
bool strategy_communicate(struct trainer *trainer, int64_t *began_ns);
void strategy_arrived(struct trainer *trainer, int64_t began_ns);

/* to[i] = the mean of from[i], from[stride + i], ..., added in this order. */
bool strategy_average(struct trainer *trainer, float *to, const float *from, uint64_t count, uint64_t stride,
	uint32_t operands);
bool strategy_copy(struct trainer *trainer, float *to, const float *from, uint64_t count);
/* With --clip: scales gradients down to that norm; to() of what has these squares in all. */
bool strategy_clip(struct trainer *trainer, float *gradients, uint64_t count);
bool strategy_clip_to(struct trainer *trainer, double square_sum, float *gradients, uint64_t count);

/* Elements of flat that part number `part` of `parts` is: cut at multiples of 64 bytes. */
struct range {
	uint64_t first, count;
};
struct range strategy_part(const struct flat *flat, uint32_t part, uint32_t parts);

#endif
