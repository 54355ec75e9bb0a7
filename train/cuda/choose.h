/* --device: whether this run computes on GPUs. */
#ifndef TRAIN_CUDA_CHOOSE_H
#define TRAIN_CUDA_CHOOSE_H

#include "gpu.h"
#include "state.h"

/* The rank's GPU, current in the calling thread: before the communicator is created, which finds out then which ranks
 * share one, until it is destroyed; then gpu_device_close(), by the same thread. That there is none is no error:
 * nothing is open then, and device_choose() says why. With --device cpu nothing is opened, nor with auto where some
 * rank cannot compute on a GPU, for which the ranks meet once before. comm_options: what the communicator is going to
 * be created with. False after a line on standard error: the ranks do not meet, or were told different things. */
bool device_enter(struct gpu_device *gpu, const struct options *options, const collet_options *comm_options);

/* Collective. Settles the trainer's back end, strategy, device and layers by what was asked for and what there is; auto
 * is the CPU unless every rank can compute on a GPU, and rank 0 says why. False after a line on standard error. */
bool device_choose(struct trainer *trainer);

#endif
