/* Takes requests from a communicator's pool, makes them pending, and ends them. task.c starts them. */
#include "engine/request.h"

#include <assert.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/p2p/p2p.h"
#include "engine/pipeline.h"
#include "engine/recorder.h"
#include "engine/sleep.h"

collet_status collet_request_acquire(struct collet_comm_state *state, struct collet_request **request)
{
	struct collet_request *made = state->free_requests;
	if (made) {
		state->free_requests = made->next_free;
	} else {
		made = calloc(1, sizeof(*made));
		if (!made)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a request");
		made->state = state;
		made->next_allocated = state->all_requests;
		state->all_requests = made;
	}
	made->is_p2p = false;
	collet_request_reset(made);
	*request = made;
	return COLLET_OK;
}

void collet_request_reset(struct collet_request *request)
{
	assert(!request->previous_active && !request->fast_path.next);
	request->status = COLLET_PENDING;
	request->issuing_tasks = 0;
	request->items_in_flight = request->finished_items = 0;
	request->poisoned = request->deferred = request->offloaded = request->signals_stream = false;
	request->out_of_band_recorder = NULL;
}

void collet_request_release(struct collet_request *request)
{
	assert(!request->previous_active);
	request->next_free = request->state->free_requests;
	request->state->free_requests = request;
}

void collet_request_set_clock(struct collet_request *request, int64_t started_ns)
{
	const bool ends = request->timeout_ns >= 0 && request->timeout_ns < COLLET_NEVER - started_ns;
	request->started_ns = started_ns;
	request->deadline_ns = ends ? started_ns + request->timeout_ns : COLLET_NEVER;
}

void collet_request_activate(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	request->next_active = engine->pending_requests;
	if (engine->pending_requests)
		engine->pending_requests->previous_active = &request->next_active;
	engine->pending_requests = request;
	request->previous_active = &engine->pending_requests;
}

void collet_request_end(struct collet_request *request, enum collet_status status)
{
	assert(request->status == COLLET_PENDING);
	request->status = status;
	if (request->previous_active) {
		*request->previous_active = request->next_active;
		if (request->next_active)
			request->next_active->previous_active = request->previous_active;
		request->previous_active = NULL;
	}
	struct collet_comm_state *state = request->state;
	if (state->fast_path_request == request) {
		state->fast_path_request = request->fast_path.next;
		state->tasks_need_progress = true; /* task 0 may issue later requests now */
	}
	if (!request->is_p2p)
		collet_recorder_end(request->out_of_band_recorder ? request->out_of_band_recorder : &state->recorder,
			request->sequence, status, request->finished_items,
			request->poll_ticks ? request->poll_ticks : collet_ticks());
	collet_engine_notify_followers(state->engine);
}

void collet_request_end_if_done(struct collet_request *request)
{
	if (request->status == COLLET_PENDING && request->issuing_tasks == 0 && request->items_in_flight == 0 &&
		!request->poisoned && (!request->pipeline || collet_pipeline_is_complete(request->pipeline)))
		collet_request_end(request, COLLET_OK);
}

void collet_request_describe(const struct collet_request *request, char *text, size_t capacity)
{
	if (request->is_p2p)
		collet_p2p_describe(request, text, capacity);
	else
		collet_call_describe(&request->call, text, capacity);
}
