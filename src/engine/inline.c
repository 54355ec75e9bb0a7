/* Small calls, run on the spot: another executor of the same steps.
 *
 * When a call blocks anyway, nothing else is under way in its lane and each of its steps is one piece, there is nothing to
 * overlap: the steps are taken in order, each one's receives waited for, without window or conflicts. Of two paired steps
 * the one that only sends goes first, so that ranks that exchange do not wait for each other.
 * Transfers go through the routes' queues as everywhere, so order, deadlines, loss and sleep are the engine's. */
#include "engine/engine.h"

/* Beyond this, overlap within a message pays. */
enum { INLINE_BYTES = 32 << 10, INLINE_PEERS = 16 };

bool collet_inline_fits(const struct collet_request *request)
{
	const struct collet_group *group = request->group;
	const struct collet_lane *lane = group->lanes[0];
	return request->small && lane && !lane->first && lane->oldest == lane->next;
}

static bool is_small(const struct collet_request *request)
{
	const struct collet_shape *shape = &request->shape;
	if (shape->result.kind == COLLET_CUT_LISTED)
		return false;
	const uint64_t blocks = shape->result.kind == COLLET_CUT_BLOCKS ? shape->size : 1;
	return shape->count <= request->piece && shape->count * blocks * request->element_bytes <= INLINE_BYTES;
}

/* Does the step write into this rank's memory? */
static bool writes(const struct collet_request *request, const struct collet_step *step)
{
	return step->destination_count && step->destination[0].peers.count == 1 &&
		step->destination[0].peers.first == request->shape.rank;
}

static bool receives(const struct collet_request *request, const struct collet_step *step)
{
	return !(step->source_count == 1 && step->source[0].peers.count == 1 &&
		step->source[0].peers.first == request->shape.rank);
}

/* Of two paired steps, sends go first. */
static void order_pairs(struct collet_request *request)
{
	for (uint32_t s = 0; s + 1 < request->small_steps; s++) {
		struct collet_step *step = &request->small_step[s];
		if (!step->paired)
			continue;
		if (receives(request, &step[0]) && !receives(request, &step[1])) {
			const struct collet_step second = step[1];
			step[1] = step[0];
			step[0] = second;
		}
		s++;
	}
}

void collet_inline_plan(struct collet_request *request)
{
	const struct collet_program *program = request->program;
	request->small = false;
	if (request->lanes != 1 || request->shape.size > INLINE_PEERS || !is_small(request))
		return;
	const uint64_t steps = program->step_count(&request->shape, 0);
	_Static_assert(INLINE_STEPS <= LANE_WINDOW, "each step has a slot of staging");
	if (steps > INLINE_STEPS)
		return;
	for (uint32_t s = 0; s < steps; s++)
		request->small_step[s] = program->step(&request->shape, 0, s);
	request->small_steps = (uint32_t)steps;
	request->small = true;
	order_pairs(request);
}

static bool has_come(void *context)
{
	const struct collet_item *item = context;
	return item->receives_pending == 0 || item->request->status != COLLET_PENDING;
}

static bool has_gone(void *context)
{
	const struct collet_item *item = context;
	return item->sends_pending == 0 || item->request->status != COLLET_PENDING;
}

/* One step; false: the group has ended meanwhile. sent counts what all steps so far have under way. */
static bool run_step(struct collet_lane *lane, struct collet_item *item, const struct collet_step *step)
{
	struct collet_request *request = item->request;
	struct collet_engine *engine = request->group->engine;
	if (!step->source_count)
		return true;
	item->slot = (item->slot + 1) % LANE_WINDOW;  /* each step has one of its own: there are no more steps than slots */
	item->step = step;
	item->executed = item->unloaded = false;
	item->offset = 0;
	item->count = collet_step_longest(request, step);
	/* What is written here may be on its way still. Small sends have mostly settled when they were posted; one that has not
	 * may wait for its receiver, and that one for us: so what comes is taken first, and kept aside until it has gone. */
	const bool waits = item->sends_pending && writes(request, step);
	item->staged = waits && !step->reduce && receives(request, step);
	collet_item_place(lane, item);
	collet_item_queue_receives(lane, item);
	if (item->receives_pending) {
		collet_engine_wait_locked(engine, has_come, item);
		if (request->status != COLLET_PENDING)
			return false;
	}
	if (waits && item->sends_pending) {
		collet_item_hold(lane, item);
		collet_engine_wait_locked(engine, has_gone, item);
		if (request->status != COLLET_PENDING)
			return false;
	}
	collet_item_queue_sends(lane, item);
	collet_item_execute(lane, item);
	return true;
}

void collet_inline_run(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_lane *lane = group->lanes[0];
	struct collet_item *item = &lane->items[lane->next % LANE_WINDOW];
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->slot = LANE_WINDOW - 1;
	for (uint32_t s = 0; s < request->small_steps; s++)
		if (!run_step(lane, item, &request->small_step[s]))
			return;
	if (item->sends_pending)
		collet_engine_wait_locked(group->engine, has_gone, item);
	if (request->status == COLLET_PENDING && !request->spoilt)
		collet_request_end(request, COLLET_OK);
}
