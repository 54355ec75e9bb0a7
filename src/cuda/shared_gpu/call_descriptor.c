/* A rank's offer for a call: where its buffers are, and what it calls. */
#include <string.h>

#include "core/status.h"
#include "core/types.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/lock.h"

static collet_status locate(struct collet_direct *direct, const char *which, struct collet_direct_side *side)
{
	struct collet_residence residence;
	side->place = side->bytes ? COLLET_PLACE_HOST : COLLET_PLACE_NONE;
	collet_status status =
		collet_residence_find(direct->device->cuda, which, side->first, side->bytes, &residence);
	if (status != COLLET_OK || !residence.device)
		return status;
	side->place = residence.ordinal == direct->device->ordinal ? COLLET_PLACE_GPU : COLLET_PLACE_BEYOND;
	side->ordinal = residence.ordinal;
	side->context = (uintptr_t)residence.context;
	side->shared = (struct collet_shared){ .process = direct->device->process };
	if (direct->beside_leader || side->place == COLLET_PLACE_BEYOND)
		return COLLET_OK;
	/* Other threads may call in other communicators of the context. */
	collet_engine_lock(direct->group->engine);
	status = collet_device_describe(direct->device, &residence, side->first, &side->shared);
	collet_engine_unlock(direct->group->engine);
	return status;
}

collet_status collet_direct_locate(struct collet_direct *direct, struct collet_direct_sides *sides)
{
	static const char *const names[2] = { "the buffer that is read", "the buffer that is written" };
	for (uint32_t s = 0; s < 2; s++) {
		const collet_status status = locate(direct, names[s], &sides->side[s]);
		if (status != COLLET_OK) {
			collet_error_prefix("%s", sides->function);
			return status;
		}
	}
	return COLLET_OK;
}

/* Cuts go along with a v-form's offer; how long that is. */
static size_t add_lists(struct collet_direct *direct, struct offer *offer, const struct collet_shape *shape)
{
	const size_t size = direct->group->size, bytes = size * sizeof(uint64_t);
	uint64_t *lists = (uint64_t *)(void *)(offer + 1);
	const struct collet_partition *cuts[2] = { &shape->input, &shape->result };
	offer->input_count = shape->input.count;
	offer->result_count = shape->result.count;
	offer->input_listed = shape->input.counts != NULL;
	offer->result_listed = shape->result.counts != NULL;
	for (uint32_t c = 0; c < 2; c++, lists += 2 * size) {
		memset(lists, 0, 2 * bytes);
		if (cuts[c]->counts) {
			memcpy(lists, cuts[c]->counts, bytes);
			memcpy(lists + size, cuts[c]->displacements, bytes);
		}
	}
	return sizeof(*offer) + 4 * bytes;
}

static struct job job_of(const struct collet_direct *direct, const struct collet_request *request)
{
	const struct collet_call *call = &request->call;
	const collet_op op = call->op == UINT8_MAX ? COLLET_OP_COUNT : (collet_op)call->op;
	const char *name = request->program->name;
	return (struct job){
		.collective = (enum collet_collective)call->collective,
		.listed = call->is_vector,
		.between_hosts = direct->by_host,
		.any_order = !request->algorithm_named || collet_op_is_exact(op, (collet_dtype)call->dtype) ||
			strcmp(name, "direct") == 0 || strcmp(name, "two_shot") == 0,
		.dtype = (collet_dtype)call->dtype,
		.op = op,
		.root = call->root,
		.count = request->shape.count,
		.signature = request->signature,
		.sequence = request->sequence,
	};
}

/* The first of the undecided calls, on the host's memory. The leader must have this rank's offer before the call ends
 * here, since nobody may hear of this rank for long then; and those of others that await a verdict must have theirs
 * from the leader. So it is held until messages have left, or come. Mostly they have, at once, and nobody awaits
 * anything: then it is a call like any other. */
static void let_go_at_once(struct collet_direct *direct, struct call *call)
{
	/* Ended: some message could not even be posted. */
	if (atomic_load_explicit(&direct->group->end_status, memory_order_acquire) != COLLET_OK ||
		!collet_direct_messages_ended(direct, call))
		return;
	for (uint32_t r = 1; is_leader(direct) && r < direct->size; r++)
		if (!offer_of(direct, call, r)->declined)
			return;
	if (is_leader(direct) && !collet_leader_agrees(direct, call))
		return;
	direct->first = NULL;
	direct->last = &direct->first;
	call->request->deferred = false;
	collet_direct_put(direct, call);
}

collet_status collet_direct_begin(
	struct collet_direct *direct, struct collet_request *request, const struct collet_direct_sides *sides)
{
	struct call *call = collet_direct_new(direct);
	collet_status status;
	if (!call)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call of ranks that share a GPU",
			sides->function);
	call->request = request;
	call->job = job_of(direct, request);
	call->sides = *sides;
	struct offer *offer = offer_of(direct, call, 0);
	collet_direct_tell_owed(direct);
	*offer = (struct offer){ .signature = request->signature, .sequence = request->sequence, .fine = 1,
		.word = sides->word, .scale = sides->scale, .side = { sides->side[0], sides->side[1] } };
	const size_t bytes = call->job.listed ? add_lists(direct, offer, &request->shape) : sizeof(*offer);
	for (uint32_t s = 0; s < 2; s++) {
		struct collet_direct_side *side = &offer->side[s];
		if (side->place != COLLET_PLACE_GPU || direct->beside_leader ||
			side->shared.kind == COLLET_SHARED_HANDLE)
			continue;
		if (side->shared.kind == COLLET_SHARED_NOT || collet_direct_show(direct, &side->shared) != COLLET_OK)
			side->place = COLLET_PLACE_BEYOND;
	}
	offer->notes = direct->shown.notes;
	request->deferred = true;
	/* Then the verdict is known, whatever others offer. */
	const bool declines = collet_direct_is_hosts(sides) &&
		(sides->side[0].place == COLLET_PLACE_HOST || sides->side[1].place == COLLET_PLACE_HOST);
	offer->declined = declines && !is_leader(direct);
	call->verdict.staged = offer->declined;
	status = collet_direct_offer(direct, call, bytes);
	if (status == COLLET_OK && declines && direct->first == call)
		let_go_at_once(direct, call);
	return status;
}
