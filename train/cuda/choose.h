/* --device: whether this run computes on GPUs. */
#ifndef TRAIN_CUDA_CHOOSE_H
#define TRAIN_CUDA_CHOOSE_H

#include "gpu.h"
#include "state.h"

/* Opens the rank's GPU and makes it current in the calling thread. It is open from before the communicator is
 * created, which finds out which ranks share one, until after it is destroyed. Then the same thread calls
 * gpu_device_close(). A missing GPU is no error: nothing is open then, and device_choose() says why. --device cpu
 * opens nothing. Nor does auto if some rank cannot compute on a GPU; the ranks create a communicator once to find
 * out. comm_options are those of the communicator to be created. Returns false, after a line on standard error, if
 * the ranks do not meet, or have different options. */
bool device_enter(struct gpu_device *gpu, const struct options *options, const collet_options *comm_options);

/* Collective. Chooses the trainer's back end, strategy, device and layers by the options and the hardware. auto is
 * the CPU unless every rank can compute on a GPU, and rank 0 prints why. Returns false after a line on standard
 * error. */
bool device_choose(struct trainer *trainer);

#endif
