/* Finds the memory that items access, and which items must wait for which. An item writes a range only after earlier
 * items have read or written it and their sends from it have completed. It reads a range only after earlier writes. */
#include "collectives/step.h"
#include "engine/byte_range.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

/* ---- Accesses of an item ---- */

static bool includes_self(const struct collet_request *request, const struct collet_buffer_range *end)
{
	for (uint32_t i = 0; i < end->peers.count; i++)
		if (collet_peers_at(&end->peers, i, request->shape.size) == request->shape.rank)
			return true;
	return false;
}

static struct collet_byte_range segment_range(const struct collet_request *request, const struct collet_work_item *item,
	const struct collet_buffer_range *end)
{
	struct collet_byte_range range = { request_address(request, end->buffer, end->span.first + item->offset),
		item->count * request->element_bytes };
	return range;
}

/* Computes the hull of a buffer that a per-peer step may access, and this rank's own chunk, which it does not
 * access. */
static void per_peer_ranges(const struct collet_request *request, struct collet_work_item *item,
	enum collet_buffer buffer, struct collet_byte_range *hull)
{
	const struct collet_partition *partition = collet_step_partition(&request->shape, buffer);
	uint64_t end = 0;
	if (partition->kind == COLLET_PARTITION_VECTOR) {
		for (uint32_t p = 0; p < request->shape.size; p++) {
			const struct collet_span span = collet_partition_chunk(partition, &request->shape, p);
			end = span.count && span.first + span.count > end ? span.first + span.count : end;
		}
	} else {
		end = partition->kind == COLLET_PARTITION_EVEN ? partition->count
							       : partition->count * request->shape.size;
	}
	const struct collet_span own = collet_partition_chunk(partition, &request->shape, request->shape.rank);
	hull->first = request_address(request, buffer, 0);
	hull->bytes = end * request->element_bytes;
	item->excluded.first = request_address(request, buffer, own.first);
	item->excluded.bytes = own.count * request->element_bytes;
}

void collet_work_item_fill_ranges(const struct collet_request *request, struct collet_work_item *item)
{
	const struct collet_step *step = item->step;
	item->read_count = 0;
	item->writes = item->borrowed = item->excluded = (struct collet_byte_range){ NULL, 0 };
	if (step->is_per_peer) {
		if (range_is_local(request, &step->source[0])) {
			per_peer_ranges(request, item, step->source[0].buffer, &item->reads[0]);
			item->read_count = 1;
		} else {
			per_peer_ranges(request, item, step->destination[0].buffer, &item->writes);
		}
		return;
	}
	for (uint32_t i = 0; i < step->source_count; i++)
		if (includes_self(request, &step->source[i]))
			item->reads[item->read_count++] = segment_range(request, item, &step->source[i]);
	if (range_is_local(request, &step->destination[0]))
		item->writes = segment_range(request, item, &step->destination[0]);
}

/* ---- Conflicts ---- */

bool collet_ranges_overlap(struct collet_byte_range a, struct collet_byte_range b)
{
	return a.bytes && b.bytes && a.first < b.first + b.bytes && b.first < a.first + a.bytes;
}

static bool contains(struct collet_byte_range outer, struct collet_byte_range inner)
{
	return inner.first >= outer.first && inner.first + inner.bytes <= outer.first + outer.bytes;
}

/* True if an item's set of spans (a hull without this rank's own chunk) touches a range. */
static bool touches(struct collet_byte_range hull, struct collet_byte_range hole, struct collet_byte_range range)
{
	return collet_ranges_overlap(hull, range) && !(hole.bytes && contains(hole, range));
}

/* True if both items store data of each peer in the same chunks, at different offsets. Their hulls overlap, but their
 * spans do not. */
static bool are_disjoint(const struct collet_work_item *item, const struct collet_work_item *earlier)
{
	return item->request == earlier->request && item->step->is_per_peer && earlier->step->is_per_peer &&
		item->writes.bytes && item->writes.first == earlier->writes.first && item->offset != earlier->offset;
}

/* True if `item` must not write yet, or, with_reads, not read its operands, since `earlier` is unfinished. */
static bool conflicts_with(const struct collet_work_item *item, const struct collet_work_item *earlier, bool with_reads)
{
	if (earlier->sends_pending && touches(item->writes, item->excluded, earlier->borrowed) &&
		touches(earlier->borrowed, earlier->excluded, item->writes))
		return true;
	if (earlier->executed || are_disjoint(item, earlier))
		return false;
	if (touches(item->writes, item->excluded, earlier->writes) &&
		touches(earlier->writes, earlier->excluded, item->writes))
		return true;
	for (uint32_t i = 0; i < earlier->read_count; i++)
		if (touches(item->writes, item->excluded, earlier->reads[i]) &&
			touches(earlier->reads[i], earlier->excluded, item->writes))
			return true;
	for (uint32_t i = 0; with_reads && i < item->read_count; i++)
		if (touches(earlier->writes, earlier->excluded, item->reads[i]) &&
			touches(item->reads[i], item->excluded, earlier->writes))
			return true;
	return false;
}

bool collet_work_item_conflicts(const struct collet_task *task, uint32_t index, bool with_reads)
{
	const struct collet_work_item *item = &task->items[index % TASK_WINDOW];
	for (uint32_t i = task->oldest; i != index; i++)
		if (conflicts_with(item, &task->items[i % TASK_WINDOW], with_reads))
			return true;
	return false;
}
