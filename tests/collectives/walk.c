#include "walk.h"

#include <assert.h>

static uint64_t segments_of(uint64_t length, struct walk_cut cut)
{
	return length == 0 ? 1 : (length + cut.segment - 1) / cut.segment;
}

static const struct collet_partition *cut_of(const struct collet_shape *shape, enum collet_buffer buffer)
{
	return buffer == COLLET_RESULT ? &shape->result : &shape->input;
}

/* Return the range with the peers, and this rank's, of an is_per_peer step. */
static const struct collet_buffer_range *far_end(const struct collet_step *step, const struct collet_shape *shape)
{
	const bool receives = step->destination[0].peers.count == 1 && step->destination[0].peers.first == shape->rank;
	return receives ? &step->source[0] : &step->destination[0];
}

static const struct collet_buffer_range *near_end(const struct collet_step *step, const struct collet_shape *shape)
{
	return far_end(step, shape) == &step->source[0] ? &step->destination[0] : &step->source[0];
}

static uint64_t step_segments(const struct collet_step *step, const struct collet_shape *shape, struct walk_cut cut)
{
	if (step->source_count == 0)
		return 0;
	if (!step->is_per_peer)
		return segments_of(step->source[0].span.count, cut);
	uint64_t most = 0;
	const struct collet_buffer_range *far = far_end(step, shape), *near = near_end(step, shape);
	for (uint32_t i = 0; i < far->peers.count; i++) {
		const uint32_t peer = collet_peers_at(&far->peers, i, shape->size);
		const uint64_t segments =
			segments_of(collet_partition_chunk(cut_of(shape, near->buffer), shape, peer).count, cut);
		most = segments > most ? segments : most;
	}
	return most;
}

void walk_start(struct walk *walk, const struct collet_program *program, const struct collet_shape *shape,
	uint32_t part, struct walk_cut cut)
{
	*walk = (struct walk){ .program = program,
		.shape = shape,
		.cut = cut,
		.part = part,
		.steps = program->step_count(shape, part) };
}

static void load(struct walk *walk)
{
	walk->one = walk->program->step(walk->shape, walk->part, walk->step);
	walk->one_segments = step_segments(&walk->one, walk->shape, walk->cut);
	walk->other = collet_step_none();
	if (walk->one.is_paired && walk->step + 1 < walk->steps)
		walk->other = walk->program->step(walk->shape, walk->part, walk->step + 1);
	walk->other_segments = step_segments(&walk->other, walk->shape, walk->cut);
	walk->turn = 0;
	walk->is_loaded = true;
}

bool walk_next(struct walk *walk, struct walk_item *item)
{
	const bool sliced = walk->program->segmented;
	for (;;) {
		if (walk->step >= walk->steps) {
			if (!walk->has_more)
				return false;
			walk->has_more = false;
			walk->step = 0;
			walk->pass++;
		}
		if (!walk->is_loaded)
			load(walk);
		const uint64_t most =
			walk->one_segments > walk->other_segments ? walk->one_segments : walk->other_segments;
		const uint64_t first = sliced ? walk->pass * walk->cut.pass_segments : 0;
		const uint64_t end =
			sliced && first + walk->cut.pass_segments < most ? first + walk->cut.pass_segments : most;
		while (first + walk->turn / 2 < end) {
			const uint64_t segment = first + walk->turn / 2;
			const bool second = walk->turn++ % 2 == 1;
			if (segment >= (second ? walk->other_segments : walk->one_segments))
				continue;
			item->step = second ? walk->other : walk->one;
			item->segment = segment;
			item->offset = segment * walk->cut.segment;
			item->length = walk->cut.segment;
			return true;
		}
		walk->has_more |= most > end;
		walk->step += walk->one.is_paired ? 2 : 1;
		walk->is_loaded = false;
	}
}

/* Finds the item's segment of a span. Returns false if the span is too short to have it. */
static bool segment_of(const struct walk_item *item, struct collet_span *span)
{
	if (item->segment > 0 && item->offset >= span->count)
		return false;
	span->first += item->offset;
	span->count -= item->offset;
	if (span->count > item->length)
		span->count = item->length;
	return true;
}

static uint32_t per_peer_moves(const struct walk_item *item, const struct collet_shape *shape, struct walk_cut cut,
	struct walk_move *moves, uint32_t capacity)
{
	const struct collet_buffer_range *far = far_end(&item->step, shape), *near = near_end(&item->step, shape);
	uint32_t count = 0;
	(void)cut;
	for (uint32_t i = 0; i < far->peers.count; i++) {
		struct walk_move move = { .peer = collet_peers_at(&far->peers, i, shape->size),
			.has_local = true,
			.local = *near,
			.remote = *far };
		move.local.span = collet_partition_chunk(cut_of(shape, near->buffer), shape, move.peer);
		if (!segment_of(item, &move.local.span))
			continue;
		if (move.remote.span.first == COLLET_SAME_OFFSET)
			move.remote.span.first = move.local.span.first;
		else
			move.remote.span.first += item->offset;
		move.length = move.remote.span.count = move.local.span.count;
		assert(count < capacity);
		moves[count++] = move;
	}
	return count;
}

uint32_t walk_moves(const struct walk_item *item, enum walk_side side, const struct collet_shape *shape,
	struct walk_cut cut, struct walk_move *moves, uint32_t capacity)
{
	const struct collet_step *step = &item->step;
	const bool operands = side == WALK_OPERANDS;
	if (step->is_per_peer)
		return operands == (far_end(step, shape) == &step->source[0])
			       ? per_peer_moves(item, shape, cut, moves, capacity)
			       : 0;
	uint32_t count = 0;
	for (uint32_t e = 0; e < (operands ? step->source_count : step->destination_count); e++) {
		const struct collet_buffer_range *end = operands ? &step->source[e] : &step->destination[e];
		for (uint32_t i = 0; i < end->peers.count; i++) {
			struct walk_move move = {
				.peer = collet_peers_at(&end->peers, i, shape->size), .remote = *end };
			const bool has_segment = segment_of(item, &move.remote.span);
			assert(has_segment);
			(void)has_segment;
			move.length = move.remote.span.count;
			move.has_local = move.peer == shape->rank;
			move.local = move.remote;
			assert(count < capacity);
			moves[count++] = move;
		}
	}
	return count;
}
