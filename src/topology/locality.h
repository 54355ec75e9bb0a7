/* Makes empty localities. struct collet_locality says where on its host a rank runs; it is public, since transports
 * read it. Rank 0 computes it for all ranks, from each rank's CPU binding and one topology per host
 * (host_topology.h). */
#ifndef COLLET_TOPOLOGY_LOCALITY_H
#define COLLET_TOPOLOGY_LOCALITY_H

#include <collet/locality.h>

static inline struct collet_locality collet_locality_any(void)
{
	return (struct collet_locality){ { COLLET_LOCALITY_ANY, COLLET_LOCALITY_ANY, COLLET_LOCALITY_ANY,
		COLLET_LOCALITY_ANY } };
}

#endif
