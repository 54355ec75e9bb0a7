/* Chooses the address of an item's value: its destination in the caller's memory, its source if it is sent unmodified,
 * or the task's staging, from which local peers may read it themselves. */
#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/call_class.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/peer_queue.h"
#include "engine/remote_iterator.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"
#include "transport/arena.h"

enum {
	/* Smallest segment in bytes that is published. Smaller ones go through the transport's own ring. */
	PUBLISH_MIN = (64 << 10) + 1,
	/* The same if it goes to one peer, which has its own core and does not reduce it: the ring transfers it in
	 * parts, so that both ranks copy at the same time. */
	PUBLISH_SINGLE_MIN = (128 << 10) + 1,
	/* Largest call whose segments fit into the ring, which needs no reply, in reductions of two ranks; and the
	 * smallest published segment of such calls. */
	SHORT_CALL_BYTES = 512 << 10,
	PUBLISH_SHORT_MIN = (256 << 10) + 1
};

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

static bool reads_arena(const struct collet_endpoint *endpoint, const struct collet_request *request, uint64_t bytes)
{
	return endpoint->peer_reads_arena;
}

static bool reads_memory(const struct collet_endpoint *endpoint, const struct collet_request *request, uint64_t bytes)
{
	if (!endpoint->peer_read_min_bytes || bytes < endpoint->peer_read_min_bytes)
		return false;
	return !endpoint->peer_read_classes ||
	       endpoint->peer_read_classes[collet_call_class_of(collet_request_class_flags(request))];
}

/* True if all peers that the item sends to can read in this way. */
static bool all_receivers(struct collet_task *task, const struct collet_work_item *item,
	bool (*reads)(const struct collet_endpoint *endpoint, const struct collet_request *request, uint64_t bytes))
{
	const struct collet_request *request = item->request;
	const uint64_t bytes = item->count * request->element_bytes;
	bool any = false;
	for (struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next(&at);) {
		const struct collet_peer_queue *peer_queue =
			collet_peer_queue_find(task->state, task->channel, request_comm_rank(request, at.position));
		const struct collet_endpoint *endpoint = peer_queue ? collet_peer_queue_endpoint(peer_queue) : NULL;
		if (!endpoint || !reads(endpoint, request, bytes))
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

static uint64_t publish_min(const struct collet_task *task, const struct collet_work_item *item)
{
	if (task->state->engine->oversubscribed)
		return PUBLISH_MIN;
	if (!request_never_reduces(item->request))
		return task->state->size == 2 && item->request->counted_bytes <= SHORT_CALL_BYTES ? PUBLISH_SHORT_MIN :
                                                                                                    PUBLISH_MIN;
	return count_receivers(item) == 1 ? PUBLISH_SINGLE_MIN : PUBLISH_MIN;
}

/* True if the peer should read the item from its source through the kernel (CMA). Only for a single receiver, since the
 * kernel copies once for each. */
static bool is_read_in_place(struct collet_task *task, const struct collet_work_item *item)
{
	return (item->step->is_per_peer || count_receivers(item) == 1) && all_receivers(task, item, reads_memory);
}

bool collet_work_item_is_in_cache(const struct collet_work_item *item)
{
	return item->step->is_reduction && item->request->program->collective == COLLET_ALLREDUCE &&
		count_receivers(item) == 1;
}

/* True if the item must be published: its sends then read a copy in staging instead of its source. Peers have staging
 * mapped. This core copies segments there that stay in its cache, so peers copy or reduce them at the caches' speed,
 * many of them from one copy. From the caller's memory the kernel would have to copy for each peer. Data in the arena
 * is sent from there. */
static bool must_publish(struct collet_task *task, const struct collet_work_item *item, const char *value)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	const struct collet_arena *arena = task->state->engine->arena;
	uint64_t offset;
	if (!task->staging_is_mapped || !step->destination_count ||
		item->count * request->element_bytes < publish_min(task, item) || is_read_in_place(task, item))
		return false;
	if (step->is_per_peer) {
		if (!range_is_local(request, &step->source[0]) ||
			step->destination[0].peers.count >
				collet_slot_segments(request->program->collective, request->fan_in))
			return false;
		value = request_address(request, step->source[0].buffer, 0);
	}
	return !collet_arena_contains(arena, value, 1, &offset) && all_receivers(task, item, reads_arena);
}

void collet_work_item_place_value(struct collet_task *task, struct collet_work_item *item)
{
	item->value = item->step->is_per_peer ? NULL : collet_work_item_value_address(task, item);
	item->published = must_publish(task, item, item->value);
	item->request->has_published |= item->published;
	if (item->published && !item->step->is_per_peer)
		item->value = work_item_slot(task, item, item->request->fan_in);
}
