/* Which (step, piece) comes next in a lane: passes; in a pass, steps; in a step, its pieces; of two paired steps, piece
 * by piece in turn. Both ends of every transfer count the same way, which is what lets the k-th message meet the k-th
 * receive. */
#include <string.h>

#include "engine/engine.h"

uint64_t collet_step_longest(const struct collet_request *request, const struct collet_step *step)
{
	if (!step->is_per_peer)
		return step->source[0].span.count;
	const bool sends = step->source[0].peers.count == 1 && step->source[0].peers.first == request->shape.rank;
	const struct collet_partition *cut = collet_step_partition(&request->shape, sends ? step->source[0].buffer :
                                                                                step->destination[0].buffer);
	if (cut->kind != COLLET_PARTITION_VECTOR)
		return collet_partition_chunk(cut, &request->shape, 0).count;
	const struct collet_peers *peers = sends ? &step->destination[0].peers : &step->source[0].peers;
	uint64_t longest = 0;
	for (uint32_t i = 0; i < peers->count; i++) {
		const uint64_t count =
			collet_partition_chunk(cut, &request->shape, collet_peers_at(peers, i, request->shape.size))
				.count;
		longest = count > longest ? count : longest;
	}
	return longest;
}

static void load_step(const struct collet_request *request, struct collet_cursor *cursor)
{
	const struct collet_program *program = request->program;
	cursor->current[0] = program->step(&request->shape, cursor->part, cursor->step);
	cursor->pair = cursor->current[0].is_paired && cursor->step + 1 < cursor->steps;
	if (cursor->pair)
		cursor->current[1] = program->step(&request->shape, cursor->part, cursor->step + 1);
	for (uint32_t i = 0; i <= cursor->pair; i++)
		cursor->longest[i] =
			cursor->current[i].source_count ? collet_step_longest(request, &cursor->current[i]) : 0;
	cursor->loaded = true;
}

/* Is there a piece number `piece` in a span of `count` elements? */
static bool has_piece(const struct collet_request *request, uint64_t piece, uint64_t count)
{
	return piece == 0 || piece * request->piece < count;
}

bool collet_cursor_next(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = lane->first;
	struct collet_cursor *cursor = &lane->cursor;
	const uint32_t pieces = request->program->segmented ? PASS_PIECES : UINT32_MAX;
	for (;;) {
		if (cursor->step >= cursor->steps) {
			if (!cursor->more_passes)
				return false;
			cursor->pass++;
			cursor->step = 0;
			cursor->more_passes = false;
			cursor->loaded = false;
			continue;
		}
		if (!cursor->loaded)
			load_step(request, cursor);
		const uint32_t which = cursor->second;
		const uint64_t own = cursor->pass * pieces + cursor->piece;  /* counts this channel's pieces */
		const uint64_t piece = own * request->channels + lane->channel % request->channels;
		const bool exists =
			cursor->current[which].source_count && has_piece(request, piece, cursor->longest[which]);
		if (exists) {
			item->own_step = cursor->current[which];
			item->step = &item->own_step;
			item->offset = piece * request->piece;
			const uint64_t left = cursor->longest[which] - item->offset;
			item->count = left < request->piece ? left : request->piece;
		}
		if (cursor->pair && !cursor->second) {
			cursor->second = true;
		} else {
			cursor->second = false;
			cursor->piece++;
			const uint64_t following = piece + request->channels;
			const bool more = has_piece(request, following, cursor->longest[0]) ||
				(cursor->pair && has_piece(request, following, cursor->longest[1]));
			if (!more || cursor->piece == pieces) {
				cursor->more_passes |= more;
				cursor->step += cursor->pair ? 2 : 1;
				cursor->piece = 0;
				cursor->loaded = false;
			}
		}
		if (exists)
			return true;
	}
}

void collet_cursor_begin(struct collet_lane *lane)
{
	const struct collet_request *request = lane->first;
	memset(&lane->cursor, 0, sizeof(lane->cursor));
	lane->cursor.part = lane->channel / request->channels;
	lane->cursor.steps = request->program->step_count(&request->shape, lane->cursor.part);
}
