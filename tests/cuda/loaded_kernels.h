/* A program on a GPU with the library's kernels loaded, without a communicator. */
#ifndef TESTS_CUDA_LOADED_KERNELS_H
#define TESTS_CUDA_LOADED_KERNELS_H

#include "core/status.h"
#include "cuda/kernels/kernel_set.h"
#include "program.h"

struct loaded {
	struct collet_cuda cuda;
	struct program program;
	struct collet_copy_streams copy_streams;
	struct collet_kernel_sets sets;
	struct collet_copy_stream *copy_stream;
	struct collet_kernel_set *set;
};

/* Opens the driver and starts the program on this GPU, without kernels. Returns false if there is no such GPU; see
 * collet_last_error(). */
bool loaded_start(struct loaded *loaded, int ordinal);
/* The same in a context of its own, beside the GPU's primary one. */
bool loaded_start_beside(struct loaded *loaded, int ordinal);
/* Returns false if the current context is not the one that start made current. */
bool loaded_end(struct loaded *loaded);
/* Loads the kernels. They must be unloaded even if this fails. */
collet_status loaded_load(struct loaded *loaded);
void loaded_unload(struct loaded *loaded);
/* Launches spans and waits for them. */
collet_status loaded_reduce(struct loaded *loaded, const struct collet_gpu_reduction *reduction,
	const struct collet_gpu_span *spans, uint32_t count);

#endif
