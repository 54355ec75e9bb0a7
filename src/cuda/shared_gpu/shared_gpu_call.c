/* Each rank's record of a call, with its memory and its messages. Messages are point to point, in the internal
 * communicator. */
#include <stdlib.h>

#include "core/clock.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"

struct collet_request *collet_shared_gpu_post_message(
	struct collet_shared_gpu *shared_gpu, bool sends, uint32_t member, uint32_t tag, void *buffer, size_t bytes)
{
	struct collet_request *request;
	collet_status status = collet_request_acquire(&shared_gpu->internal_comm, NULL, &request);
	if (status == COLLET_OK) {
		request->is_p2p = true;
		/* A call has its own deadline; connecting uses this one. */
		request->timeout_ns = shared_gpu->is_connecting ? shared_gpu->state->timeout_ns : -1;
		request->started_ticks = collet_ticks();
		request->p2p = (struct collet_p2p_call){
			.is_send = sends, .peer = shared_gpu->members[member], .tag = tag,
			.buffer = buffer, .bytes = bytes, .element_bytes = 1 };
		collet_request_activate(request);
		status = collet_p2p_start(request);
		if (status == COLLET_OK)
			return request;
	}
	collet_comm_state_end(shared_gpu->state, status, true, collet_last_error());
	return NULL;
}

uint32_t collet_shared_call_tag(const struct shared_call *call)
{
	return (uint32_t)(2 * call->summary.sequence);
}

bool collet_shared_call_messages_done(const struct collet_shared_gpu *shared_gpu, const struct shared_call *call)
{
	for (uint32_t i = 0; i < shared_gpu->size; i++)
		if (call->messages[i] && call->messages[i]->status == COLLET_PENDING)
			return false;
	for (uint32_t i = 0; i < shared_gpu->size; i++) {
		if (call->messages[i])
			collet_request_release(call->messages[i]);
		call->messages[i] = NULL;
	}
	return true;
}

void collet_shared_call_free(struct shared_call *call)
{
	if (!call)
		return;
	free(call->messages);
	free(call->descriptors);
	free(call->mappings);
	free(call);
}

struct shared_call *collet_shared_call_get(struct collet_shared_gpu *shared_gpu)
{
	struct shared_call *call = shared_gpu->free_calls;
	const size_t size = shared_gpu->size;
	if (call) {
		shared_gpu->free_calls = call->next;
		call->reported_mismatch = call->fell_back = call->is_detached = call->host_complete = false;
		call->decision = (struct call_decision){ 0 };
		return call;
	}
	call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->messages = calloc(size, sizeof(struct collet_request *));
	call->descriptors = calloc(is_leader(shared_gpu) ? size : 1, shared_gpu->descriptor_bytes);
	call->mappings = calloc(2 * size, sizeof(struct collet_ipc_mapping *));
	if (call->messages && call->descriptors && call->mappings)
		return call;
	collet_shared_call_free(call);
	return NULL;
}

void collet_shared_call_put(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	call->next = shared_gpu->free_calls;
	shared_gpu->free_calls = call;
}

collet_status collet_shared_call_post(struct collet_shared_gpu *shared_gpu, struct shared_call *call, size_t bytes)
{
	const uint32_t tag = collet_shared_call_tag(call), size = shared_gpu->size;
	call->next = NULL;
	*shared_gpu->last = call;
	shared_gpu->last = &call->next;
	call->state = is_leader(shared_gpu) ? CALL_GATHERING : CALL_AWAITING_DECISION;
	if (!is_leader(shared_gpu)) {
		call->messages[0] = collet_shared_gpu_post_message(shared_gpu, true, 0, tag, call->descriptors, bytes);
		if (!descriptor_of(shared_gpu, call, 0)->is_host_only)
			call->messages[1] = collet_shared_gpu_post_message(
				shared_gpu, false, 0, tag + 1, &call->decision, sizeof(call->decision));
		return COLLET_OK;
	}
	for (uint32_t r = 1; r < size; r++)
		call->messages[r] = collet_shared_gpu_post_message(
			shared_gpu, false, r, tag, descriptor_of(shared_gpu, call, r), shared_gpu->descriptor_bytes);
	return COLLET_OK;
}
