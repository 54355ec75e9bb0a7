#include "wrapped_transfers.h"

#include "engine/peer_queue.h"

struct collet_queued_transfer *__real_collet_transfer_ring_add(
	struct collet_transfer_ring *, struct collet_work_item *);
struct collet_queued_transfer *__wrap_collet_transfer_ring_add(
	struct collet_transfer_ring *, struct collet_work_item *);
void __real_collet_work_item_transfer_done(struct collet_queued_transfer *, bool);
void __wrap_collet_work_item_transfer_done(struct collet_queued_transfer *, bool);
enum collet_try_result __real_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);
enum collet_try_result __wrap_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);
enum collet_try_result __real_collet_peer_queue_receive_now(struct collet_peer_queue *, struct collet_transfer *);
enum collet_try_result __wrap_collet_peer_queue_receive_now(struct collet_peer_queue *, struct collet_transfer *);

struct collet_queued_transfer *__wrap_collet_transfer_ring_add(
	struct collet_transfer_ring *ring, struct collet_work_item *item)
{
	transfer_point();
	return __real_collet_transfer_ring_add(ring, item);
}

void __wrap_collet_work_item_transfer_done(struct collet_queued_transfer *queued, bool sent)
{
	transfer_point();
	__real_collet_work_item_transfer_done(queued, sent);
}

enum collet_try_result __wrap_collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	transfer_point();
	const enum collet_try_result now = __real_collet_peer_queue_send_now(peer_queue, transfer);
	if (now == COLLET_TRY_DONE)
		transfer_point();
	return now;
}

enum collet_try_result __wrap_collet_peer_queue_receive_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	const enum collet_try_result now = __real_collet_peer_queue_receive_now(peer_queue, transfer);
	if (now == COLLET_TRY_DONE)
		transfer_point();
	return now;
}
