#include "api/on_end.h"

#include "api/call.h"
#include "core/status.h"
#include "engine/lock.h"
#include "engine/sleep.h"
#include "engine/watch.h"

/* Another thread's on_end() wakes who waits for its return; this is a limit. */
enum { FOLLOW_MS = 50 };

collet_status collet_check_on_end(const char *function)
{
	if (!collet_in_on_end)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT,
		"%s: called by how.on_end(), which must not create, split or destroy communicators", function);
}

collet_status collet_check_notice(const char *function, const collet_how *how)
{
	if (!how->stream || collet_how_blocks(how))
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT,
		"%s: how.%s and how.stream are both set: a call on a stream is waited for by its stream, or an event "
		"recorded there",
		function, how->request ? "request" : "on_end");
}

static struct collet_request *take_first(struct collet_engine *engine)
{
	struct collet_request *first = engine->ended_requests;
	engine->ended_requests = first->next_ended;
	if (!engine->ended_requests)
		engine->last_ended = &engine->ended_requests;
	return first;
}

/* Completes the request, but for its release if the caller has it, and calls its on_end(). Under the lock, which it
 * releases meanwhile. */
static void run_one(struct collet_engine *engine, struct collet_request *request)
{
	void (*on_end)(void *, enum collet_status) = request->on_end;
	void *context = request->on_end_context;
	struct collet_gpu_staging *staging = request->staging;
	request->staging = NULL;
	if (staging)
		collet_offload->staging_stop(staging);
	collet_status status = collet_call_outcome(request);
	if (staging) {
		collet_engine_unlock(engine);
		status = collet_offload->staging_end(staging, status);
		collet_engine_lock(engine);
		request->status = status;
	}
	if (request->is_unowned)
		collet_call_release(request);
	else
		engine->on_end_request = request;
	collet_engine_unlock(engine);
	collet_in_on_end = true;
	on_end(context, status);
	collet_in_on_end = false;
	collet_engine_lock(engine);
	if (engine->on_end_request) /* on_end() has not freed it */
		engine->on_end_request->on_end = NULL;
	engine->on_end_request = NULL;
	engine->ended_count++;
	if (engine->is_watched)
		collet_watch_interrupt(engine);
	collet_engine_notify_followers(engine);
}

void collet_run_on_end(struct collet_engine *engine)
{
	if (engine->on_end_state)
		return;
	while (engine->ended_requests) {
		struct collet_request *request = take_first(engine);
		engine->on_end_state = request->state;
		run_one(engine, request);
		engine->on_end_state = NULL;
	}
}

static bool has_ended_requests(const struct collet_comm_state *state)
{
	for (const struct collet_request *request = state->engine->ended_requests; request;
		request = request->next_ended)
		if (request->state == state)
			return true;
	return state->engine->on_end_state == state;
}

void collet_drain_on_end(struct collet_comm_state *state)
{
	struct collet_engine *engine = state->engine;
	collet_engine_lock(engine);
	if (has_ended_requests(state)) /* they may make calls */
		collet_comm_state_end(state, COLLET_ERR_ABORTED, false, "collet_comm_destroy() was called");
	for (collet_run_on_end(engine); has_ended_requests(state); collet_run_on_end(engine))
		collet_engine_follow(engine, FOLLOW_MS);
	collet_engine_unlock(engine);
}
