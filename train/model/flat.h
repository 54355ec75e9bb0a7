/* All parameters one behind the other, each at a multiple of 64 bytes: so a strategy moves or cuts them as one array.
 * What lies between two parameters is zero and stays zero. */
#ifndef TRAIN_FLAT_H
#define TRAIN_FLAT_H

#include "backend.h"
#include "model/model.h"

struct flat {
	uint64_t count;                     /* elements, what lies between included; a multiple of 16 x the ranks */
	uint64_t first[MODEL_PARAMETERS];
	float *values;
	float *gradients;                   /* NULL: they live elsewhere */
	/* What the optimiser remembers, of elements state_first .. + state_count: all, or the part that this rank
	 * steps. */
	uint64_t state_first, state_count;
	float *velocity, *squares;          /* squares: AdamW's, else NULL */
	uint64_t bytes;                     /* of all memory that flat_allocate() has given */
};

/* Works out the places for a job of so many ranks, and gives every parameter its value's memory. All of these: false,
 * after a line on standard error, when there is no memory; deinit takes what there is. */
bool flat_init(struct flat *flat, struct model *model, const struct backend *backend, uint32_t ranks);
void flat_deinit(struct flat *flat, const struct backend *backend);

/* Gives every parameter its gradient's memory. */
bool flat_gradients(struct flat *flat, struct model *model, const struct backend *backend);
/* Memory for what the optimiser remembers of these elements; of all, every parameter is given its own. */
bool flat_state(struct flat *flat, struct model *model, const struct backend *backend, enum optimiser optimiser,
	uint64_t first, uint64_t count);
/* Any other numbers that this rank must have beside, to be freed by the back end. */
bool flat_allocate(struct flat *flat, const struct backend *backend, float **memory, uint64_t count);

/* A step of the optimiser for the elements that flat has the state of; gradients: theirs (the first is that of element
 * state_first). */
void flat_descend(
	const struct flat *flat, const struct backend *backend, const float *gradients, const struct descent *descent);

#endif
