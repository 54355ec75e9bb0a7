/* Transfers that a transport has been lent, in posting order, and how one is handed back. */
#ifndef COLLET_TRANSPORT_QUEUE_H
#define COLLET_TRANSPORT_QUEUE_H

#include "transport/transport.h"

struct collet_transfer_queue {
	struct collet_transfer *first, *last;
};

static inline void collet_transfer_queue_add(struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->next = NULL;
	if (queue->first)
		queue->last->next = transfer;
	else
		queue->first = transfer;
	queue->last = transfer;
}

/* Hands the oldest back. Its owner may reuse or free it from then on, so nothing of it is touched after status. */
static inline void collet_transfer_queue_settle(struct collet_transfer_queue *queue, struct collet_conduit *conduit,
	collet_status status)
{
	struct collet_transfer *transfer = queue->first;
	queue->first = transfer->next;
	transfer->next = NULL;
	conduit->posted--;
	transfer->status = status;
}

/* Hands all back; returns how many. */
static inline uint32_t collet_transfer_queue_settle_all(
	struct collet_transfer_queue *queue, struct collet_conduit *conduit, collet_status status)
{
	uint32_t settled = 0;
	for (; queue->first; settled++)
		collet_transfer_queue_settle(queue, conduit, status);
	return settled;
}

static inline bool collet_message_equal(const struct collet_message *a, const struct collet_message *b)
{
	return a->signature == b->signature && a->sequence == b->sequence && a->bytes == b->bytes;
}

#endif
