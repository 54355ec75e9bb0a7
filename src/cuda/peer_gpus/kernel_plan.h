/* Builds kernel plans: what the plan kernel does for one rank in a collective (cuda/kernels/plan_format.h). */
#ifndef COLLET_CUDA_PEER_GPUS_KERNEL_PLAN_H
#define COLLET_CUDA_PEER_GPUS_KERNEL_PLAN_H

#include <collet/collet.h>

#include "collectives/program.h"
#include "cuda/kernels/plan_format.h"

/* The same on all ranks of a communicator. */
struct collet_plan_options {
	uint32_t element_bytes;
	uint32_t channels_per_part;  /* blocks for each part of the program */
	uint64_t segment_bytes;      /* maximum size of a message; a multiple of 16 */
	/* Uses the LL protocol: less latency for twice the bytes. Requires segment_bytes <= COLLET_LL_BYTES. */
	bool is_ll;
};

/* Builds the plan of shape->rank, with malloc(); peers are positions. COLLET_ERR_UNSUPPORTED, with the reason, if the
 * kernel has no room for such a program; all ranks get the same result. */
COLLET_MUST_USE collet_status collet_kernel_plan_build(const struct collet_program *program,
	const struct collet_shape *shape, const struct collet_plan_options *options, struct collet_kernel_plan **plan);

/* The layout of a window for any program: channels for every part that it may have. */
struct collet_window collet_window_for(uint32_t size, uint32_t channels, uint64_t segment_bytes);

#endif
