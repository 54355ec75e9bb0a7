/* From options to a trainer that can take its first step, and back. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "state.h"

/* Collective. trainer: comm, options and watch set, all else zero. False after a line on standard error; setup_deinit()
 * takes what came of it. */
bool setup_init(struct trainer *trainer);
void setup_deinit(struct trainer *trainer);

#endif
