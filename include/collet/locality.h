/* Describes where on its host a rank runs. Transports see it in a rank's peer info (<collet/transport.h>); a program
 * that calls collectives does not need it. */
#ifndef COLLET_LOCALITY_H
#define COLLET_LOCALITY_H

#include <stdint.h>

/* The parts of a host, from the widest to the narrowest. The NUMA node and the last-level cache are the outer and the
 * inner level: on some machines a node has several caches, on others a cache has several nodes. */
enum collet_locality_level {
	COLLET_LEVEL_PACKAGE, /* socket */
	COLLET_LEVEL_OUTER,   /* the wider of NUMA node and last-level cache */
	COLLET_LEVEL_INNER,   /* the narrower */
	COLLET_LEVEL_CORE,    /* core, with its hardware threads */
	COLLET_LEVEL_COUNT    /* number of levels */
};

/* Not known, or the rank may run on several parts of this level. */
enum { COLLET_LOCALITY_ANY = UINT16_MAX };

/* One number per level. Two ranks of a host have the same number if they share that part; numbers have no other
 * meaning. */
struct collet_locality {
	uint16_t ids[COLLET_LEVEL_COUNT]; /* by level; COLLET_LOCALITY_ANY: not one part */
};

#endif
