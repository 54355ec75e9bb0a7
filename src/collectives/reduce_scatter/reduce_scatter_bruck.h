/* Bruck's all-gather run backwards: a reduce-scatter. A rank copies its blocks to scratch, its own first: slot j is for
 * rank r + j. In round k = log2(n) - 1, ..., 0 it sends the slots from 2^k on to r + 2^k, where they are slots 0 on. It
 * adds what it receives from r - 2^k to its own slots 0 on. Scratch has the size of all blocks.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b (beta + gamma), for any n.
 * Use: small messages, as halving, which is more expensive if n is no power of two.
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems" (1997); backwards: Traff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
 * (2024). */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_BRUCK_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_BRUCK_H

#include "collectives/cost.h"

COLLET_PURE static inline const char *reduce_scatter_bruck_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* Two copies to scratch; per round, a send and a receive. */
COLLET_PURE static inline uint64_t reduce_scatter_bruck_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 + 2 * (uint64_t)collet_log2_ceil(shape->size) : 1;
}

COLLET_PURE static inline uint64_t reduce_scatter_bruck_scratch(const struct collet_shape *shape)
{
	return shape->size > 1 ? shape->size * shape->count : 0;
}

COLLET_PURE static inline struct collet_step reduce_scatter_bruck_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_span all = collet_span_all(shape);
	const uint32_t rank = shape->rank, size = shape->size;
	if (size == 1) {
		struct collet_step step = collet_step_move(self, COLLET_INPUT, all, self, COLLET_RESULT, all);
		step.is_final = true;
		return step;
	}
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, collet_blocks(shape, rank, size - rank), self,
			COLLET_SCRATCH, collet_blocks(shape, 0, size - rank));
	if (index == 1)
		return rank == 0 ? collet_step_none()
				 : collet_step_move(self, COLLET_INPUT, collet_blocks(shape, 0, rank), self,
					   COLLET_SCRATCH, collet_blocks(shape, size - rank, rank));

	const uint32_t round = collet_log2_ceil(size) - (uint32_t)(index / 2), hops = (uint32_t)1 << round;
	const uint32_t blocks = hops < size - hops ? hops : size - hops;
	const struct collet_span near = collet_blocks(shape, 0, blocks), far = collet_blocks(shape, hops, blocks);
	if (index % 2 == 0) {
		struct collet_step step = collet_step_move(self, COLLET_SCRATCH, far,
			collet_peers_one(collet_position_at(shape, hops)), COLLET_SCRATCH, near);
		step.is_paired = true;
		return step;
	}
	const struct collet_peers peer = collet_peers_one(collet_position_at(shape, -(int64_t)hops));
	const bool peer_first = peer.first < rank;
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, peer_first ? peer : self, COLLET_SCRATCH, peer_first ? far : near);
	collet_step_add_source(&step, peer_first ? self : peer, COLLET_SCRATCH, peer_first ? near : far);
	collet_step_add_destination(&step, self, round == 0 ? COLLET_RESULT : COLLET_SCRATCH, round == 0 ? all : near);
	step.is_reduction = true;
	step.is_final = round == 0;
	return step;
}

COLLET_PURE static inline double reduce_scatter_bruck_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t hops = 1; hops < shape->size; hops *= 2) {
		const uint32_t blocks = hops < shape->size - hops ? hops : shape->size - hops;
		cost += collet_cost_pipeline(
			1, collet_cost_blocks(shape, blocks, element_bytes), segment_bytes, 1, model->gamma_s,
			collet_cost_over(shape, hops, model));
	}
	return cost;
}

#endif
