/* Laying down what a rank does in a collective, step by step, for the executor kernel (cuda/kernels/plan_format.h). */
#ifndef COLLET_CUDA_PEER_GPUS_KERNEL_PLAN_H
#define COLLET_CUDA_PEER_GPUS_KERNEL_PLAN_H

#include <collet/collet.h>

#include "collectives/program.h"
#include "cuda/kernels/plan_format.h"

/* All ranks of a communicator have this alike. */
struct collet_plan_options {
	uint32_t element_bytes;
	uint32_t channels_per_part;  /* blocks for each part of the program */
	uint64_t segment_bytes;      /* of one message, at most; a multiple of 16 */
	bool is_ll;                  /* flags between the bytes: a latency less, twice the bytes.
					piece_bytes <= COLLET_LL_BYTES */
};

/* The tape of shape->rank, from malloc(); peers are positions. COLLET_ERR_UNSUPPORTED, with the reason, if the executor
 * has no room for such a program; all ranks are told the same. */
COLLET_MUST_USE collet_status collet_kernel_plan_build(const struct collet_program *program,
	const struct collet_shape *shape, const struct collet_plan_options *options, struct collet_kernel_plan **plan);

/* The window that this needs, for any program: lanes for every part that one may have. */
struct collet_window collet_window_for(uint32_t size, uint32_t channels, uint64_t segment_bytes);

#endif
