/* What checkpoints keep of each rank where ranks differ: its values, and what its optimiser remembers. */
#ifndef TRAIN_OWN_H
#define TRAIN_OWN_H

#include "state.h"

/* As strategies' saved_bytes(). */
bool own_bytes(struct trainer *trainer, uint64_t *bytes);
/* values: those that this rank goes on with. */
void own_save(const struct trainer *trainer, const float *values, void *state);
/* False after a line on standard error: this is not what such a rank has saved. */
bool own_load(struct trainer *trainer, float *values, const void *state, uint64_t bytes);

#endif
