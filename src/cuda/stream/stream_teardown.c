/* What becomes of calls on streams when their communicator goes: streams may use what they have of them yet. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "cuda/stream/stream_internal.h"
#include "engine/lock.h"

enum { LOOK_NS = 200 * 1000 }; /* between looks whether streams have passed */

/* What a look has found out of contexts. */
struct looked {
	const struct collet_copier *copier;  /* asked last; */
	bool broken;                 /* and so its context was */
	bool any;                    /* some context was, */
	bool faulty;                 /* and there is one that has not gone */
};

/* Nothing begins any more in a context that a fault has broken, or that the program has destroyed: no stream of it
 * passes anything. */
static bool is_broken(const struct collet_streams *streams, const struct collet_copier *copier, struct looked *looked)
{
	const struct collet_cuda *cuda = &streams->comm->context->cuda;
	if (looked->copier == copier)
		return looked->broken;
	cu_result result = collet_cuda_enter(cuda, copier->context);
	const bool gone = result != CU_OK && collet_cuda_is_gone(result);
	if (result == CU_OK) {
		result = cuda->cuStreamQuery(copier->stream);
		collet_cuda_leave(cuda);
	}
	looked->copier = copier;
	looked->broken = result != CU_OK && result != CU_NOT_READY;
	looked->any |= looked->broken;
	looked->faulty |= looked->broken && !gone;
	return looked->broken;
}

/* Of a list's calls. Under the streams' lock. */
static size_t count_broken(
	const struct collet_streams *streams, const struct collet_streamed *call, struct looked *looked)
{
	size_t count = 0;
	for (; call; call = call->next)
		count += !call->lost && is_broken(streams, call->copier, looked);
	return count;
}

/* Under the streams' lock. */
static bool graphs_have_passed(const struct collet_streams *streams, struct looked *looked)
{
	for (const struct collet_captured *captured = streams->captured; captured; captured = captured->next)
		for (size_t i = 0; i < captured->count; i++)
			if (!captured->calls[i]->lost &&
				!atomic_load_explicit(&captured->calls[i]->words->passed, memory_order_acquire) &&
				!is_broken(streams, captured->calls[i]->copier, looked))
				return false;
	return true;
}

/* Does no stream use anything of it any more? *looked: and of which is it said for their context's sake? */
static bool have_all_passed(struct collet_streams *streams, struct looked *looked)
{
	*looked = (struct looked){ .copier = NULL };
	collet_streams_reap(streams);
	pthread_mutex_lock(&streams->lock);
	/* What the thread is at is in neither list, for the moment. */
	const bool passed = (!streams->under_way ||
				    streams->under_way == count_broken(streams, streams->first, looked) +
							    count_broken(streams, streams->passing, looked)) &&
			    graphs_have_passed(streams, looked);
	pthread_mutex_unlock(&streams->lock);
	return passed;
}

/* True: streams use nothing of it any more, as far as they have ever rung. *faulty: but what some were in the middle of
 * when a fault came, a ring or the setting of a word, nobody will say that they have ended. */
static bool let_all_pass(struct collet_streams *streams, bool *faulty)
{
	const int64_t deadline = collet_clock_ns() + COLLET_STREAMS_PATIENCE_NS;
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	struct looked looked = { .copier = NULL };
	for (;;) {
		/* A fault is there at the next look too. */
		const bool before = looked.any, passed = have_all_passed(streams, &looked);
		*faulty = looked.faulty;
		if ((passed && looked.any == before) || collet_clock_ns() >= deadline)
			return passed;
		nanosleep(&pause, NULL);
	}
}

/* May a stream of a context that works come to one of them, of which it will not say that it has passed it? Graphs'
 * are not launched any more. Under the streams' lock. */
static bool one_is_lost(
	const struct collet_streams *streams, const struct collet_streamed *call, struct looked *looked)
{
	for (; call; call = call->next)
		if (call->lost && !call->capture && !is_broken(streams, call->copier, looked))
			return true;
	return false;
}

static bool some_are_lost(struct collet_streams *streams)
{
	struct looked looked = { .copier = NULL };
	pthread_mutex_lock(&streams->lock);
	const bool lost = one_is_lost(streams, streams->first, &looked) ||
		one_is_lost(streams, streams->passing, &looked);
	pthread_mutex_unlock(&streams->lock);
	return lost;
}

static void free_streams(struct collet_streams *streams)
{
	struct collet_pinned_pool *pool = &streams->comm->context->pinned;
	if (streams->holds)
		collet_ipc_let_go(&streams->comm->context->device.ipc);
	for (struct collet_captured *captured = streams->captured, *next; captured; captured = next) {
		next = captured->next;
		for (size_t i = 0; i < captured->count; i++)
			collet_streamed_free(captured->calls[i]);
		free(captured->calls);
		free(captured);
	}
	*streams->last = streams->passing;  /* what is left of both is lost */
	for (struct collet_streamed *call = streams->first, *next; call; call = next) {
		next = call->next;
		collet_streamed_free(call);
	}
	for (struct collet_streamed *call = streams->free, *next; call; call = next) {
		next = call->next;
		free(call);
	}
	for (struct collet_words_block *block = streams->blocks, *next; block; block = next) {
		next = block->next;
		collet_pinned_give(pool, block->memory);
		free(block);
	}
	close(streams->ring_fd);
	pthread_mutex_destroy(&streams->lock);
	free(streams);
}

static void unlink_streams(struct collet_streams *streams)
{
	collet_engine_lock(streams->engine);
	struct collet_streams **at = &streams->comm->context->streams;
	while (*at != streams)
		at = &(*at)->next_in_context;
	*at = streams->next_in_context;
	collet_engine_unlock(streams->engine);
}

/* Why what calls on streams use is not freed. */
static void log_kept(const struct collet_streams *streams, bool faulty, bool lost)
{
	const struct collet_log *log = &streams->engine->log;
	if (faulty)
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: a fault has broken a GPU's context, in the middle of calls on streams; "
			"what they use is kept until the process ends");
	else if (lost)
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: the driver has refused a call in the middle, so nobody knows when its "
			"stream has passed what it has of that; what the communicator's calls on streams use is not "
			"freed");
	else
		collet_log(log, COLLET_LOG_ERROR,
			"collet_comm_destroy: after %d s a stream has not passed calls of this communicator; what they "
			"use is not freed",
			(int)(COLLET_STREAMS_PATIENCE_NS / 1000000000));
}

/* What is not freed stays the context's: streams that come to their calls yet ring, and are let go of. */
bool collet_streams_free(collet_comm *comm)
{
	struct collet_streams *streams = comm->streams;
	bool faulty;
	if (!streams)
		return true;
	const bool passed = let_all_pass(streams, &faulty);
	collet_streams_stop(streams);
	const bool lost = passed && some_are_lost(streams);
	comm->streams = NULL;
	if (passed && !lost && !faulty) {
		unlink_streams(streams);
		free_streams(streams);
		return true;
	}
	log_kept(streams, passed && faulty, lost);
	return false;
}
