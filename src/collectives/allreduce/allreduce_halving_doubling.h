/* Recursive halving and doubling all-reduce, for any world size. Members exchange with the member whose number differs
 * in bit 0, then 1, 2, ... In each round a member sends half of its elements and adds the other half that it receives;
 * the sum of the lower ranks comes first, so sums are in rank order. Then the same rounds run backwards and exchange
 * finished elements (doubling). Of n ranks, 2^floor(log2 n) are members. The remaining ranks are paired with the first
 * members: the odd rank of such a pair first sends its elements to the even rank before it, and receives the result at
 * the end.
 *
 * Cost (n = 2^k ranks, m bytes): 2k alpha + 2(n-1)/n m beta + (n-1)/n m gamma; other n: two more latencies, 2m beta and
 * m gamma.
 * Use: medium messages, and wherever latency is expensive.
 * Source: Rabenseifner, "Optimization of collective reduction operations" (2004). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HALVING_DOUBLING_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HALVING_DOUBLING_H

#include "collectives/cost.h"

struct halving_doubling {
	uint32_t rounds;
	uint32_t extra_count; /* number of pairs, each with one rank that is no member */
	uint32_t member;
	bool is_extra; /* this rank is the odd one of such a pair */
};

COLLET_PURE static inline struct halving_doubling halving_doubling_of(const struct collet_shape *shape)
{
	struct halving_doubling h = {collet_log2_floor(shape->size), 0, 0, false};
	h.extra_count = shape->size - ((uint32_t)1 << h.rounds);
	h.is_extra = shape->rank < 2 * h.extra_count && shape->rank % 2 == 1;
	h.member = shape->rank < 2 * h.extra_count ? shape->rank / 2 : shape->rank - h.extra_count;
	return h;
}

COLLET_PURE static inline struct collet_peers halving_doubling_peer(const struct halving_doubling *h, uint32_t member)
{
	return collet_peers_one(member < h->extra_count ? 2 * member : member + h->extra_count);
}

/* Returns the span that a member reduces after a number of halvings. */
COLLET_PURE static inline struct collet_span halving_doubling_span(
	const struct collet_shape *shape, uint32_t member, uint32_t halvings)
{
	struct collet_span span = collet_span_all(shape);
	for (uint32_t i = 0; i < halvings; i++) {
		const uint64_t lower = (span.count + 1) / 2;
		const bool upper = member >> i & 1;
		span.first += upper ? lower : 0;
		span.count = upper ? span.count - lower : lower;
	}
	return span;
}

/* Returns the buffer that has a member's sum before this round. */
COLLET_PURE static inline enum collet_buffer halving_doubling_buffer(
	const struct halving_doubling *h, uint32_t member, uint32_t round)
{
	return round == 0 && member >= h->extra_count ? COLLET_INPUT : COLLET_RESULT;
}

/* The extra rank's elements; a send and a receive per round; the same backwards; the extra rank's result. */
COLLET_PURE static inline uint64_t allreduce_halving_doubling_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct halving_doubling h = halving_doubling_of(shape);
	return shape->size == 1 ? 1 : h.is_extra ? 2 : 4 * (uint64_t)h.rounds + (h.member < h.extra_count ? 2 : 0);
}

COLLET_PURE static inline struct collet_step halving_doubling_extra_step(
	const struct collet_shape *shape, const struct halving_doubling *h, bool is_post)
{
	const struct collet_span all = collet_span_all(shape);
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_peers other = collet_peers_one(h->is_extra ? shape->rank - 1 : shape->rank + 1);
	if (h->is_extra != is_post)
		return collet_step_move(self, is_post ? COLLET_RESULT : COLLET_INPUT, all, other, COLLET_RESULT, all);
	if (is_post)
		return collet_step_move(other, COLLET_RESULT, all, self, COLLET_RESULT, all);
	struct collet_step step = collet_step_move(self, COLLET_INPUT, all, self, COLLET_RESULT, all);
	collet_step_add_source(&step, other, COLLET_INPUT, all);
	step.is_reduction = true;
	return step;
}

/* Sends this span of the sum to the partner, or adds the partner's to the own one. */
COLLET_PURE static inline struct collet_step halving_doubling_exchange_step(const struct collet_shape *shape,
	const struct halving_doubling *h, uint32_t round, struct collet_span span, bool is_sending)
{
	const uint32_t partner = h->member ^ (uint32_t)1 << round;
	const struct collet_peers self = collet_peers_self(shape), peer = halving_doubling_peer(h, partner);
	const enum collet_buffer mine = halving_doubling_buffer(h, h->member, round);
	const enum collet_buffer theirs = halving_doubling_buffer(h, partner, round);
	if (is_sending)
		return collet_step_move(self, mine, span, peer, COLLET_RESULT, span);
	struct collet_step step = collet_step_none();
	const bool peer_first = partner < h->member;
	collet_step_add_source(&step, peer_first ? peer : self, peer_first ? theirs : mine, span);
	collet_step_add_source(&step, peer_first ? self : peer, peer_first ? mine : theirs, span);
	collet_step_add_destination(&step, self, COLLET_RESULT, span);
	step.is_reduction = true;
	step.is_final = round == h->rounds - 1;
	return step;
}

/* Halving: the partner gets its half, and this rank reduces the other. */
COLLET_PURE static inline struct collet_step halving_doubling_halve_step(
	const struct collet_shape *shape, const struct halving_doubling *h, uint32_t round, bool is_sending)
{
	const uint32_t partner = h->member ^ (uint32_t)1 << round;
	const struct collet_span span = halving_doubling_span(shape, is_sending ? partner : h->member, round + 1);
	return halving_doubling_exchange_step(shape, h, round, span, is_sending);
}

COLLET_PURE static inline struct collet_step halving_doubling_double_step(
	const struct collet_shape *shape, const struct halving_doubling *h, uint32_t round, bool is_sending)
{
	const uint32_t partner = h->member ^ (uint32_t)1 << round;
	const struct collet_peers self = collet_peers_self(shape), peer = halving_doubling_peer(h, partner);
	const struct collet_span span = halving_doubling_span(shape, is_sending ? h->member : partner, round + 1);
	return collet_step_move(
		is_sending ? self : peer, COLLET_RESULT, span, is_sending ? peer : self, COLLET_RESULT, span);
}

COLLET_PURE static inline struct collet_step allreduce_halving_doubling_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct halving_doubling h = halving_doubling_of(shape);
	const struct collet_span all = collet_span_all(shape);
	if (shape->size == 1) {
		struct collet_step step = collet_step_move(
			collet_peers_self(shape), COLLET_INPUT, all, collet_peers_self(shape), COLLET_RESULT, all);
		step.is_final = true;
		return step;
	}
	const bool has_extra = h.member < h.extra_count;
	if (has_extra && index == 0)
		return halving_doubling_extra_step(shape, &h, false);
	if (h.is_extra || (has_extra && index == 4 * (uint64_t)h.rounds + 1))
		return halving_doubling_extra_step(shape, &h, true);
	const uint32_t move = (uint32_t)(index - (has_extra ? 1 : 0)), round = move / 2;
	const bool is_sending = move % 2 == 0;
	struct collet_step step =
		round < h.rounds ? halving_doubling_halve_step(shape, &h, round, is_sending)
				 : halving_doubling_double_step(shape, &h, 2 * h.rounds - 1 - round, is_sending);
	step.is_paired = is_sending;
	return step;
}

/* Returns the cost for `size` ranks with this many bytes each. */
/* aligned: hosts start at multiples of it. If ranks are no power of two, neighbours join first. */
COLLET_PURE static inline double halving_doubling_cost(uint32_t size, double bytes, size_t segment_bytes,
	uint32_t aligned, const struct collet_cost_model *model)
{
	const struct collet_cost_model *near = aligned > 1 ? collet_cost_local(model) : model;
	const uint32_t rounds = collet_log2_floor(size);
	const uint32_t far = size == (uint32_t)1 << rounds ? aligned : aligned / 2;
	double cost = 0, half = bytes / 2;
	if (size > (uint32_t)1 << rounds)
		cost += collet_cost_pipeline(1, bytes, segment_bytes, 1, model->gamma_s, near) +
			collet_cost_pipeline(1, bytes, segment_bytes, 1, 0, near);
	for (uint32_t i = 0; i < rounds; i++, half /= 2) {
		const struct collet_cost_model *here = (uint64_t)1 << i < far ? near : model;
		cost += collet_cost_pipeline(1, half, segment_bytes, 1, model->gamma_s, here) +
			collet_cost_pipeline(1, half, segment_bytes, 1, 0, here);
	}
	return cost;
}

COLLET_PURE static inline double allreduce_halving_doubling_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	return halving_doubling_cost(shape->size, collet_cost_chunk(shape, 1, element_bytes), segment_bytes,
		collet_cost_alignment(shape), model);
}

#endif
