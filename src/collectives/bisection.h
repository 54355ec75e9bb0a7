/* Recursive halving and doubling for any world size. The positions are split into a lower and an upper half; the lower
 * one has one more if the number is odd. Each half is split again, until every rank is alone. At each level, rank i of
 * one half is the partner of rank i of the other. The odd last rank of a lower half shares the partner of the rank
 * before it. */
#ifndef COLLET_COLLECTIVES_BISECTION_H
#define COLLET_COLLECTIVES_BISECTION_H

#include "collectives/step_builder.h"

/* One level of the recursion, as one rank sees it. */
struct collet_bisection {
	uint32_t low, middle, high;    /* the range before the split; its upper half starts at middle */
	uint32_t own_first, own_count; /* the half that this rank is in */
	uint32_t other_first, other_count; /* the other half; count 0: this rank is alone */
	struct collet_peers partner;   /* this rank's partner in the other half */
	/* On the partner of the odd rank: that rank, which follows `partner`. Otherwise empty. */
	struct collet_peers extra;
	bool is_odd;                   /* this rank is the odd one */
};

COLLET_PURE static inline struct collet_bisection collet_bisect(uint32_t position, uint32_t size, uint32_t level)
{
	struct collet_bisection split = {0, size, size, 0, size, 0, 0, {0, 0, 0, false}, {0, 0, 0, false}, false};
	for (uint32_t i = 0; i <= level; i++) {
		split.low = split.own_first;
		split.high = split.own_first + split.own_count;
		split.middle = split.low + (split.own_count + 1) / 2;
		const bool is_lower = position < split.middle;
		split.own_first = is_lower ? split.low : split.middle;
		split.own_count = is_lower ? split.middle - split.low : split.high - split.middle;
		split.other_first = is_lower ? split.middle : split.low;
		split.other_count = is_lower ? split.high - split.middle : split.middle - split.low;
	}
	const uint32_t i = position - split.own_first, paired = split.high - split.middle;
	if (paired == 0)
		return split;
	split.is_odd = i == paired;
	split.partner = collet_peers_one(split.other_first + (split.is_odd ? i - 1 : i));
	if (split.own_first == split.middle && i == paired - 1 && split.other_count > paired)
		split.extra = collet_peers_one(split.other_first + paired);
	return split;
}

/* Returns the partner and, after it, the odd rank. */
COLLET_PURE static inline struct collet_peers collet_bisection_partners(const struct collet_bisection *split)
{
	return collet_peers_range(split->partner.first, split->partner.count + split->extra.count);
}

#endif
