/* Calls whose end the GPU tells their streams by itself (cuda/shared_gpu/completion_flags.h). Nobody is woken for that,
 * so the thread looks now and then: should the communicator end, or the GPU never come to it, their streams have to go
 * on all the same. */
#include <stdio.h>

#include "core/clock.h"
#include "cuda/stream/stream_internal.h"

static const int64_t LOOK_NS = INT64_C(50) * 1000 * 1000;

void collet_streamed_order(struct collet_streamed *call)
{
	const int64_t now = collet_clock_ns();
	call->ordered = true;
	call->until = COLLET_NEVER;
	if (call->timeout_ns >= 0 && call->timeout_ns < COLLET_NEVER - now)
		call->until = now + call->timeout_ns;
	if (!call->streams->look_ns)
		call->streams->look_ns = now + LOOK_NS;
}

bool collet_streams_are_due(const struct collet_streams *streams)
{
	return streams->look_ns && collet_clock_ns() >= streams->look_ns;
}

/* Is the GPU at it yet? *late: one that has taken too long. */
static bool look(struct collet_streamed *call, bool ended, int64_t now, const struct collet_streamed **late)
{
	if (!call->ordered)
		return false;
	/* Acquire: where a graph's next ring has taken `done` back, rings says so. */
	const bool done = atomic_load_explicit(call->done_word, memory_order_acquire) ||
		atomic_load_explicit(&call->rings, memory_order_relaxed) != call->launch;
	if (!done && ended)
		atomic_store_explicit(call->done_word, 1, memory_order_release);
	call->ordered = !done && !ended;
	if (call->ordered && now >= call->until)
		*late = call;
	return call->ordered;
}

void collet_streams_look(struct collet_streams *streams, bool ended)
{
	const int64_t now = collet_clock_ns();
	const struct collet_streamed *late = NULL;
	bool any = false;
	pthread_mutex_lock(&streams->lock);
	for (struct collet_streamed *call = streams->passing; call; call = call->next)
		any |= look(call, ended, now, &late);
	for (const struct collet_captured *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			any |= look(captured->calls[i], ended, now, &late);
	const char *function = late ? late->function : NULL;
	pthread_mutex_unlock(&streams->lock);
	streams->look_ns = any ? now + LOOK_NS : 0;
	if (!any)
		return;
	collet_direct_look(streams->comm->direct);
	if (!function)
		return;
	char sentence[256];
	snprintf(sentence, sizeof(sentence),
		"%s timed out: all ranks' streams have come to it, and the GPU that they share has been given it and "
		"has not done it; is something else running there that does not end?",
		function);
	collet_comm_state_end(&streams->comm->group, COLLET_ERR_TIMEOUT, true, sentence);
}
