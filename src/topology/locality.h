/* Where on its host a rank runs: struct collet_locality, which transports may see too. Rank 0 finds it out for all from
 * each rank's binding and one reading of each host (machine.h). */
#ifndef COLLET_TOPOLOGY_LOCALITY_H
#define COLLET_TOPOLOGY_LOCALITY_H

#include <collet/locality.h>

static inline struct collet_locality collet_locality_any(void)
{
	return (struct collet_locality){ { COLLET_LOCALITY_ANY, COLLET_LOCALITY_ANY, COLLET_LOCALITY_ANY,
		COLLET_LOCALITY_ANY } };
}

#endif
