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
	pending->first_deadline_ns = pending->new_timeout_ns = COLLET_NEVER;
}

void collet_pending_add(struct collet_comm_state *state, struct collet_request *request)
{
	struct collet_pending *pending = &state->pending;
	struct collet_pending_list *list = list_of(pending, request);
	request->next_pending = NULL;
	request->previous_pending = list->end;
	*list->end = request;
	list->end = &request->next_pending;
	if (!pending->new_since_ticks)
		pending->new_since_ticks = request->started_ticks;
	if (request->timeout_ns >= 0 && request->timeout_ns < pending->new_timeout_ns)
		pending->new_timeout_ns = request->timeout_ns;
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
	request->previous_pending = NULL;
	state->engine->pending_count--;
}

/* Lowers the bound to what no new request can end before. */
static void include_new(struct collet_comm_state *state)
{
	struct collet_pending *pending = &state->pending;
	if (!pending->new_since_ticks)
		return;
	const int64_t since_ns = collet_recorder_time(&state->recorder, pending->new_since_ticks);
	const int64_t bound_ns = collet_request_deadline(since_ns, pending->new_timeout_ns);
	if (bound_ns < pending->first_deadline_ns)
		pending->first_deadline_ns = bound_ns;
	pending->new_since_ticks = 0;
	pending->new_timeout_ns = COLLET_NEVER;
}

struct collet_request *collet_pending_find_expired(struct collet_comm_state *state, int64_t now)
{
	struct collet_pending *pending = &state->pending;
	include_new(state);
	if (now < pending->first_deadline_ns)
		return NULL;
	struct collet_request *first = NULL;
	for (struct collet_request *request = NULL; (request = collet_pending_next(pending, request));) {
		pending->visit_count++;
		collet_request_compute_deadline(request);
		if (!first || request->deadline_ns < first->deadline_ns)
			first = request;
	}
	/* The request that set the bound may have ended. */
	pending->first_deadline_ns = first ? first->deadline_ns : COLLET_NEVER;
	return now >= pending->first_deadline_ns ? first : NULL;
}

struct collet_request *collet_pending_next(const struct collet_pending *pending, const struct collet_request *after)
{
	if (after && (after->next_pending || !is_call(after)))
		return after->next_pending;
	return !after && pending->calls.first ? pending->calls.first : pending->others.first;
}
