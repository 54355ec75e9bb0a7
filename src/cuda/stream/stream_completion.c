/* Polls calls of which the GPU itself tells streams that they are done (cuda/shared_gpu/completion_flags.h). That
 * wakes no thread. So the stream thread polls: if the communicator ends, or the GPU never executes the call, its
 * stream must go on. */
#include <stdio.h>

#include "core/clock.h"
#include "cuda/stream/stream_internal.h"
#include "engine/comm_state.h"

static const int64_t POLL_NS = INT64_C(50) * 1000 * 1000;

void collet_stream_call_await_gpu(struct collet_stream_call *call)
{
	const int64_t now = collet_clock_ns();
	call->is_on_gpu = true;
	call->deadline = COLLET_NEVER;
	if (call->timeout_ns >= 0 && call->timeout_ns < COLLET_NEVER - now)
		call->deadline = now + call->timeout_ns;
	if (!call->streams->next_poll_ns)
		call->streams->next_poll_ns = now + POLL_NS;
}

bool collet_streams_poll_is_due(const struct collet_streams *streams)
{
	return streams->next_poll_ns && collet_clock_ns() >= streams->next_poll_ns;
}

/* True if the GPU still executes the call. Stores in *timed_out one that has taken too long. */
static bool poll_completion(
	struct collet_stream_call *call, bool ended, int64_t now, const struct collet_stream_call **timed_out)
{
	if (!call->is_on_gpu)
		return false;
	/* Acquire: if a graph's next doorbell has cleared `done`, the count of doorbells shows it. */
	const bool done = atomic_load_explicit(call->done_flag, memory_order_acquire) ||
		atomic_load_explicit(&call->doorbells, memory_order_relaxed) != call->started_doorbells;
	if (!done && ended)
		atomic_store_explicit(call->done_flag, 1, memory_order_release);
	call->is_on_gpu = !done && !ended;
	if (call->is_on_gpu && now >= call->deadline)
		*timed_out = call;
	return call->is_on_gpu;
}

void collet_streams_poll_completions(struct collet_streams *streams, bool ended)
{
	const int64_t now = collet_clock_ns();
	const struct collet_stream_call *timed_out = NULL;
	bool any = false;
	pthread_mutex_lock(&streams->lock);
	for (struct collet_stream_call *call = streams->unreleased; call; call = call->next)
		any |= poll_completion(call, ended, now, &timed_out);
	for (const struct collet_captured_calls *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			any |= poll_completion(captured->calls[i], ended, now, &timed_out);
	const char *function = timed_out ? timed_out->function : NULL;
	pthread_mutex_unlock(&streams->lock);
	streams->next_poll_ns = any ? now + POLL_NS : 0;
	if (!any)
		return;
	collet_shared_gpu_check_fault(streams->comm->gpu->shared_gpu);
	if (!function)
		return;
	char error_text[256];
	snprintf(error_text, sizeof(error_text),
		"%s timed out: all ranks' streams have come to it, and the GPU that they share has been given it and "
		"has not done it; is something else running there that does not end?",
		function);
	collet_comm_state_end(&streams->comm->state, COLLET_ERR_TIMEOUT, true, error_text);
}
