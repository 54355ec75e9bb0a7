/* Queues the transfers of one endpoint. Two rings, one for each direction, keep (request, step) order, in whatever
 * order work items finish. So messages of overlapping requests are never matched with each other. */
#ifndef COLLET_ENGINE_PEER_QUEUE_H
#define COLLET_ENGINE_PEER_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "engine/transfer_ring.h"

struct collet_comm_state;
struct collet_connection_setup;
struct collet_request;

struct collet_peer_queue {
	_Atomic(struct collet_endpoint *) endpoint; /* NULL until open; set once, by the control thread (release) */
	struct collet_comm_state *state;
	uint32_t peer;               /* rank in the communicator */
	uint32_t channel;
	struct collet_transfer_ring send, receive;
	/* In engine.active_queues while something is queued. */
	struct collet_peer_queue *next_active, **previous_active;
	bool connection_requested;   /* collet_connections_request() has been called */
	struct collet_peer_queue *next_in_state;
	/* From here on under engine.connections_lock. */
	struct collet_connection_setup *setup;
	uint32_t failed_transports;  /* bit i: this pair could not connect over the engine's transport i */
	bool has_dialed;             /* this rank has dialed */
};

/* Returns the queue's endpoint; NULL until it is open. */
static inline struct collet_endpoint *collet_peer_queue_endpoint(const struct collet_peer_queue *peer_queue)
{
	/* Acquire, pairing with the control thread's release store that publishes the open endpoint. */
	return atomic_load_explicit(&peer_queue->endpoint, memory_order_acquire);
}

/* ---- peer_queue.c. Under lock. */
/* A system call takes about as long as this many reads of memory. */
enum { COLLET_SYSCALL_POLLS = 16 };
/* Returns the queue to the peer, creating it if needed; NULL if there is no memory, which ends the communicator. */
struct collet_peer_queue *collet_peer_queue_get(struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Returns the queue to the peer if it exists, else NULL. */
struct collet_peer_queue *collet_peer_queue_find(
	const struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Adds it to the active queues. Progress handles it from now on until nothing is queued. */
void collet_peer_queue_activate(struct collet_peer_queue *peer_queue);
/* Posts the ready transfers. */
void collet_peer_queue_post_ready(struct collet_peer_queue *peer_queue);
/* Posts the send that was queued last. Activates the queue unless the send completed at once. */
void collet_peer_queue_post_send(struct collet_peer_queue *peer_queue);
/* Posts the receive that was queued last, but only if something has arrived, so that it likely completes. */
void collet_peer_queue_try_receive(struct collet_peer_queue *peer_queue);
/* Sends or receives without queueing, if the ring is empty and the transport can complete it at once. */
enum collet_try_result collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
enum collet_try_result collet_peer_queue_receive_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
/* Releases the view of a transfer that collet_peer_queue_receive_now() completed. If the peer has taken its memory back
 * meanwhile, poisons the request and reports a lost peer. */
void collet_peer_queue_release_view(
	struct collet_peer_queue *peer_queue, struct collet_request *request, struct collet_transfer *transfer);
/* Posts the receive whether or not anything has arrived, and activates the queue. False if it was posted already. */
bool collet_peer_queue_post_receive(struct collet_peer_queue *peer_queue);
/* Makes progress on both rings. Returns how many transfers completed. */
uint32_t collet_peer_queue_progress(struct collet_peer_queue *peer_queue);
/* Copies received bytes from memory of the transport or of the peer to the transfer's own buffer. */
void collet_peer_queue_copy_view(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* Does the same for all views that the queue holds. */
void collet_peer_queue_copy_views(struct collet_peer_queue *peer_queue);
/* Releases the bytes of a receive, which are not needed any more. */
void collet_peer_queue_release(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* Returns the cost of polling for the message that was queued last, in reads of memory; a system call counts
 * COLLET_SYSCALL_POLLS of them. 0: only collet_engine_progress() can find out. */
uint32_t collet_peer_queue_poll_cost(const struct collet_peer_queue *peer_queue);
/* True if the peer's last message said that it runs on this rank's core. */
bool collet_peer_queue_shares_core(const struct collet_peer_queue *peer_queue);
/* Removes it from the active queues; progress does not handle it any more. */
void collet_peer_queue_deactivate(struct collet_peer_queue *peer_queue);

#endif
