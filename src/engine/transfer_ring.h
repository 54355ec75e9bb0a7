/* A ring of transfers: keeps the order in which they were queued, whatever order they become ready in. */
#ifndef COLLET_ENGINE_TRANSFER_RING_H
#define COLLET_ENGINE_TRANSFER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

struct collet_work_item;

enum { TRANSFER_RING_SIZE = 16 };    /* a power of two */

/* A transfer in a route's queue. */
struct collet_queued_transfer {
	struct collet_transfer transfer;
	struct collet_work_item *item; /* NULL: nobody's any more */
	bool is_ready;               /* may be posted */
	bool released;               /* a receive's bytes are not needed any more */
};

/* A ring of transfers; indices only grow: [head, settled) settled but not released, [settled, posted) lent to the
 * transport, [posted, tail) waiting to be ready. */
struct collet_transfer_ring {
	struct collet_queued_transfer entry[TRANSFER_RING_SIZE];
	uint32_t head, completed, posted, tail;
};

bool collet_transfer_ring_is_full(const struct collet_transfer_ring *ring);
struct collet_queued_transfer *collet_transfer_ring_add(
	struct collet_transfer_ring *ring, struct collet_work_item *item);
/* The item's transfer whose bytes it still holds; NULL: it has none here. */
struct collet_queued_transfer *collet_transfer_ring_find(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);
/* The item's transfer that is not ready yet. */
struct collet_queued_transfer *collet_transfer_ring_find_unready(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);

#endif
