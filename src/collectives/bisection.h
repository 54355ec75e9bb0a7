/* Recursive halving and doubling for any world size. The positions are split into a lower and an upper half, the
 * lower one larger by one if need be, and each half again, until every rank is alone. At each level rank i of one
 * half is partner of rank i of the other; a lower half's odd last one shares the partner of the one before it. */
#ifndef COLLET_COLLECTIVES_BISECTION_H
#define COLLET_COLLECTIVES_BISECTION_H

#include "collectives/step_builder.h"

/* What a rank sees at one level. */
struct collet_bisection {
	uint32_t low, middle, high;    /* the range before the split, and where its upper half starts */
	uint32_t own_first, own_count; /* the half with this rank */
	uint32_t far_first, far_count; /* the other half; none: this rank is alone */
	struct collet_peers partner;   /* in the other half */
	struct collet_peers extra;     /* the odd one, on its partner: right after `partner`; else nobody */
	bool odd;                      /* this is the odd one */
};

COLLET_PURE static inline struct collet_bisection collet_bisect(uint32_t position, uint32_t size, uint32_t level)
{
	struct collet_bisection at = {0, size, size, 0, size, 0, 0, {0, 0, 0, false}, {0, 0, 0, false}, false};
	for (uint32_t i = 0; i <= level; i++) {
		at.low = at.own_first;
		at.high = at.own_first + at.own_count;
		at.middle = at.low + (at.own_count + 1) / 2;
		const bool lower = position < at.middle;
		at.own_first = lower ? at.low : at.middle;
		at.own_count = lower ? at.middle - at.low : at.high - at.middle;
		at.far_first = lower ? at.middle : at.low;
		at.far_count = lower ? at.high - at.middle : at.middle - at.low;
	}
	const uint32_t i = position - at.own_first, paired = at.high - at.middle;
	if (paired == 0)
		return at;
	at.odd = i == paired;
	at.partner = collet_peer(at.far_first + (at.odd ? i - 1 : i));
	if (at.own_first == at.middle && i == paired - 1 && at.far_count > paired)
		at.extra = collet_peer(at.far_first + paired);
	return at;
}

/* The partner and, after it, the odd one. */
COLLET_PURE static inline struct collet_peers collet_bisection_both(const struct collet_bisection *at)
{
	return collet_peers_range(at->partner.first, at->partner.count + at->extra.count);
}

/* `count` blocks of shape->count elements each, from block `first` on. */
COLLET_PURE static inline struct collet_span collet_blocks(
	const struct collet_shape *shape, uint64_t first, uint64_t count)
{
	return collet_span_at(first * shape->count, count * shape->count);
}

/* Can runs of positions be moved as runs of blocks? */
COLLET_PURE static inline bool collet_blocks_in_order(const struct collet_shape *shape)
{
	return !shape->order && shape->input.kind != COLLET_CUT_LISTED && shape->result.kind != COLLET_CUT_LISTED;
}

#endif
