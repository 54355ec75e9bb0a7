/* Takes requests from a communicator's pool, makes them pending, and ends them. task.c starts them. */
#include "engine/request.h"

#include <assert.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/p2p/p2p.h"
#include "engine/pending.h"
#include "engine/pipeline.h"
#include "engine/recorder.h"
#include "engine/sleep.h"
#include "engine/wait.h"

static struct collet_request *take_first(struct collet_request **list)
{
	struct collet_request *first = *list;
	if (first)
		*list = first->next_free;
	return first;
}

/* Takes a free request that has this plan; NULL if none of the first few in its slot has. */
static struct collet_request *take_planned(struct collet_comm_state *state, const struct collet_plan_key *key)
{
	enum { MOST_COMPARED = 4 };
	struct collet_request **link = &state->free_requests[key->slot];
	for (int i = 0; i < MOST_COMPARED && *link; i++, link = &(*link)->next_free)
		if (collet_plan_key_equal(key, &(*link)->plan_key))
			return take_first(link);
	return NULL;
}

/* Takes a free request whose plan may be given up; NULL if there is none. */
static struct collet_request *take_any(struct collet_comm_state *state, uint32_t first_slot)
{
	struct collet_request *taken = take_first(&state->free_requests[COLLET_NO_PLAN_SLOT]);
	if (taken || state->request_count < COLLET_PLANS_KEPT)
		return taken;
	for (uint32_t i = 0; i < COLLET_PLAN_SLOTS && !taken; i++)
		taken = take_first(&state->free_requests[(first_slot + i) % COLLET_PLAN_SLOTS]);
	return taken;
}

static struct collet_request *allocate(struct collet_comm_state *state)
{
	struct collet_request *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->state = state;
	made->next_allocated = state->all_requests;
	state->all_requests = made;
	state->request_count++;
	return made;
}

collet_status collet_request_acquire(
	struct collet_comm_state *state, const struct collet_plan_key *key, struct collet_request **request)
{
	struct collet_request *taken = key && key->algorithm ? take_planned(state, key) : NULL;
	if (!taken)
		taken = take_any(state, key ? key->slot : 0);
	if (!taken)
		taken = allocate(state);
	if (!taken)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a request");
	taken->is_p2p = false;
	if (!key)
		taken->plan_key.algorithm = 0;
	collet_request_reset(taken);
	*request = taken;
	return COLLET_OK;
}

void collet_request_reset(struct collet_request *request)
{
	assert(!request->previous_pending && !request->fast_path.next);
	request->status = COLLET_PENDING;
	request->issuing_tasks = 0;
	request->items_in_flight = request->finished_items = 0;
	request->poisoned = request->deferred = request->offloaded = request->signals_stream = false;
	request->out_of_band_recorder = NULL;
}

void collet_request_release(struct collet_request *request)
{
	assert(!request->previous_pending);
	const struct collet_plan_key *key = &request->plan_key;
	struct collet_request **list =
		&request->state->free_requests[key->algorithm ? key->slot : COLLET_NO_PLAN_SLOT];
	request->next_free = *list;
	*list = request;
}

int64_t collet_request_deadline(int64_t started_ns, int64_t timeout_ns)
{
	return timeout_ns >= 0 && timeout_ns < COLLET_NEVER - started_ns ? started_ns + timeout_ns : COLLET_NEVER;
}

void collet_request_compute_deadline(struct collet_request *request)
{
	if (request->started_ns)
		return;
	request->started_ns = collet_recorder_time(&request->state->recorder, request->started_ticks);
	request->deadline_ns = collet_request_deadline(request->started_ns, request->timeout_ns);
}

void collet_request_activate(struct collet_request *request)
{
	request->started_ns = 0;
	collet_pending_add(request->state, request);
}

/* Appends it to the requests whose on_end() is to be called, and wakes a thread that will do so. */
static void queue_on_end(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	request->next_ended = NULL;
	*engine->last_ended = request;
	engine->last_ended = &request->next_ended;
	collet_engine_wake_idle(engine);
}

_Thread_local bool collet_in_on_end;

bool collet_request_is_told_here(const struct collet_request *request)
{
	return collet_in_on_end && request->state->engine->on_end_request == request;
}

void collet_request_set_on_end(struct collet_request *request,
	void (*on_end)(void *context, enum collet_status status), void *context, bool is_unowned)
{
	request->on_end = on_end;
	request->on_end_context = context;
	request->is_unowned = is_unowned;
	if (request->status != COLLET_PENDING)
		queue_on_end(request);
}

void collet_request_end(struct collet_request *request, enum collet_status status)
{
	assert(request->status == COLLET_PENDING);
	request->status = status;
	struct collet_engine *engine = request->state->engine;
	engine->ended_count++;
	if (request->wide.previous)
		collet_wide_sums_release(request);
	struct collet_comm_state *state = request->state;
	const uint64_t ticks = request->is_p2p ? 0 : request->poll_ticks ? request->poll_ticks : collet_ticks();
	collet_pending_remove(state, request, ticks);
	if (state->fast_path_request == request) {
		state->fast_path_request = request->fast_path.next;
		state->tasks_need_progress = true; /* task 0 may issue later requests now */
	}
	if (!request->is_p2p)
		collet_recorder_end(request->out_of_band_recorder ? request->out_of_band_recorder : &state->recorder,
			request->sequence, status, request->finished_items, ticks);
	collet_engine_notify_followers(engine);
	if (request->on_end)
		queue_on_end(request);
}

void collet_request_end_if_done(struct collet_request *request)
{
	if (request->status != COLLET_PENDING || request->issuing_tasks || request->items_in_flight ||
		request->poisoned || (request->pipeline && !collet_pipeline_is_complete(request->pipeline)))
		return;
	if (!request->wide.memory || collet_wide_sums_end_slice(request))
		collet_request_end(request, COLLET_OK);
}

void collet_request_describe(const struct collet_request *request, char *text, size_t capacity)
{
	if (request->is_p2p)
		collet_p2p_describe(request, text, capacity);
	else
		collet_call_describe(&request->call, text, capacity);
}
