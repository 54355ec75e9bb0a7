/* What checkpoints keep of each rank where ranks differ: its values, and what its optimiser remembers. */
#ifndef TRAIN_LOCAL_STATE_H
#define TRAIN_LOCAL_STATE_H

#include "state.h"

/* A copy, in the host's memory, of an array as long as the model, which must be settled; to be freed. NULL after a line
 * on standard error. */
float *local_state_values(struct trainer *trainer, const float *array);

/* As strategies' saved_bytes(). */
bool local_state_bytes(struct trainer *trainer, uint64_t *bytes);
/* values: those that this rank goes on with, in the host's memory. */
void local_state_save(const struct trainer *trainer, const float *values, void *state);
/* False after a line on standard error: this is not what such a rank has saved. */
bool local_state_load(struct trainer *trainer, float *values, const void *state, uint64_t bytes);

#endif
