/* --device: whether this run computes on GPUs. */
#ifndef TRAIN_CUDA_CHOOSE_H
#define TRAIN_CUDA_CHOOSE_H

#include "state.h"

/* Collective. Settles the trainer's back end, strategy, device and layers by what was asked for and what there is; auto
 * is the CPU unless every rank can compute on a GPU, and rank 0 says why. False after a line on standard error. */
bool device_choose(struct trainer *trainer);

#endif
