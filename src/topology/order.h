/* The order of ranks in which neighbours are near: those of a host stand together, among them those of a package, among
 * those the ones of a NUMA node and of a last-level cache, then of a core. So a ring along the order leaves each of
 * these once. */
#ifndef COLLET_TOPOLOGY_ORDER_H
#define COLLET_TOPOLOGY_ORDER_H

#include <collet/collet.h>

#include "topology/locality.h"

struct collet_rank_locality {
	uint64_t host;
	struct collet_locality locality;
};

enum collet_ordering {
	COLLET_ORDER_BY_HOST,   /* spots are not looked at: a host's ranks are in rank order */
	COLLET_ORDER_BY_LOCALITY
};

/* order[position] is a rank, host_first[i] host i's first position, host_first[hosts] == size: arrays of size and size
 * + 1. Groups of one level are in the order of their lowest ranks, and so are ranks that nothing tells apart: ranks
 * that are numbered along the machine keep their order. A rank that has no one spot at a level stands where its number
 * puts it among that level's groups. COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_order_find(const struct collet_rank_locality *ranks, uint32_t size,
	enum collet_ordering ordering, uint32_t *order, uint32_t *host_first, uint32_t *hosts);

/* For people: "0 2 | 1 3", a host's ranks by position between its host_first and the next; " | " where the NUMA node
 * (or what is the wider of it and the cache) changes, " || " the package, " / " the narrower. Cut short with "..." at
 * the end of the room. */
void collet_order_describe(const struct collet_rank_locality *ranks, const uint32_t *order, uint32_t first,
	uint32_t end, char *text, size_t bytes);

#endif
