/* Calls of ranks that go together, from stage to stage: what the group's rounds of progress do for them. */
#include <stdio.h>
#include <string.h>

#include "cuda/shared_gpu/internal.h"

void collet_direct_over(void *data)
{
	struct call *call = data;
	call->over = true;
}

static void tell(struct collet_direct *direct, struct call *call)
{
	call->stage = TELLING;
	for (uint32_t r = 1; r < direct->size; r++)
		if (!offer_of(direct, call, r)->declined)
			call->messages[r] = collet_direct_post(
				direct, true, r, collet_direct_tag(call) + 1, &call->verdict, sizeof(call->verdict));
}

/* The call is decided, on this rank too. */
static void settle(struct collet_direct *direct, struct call *call)
{
	struct collet_request *request = call->request;
	call->stage = OVER;
	if (call->verdict.again)
		collet_shown_all_again(&direct->shown);
	if (call->shared)
		collet_direct_put(direct, call);
	if (call->shared || !request)
		return;
	if (!call->verdict.staged) {
		request->offloaded = true;
		request->stream_ordered = call->verdict.ordered;
		direct->events->done(request);
	} else if (direct->events->stage(request, &call->sides) != COLLET_OK) {
		/* The others go on without this rank. */
		collet_comm_state_end(direct->group, COLLET_ERR_SYSTEM, true, collet_last_error());
	}
	request->deferred = false;
	direct->group->tasks_need_progress = true;
	if (call->verdict.ordered && is_leader(direct))
		collet_order_keep(direct, call);
	else
		collet_direct_put(direct, call);
}

/* Goes on with the first undecided call; false: it has to wait. */
static bool step(struct collet_direct *direct, struct call *call)
{
	switch (call->stage) {
	case GATHERING:
		if (!collet_direct_messages_ended(direct, call) || !collet_leader_decide(direct, call))
			return false;
		if (call->stage == GATHERING || call->verdict.ordered)
			tell(direct, call);
		return true;
	case SHARING:
		if (!call->over)
			return false;
		collet_leader_release(direct, call);
		tell(direct, call);
		return true;
	case RUNNING:
		if (!collet_leader_finished(direct, call))
			return false;
		tell(direct, call);
		return true;
	default:
		if (!collet_direct_messages_ended(direct, call))
			return false;
		direct->first = call->next;
		if (!direct->first)
			direct->last = &direct->first;
		settle(direct, call);
		return true;
	}
}

static bool has_ended(const struct collet_comm_state *group)
{
	return atomic_load_explicit(&group->end_status, memory_order_acquire) != COLLET_OK;
}

static bool advance(struct collet_comm_state *group, void *hooked)
{
	struct collet_direct *direct = hooked;
	bool any = false, some = true;
	collet_order_reap(direct);
	while (direct->first && some && !has_ended(group)) {
		if (has_ended(&direct->shadow)) {
			const int status = atomic_load_explicit(&direct->shadow.end_status, memory_order_relaxed);
			collet_comm_state_end(group, (enum collet_status)status, true, direct->shadow.sentence);
			return true;
		}
		some = step(direct, direct->first);
		any |= some;
	}
	return any;
}

/* No message comes of what the GPU has done. */
static bool rests(const void *hooked)
{
	const struct collet_direct *direct = hooked;
	return !direct->first || direct->first->stage != RUNNING;
}

static bool name_awaited(const void *hooked, const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_direct *direct = hooked;
	const struct call *call = direct->first;
	size_t used = 0;
	while (call && call->request != request)
		call = call->next;
	if (!call)
		return false;
	if (call->stage == RUNNING)
		snprintf(text, capacity, "none, but for the GPU");
	else
		snprintf(text, capacity, "%u, which leads", direct->members[0]);
	if (call->stage != GATHERING)
		return true;
	for (uint32_t r = 1; r < direct->size; r++) {
		if (!call->messages[r] || call->messages[r]->status != COLLET_PENDING)
			continue;
		const int more = snprintf(text + used, capacity - used, "%s%u", used ? ", " : "", direct->members[r]);
		if (more < 0 || used + (size_t)more >= capacity)
			break;
		used += (size_t)more;
	}
	return true;
}

const struct collet_progress_hooks collet_direct_hooks = { advance, rests, name_awaited };
