/* Stores all parameters in one array, each at a multiple of 64 bytes, so that a strategy moves or cuts them as one.
 * The gaps are zero and stay zero. */
#ifndef TRAIN_FLAT_H
#define TRAIN_FLAT_H

#include "backend.h"
#include "model/model.h"

struct flat {
	const struct backend *backend;      /* whose arrays, ... */
	struct cuda_device *device;         /* ... and where */
	uint64_t count;                     /* elements, what lies between included; a multiple of 16 x the ranks */
	uint64_t first[MODEL_PARAMETERS];
	float *values;
	float *gradients;                   /* NULL: they live elsewhere */
	/* The optimiser's state of elements state_first .. + state_count: all, or the part that this rank steps. */
	uint64_t state_first, state_count;
	float *velocity, *squares;          /* squares: AdamW's, else NULL */
	uint64_t bytes;                     /* of all memory that flat_allocate() has given */
};

/* Works out the places for a job of so many ranks, and makes the values. All of these: false, after a line on standard
 * error, when there is no memory; deinit takes what there is. */
bool flat_init(struct flat *flat, const struct model *model, const struct backend *backend, struct cuda_device *device,
	uint32_t ranks);
void flat_deinit(struct flat *flat);

/* Gives every parameter its gradient's memory. */
bool flat_gradients(struct flat *flat, struct model *model);
/* Memory for what the optimiser remembers of these elements. */
bool flat_state(struct flat *flat, enum optimiser optimiser, uint64_t first, uint64_t count);
/* Returns true if the state covers all elements, and so every parameter. */
bool flat_has_all_state(const struct flat *flat);
/* Any other numbers that this rank must have beside, and what frees them; NULL is fine. */
bool flat_allocate(struct flat *flat, float **memory, uint64_t count);
void flat_free(const struct flat *flat, float *memory);

/* Runs the optimiser's step for the elements that flat has the state of. gradients starts with that of element
 * state_first. */
bool flat_update(const struct flat *flat, struct network *network, const float *gradients,
	const struct optimiser_inputs *inputs);

#endif
