/* Widens averages of narrow floats around the plan kernel, where it sends partial sums: one kernel widens the input
 * into f32, the plan kernel adds in place, and another one divides and rounds (engine/wide_sums.h says why).
 *
 * A communicator's launches run one after the other, so they share the memory. It is only freed with the communicator,
 * since graphs may use it. */
#include <stdlib.h>

#include "core/status.h"
#include "cuda/kernels/kernel_set.h"
#include "cuda/peer_gpus/internal.h"

enum { LEAST_BYTES = 64 << 10 };

static uint64_t input_elements(const struct collet_devcoll_call *call)
{
	return call->shape.count * (call->program->collective == COLLET_REDUCE_SCATTER ? call->shape.size : 1);
}

/* Returns the smallest memory that is large enough; NULL if there is none. */
static const struct wide_memory *find_memory(const struct collet_device_comm *device_comm, uint64_t bytes)
{
	const struct wide_memory *found = NULL;
	for (const struct wide_memory *at = device_comm->wide_memories; at; at = at->next)
		if (at->bytes >= bytes && (!found || at->bytes < found->bytes))
			found = at;
	return found;
}

collet_status collet_device_wide_reserve(struct collet_device_comm *device_comm, uint64_t elements)
{
	const uint64_t bytes = elements * sizeof(float);
	if (find_memory(device_comm, bytes))
		return COLLET_OK;
	struct wide_memory *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the sums of an average");
	for (made->bytes = LEAST_BYTES; made->bytes < bytes;)
		made->bytes *= 2;
	const cu_result result = device_comm->cuda->cuMemAlloc(&made->memory, made->bytes);
	if (result != CU_OK) {
		free(made);
		return collet_cuda_fail(device_comm->cuda, result, "allocating memory for the sums of an average");
	}
	made->next = device_comm->wide_memories;
	device_comm->wide_memories = made;
	return COLLET_OK;
}

collet_status collet_device_wide_prepare(
	struct collet_device_comm *device_comm, const struct collet_devcoll_call *call)
{
	return call->is_wide ? collet_device_wide_reserve(device_comm, input_elements(call)) : COLLET_OK;
}

void collet_device_wide_free(struct collet_device_comm *device_comm)
{
	for (struct wide_memory *at = device_comm->wide_memories, *next; at; at = next) {
		next = at->next;
		(void)device_comm->cuda->cuMemFree(at->memory);
		free(at);
	}
	device_comm->wide_memories = NULL;
}

void collet_device_wide_set_arguments(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, struct collet_plan_arguments *arguments)
{
	struct collet_plan_rank *rank = &arguments->ranks[0];
	const uint64_t elements = input_elements(call);
	const bool has_blocks = call->program->collective == COLLET_REDUCE_SCATTER;
	if (!call->is_wide)
		return;
	arguments->op = COLLET_SUM;
	arguments->divisor = 1;
	arguments->dtype = COLLET_F32;
	rank->buffers[0] = find_memory(device_comm, elements * sizeof(float))->memory;
	rank->buffers[1] = rank->buffers[0] + (has_blocks ? call->shape.rank * call->shape.count * sizeof(float) : 0);
	rank->bytes[0] = elements * sizeof(float);
	rank->bytes[1] = call->result_bytes ? call->shape.count * sizeof(float) : 0;
	rank->done = 0; /* the rounding kernel reports it */
}

/* As few blocks as the plan kernel: where ranks share a GPU, others leave room for no more. */
collet_status collet_device_wide_launch_before(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, const struct collet_plan_arguments *arguments, uint32_t blocks,
	cu_stream stream)
{
	struct collet_span_arguments widened = { .op = COLLET_SUM,
		.divisor = call->shape.size,
		.dtype = call->dtype,
		.item_count = 1,
		.items = { { .count = input_elements(call), .source_count = 1, .result_count = 1 } },
		.words = { call->input, arguments->ranks[0].buffers[0] } };
	if (!call->is_wide)
		return COLLET_OK;
	return collet_kernel_launch(device_comm->kernels, COLLET_GPU_wide_sums, blocks, 1, &widened, stream);
}

collet_status collet_device_wide_launch_after(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, const struct collet_plan_arguments *arguments, uint32_t blocks,
	uint64_t done, cu_stream stream)
{
	struct collet_round_arguments rounded = { .from = arguments->ranks[0].buffers[1],
		.to = call->result,
		.count = call->result_bytes ? call->shape.count : 0,
		.dtype = call->dtype,
		.divisor = call->shape.size };
	struct collet_round_arguments report = { .dtype = call->dtype, .done = done, .ticket = call->ticket };
	collet_status status = COLLET_OK;
	if (call->is_wide && rounded.count)
		status = collet_kernel_launch(device_comm->kernels, COLLET_GPU_round, blocks, 1, &rounded, stream);
	/* All blocks of the kernel before have ended when this one starts. */
	if (status == COLLET_OK && call->is_wide && done)
		status = collet_kernel_launch(device_comm->kernels, COLLET_GPU_round, 1, 1, &report, stream);
	return status;
}
