/* Queues transfers in a ring, so that they are posted in the order in which they were queued. They may become ready in
 * any order. */
#ifndef COLLET_ENGINE_TRANSFER_RING_H
#define COLLET_ENGINE_TRANSFER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

struct collet_work_item;

enum { TRANSFER_RING_SIZE = 16 };    /* a power of two */

/* A transfer in a peer queue. */
struct collet_queued_transfer {
	struct collet_transfer transfer;
	struct collet_work_item *item; /* NULL if the item was abandoned */
	bool is_ready;               /* it may be posted */
	bool released;               /* the bytes of a receive are not needed any more */
};

/* Indices only grow. Entries [head, completed) are complete but not released, [completed, posted) are posted to the
 * transport, and [posted, tail) wait until they are ready. */
struct collet_transfer_ring {
	struct collet_queued_transfer entry[TRANSFER_RING_SIZE];
	uint32_t head, completed, posted, tail;
};

bool collet_transfer_ring_is_full(const struct collet_transfer_ring *ring);
struct collet_queued_transfer *collet_transfer_ring_add(
	struct collet_transfer_ring *ring, struct collet_work_item *item);
/* Returns the item's transfer whose bytes it has not released; NULL if there is none in this ring. */
struct collet_queued_transfer *collet_transfer_ring_find(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);
/* Returns the item's transfer that is not ready yet. */
struct collet_queued_transfer *collet_transfer_ring_find_unready(
	struct collet_transfer_ring *ring, const struct collet_work_item *item);

#endif
