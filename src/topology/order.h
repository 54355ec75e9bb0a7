/* Orders ranks so that neighbours are near each other. Ranks of one host are contiguous, within these the ranks of one
 * package, then of one NUMA node and last-level cache, then of one core. So a ring in this order leaves each of these
 * only once. */
#ifndef COLLET_TOPOLOGY_ORDER_H
#define COLLET_TOPOLOGY_ORDER_H

#include <collet/collet.h>

#include "topology/locality.h"

struct collet_rank_locality {
	uint64_t host;
	struct collet_locality locality;
};

enum collet_ordering {
	COLLET_ORDER_BY_HOST,    /* ignores localities: a host's ranks are in rank order */
	COLLET_ORDER_BY_LOCALITY
};

/* Fills order[position] with ranks, and host_first[i] with the first position of host i. host_first[*hosts] is size:
 * the arrays have size and size + 1 entries. The groups of a level are ordered by their lowest ranks. Ranks with equal
 * localities are in rank order, so ranks that are numbered along the machine keep their order. A rank without a known
 * locality at a level is a group of its own there. Fails with COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_order_find(const struct collet_rank_locality *ranks, uint32_t size,
	enum collet_ordering ordering, uint32_t *order, uint32_t *host_first, uint32_t *hosts);

/* Writes the ranks at positions first to end - 1, which are of one host, for people: "0 2 | 1 3". " || " separates
 * packages, " | " the outer level (see collet_locality_level), " / " the inner one. A text that does not fit ends
 * with "...". */
void collet_order_describe(const struct collet_rank_locality *ranks, const uint32_t *order, uint32_t first,
	uint32_t end, char *text, size_t bytes);

#endif
