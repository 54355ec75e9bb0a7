#include "engine/pending.h"

#include "core/clock.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/recorder.h"
#include "engine/request.h"

/* True if peers know the request by a number. */
static bool is_call(const struct collet_request *request)
{
	return !request->is_p2p && !request->out_of_band_recorder;
}

static struct collet_pending_list *list_of(struct collet_pending *pending, const struct collet_request *request)
{
	return is_call(request) ? &pending->calls : &pending->others;
}

void collet_pending_init(struct collet_pending *pending)
{
	pending->calls.end = &pending->calls.first;
	pending->others.end = &pending->others.first;
	pending->first_deadline_ns = COLLET_NEVER;
}

void collet_pending_add(struct collet_comm_state *state, struct collet_request *request)
{
	struct collet_pending_list *list = list_of(&state->pending, request);
	request->next_pending = NULL;
	request->previous_pending = list->end;
	*list->end = request;
	list->end = &request->next_pending;
	if (!list->unchecked)
		list->unchecked = request;
	state->engine->pending_count++;
}

void collet_pending_remove(struct collet_comm_state *state, struct collet_request *request, uint64_t ticks)
{
	if (!request->previous_pending)
		return;
	struct collet_pending *pending = &state->pending;
	struct collet_pending_list *list = list_of(pending, request);
	struct collet_request *next = request->next_pending;
	if (next && request == pending->calls.first)
		pending->oldest_since_ticks = ticks;
	*request->previous_pending = next;
	if (next)
		next->previous_pending = request->previous_pending;
	else
		list->end = request->previous_pending;
	if (list->unchecked == request)
		list->unchecked = next;
	request->previous_pending = NULL;
	state->engine->pending_count--;
}

void collet_pending_note_deadline(struct collet_pending *pending, int64_t deadline_ns)
{
	if (deadline_ns < pending->first_deadline_ns)
		pending->first_deadline_ns = deadline_ns;
}

static void check_list(struct collet_comm_state *state, struct collet_pending_list *list)
{
	for (; list->unchecked; list->unchecked = list->unchecked->next_pending) {
		state->pending.visit_count++;
		if (!list->unchecked->started_ns)
			collet_request_set_clock(list->unchecked,
				collet_recorder_time(&state->recorder, list->unchecked->started_ticks));
	}
}

void collet_pending_check_deadlines(struct collet_comm_state *state)
{
	check_list(state, &state->pending.calls);
	check_list(state, &state->pending.others);
}

struct collet_request *collet_pending_find_expired(struct collet_pending *pending, int64_t now)
{
	if (now < pending->first_deadline_ns)
		return NULL;
	/* The request that set the bound may have ended, so this computes it again. */
	pending->first_deadline_ns = COLLET_NEVER;
	struct collet_request *expired = NULL;
	for (struct collet_request *request = NULL; (request = collet_pending_next(pending, request));) {
		pending->visit_count++;
		collet_pending_note_deadline(pending, request->deadline_ns);
		if (now >= request->deadline_ns && (!expired || request->deadline_ns < expired->deadline_ns))
			expired = request;
	}
	return expired;
}

struct collet_request *collet_pending_next(const struct collet_pending *pending, const struct collet_request *after)
{
	if (after && (after->next_pending || !is_call(after)))
		return after->next_pending;
	return !after && pending->calls.first ? pending->calls.first : pending->others.first;
}
