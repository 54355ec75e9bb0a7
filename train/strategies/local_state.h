/* Saves each rank's own state in checkpoints, where ranks differ: its values and its optimiser state. */
#ifndef TRAIN_LOCAL_STATE_H
#define TRAIN_LOCAL_STATE_H

#include "state.h"

/* Returns a copy in host memory of an array as long as the model; the caller frees it. Work on the array must be
 * complete. NULL after a line on standard error. */
float *local_state_values(struct trainer *trainer, const float *array);

/* The saved_bytes() of strategies. */
bool local_state_bytes(struct trainer *trainer, uint64_t *bytes);
/* values: those that this rank goes on with, in the host's memory. */
void local_state_save(const struct trainer *trainer, const float *values, void *state);
/* False after a line on standard error: this is not what such a rank has saved. */
bool local_state_load(struct trainer *trainer, float *values, const void *state, uint64_t bytes);

#endif
