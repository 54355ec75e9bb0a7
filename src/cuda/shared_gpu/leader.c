/* The leader's part: turns all ranks' descriptors into a launch, or into the reason why there is none. */
#include <string.h>

#include "core/status.h"
#include "core/types.h"
#include "cuda/driver/peer_mapping.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/request.h"

/* ---- Mapping ---- */

static const char *why_unmappable(uint32_t location)
{
	return location == COLLET_BUFFER_HOST ? "a buffer is host memory" : "the leader cannot access a buffer";
}

/* Maps all buffers. Returns NULL, or why one cannot be mapped. */
static const char *map_buffers(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	for (uint32_t r = 0; r < shared_gpu->size; r++) {
		const struct call_descriptor *descriptor = descriptor_of(shared_gpu, call, r);
		struct collet_span_plan_rank *rank = &shared_gpu->ranks[r];
		char *addresses[2] = { NULL, NULL };
		for (uint32_t s = 0; s < 2; s++) {
			const struct collet_buffer_info *buffer = &descriptor->buffer[s];
			const char *why = NULL;
			bool has_failed = false;
			if (buffer->location == COLLET_BUFFER_UNUSED)
				continue;
			if (buffer->location != COLLET_BUFFER_GPU)
				return why_unmappable(buffer->location);
			addresses[s] = collet_device_map_peer_buffer(shared_gpu->device, shared_gpu->copy_stream,
				buffer, &call->mappings[2 * r + s], &why, &has_failed);
			call->fell_back |= has_failed;
			if (!addresses[s]) {
				call->decision.resend_handles |= buffer->handle.kind == COLLET_IPC_FD;
				return why;
			}
		}
		*rank = (struct collet_span_plan_rank){ .send = addresses[0], .recv = addresses[1],
			.send_bytes = descriptor->buffer[0].bytes, .recv_bytes = descriptor->buffer[1].bytes,
			.scale = descriptor->scale };
	}
	return NULL;
}

/* Returns a v-form's partition from a rank's descriptor. */
static struct collet_partition partition_of(uint64_t count, bool has_lists, const uint64_t *lists, uint32_t size)
{
	return (struct collet_partition){ .kind = COLLET_PARTITION_VECTOR,
		.count = count,
		.counts = has_lists ? lists : NULL,
		.displacements = has_lists ? lists + size : NULL };
}

/* Returns false if a rank that must list blocks has listed none. */
static bool read_partitions(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	const uint32_t size = shared_gpu->state->size;
	const enum collet_collective collective = call->summary.collective;
	for (uint32_t r = 0; r < shared_gpu->size; r++) {
		const struct call_descriptor *descriptor = descriptor_of(shared_gpu, call, r);
		const uint64_t *lists = (const uint64_t *)(const void *)(descriptor + 1);
		struct collet_span_plan_rank *rank = &shared_gpu->ranks[r];
		rank->input = partition_of(descriptor->input_count, descriptor->has_input_counts, lists, size);
		rank->result = partition_of(
			descriptor->result_count, descriptor->has_result_counts, lists + 2 * size, size);
		const bool is_root = r == call->summary.root;
		const bool lists_input = collective == COLLET_ALLTOALL || (collective == COLLET_SCATTER && is_root);
		const bool lists_result = collective == COLLET_ALLTOALL || collective == COLLET_ALLGATHER ||
			(collective == COLLET_GATHER && is_root);
		if ((lists_input && !rank->input.counts) || (lists_result && !rank->result.counts))
			return false;
	}
	return true;
}

/* ---- Deciding ---- */

bool collet_leader_check_mismatch(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	for (uint32_t r = 1; r < shared_gpu->size; r++) {
		const struct call_descriptor *descriptor = descriptor_of(shared_gpu, call, r);
		if (descriptor->signature == call->summary.signature)
			continue;
		const struct collet_message received = { .signature = descriptor->signature,
			.sequence = descriptor->sequence };
		if (call->request && !call->reported_mismatch)
			collet_mismatch_suspect(shared_gpu->state, shared_gpu->members[r], call->request, &received);
		call->reported_mismatch = true;
		return false;
	}
	return true;
}

/* Queues the launch. Returns NULL, or why it cannot be done. */
static const char *launch(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	const struct call_summary *summary = &call->summary;
	const bool reduces = summary->op != COLLET_OP_COUNT;
	const struct collet_span_plan_call planned = { .collective = summary->collective,
		.is_vector = summary->is_vector,
		.size = shared_gpu->size,
		.root = summary->root,
		.count = summary->count,
		.element_bytes = collet_dtype_bytes(summary->dtype),
		.is_scaled = summary->op == COLLET_PREMUL_SUM };
	const char *why = collet_span_plan_make(&shared_gpu->plan, &planned, shared_gpu->ranks);
	if (why)
		return why;
	/* Bytes that are only moved stay as they are. */
	const bool is_moved_truth = !reduces && summary->dtype == COLLET_BOOL;
	const struct collet_gpu_reduction reduction = { .dtype = is_moved_truth ? COLLET_U8 : summary->dtype,
		.op = reduces ? summary->op : COLLET_SUM,
		.average_of = summary->op == COLLET_AVERAGE ? shared_gpu->size : 1 };
	collet_status status = collet_copy_stream_push_context(shared_gpu->device->cuda, shared_gpu->copy_stream);
	if (status != COLLET_OK)
		return collet_last_error();
	status = collet_gpu_spans_launch(shared_gpu->kernels, &reduction, shared_gpu->plan.spans,
		shared_gpu->plan.span_count, shared_gpu->stream);
	if (status != COLLET_OK)
		why = collet_last_error();
	call->fell_back = why != NULL;
	call->decision.is_gpu_signaled = !why && collet_completion_flags_enqueue(shared_gpu, call);
	call->launch_number = shared_gpu->completion_flags.launched;
	/* If there were several launches, some may already run. */
	if (why && shared_gpu->device->cuda->cuStreamSynchronize(shared_gpu->stream) != CU_OK)
		collet_comm_state_end(shared_gpu->state, status, true, why);
	collet_copy_stream_pop_context(shared_gpu->device->cuda);
	return why;
}

/* Detaches the request, which now exchanges data between hosts for all local ranks. Returns NULL, or why not. */
static const char *start_between_hosts(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	uint32_t root = 0;
	while (root < shared_gpu->size && shared_gpu->members[root] != call->summary.root)
		root++;
	const struct collet_local_ranks local = { .kernels = shared_gpu->kernels,
		.copy_stream = shared_gpu->copy_stream,
		.ranks = shared_gpu->ranks,
		.members = shared_gpu->members,
		.size = shared_gpu->size,
		.root = root,
		.call = call };
	if (shared_gpu->events->between_hosts(call->request, &local) != COLLET_OK) {
		call->fell_back = true;
		return collet_last_error();
	}
	call->is_detached = true;
	call->request->deferred = false;
	call->request = NULL;
	shared_gpu->state->tasks_need_progress = true;
	return NULL;
}

/* Returns NULL if the GPU executes the call, or why not. */
static const char *try_gpu(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	for (uint32_t r = 0; r < shared_gpu->size; r++)
		if (!descriptor_of(shared_gpu, call, r)->is_ok)
			return "a rank has reported an error";
	if (!call->summary.between_hosts && !call->summary.may_reorder)
		return "the requested algorithm has another order of operands";
	const char *why = map_buffers(shared_gpu, call);
	if (!why && call->summary.is_vector && !read_partitions(shared_gpu, call))
		why = "a rank has not listed its blocks";
	if (!why && call->summary.between_hosts)
		return start_between_hosts(shared_gpu, call);
	return why ? why : launch(shared_gpu, call);
}

/* Receives the notes that followers have sent to this rank's handle exchange, needed now or not: its socket is
 * small. */
static void receive_handles(struct collet_shared_gpu *shared_gpu, const struct shared_call *call)
{
	bool has_new_notes = false;
	for (uint32_t r = 1; r < shared_gpu->size; r++) {
		const uint32_t notes = descriptor_of(shared_gpu, call, r)->notes_sent;
		has_new_notes |= notes != shared_gpu->notes_seen[r];
		shared_gpu->notes_seen[r] = notes;
	}
	if (has_new_notes)
		collet_device_receive_handles(shared_gpu->device);
}

bool collet_leader_decide(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	if (!collet_leader_check_mismatch(shared_gpu, call))
		return false;
	/* Whichever thread waits makes progress, the application's own among them. */
	const int mode = collet_cuda_relax_capture(shared_gpu->device->cuda);
	if (shared_gpu->notes_seen)
		receive_handles(shared_gpu, call);
	const char *why = try_gpu(shared_gpu, call);
	collet_cuda_restore_capture(shared_gpu->device->cuda, mode);
	call->decision.is_staged = why != NULL;
	if (!why) {
		call->state = call->is_detached ? CALL_BETWEEN_HOSTS : CALL_RUNNING;
		return true;
	}
	collet_log(&shared_gpu->state->engine->log, call->fell_back ? COLLET_LOG_WARN : COLLET_LOG_DEBUG,
		"cuda: %s by way of the host, and not on the GPU: %s", call->buffers.function, why);
	collet_leader_release(shared_gpu, call);
	return true;
}

bool collet_leader_is_complete(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	/* The progress thread has no context of its own. */
	cu_result result = collet_cuda_push_context(cuda, shared_gpu->copy_stream->context);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(shared_gpu->stream);
		collet_cuda_pop_context(cuda);
	}
	if (result == CU_NOT_READY)
		return false;
	collet_leader_release(shared_gpu, call);
	if (result != CU_OK) {
		(void)collet_cuda_fail(cuda, result, "a collective of ranks that share a GPU");
		collet_comm_state_end(shared_gpu->state, COLLET_ERR_SYSTEM, true, collet_last_error());
		return false;
	}
	return true;
}

void collet_leader_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	for (uint32_t i = 0; i < 2 * shared_gpu->size; i++) {
		if (shared_gpu->is_connecting)
			collet_ipc_cache_close(&shared_gpu->device->ipc_cache, call->mappings[i]);
		else
			collet_ipc_cache_release(&shared_gpu->device->ipc_cache, call->mappings[i]);
		call->mappings[i] = NULL;
	}
}
