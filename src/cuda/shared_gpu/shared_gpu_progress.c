/* Advances calls of ranks that share a GPU. Called by the communicator's progress. */
#include <stdio.h>
#include <string.h>

#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/progress_hook.h"
#include "engine/request.h"

void collet_shared_gpu_host_complete(void *context)
{
	struct shared_call *call = context;
	call->host_complete = true;
}

static void send_decisions(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	call->state = CALL_REPLYING;
	for (uint32_t r = 1; r < shared_gpu->size; r++)
		if (!descriptor_of(shared_gpu, call, r)->is_host_only)
			call->messages[r] = collet_shared_gpu_post_message(shared_gpu, true, r,
				collet_shared_call_tag(call) + 1, &call->decision, sizeof(call->decision));
}

/* Completes the call on this rank, once it is decided. */
static void complete_call(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	struct collet_request *request = call->request;
	call->state = CALL_COMPLETE;
	if (call->decision.resend_handles)
		collet_exported_handles_resend_all(&shared_gpu->exported);
	if (call->is_detached)
		collet_shared_call_put(shared_gpu, call);
	if (call->is_detached || !request)
		return;
	if (!call->decision.is_staged) {
		request->offloaded = true;
		request->signals_stream = call->decision.is_gpu_signaled;
		shared_gpu->events->done(request);
	} else if (shared_gpu->events->stage(request, &call->buffers) != COLLET_OK) {
		/* The other ranks continue without this one. */
		collet_comm_state_end(shared_gpu->state, COLLET_ERR_SYSTEM, true, collet_last_error());
	}
	request->deferred = false;
	shared_gpu->state->tasks_need_progress = true;
	if (call->decision.is_gpu_signaled && is_leader(shared_gpu))
		collet_completion_flags_defer_release(shared_gpu, call);
	else
		collet_shared_call_put(shared_gpu, call);
}

/* Advances the first undecided call; returns false if it has to wait. */
static bool advance_call(struct collet_shared_gpu *shared_gpu, struct shared_call *call)
{
	switch (call->state) {
	case CALL_GATHERING:
		if (!collet_shared_call_messages_done(shared_gpu, call) || !collet_leader_decide(shared_gpu, call))
			return false;
		if (call->state == CALL_GATHERING || call->decision.is_gpu_signaled)
			send_decisions(shared_gpu, call);
		return true;
	case CALL_BETWEEN_HOSTS:
		if (!call->host_complete)
			return false;
		collet_leader_release(shared_gpu, call);
		send_decisions(shared_gpu, call);
		return true;
	case CALL_RUNNING:
		if (!collet_leader_is_complete(shared_gpu, call))
			return false;
		send_decisions(shared_gpu, call);
		return true;
	default:
		if (!collet_shared_call_messages_done(shared_gpu, call))
			return false;
		shared_gpu->first = call->next;
		if (!shared_gpu->first)
			shared_gpu->last = &shared_gpu->first;
		complete_call(shared_gpu, call);
		return true;
	}
}

static bool has_ended(const struct collet_comm_state *state)
{
	return atomic_load_explicit(&state->end_status, memory_order_acquire) != COLLET_OK;
}

static bool progress(struct collet_comm_state *state, void *context)
{
	struct collet_shared_gpu *shared_gpu = context;
	bool has_progressed = false, may_continue = true;
	collet_completion_flags_reap(shared_gpu);
	while (shared_gpu->first && may_continue && !has_ended(state)) {
		if (has_ended(&shared_gpu->internal_comm)) {
			const int status =
				atomic_load_explicit(&shared_gpu->internal_comm.end_status, memory_order_relaxed);
			collet_comm_state_end(
				state, (enum collet_status)status, true, shared_gpu->internal_comm.error_text);
			return true;
		}
		may_continue = advance_call(shared_gpu, shared_gpu->first);
		has_progressed |= may_continue;
	}
	return has_progressed;
}

/* No message announces that the GPU is done, so it must be polled. */
static bool is_idle(const void *context)
{
	const struct collet_shared_gpu *shared_gpu = context;
	return !shared_gpu->first || shared_gpu->first->state != CALL_RUNNING;
}

static bool name_awaited(const void *context, const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_shared_gpu *shared_gpu = context;
	const struct shared_call *call = shared_gpu->first;
	size_t used = 0;
	while (call && call->request != request)
		call = call->next;
	if (!call)
		return false;
	if (call->state == CALL_RUNNING)
		snprintf(text, capacity, "none, only for the GPU");
	else
		snprintf(text, capacity, "%u (the leader)", shared_gpu->members[0]);
	if (call->state != CALL_GATHERING)
		return true;
	for (uint32_t r = 1; r < shared_gpu->size; r++) {
		if (!call->messages[r] || call->messages[r]->status != COLLET_PENDING)
			continue;
		const int added =
			snprintf(text + used, capacity - used, "%s%u", used ? ", " : "", shared_gpu->members[r]);
		if (added < 0 || used + (size_t)added >= capacity)
			break;
		used += (size_t)added;
	}
	return true;
}

const struct collet_progress_hook_ops collet_shared_gpu_hooks = { progress, is_idle, name_awaited };
