/* A call of ranks that go together, as each of them keeps it: its memory, and its messages, which travel point to
 * point in the shadow. */
#include <stdlib.h>

#include "cuda/shared_gpu/internal.h"

struct collet_request *collet_direct_post(
	struct collet_direct *direct, bool sends, uint32_t place, uint32_t tag, void *buffer, size_t bytes)
{
	struct collet_request *request;
	collet_status status = collet_request_acquire(&direct->shadow, &request);
	if (status == COLLET_OK) {
		request->is_p2p = true;
		request->plan_key.algorithm = 0;
		/* A call has its own deadline; connecting has this one. */
		request->timeout_ns = direct->connecting ? direct->group->timeout_ns : -1;
		request->started_ticks = collet_ticks();
		request->started_ns = request->next_query_ns = 0;
		request->warning_stage = 0;
		request->p2p = (struct collet_p2p_call){
			.is_send = sends, .peer = direct->members[place], .tag = tag,
			.buffer = buffer, .bytes = bytes, .element_bytes = 1 };
		collet_request_activate(request);
		status = collet_p2p_start(request);
		if (status == COLLET_OK)
			return request;
	}
	collet_comm_state_end(direct->group, status, true, collet_last_error());
	return NULL;
}

uint32_t collet_direct_tag(const struct call *call)
{
	return (uint32_t)(2 * call->job.sequence);
}

bool collet_direct_messages_ended(const struct collet_direct *direct, const struct call *call)
{
	for (uint32_t i = 0; i < direct->size; i++)
		if (call->messages[i] && call->messages[i]->status == COLLET_PENDING)
			return false;
	for (uint32_t i = 0; i < direct->size; i++) {
		if (call->messages[i])
			collet_request_release(call->messages[i]);
		call->messages[i] = NULL;
	}
	return true;
}

void collet_direct_free_call(struct call *call)
{
	if (!call)
		return;
	free(call->messages);
	free(call->offers);
	free(call->opened);
	free(call);
}

struct call *collet_direct_new(struct collet_direct *direct)
{
	struct call *call = direct->spare;
	const size_t size = direct->size;
	if (call) {
		direct->spare = call->next;
		call->suspected = call->surprising = call->shared = call->over = false;
		call->verdict = (struct verdict){ 0 };
		return call;
	}
	call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->messages = calloc(size, sizeof(struct collet_request *));
	call->offers = calloc(is_leader(direct) ? size : 1, direct->offer_bytes);
	call->opened = calloc(2 * size, sizeof(struct collet_opened *));
	if (call->messages && call->offers && call->opened)
		return call;
	collet_direct_free_call(call);
	return NULL;
}

void collet_direct_put(struct collet_direct *direct, struct call *call)
{
	call->next = direct->spare;
	direct->spare = call;
}

collet_status collet_direct_offer(struct collet_direct *direct, struct call *call, size_t bytes)
{
	const uint32_t tag = collet_direct_tag(call), size = direct->size;
	call->next = NULL;
	*direct->last = call;
	direct->last = &call->next;
	call->stage = is_leader(direct) ? GATHERING : WAITING;
	if (!is_leader(direct)) {
		call->messages[0] = collet_direct_post(direct, true, 0, tag, call->offers, bytes);
		if (!offer_of(direct, call, 0)->declined)
			call->messages[1] = collet_direct_post(
				direct, false, 0, tag + 1, &call->verdict, sizeof(call->verdict));
		return COLLET_OK;
	}
	for (uint32_t r = 1; r < size; r++)
		call->messages[r] = collet_direct_post(
			direct, false, r, tag, offer_of(direct, call, r), direct->offer_bytes);
	return COLLET_OK;
}
