/* Finds the (step, segment) that a task issues next. The order is: passes; steps of a pass; segments of a step. The
 * segments of two paired steps alternate. Both ends of every transfer count the same way, so that the k-th message
 * matches the k-th receive. */
#include <string.h>

#include "collectives/program.h"
#include "engine/cursor.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

uint64_t collet_step_longest_span(const struct collet_request *request, const struct collet_step *step)
{
	if (!step->is_per_peer)
		return step->source[0].span.count;
	const bool sends = step->source[0].peers.count == 1 && step->source[0].peers.first == request->shape.rank;
	const struct collet_partition *partition =
		collet_step_partition(&request->shape, sends ? step->source[0].buffer : step->destination[0].buffer);
	if (partition->kind != COLLET_PARTITION_VECTOR)
		return collet_partition_chunk(partition, &request->shape, 0).count;
	const struct collet_peers *peers = sends ? &step->destination[0].peers : &step->source[0].peers;
	uint64_t longest = 0;
	for (uint32_t i = 0; i < peers->count; i++) {
		const uint64_t count = collet_partition_chunk(
			partition, &request->shape, collet_peers_at(peers, i, request->shape.size))
					       .count;
		longest = count > longest ? count : longest;
	}
	return longest;
}

static void load_step(const struct collet_request *request, struct collet_cursor *cursor)
{
	const struct collet_program *program = request->program;
	cursor->current[0] = program->step(&request->shape, cursor->part, cursor->step);
	cursor->is_pair = cursor->current[0].is_paired && cursor->step + 1 < cursor->steps;
	if (cursor->is_pair)
		cursor->current[1] = program->step(&request->shape, cursor->part, cursor->step + 1);
	for (uint32_t i = 0; i <= cursor->is_pair; i++)
		cursor->longest_span[i] =
			cursor->current[i].source_count ? collet_step_longest_span(request, &cursor->current[i]) : 0;
	cursor->loaded = true;
}

/* True if a span of `count` elements has a segment of this number. Every span has segment 0. */
static bool has_segment(const struct collet_request *request, uint64_t segment, uint64_t count)
{
	return segment == 0 || segment * request->segment_elements < count;
}

bool collet_cursor_next(struct collet_task *task, struct collet_work_item *item)
{
	struct collet_request *request = task->first_request;
	struct collet_cursor *cursor = &task->cursor;
	const uint32_t segments = request->program->segmented ? PASS_SEGMENTS : UINT32_MAX;
	for (;;) {
		if (cursor->step >= cursor->steps) {
			if (!cursor->has_more_passes)
				return false;
			cursor->pass++;
			cursor->step = 0;
			cursor->has_more_passes = false;
			cursor->loaded = false;
			continue;
		}
		if (!cursor->loaded)
			load_step(request, cursor);
		const uint32_t which = cursor->at_second;
		/* counts this channel's segments */
		const uint64_t own_segment = cursor->pass * segments + cursor->segment;
		const uint64_t segment = own_segment * request->channels + task->channel % request->channels;
		const bool exists = cursor->current[which].source_count &&
				    has_segment(request, segment, cursor->longest_span[which]);
		if (exists) {
			item->own_step = cursor->current[which];
			item->step = &item->own_step;
			item->offset = segment * request->segment_elements;
			const uint64_t left = cursor->longest_span[which] - item->offset;
			item->count = left < request->segment_elements ? left : request->segment_elements;
		}
		if (cursor->is_pair && !cursor->at_second) {
			cursor->at_second = true;
		} else {
			cursor->at_second = false;
			cursor->segment++;
			const uint64_t following = segment + request->channels;
			const bool has_more = has_segment(request, following, cursor->longest_span[0]) ||
				(cursor->is_pair && has_segment(request, following, cursor->longest_span[1]));
			if (!has_more || cursor->segment == segments) {
				cursor->has_more_passes |= has_more;
				cursor->step += cursor->is_pair ? 2 : 1;
				cursor->segment = 0;
				cursor->loaded = false;
			}
		}
		if (exists)
			return true;
	}
}

void collet_cursor_begin(struct collet_task *task)
{
	const struct collet_request *request = task->first_request;
	memset(&task->cursor, 0, sizeof(task->cursor));
	task->cursor.part = task->channel / request->channels;
	task->cursor.steps = request->program->step_count(&request->shape, task->cursor.part);
}
