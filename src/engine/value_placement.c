/* Chooses the address of an item's value: its destination in the caller's memory, its source if it is sent unmodified,
 * or the task's staging, from which local peers may read it themselves. */
#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/peer_queue.h"
#include "engine/remote_iterator.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"
#include "transport/arena.h"

/* Smallest segment in bytes that is published. Smaller ones are copied for each receiver. */
enum { PUBLISH_MIN = (64 << 10) + 1 };

bool collet_request_is_nontemporal(const struct collet_request *request)
{
	const struct collet_program *program = request->program;
	if (request->counted_bytes < request->state->engine->nontemporal_min_bytes)
		return false;
	for (uint32_t part = 0; part < request->parts; part++) {
		const uint64_t steps = program->step_count(&request->shape, part);
		for (uint64_t s = 0; s < steps; s++) {
			const struct collet_step step = program->step(&request->shape, part, s);
			for (uint32_t i = 0; i < step.source_count; i++)
				if (step.source[i].buffer == COLLET_RESULT && range_is_local(request, &step.source[i]))
					return false;
		}
	}
	return true;
}

char *collet_work_item_value_address(const struct collet_task *task, const struct collet_work_item *item)
{
	const struct collet_arena *arena = task->state->engine->arena;
	const bool has_destination = range_is_local(item->request, &item->step->destination[0]);
	uint64_t offset;
	if (work_item_is_plain_copy(item) &&
		!(has_destination && arena && collet_arena_contains(arena, work_item_destination(item), 1, &offset)))
		return work_item_source(item);
	return has_destination ? work_item_destination(item) : work_item_slot(task, item, item->request->fan_in);
}

/* True if all peers that the item sends to read this rank's arena in place. */
static bool all_read_arena(struct collet_task *task, const struct collet_work_item *item)
{
	bool any = false;
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next(&at);) {
		const struct collet_peer_queue *peer_queue = collet_peer_queue_find(
			task->state, task->channel, request_comm_rank(item->request, at.position));
		const struct collet_endpoint *endpoint = peer_queue ? collet_peer_queue_endpoint(peer_queue) : NULL;
		if (!endpoint || !endpoint->peer_reads_arena)
			return false;
		any = true;
	}
	return any;
}

static uint32_t count_receivers(const struct collet_work_item *item)
{
	uint32_t peers = 0;
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next(&at);)
		peers++;
	return peers;
}

bool collet_work_item_is_in_cache(const struct collet_work_item *item)
{
	return item->step->is_reduction && item->request->program->collective == COLLET_ALLREDUCE &&
		count_receivers(item) == 1;
}

/* True if the item must be published: its sends then read a copy in staging instead of its source. Peers have staging
 * mapped. This core copies segments there that stay in its cache, and many peers read one copy. A single peer with a
 * core of its own gets the bytes through its endpoint, which it reads while this core writes. Where ranks outnumber
 * cores, it reads more from staging before this rank must run again. Data in the arena is sent from there. */
static bool must_publish(struct collet_task *task, const struct collet_work_item *item, const char *value)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	const struct collet_engine *engine = task->state->engine;
	uint64_t offset;
	if (!task->staging_is_mapped || !step->destination_count ||
		item->count * request->element_bytes < PUBLISH_MIN)
		return false;
	if (!engine->oversubscribed && (step->is_per_peer || count_receivers(item) < 2))
		return false;
	if (step->is_per_peer) {
		if (!range_is_local(request, &step->source[0]) ||
			step->destination[0].peers.count >
				collet_slot_segments(request->program->collective, request->fan_in))
			return false;
		value = request_address(request, step->source[0].buffer, 0);
	}
	return !collet_arena_contains(engine->arena, value, 1, &offset) && all_read_arena(task, item);
}

void collet_work_item_place_value(struct collet_task *task, struct collet_work_item *item)
{
	item->value = item->step->is_per_peer ? NULL : collet_work_item_value_address(task, item);
	item->published = must_publish(task, item, item->value);
	item->request->has_published |= item->published;
	if (item->published && !item->step->is_per_peer)
		item->value = work_item_slot(task, item, item->request->fan_in);
}
