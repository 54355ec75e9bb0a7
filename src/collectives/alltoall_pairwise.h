/* Pairwise all-to-all. In round s = 0 .. n-1 rank r exchanges blocks with rank s - r (modulo n): so each pair meets once, and
 * all ranks have somebody to talk to at once (in some rounds a rank meets itself). A rank needs to know no counts but its
 * own. In place, a block comes in just where the one that goes out is; when neither could be sent before the other has come,
 * the higher of the two ranks sends a copy: hence the scratch, of one block.
 *
 * Cost, of n ranks and blocks of b bytes: (n-1) (alpha + b beta): the least bytes. So: for big blocks, and for listed ones.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005); the pairing:
 * round-robin tournaments. */
#ifndef COLLET_COLLECTIVES_ALLTOALL_PAIRWISE_H
#define COLLET_COLLECTIVES_ALLTOALL_PAIRWISE_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t alltoall_pairwise_scratch(const struct collet_shape *shape)
{
	uint64_t most = 0;
	if (!shape->in_place)
		return 0;
	for (uint32_t peer = 0; peer < shape->rank; peer++) {
		const uint64_t count = collet_cut_chunk(&shape->input, shape, peer).count;
		most = count > most ? count : most;
	}
	return most;
}

/* In each round, a copy or nothing; a send; a receive. */
COLLET_PURE static inline uint64_t alltoall_pairwise_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 3 * (uint64_t)shape->size;
}

COLLET_PURE static inline struct collet_step alltoall_pairwise_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const uint32_t round = (uint32_t)(index / 3), size = shape->size;
	const uint32_t partner = (uint32_t)(((uint64_t)round + size - shape->rank) % size);
	const struct collet_peers self = collet_self(shape), peer = collet_peer(partner);
	const struct collet_span sent = collet_cut_chunk(&shape->input, shape, partner);
	const struct collet_span received = collet_cut_chunk(&shape->result, shape, partner);
	/* Where the peer has what it sends and puts what it gets, as far as this rank can tell. */
	const bool even = shape->input.kind == COLLET_CUT_BLOCKS;
	const uint64_t far = even ? collet_cut_chunk(&shape->input, shape, shape->rank).first : 0;
	const bool saves = shape->in_place && partner < shape->rank;
	const struct collet_span saved = collet_span_at(0, sent.count);
	if (index % 3 == 0)
		return saves ? collet_move(self, COLLET_INPUT, sent, self, COLLET_SCRATCH, saved) : collet_step_none();
	if (partner == shape->rank)
		return index % 3 == 1 ? collet_move(self, COLLET_INPUT, sent, self, COLLET_RESULT, received) : collet_step_none();
	if (index % 3 == 2)
		return collet_move(peer, COLLET_INPUT, collet_span_at(far, received.count), self, COLLET_RESULT, received);
	struct collet_step step = collet_move(self, saves ? COLLET_SCRATCH : COLLET_INPUT, saves ? saved : sent,
		peer, COLLET_RESULT, collet_span_at(far, sent.count));
	step.paired = true;
	return step;
}

COLLET_PURE static inline double alltoall_pairwise_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t piece_bytes, const struct collet_cost_model *model)
{
	const double rounds = shape->size - 1;
	return shape->size == 1 ? 0 : rounds * collet_cost_pipeline(
		1, collet_cost_blocks(shape, 1, element_bytes), piece_bytes, 1, 0, model);
}

#endif
