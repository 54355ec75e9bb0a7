/* Sends and receives messages with tags. Point to point has endpoints of its own, apart from those of collectives.
 * p2p.c describes the protocols. */
#ifndef COLLET_ENGINE_P2P_P2P_H
#define COLLET_ENGINE_P2P_P2P_H

#include <collet/collet.h>

#include "engine/p2p/match_table.h"

struct collet_bounce_buffer;
struct collet_endpoint_stats;
struct collet_comm_state;
struct collet_request;

/* The point-to-point part of a request. */
struct collet_p2p_call {
	bool is_send;
	bool truncated;              /* a receive: the message was longer than its buffer */
	enum collet_status outcome;  /* COLLET_OK, or the status with which it was withdrawn */
	uint32_t peer;               /* rank in the communicator, or COLLET_ANY_SOURCE */
	uint32_t tag;
	uint32_t pending_ops;        /* a sendrecv's own request: operations that have not ended */
	bool awaits_peer;            /* it is counted as a waiter for its peer */
	bool may_gpudirect;          /* a large receive: the transport may write to its GPU buffer */
	bool is_gpudirect;           /* the transport accesses the GPU buffer directly */
	bool has_rtr;                /* a large send: its RTR has arrived */
	bool may_pull;               /* a large send: its receiver may pull it */
	void *buffer;
	struct collet_bounce_buffer *bounce; /* used in place of a buffer that the engine cannot access; NULL: none */
	uint64_t bytes;              /* of a receive: its capacity */
	size_t element_bytes;
	uint64_t id;                 /* of a large message: the sender's number for it; else 0 */
	bool from_any;               /* a receive: peer was COLLET_ANY_SOURCE until it was matched */
	uint64_t posted_order;       /* a receive with an id: its place among posted receives */
	uint64_t message_bytes;      /* of a receive: known when it is matched */
	uint64_t moved_bytes;        /* posted for sending, or received */
	uint64_t segment_bytes;      /* length of the DATA of a large send */
	uint32_t in_flight;          /* segments that are posted and not sent yet */
	collet_received *received;
	struct collet_match_entry match; /* in a table of struct collet_p2p, while it waits for a message */
	struct collet_request *parent; /* of an operation of a sendrecv; else NULL */
};

struct collet_p2p;

/* All functions need the engine's lock. */

/* Starts a send or a receive. */
collet_status collet_p2p_start(struct collet_request *request);
/* Send or receive a whole message of a blocking call without a request (p2p_fast_path.c). Return false, and change
 * nothing, if a request is needed. Never used with a bounce buffer. A receive must fill its buffer. */
bool collet_p2p_send_fast(
	struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
bool collet_p2p_receive_fast(struct collet_comm_state *state, uint32_t from, uint32_t tag, void *data, uint64_t bytes);
/* Ends a pending request alone, with this status, if no data of it are under way: a receive that no message has
 * matched, a send that its receiver has not asked for. Of a sendrecv, what is pending must be so. Returns false and
 * changes nothing otherwise, or without memory. */
bool collet_p2p_withdraw(struct collet_request *request, collet_status ending);
/* Polls the peers that have waiters, and all peers now and then. Returns how many requests and messages completed. */
uint32_t collet_p2p_progress(struct collet_comm_state *state);
/* Polls all peers before a sleep. Returns true if anything completed. */
bool collet_p2p_progress_all(struct collet_comm_state *state);
/* Returns the cost of a round that finds nothing, in polls of memory. */
uint32_t collet_p2p_poll_cost(const struct collet_comm_state *state);
/* True if all peers with waiters were last seen on this rank's core. */
bool collet_p2p_awaits_own_core(const struct collet_comm_state *state);
/* True if a request or a message is under way. */
bool collet_p2p_is_busy(const struct collet_comm_state *state);
/* Arm and disarm all endpoints of point to point, as a transport's slots do. */
bool collet_p2p_arm(struct collet_comm_state *state);
void collet_p2p_disarm(struct collet_comm_state *state);
/* Counts the messages to and from this peer that no endpoint carried, because their receiver pulled them. Returns NULL
 * if there are none. */
const struct collet_endpoint_stats *collet_p2p_pull_stats(const struct collet_comm_state *state, uint32_t peer);
/* Frees everything. The endpoints must be closed. */
void collet_p2p_deinit(struct collet_comm_state *state);
/* Writes what a request does, for an error sentence: "recv from rank 3, tag 7". */
void collet_p2p_describe(const struct collet_request *request, char *text, size_t capacity);
/* Writes the peer of a request, or the peers of a sendrecv's pending operations, for an error sentence. A request that
 * waits for a message has no transfer that names its peer. Of one that was withdrawn, the last peer it waited for. */
void collet_p2p_list_peers(const struct collet_request *request, char *text, size_t capacity);

#endif
