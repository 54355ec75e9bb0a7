/* Counts what training costs besides time: bytes, waiting, memory. */
#ifndef TRAIN_COSTS_H
#define TRAIN_COSTS_H

#include "state.h"

/* Collective. Fills steps, bytes and memory of *epoch, and what the strategy reports of itself. False
 * after a line on standard error. */
bool costs_fill(struct trainer *trainer, struct trainer_epoch *epoch);

#endif
