/* Builds a trainer from options, ready for its first step, and tears it down. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "state.h"

/* Collective. trainer: comm, options and watch set, all else zero. False after a line on standard error; setup_deinit()
 * takes what came of it. */
bool setup_init(struct trainer *trainer);
void setup_deinit(struct trainer *trainer);

#endif
