/* Keeps the order in which calls on streams start: that in which they were made, and within a graph that of its
 * capture. */
#include <stdlib.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/stream/stream_internal.h"

static bool has_rung(const struct collet_stream_call *call)
{
	return atomic_load_explicit(&call->rung, memory_order_acquire); /* pairs with the doorbell's store */
}

static struct collet_captured_calls *find_captured(struct collet_streams *streams, uint64_t id)
{
	struct collet_captured_calls *captured = streams->captured;
	while (captured && captured->id != id)
		captured = captured->next;
	return captured;
}

/* Under the streams' lock. */
static collet_status add_captured(struct collet_streams *streams, struct collet_stream_call *call)
{
	static const char what[] = "no memory for a call in a graph";
	struct collet_captured_calls *captured = find_captured(streams, call->capture);
	if (!captured) {
		captured = calloc(1, sizeof(*captured));
		if (!captured)
			return collet_fail(COLLET_ERR_MEMORY, what);
		captured->id = call->capture;
		captured->next = streams->captured;
		streams->captured = captured;
	}
	if (captured->count == captured->capacity) {
		const size_t capacity = captured->capacity ? 2 * captured->capacity : 16;
		struct collet_stream_call **calls =
			realloc(captured->calls, capacity * sizeof(struct collet_stream_call *));
		if (!calls)
			return collet_fail(COLLET_ERR_MEMORY, what);
		captured->calls = calls;
		captured->capacity = capacity;
	}
	captured->calls[captured->count++] = call;
	return COLLET_OK;
}

collet_status collet_stream_call_add(struct collet_stream_call *call)
{
	struct collet_streams *streams = call->streams;
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&streams->lock);
	if (call->capture) {
		status = add_captured(streams, call);
	} else {
		call->next = NULL;
		*streams->last = call;
		streams->last = &call->next;
		atomic_fetch_add_explicit(&streams->unstarted_count, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&streams->lock);
	return status;
}

void collet_stream_call_withdraw(struct collet_stream_call *call)
{
	struct collet_streams *streams = call->streams;
	pthread_mutex_lock(&streams->lock);
	if (call->capture) {
		find_captured(streams, call->capture)->count--;
	} else {
		struct collet_stream_call **at = &streams->first;
		while (*at != call)
			at = &(*at)->next;
		*at = NULL;
		streams->last = at;
		atomic_fetch_sub_explicit(&streams->unstarted_count, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&streams->lock);
}

void collet_stream_call_await_release(struct collet_stream_call *call)
{
	struct collet_streams *streams = call->streams;
	pthread_mutex_lock(&streams->lock);
	call->next = streams->unreleased;
	streams->unreleased = call;
	pthread_mutex_unlock(&streams->lock);
}

/* Under the streams' lock. */
static struct collet_stream_call *next_of_graphs(struct collet_streams *streams, bool ended)
{
	for (struct collet_captured_calls *captured = streams->captured; captured; captured = captured->next) {
		for (size_t i = 0; i < (ended ? captured->count : captured->count != 0); i++) {
			struct collet_stream_call *call = captured->calls[(captured->next_index + i) % captured->count];
			if (!has_rung(call) || call->is_active)
				continue;
			captured->next_index = (captured->next_index + i + 1) % captured->count;
			return call;
		}
	}
	return NULL;
}

/* Under the streams' lock. */
static struct collet_stream_call *next_rung(struct collet_streams *streams, bool ended)
{
	for (struct collet_stream_call **at = &streams->first; *at && (ended || at == &streams->first);
		at = &(*at)->next) {
		struct collet_stream_call *call = *at;
		if (!has_rung(call))
			continue;
		*at = call->next;
		if (!*at)
			streams->last = at;
		return call;
	}
	return next_of_graphs(streams, ended);
}

static int64_t deadline_of(const struct collet_stream_call *call)
{
	const bool ends = call->timeout_ns >= 0 && call->timeout_ns < COLLET_NEVER - call->rung_ns;
	return ends ? call->rung_ns + call->timeout_ns : COLLET_NEVER;
}

static void note_deferred(struct collet_streams *streams, const struct collet_stream_call *call)
{
	if (!has_rung(call) || call->is_active ||
		(streams->deferred_until && deadline_of(call) >= streams->deferred_until))
		return;
	streams->deferred_function = call->function;
	streams->deferred_until = deadline_of(call);
}

/* Finds the first deadline of calls that have rung and wait for others. Under the streams' lock. */
static void find_deferred(struct collet_streams *streams)
{
	streams->deferred_until = 0;
	for (const struct collet_stream_call *call = streams->first; call; call = call->next)
		note_deferred(streams, call);
	for (const struct collet_captured_calls *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			note_deferred(streams, captured->calls[i]);
}

struct collet_stream_call *collet_streams_next(struct collet_streams *streams, bool ended)
{
	pthread_mutex_lock(&streams->lock);
	struct collet_stream_call *call = next_rung(streams, ended);
	if (call)
		atomic_store_explicit(&call->rung, false, memory_order_relaxed);
	else
		find_deferred(streams);
	pthread_mutex_unlock(&streams->lock);
	return call;
}

static bool uses(const struct collet_stream_call *call, const char *first, size_t bytes)
{
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		const struct collet_buffer_info *buffer = &call->gpu_buffers.buffer[s];
		const char *begin = buffer->first;
		if (buffer->bytes && begin < first + bytes && first < begin + buffer->bytes)
			return true;
	}
	return false;
}

static bool one_uses(const struct collet_stream_call *call, const char *first, size_t bytes)
{
	while (call && !uses(call, first, bytes))
		call = call->next;
	return call;
}

/* Under the streams' lock. */
static bool graphs_use(const struct collet_streams *streams, const char *first, size_t bytes)
{
	for (const struct collet_captured_calls *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			if (uses(captured->calls[i], first, bytes))
				return true;
	return false;
}

/* Under the streams' lock. */
static bool unreleased_use(const struct collet_stream_call *call, const char *first, size_t bytes)
{
	for (; call; call = call->next)
		if (!atomic_load_explicit(&call->flags->released, memory_order_acquire) && uses(call, first, bytes))
			return true;
	return false;
}

bool collet_streams_use(const struct collet_context *context, const void *first, size_t bytes)
{
	bool used = false;
	for (struct collet_streams *streams = context->gpu->streams; streams && !used;
		streams = streams->next_in_context) {
		pthread_mutex_lock(&streams->lock);
		used = one_uses(streams->first, first, bytes) || unreleased_use(streams->active, first, bytes) ||
			graphs_use(streams, first, bytes) || unreleased_use(streams->unreleased, first, bytes);
		pthread_mutex_unlock(&streams->lock);
	}
	return used;
}
