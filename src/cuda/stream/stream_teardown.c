/* Frees calls on streams with their communicator, as far as no stream may still use them. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "cuda/stream/stream_internal.h"
#include "engine/engine.h"
#include "engine/lock.h"

enum { POLL_NS = 200 * 1000 }; /* between polls of the flags `released` */

/* What one poll has found out about contexts. */
struct context_health {
	const struct collet_copy_stream *last_stream; /* the last one asked */
	bool is_broken;                               /* its context was broken */
	bool has_broken;                              /* some context was broken */
	bool has_faulted;                             /* one of these by a fault, not by its destruction */
};

/* True if a fault has broken the context, or the application has destroyed it. No stream of it makes progress then. */
static bool is_broken(const struct collet_streams *streams, const struct collet_copy_stream *copy_stream,
	struct context_health *health)
{
	const struct collet_cuda *cuda = &streams->comm->context->gpu->cuda;
	if (health->last_stream == copy_stream)
		return health->is_broken;
	cu_result result = collet_cuda_push_context(cuda, copy_stream->context);
	const bool gone = result != CU_OK && collet_cuda_context_is_destroyed(result);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(copy_stream->stream);
		collet_cuda_pop_context(cuda);
	}
	health->last_stream = copy_stream;
	health->is_broken = result != CU_OK && result != CU_NOT_READY;
	health->has_broken |= health->is_broken;
	health->has_faulted |= health->is_broken && !gone;
	return health->is_broken;
}

/* Counts the calls of a list whose context is broken. Under the streams' lock. */
static size_t count_broken(
	const struct collet_streams *streams, const struct collet_stream_call *call, struct context_health *health)
{
	size_t count = 0;
	for (; call; call = call->next)
		count += !call->is_leaked && is_broken(streams, call->copy_stream, health);
	return count;
}

/* Under the streams' lock. */
static bool graphs_released(const struct collet_streams *streams, struct context_health *health)
{
	for (const struct collet_captured_calls *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			if (!captured->calls[i]->is_leaked &&
				!atomic_load_explicit(&captured->calls[i]->flags->released, memory_order_acquire) &&
				!is_broken(streams, captured->calls[i]->copy_stream, health))
				return false;
	return true;
}

/* True if no stream uses any call. *health says which contexts were found broken. */
static bool all_released(struct collet_streams *streams, struct context_health *health)
{
	*health = (struct context_health){ .last_stream = NULL };
	collet_streams_reap(streams);
	pthread_mutex_lock(&streams->lock);
	/* A call that the thread has taken is in neither list for the moment. */
	const bool released = (!streams->unreleased_count ||
				    streams->unreleased_count == count_broken(streams, streams->first, health) +
							    count_broken(streams, streams->unreleased, health)) &&
			    graphs_released(streams, health);
	pthread_mutex_unlock(&streams->lock);
	return released;
}

/* Waits until streams use none of the calls that have rung; false if that takes too long. *faulted: a fault came while
 * some were in a doorbell or setting a flag, and nothing will report that these have ended. */
static bool wait_all_released(struct collet_streams *streams, bool *faulted)
{
	const int64_t deadline = collet_clock_ns() + COLLET_STREAMS_RELEASE_TIMEOUT_NS;
	const struct timespec pause = { .tv_nsec = POLL_NS };
	struct context_health health = { .last_stream = NULL };
	for (;;) {
		/* Polls once more after a fault, which stays. */
		const bool before = health.has_broken, released = all_released(streams, &health);
		*faulted = health.has_faulted;
		if ((released && health.has_broken == before) || collet_clock_ns() >= deadline)
			return released;
		nanosleep(&pause, NULL);
	}
}

/* True if a stream of a working context may still execute one of these calls and nothing will report when it has.
 * Graphs do not count, as they are not launched any more. Under the streams' lock. */
static bool one_is_leaked(
	const struct collet_streams *streams, const struct collet_stream_call *call, struct context_health *health)
{
	for (; call; call = call->next)
		if (call->is_leaked && !call->capture && !is_broken(streams, call->copy_stream, health))
			return true;
	return false;
}

static bool some_are_leaked(struct collet_streams *streams)
{
	struct context_health health = { .last_stream = NULL };
	pthread_mutex_lock(&streams->lock);
	const bool leaked = one_is_leaked(streams, streams->first, &health) ||
		one_is_leaked(streams, streams->unreleased, &health);
	pthread_mutex_unlock(&streams->lock);
	return leaked;
}

static void free_streams(struct collet_streams *streams)
{
	struct collet_pinned_pool *pool = &streams->comm->context->gpu->pinned;
	if (streams->has_eviction_pause)
		collet_ipc_cache_resume_eviction(&streams->comm->context->gpu->device.ipc_cache);
	for (struct collet_captured_calls *captured = streams->captured, *next; captured; captured = next) {
		next = captured->next;
		for (size_t i = 0; i < captured->count; i++)
			collet_stream_call_free(captured->calls[i]);
		free(captured->calls);
		free(captured);
	}
	*streams->last = streams->unreleased; /* frees what is left of both lists */
	for (struct collet_stream_call *call = streams->first, *next; call; call = next) {
		next = call->next;
		collet_stream_call_free(call);
	}
	for (struct collet_stream_call *call = streams->free, *next; call; call = next) {
		next = call->next;
		free(call);
	}
	for (struct collet_stream_flags_block *block = streams->blocks, *next; block; block = next) {
		next = block->next;
		collet_pinned_release(pool, block->memory);
		free(block);
	}
	close(streams->doorbell_fd);
	pthread_mutex_destroy(&streams->lock);
	free(streams);
}

static void unlink_streams(struct collet_streams *streams)
{
	collet_engine_lock(streams->engine);
	struct collet_streams **at = &streams->comm->context->gpu->streams;
	while (*at != streams)
		at = &(*at)->next_in_context;
	*at = streams->next_in_context;
	collet_engine_unlock(streams->engine);
}

/* Says why memory of calls on streams is not freed. */
static void log_leaked(const struct collet_streams *streams, bool faulted, bool leaked)
{
	const struct collet_log *log = &streams->engine->log;
	if (faulted)
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: a fault has broken a GPU's context, in the middle of calls on streams; "
			"what they use is kept until the process ends");
	else if (leaked)
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: the driver has refused a call in the middle, so nobody knows when its "
			"stream has passed what it has of that; what the communicator's calls on streams use is not "
			"freed");
	else
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: after %d s a stream has not passed calls of this communicator; what they "
			"use is not freed",
			(int)(COLLET_STREAMS_RELEASE_TIMEOUT_NS / 1000000000));
}

/* Streams that are not freed stay with the context. A stream that still gets to one of their calls rings, and is
 * released at once. */
bool collet_streams_free(collet_comm *comm)
{
	struct collet_streams *streams = comm->gpu->streams;
	bool faulted;
	if (!streams)
		return true;
	const bool released = wait_all_released(streams, &faulted);
	collet_streams_stop(streams);
	const bool leaked = released && some_are_leaked(streams);
	comm->gpu->streams = NULL;
	if (released && !leaked && !faulted) {
		unlink_streams(streams);
		free_streams(streams);
		return true;
	}
	log_leaked(streams, released && faulted, leaked);
	return false;
}
