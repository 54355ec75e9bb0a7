/* Defines the table by which api calls the functions of src/cuda. */
#include "api/offload.h"

#include "cuda/call_path.h"
#include "cuda/device_memory.h"
#include "cuda/gpu_call.h"
#include "cuda/gpu_context.h"
#include "cuda/gpu_cost.h"
#include "cuda/path_rules.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/stream/stream_call.h"

const struct collet_offload collet_cuda_offload = {
	.context_open = collet_gpu_context_open,
	.context_close = collet_gpu_context_close,
	.comm_open = collet_gpu_comm_open,
	.comm_check = collet_device_collectives_check_errors,
	.comm_drain = collet_streams_drain,
	.comm_abort = collet_gpu_comm_abort,
	.comm_close = collet_gpu_comm_close,
	.comm_atfork_child = collet_gpu_comm_atfork_child,
	.collective = collet_call_dispatch,
	.p2p = collet_gpu_p2p,
	.staging_stop = collet_gpu_staging_stop,
	.staging_end = collet_gpu_staging_end,
	.choice_basis = collet_path_choice_basis,
	.plan = collet_gpu_plan,
	.recorder = collet_device_collectives_recorder,
	.mem_alloc = collet_device_memory_alloc,
	.mem_free = collet_device_memory_free,
	.mem_register = collet_device_memory_register,
};
