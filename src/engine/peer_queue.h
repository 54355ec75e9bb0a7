/* One endpoint as tasks use it: two rings that keep (request, step) order, whatever order work items finish in. */
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
	uint32_t peer;               /* rank in the group */
	uint32_t channel;
	struct collet_transfer_ring send, receive;
	struct collet_peer_queue *next_active, **previous_active; /* in engine.active while something is queued */
	bool connection_requested;   /* collet_connections_request() has been called */
	struct collet_peer_queue *next_in_state;
	/* Under fabric_lock from here on. */
	struct collet_connection_setup *setup;
	uint32_t failed_transports;  /* of the engine's transports, those that this pair has tried in vain, as bits */
	bool has_dialed;             /* this rank has dialed */
};

/* ---- peer_queue.c. Under lock. */
enum { COLLET_SYSCALL_POLLS = 16 };
struct collet_peer_queue *collet_peer_queue_get(struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* The same, but NULL if there is none. */
struct collet_peer_queue *collet_peer_queue_find(
	const struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Something has been queued: progress looks after it from now on, until nothing is. */
void collet_peer_queue_activate(struct collet_peer_queue *peer_queue);
/* Posts what is ready. */
void collet_peer_queue_post_ready(struct collet_peer_queue *peer_queue);
/* Posts what has just been queued to be sent. The route is activated if it did not settle at once. */
void collet_peer_queue_post_send(struct collet_peer_queue *peer_queue);
/* The same for the receive that has just been queued, but only if it is likely to settle: something has come. */
void collet_peer_queue_try_receive(struct collet_peer_queue *peer_queue);
/* Sends or receives at once, past the queues, where they are empty and the transport can. */
enum collet_try_result collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
enum collet_try_result collet_peer_queue_receive_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer);
/* Ends the view of one that was received so, for the request: it may have become COLLET_ERR_PEER_LOST. */
void collet_peer_queue_release_view(
	struct collet_peer_queue *peer_queue, struct collet_request *request, struct collet_transfer *transfer);
/* Posts it whatever has come, and activates the route. False: it was posted. */
bool collet_peer_queue_post_receive(struct collet_peer_queue *peer_queue);
/* Returns how many transfers settled. */
uint32_t collet_peer_queue_progress(struct collet_peer_queue *peer_queue);
/* Received bytes that are the transport's or the peer's memory are taken to the transfer's own place. */
void collet_peer_queue_copy_view(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* The same for all that it holds. */
void collet_peer_queue_copy_views(struct collet_peer_queue *peer_queue);
/* A receive's bytes are not needed any more. */
void collet_peer_queue_release(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued);
/* What it costs to find out whether the message has come that was queued last, in looks into memory: asking a kernel
 * takes as long as COLLET_SYSCALL_POLLS of them. 0: that is progress's to find out. */
uint32_t collet_peer_queue_poll_cost(const struct collet_peer_queue *peer_queue);
/* Was the peer on this rank's core when it was last heard of? */
bool collet_peer_queue_shares_core(const struct collet_peer_queue *peer_queue);
/* Takes it off the list of active routes; its queues are not looked at any more. */
void collet_peer_queue_deactivate(struct collet_peer_queue *peer_queue);

#endif
