/* Bruck's all-gather. Before round k, rank r has blocks r .. r + 2^k - 1. It sends as many of them as are needed to r -
 * 2^k and receives the following ones from r + 2^k. Blocks stay at their final place, so a range that wraps around
 * after the last block is sent as two messages. No final rotation is needed.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b beta, for any n.
 * Use: small messages.
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems" (1997). */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_BRUCK_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_BRUCK_H

#include "collectives/cost.h"

COLLET_PURE static inline const char *allgather_bruck_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* The own block; then, per round, a send and a receive up to the last block, and another two from block 0 on. */
COLLET_PURE static inline uint64_t allgather_bruck_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 1 + 4 * (uint64_t)collet_log2_ceil(shape->size);
}

COLLET_PURE static inline struct collet_step allgather_bruck_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, collet_blocks(shape, 0, 1), self, COLLET_RESULT,
			collet_blocks(shape, shape->rank, 1));
	const uint32_t hops = (uint32_t)1 << (index - 1) / 4, move = (uint32_t)((index - 1) % 4);
	const uint32_t blocks = hops < shape->size - hops ? hops : shape->size - hops;
	const bool is_sending = move % 2 == 0, is_wrapped = move >= 2;
	const uint32_t first = is_sending ? shape->rank : collet_position_at(shape, hops);
	const uint32_t unwrapped = blocks < shape->size - first ? blocks : shape->size - first;
	if (is_wrapped && unwrapped == blocks)
		return collet_step_none();
	const struct collet_span span =
		is_wrapped ? collet_blocks(shape, 0, blocks - unwrapped) : collet_blocks(shape, first, unwrapped);
	const struct collet_peers peer =
		collet_peers_one(collet_position_at(shape, is_sending ? -(int64_t)hops : (int64_t)hops));
	struct collet_step step = collet_step_move(
		is_sending ? self : peer, COLLET_RESULT, span, is_sending ? peer : self, COLLET_RESULT, span);
	step.is_paired = is_sending;
	return step;
}

COLLET_PURE static inline double allgather_bruck_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t hops = 1; hops < shape->size; hops *= 2) {
		const uint32_t blocks = hops < shape->size - hops ? hops : shape->size - hops;
		cost += collet_cost_pipeline(
			1, collet_cost_blocks(shape, blocks, element_bytes), segment_bytes, 1, 0,
			collet_cost_over(shape, hops, model));
		if (blocks > 1) /* some rank's range wraps around */
			cost += model->overhead_s;
	}
	return cost;
}

#endif
