/* Where on its host a rank runs, as far as that is one spot: which package (socket), NUMA node, last-level cache and
 * core. A NUMA node may have several caches or a cache several NUMA nodes: the wider of the two is the outer level.
 * Rank 0 finds it out for all from each rank's binding and one reading of each host (machine.h). */
#ifndef COLLET_TOPOLOGY_SPOT_H
#define COLLET_TOPOLOGY_SPOT_H

#include <stdint.h>

/* No one spot at this level: the rank may run on several of them, or the host did not tell. */
enum { COLLET_SPOT_ANY = UINT16_MAX };

enum collet_level { COLLET_LEVEL_PACKAGE, COLLET_LEVEL_OUTER, COLLET_LEVEL_INNER, COLLET_LEVEL_CORE, COLLET_LEVELS };

/* Numbers are those of one host, and mean nothing but same or different. */
struct collet_spot {
	uint16_t at[COLLET_LEVELS];
};

static inline struct collet_spot collet_spot_any(void)
{
	return (struct collet_spot){ { COLLET_SPOT_ANY, COLLET_SPOT_ANY, COLLET_SPOT_ANY, COLLET_SPOT_ANY } };
}

#endif
