/* Fills in a rank's call descriptor: where its buffers are, and what it calls. */
#include <string.h>

#include "core/status.h"
#include "core/types.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/recorder.h"
#include "engine/request.h"

static collet_status locate_buffer(
	struct collet_shared_gpu *shared_gpu, const char *which, struct collet_buffer_info *buffer)
{
	struct collet_pointer_attributes attributes;
	buffer->location = buffer->bytes ? COLLET_BUFFER_HOST : COLLET_BUFFER_UNUSED;
	collet_status status = collet_pointer_attributes_get(
		shared_gpu->device->cuda, which, buffer->first, buffer->bytes, &attributes);
	if (status != COLLET_OK || !attributes.is_device)
		return status;
	buffer->location =
		attributes.ordinal == shared_gpu->device->ordinal ? COLLET_BUFFER_GPU : COLLET_BUFFER_UNREACHABLE;
	buffer->ordinal = attributes.ordinal;
	buffer->context = (uintptr_t)attributes.context;
	buffer->handle = (struct collet_ipc_handle){ .process = shared_gpu->device->process_id };
	if (shared_gpu->shares_leader_gpu || buffer->location == COLLET_BUFFER_UNREACHABLE)
		return COLLET_OK;
	/* Other threads may call in other communicators of the context. */
	collet_engine_lock(shared_gpu->state->engine);
	status = collet_device_get_handle(shared_gpu->device, &attributes, buffer->first, &buffer->handle);
	collet_engine_unlock(shared_gpu->state->engine);
	return status;
}

collet_status collet_shared_gpu_locate(struct collet_shared_gpu *shared_gpu, struct collet_call_buffers *buffers)
{
	static const char *const names[2] = { "the buffer that is read", "the buffer that is written" };
	for (uint32_t s = 0; s < 2; s++) {
		const collet_status status = locate_buffer(shared_gpu, names[s], &buffers->buffer[s]);
		if (status != COLLET_OK) {
			collet_error_prefix("%s", buffers->function);
			return status;
		}
	}
	return COLLET_OK;
}

/* Appends a v-form's counts and displacements; returns the size of the descriptor. */
static size_t append_counts(
	struct collet_shared_gpu *shared_gpu, struct call_descriptor *descriptor, const struct collet_shape *shape)
{
	const size_t size = shared_gpu->state->size, bytes = size * sizeof(uint64_t);
	uint64_t *lists = (uint64_t *)(void *)(descriptor + 1);
	const struct collet_partition *partitions[2] = { &shape->input, &shape->result };
	descriptor->input_count = shape->input.count;
	descriptor->result_count = shape->result.count;
	descriptor->has_input_counts = shape->input.counts != NULL;
	descriptor->has_result_counts = shape->result.counts != NULL;
	for (uint32_t i = 0; i < 2; i++, lists += 2 * size) {
		memset(lists, 0, 2 * bytes);
		if (partitions[i]->counts) {
			memcpy(lists, partitions[i]->counts, bytes);
			memcpy(lists + size, partitions[i]->displacements, bytes);
		}
	}
	return sizeof(*descriptor) + 4 * bytes;
}

static struct call_summary summary_of(const struct collet_shared_gpu *shared_gpu, const struct collet_request *request)
{
	const struct collet_call *call = &request->call;
	const collet_op op = call->op == UINT8_MAX ? COLLET_OP_COUNT : (collet_op)call->op;
	const char *name = request->program->name;
	return (struct call_summary){
		.collective = (enum collet_collective)call->collective,
		.is_vector = call->is_vector,
		.between_hosts = shared_gpu->is_per_host,
		.may_reorder = !request->algorithm_named || collet_op_is_exact(op, (collet_dtype)call->dtype) ||
			strcmp(name, "direct") == 0 || strcmp(name, "two_shot") == 0,
		.dtype = (collet_dtype)call->dtype,
		.op = op,
		.root = call->root,
		.count = request->shape.count,
		.signature = request->signature,
		.sequence = request->sequence,
	};
}

/* Tries to start the first undecided call at once; its buffers are host memory. The leader must have this rank's
 * descriptor before the call completes here, since it may not hear of this rank for long afterwards. Members that
 * expect a decision must get it. So the call is deferred until messages are sent or received. Mostly they have been
 * already, and nobody expects a decision: then it continues like any other call. */
static void try_fast_path(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	/* If the communicator has ended, some message could not be posted. */
	if (atomic_load_explicit(&shared_gpu->state->end_status, memory_order_acquire) != COLLET_OK ||
		!collet_shared_call_messages_done(shared_gpu, call))
		return;
	for (uint32_t r = 1; is_leader(shared_gpu) && r < shared_gpu->size; r++)
		if (!descriptor_of(shared_gpu, call, r)->is_host_only)
			return;
	if (is_leader(shared_gpu) && !collet_leader_check_mismatch(shared_gpu, call))
		return;
	shared_gpu->first = NULL;
	shared_gpu->last = &shared_gpu->first;
	call->request->deferred = false;
	collet_shared_call_put(shared_gpu, call);
}

collet_status collet_shared_gpu_start(
	struct collet_shared_gpu *shared_gpu, struct collet_request *request, const struct collet_call_buffers *buffers)
{
	struct shared_call *call = collet_shared_call_get(shared_gpu);
	collet_status status;
	if (!call)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call of ranks that share a GPU",
			buffers->function);
	call->request = request;
	call->summary = summary_of(shared_gpu, request);
	call->buffers = *buffers;
	struct call_descriptor *descriptor = descriptor_of(shared_gpu, call, 0);
	collet_shared_gpu_flush_freed(shared_gpu);
	*descriptor = (struct call_descriptor){ .signature = request->signature, .sequence = request->sequence,
		.is_ok = 1, .flag = buffers->flag, .scale = buffers->scale,
		.buffer = { buffers->buffer[0], buffers->buffer[1] } };
	const size_t bytes =
		call->summary.is_vector ? append_counts(shared_gpu, descriptor, &request->shape) : sizeof(*descriptor);
	for (uint32_t s = 0; s < 2; s++) {
		struct collet_buffer_info *buffer = &descriptor->buffer[s];
		if (buffer->location != COLLET_BUFFER_GPU || shared_gpu->shares_leader_gpu ||
			buffer->handle.kind == COLLET_IPC_LEGACY)
			continue;
		if (buffer->handle.kind == COLLET_IPC_NONE ||
			collet_shared_gpu_export(shared_gpu, &buffer->handle) != COLLET_OK)
			buffer->location = COLLET_BUFFER_UNREACHABLE;
	}
	descriptor->notes_sent = shared_gpu->exported.notes_sent;
	request->deferred = true;
	/* If all buffers are host memory, the decision is known, whatever the others send. */
	const bool is_host_only =
		collet_call_buffers_are_host(buffers) && (buffers->buffer[0].location == COLLET_BUFFER_HOST ||
								 buffers->buffer[1].location == COLLET_BUFFER_HOST);
	descriptor->is_host_only = is_host_only && !is_leader(shared_gpu);
	call->decision.is_staged = descriptor->is_host_only;
	status = collet_shared_call_post(shared_gpu, call, bytes);
	if (status == COLLET_OK && is_host_only && shared_gpu->first == call)
		try_fast_path(shared_gpu, call);
	return status;
}
