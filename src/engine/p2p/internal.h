/* Declares what the files of point to point share. */
#ifndef COLLET_ENGINE_P2P_INTERNAL_H
#define COLLET_ENGINE_P2P_INTERNAL_H

#include "engine/channel.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/request.h"

/* The messages of point to point. RTS: ready to send; RTR: ready to receive; ATS: acknowledge to send. WITHDRAW takes
 * an RTS back. */
enum collet_p2p_kind { P2P_EAGER = 1, P2P_RTS, P2P_RTR, P2P_DATA, P2P_RTS_PULL, P2P_ATS, P2P_WITHDRAW };

struct collet_bounce_rts;
struct collet_p2p_withdrawn;

/* The payload of RTS, RTR, ATS and WITHDRAW. */
struct collet_p2p_header {
	uint64_t bytes, id;
	uint64_t segment_bytes;             /* RTR: length of each DATA; 0: the sender chooses */
	uint64_t may_gpudirect;             /* RTR: one DATA with the whole message is possible too */
	uint64_t export_again;              /* RTR after RTS_PULL: the exported memory has been lost */
};

/* A message that is queued or being sent. */
struct collet_p2p_outgoing {
	struct collet_p2p_outgoing *next;   /* in its peer's queue, or in the free list */
	struct collet_transfer transfer;
	struct collet_request *request;     /* the request whose data it carries; NULL for control messages */
	struct collet_p2p_header header;    /* the payload of RTS, RTR, ATS and WITHDRAW */
};

/* A message without a matching receive: the data of an eager one, or the RTS or RTS_PULL of a large one. */
struct collet_p2p_unexpected {
	struct collet_p2p_unexpected *next, **previous; /* in the list of all */
	struct collet_match_entry of_source, of_any; /* in the table, for its source and for COLLET_ANY_SOURCE */
	uint32_t source, tag;
	bool is_rts;
	bool may_pull;                      /* data is a struct collet_bounce_rts */
	struct collet_p2p_header header;
	char data[];
};

/* The state of one peer. */
struct collet_p2p_peer {
	/* Counts messages to it, receives from it, and sends without its RTR. While there are any, each round of
	 * progress polls the peer. Others are polled now and then, and before a sleep: their unexpected messages are
	 * not urgent here, but their senders may wait until these have been received. */
	uint32_t waiter_count;
	struct collet_p2p_peer *next_awaited, **previous_awaited;
	struct collet_p2p_outgoing *first_out, *last_out;
	struct collet_p2p_outgoing *next_out; /* the first that is not posted; NULL: all are */
	uint64_t sent_count, received_count; /* messages; their sequence numbers */
	bool receiving;                     /* incoming is posted */
	struct collet_transfer incoming;
	enum collet_p2p_kind incoming_kind;
	struct collet_request *incoming_request; /* the receive that it goes into; NULL: unexpected, or no data */
	struct collet_p2p_unexpected *incoming_unexpected; /* being received; not in the list yet */
	struct collet_p2p_header incoming_header;
	uint64_t unexpected_bytes;
	uint32_t eager_bytes;               /* longer messages to it use rendezvous */
	struct collet_endpoint_stats pull_stats;
};

/* The point-to-point state of one communicator. */
struct collet_p2p {
	struct collet_match_table receives; /* posted and not matched, by source */
	struct collet_match_table unexpected; /* messages, by source and for any */
	struct collet_match_table sends;    /* large ones without an RTR; the tag is the low half of their id */
	struct collet_match_table rendezvous; /* receives that have sent RTR; likewise */
	struct collet_p2p_unexpected *all_unexpected;
	struct collet_p2p_withdrawn *withdrawn; /* messages whose receivers have not answered WITHDRAW */
	uint64_t next_id;
	uint32_t request_count;             /* active requests */
	uint32_t outgoing_count;            /* messages that are queued or being sent */
	struct collet_p2p_outgoing *free_outgoing; /* kept for the next messages */
	uint32_t free_count;
	struct collet_bounce_buffer *bounces; /* of active requests */
	struct collet_p2p_peer *peers;      /* by rank */
	struct collet_p2p_peer *awaited;    /* those with waiters */
	struct collet_p2p_peer *next_poll;  /* the next one that the current round polls */
	uint32_t any_source_count;          /* unmatched receives from any source */
	uint32_t poll_count;
	uint32_t fast_count;                /* receives that tried the fast path */
	uint32_t completed_count;           /* requests and outgoing messages; wraps */
};

/* Returns the request of an entry; NULL for NULL. */
static inline struct collet_request *collet_p2p_request_of(struct collet_match_entry *entry)
{
	return entry ? (struct collet_request *)((char *)entry - offsetof(struct collet_request, p2p.match)) : NULL;
}

static inline struct collet_peer_queue *collet_p2p_peer_queue(struct collet_comm_state *state, uint32_t peer)
{
	return collet_peer_queue_get(state, COLLET_CHANNEL_P2P, peer);
}

static inline struct collet_endpoint *collet_p2p_endpoint(struct collet_peer_queue *peer_queue)
{
	/* Pairs with the release store by which the control thread publishes the endpoint. */
	return peer_queue ? atomic_load_explicit(&peer_queue->endpoint, memory_order_acquire) : NULL;
}

/* Packs kind and tag into the signature of a message. */
static inline uint64_t collet_p2p_signature(enum collet_p2p_kind kind, uint32_t tag)
{
	return (uint64_t)kind << 32 | tag;
}

/* ---- p2p.c */
/* Polls all peers. */
void collet_p2p_poll_all(struct collet_comm_state *state);

/* ---- p2p_send.c */
/* Counts one more waiter for this peer. Each ends with its request, or when its message is sent. */
void collet_p2p_add_waiter(struct collet_p2p *p2p, uint32_t rank);
/* Makes a request a waiter for its peer, and ends that. Ending may be repeated. */
void collet_p2p_await_peer(struct collet_p2p *p2p, struct collet_request *request);
void collet_p2p_stop_awaiting(struct collet_p2p *p2p, struct collet_request *request);
/* Completes a request. */
void collet_p2p_complete(struct collet_p2p *p2p, struct collet_request *request);
/* Completes a receive and fills in what it received. */
void collet_p2p_complete_receive(struct collet_p2p *p2p, struct collet_request *request);
/* Queues a message: a header, or data of the request. The data must stay until they are sent. The tag of DATA is the
 * id of its message. */
collet_status collet_p2p_send_message(struct collet_comm_state *state, uint32_t to, enum collet_p2p_kind kind,
	uint32_t tag, const struct collet_p2p_header *header, const void *data, uint64_t bytes,
	struct collet_request *request);
/* Sends an eager message without queueing it. Returns false, and sends nothing, if the queue is not empty or the
 * transport cannot do it now. */
bool collet_p2p_try_send(struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
/* Posts queued messages and completes sent ones. Returns false if the endpoint failed. */
bool collet_p2p_progress_sends(struct collet_comm_state *state, uint32_t rank, struct collet_endpoint *endpoint);
/* Takes a message that is not posted out of its peer's queue. */
void collet_p2p_drop_outgoing(struct collet_p2p *p2p, uint32_t rank, struct collet_p2p_outgoing *out);
/* Frees a list. */
void collet_p2p_free_outgoing(struct collet_p2p_outgoing *first);

/* ---- p2p_match.c */
/* Matches a receive with the first message that has arrived for it, or posts it. */
collet_status collet_p2p_post_receive(struct collet_request *request);
/* Receives the messages that have arrived, one after the other. */
collet_status collet_p2p_progress_receives(struct collet_comm_state *state, uint32_t source,
	struct collet_p2p_peer *peer, struct collet_endpoint *endpoint);

/* ---- bounce_buffer.c */
/* Attaches a request's bounce buffer to the request. */
void collet_p2p_start_bounce(struct collet_request *request);
/* Runs one round of copies. Returns how many bounce buffers have made progress. */
uint32_t collet_p2p_progress_bounces(const struct collet_p2p *p2p);
/* True if no copy must be polled. */
bool collet_p2p_bounces_idle(const struct collet_p2p *p2p);

/* ---- p2p_withdraw.c */
/* Forgets a withdrawn message, which its receiver has answered. False: it was not withdrawn. */
bool collet_p2p_forget_withdrawn(struct collet_p2p *p2p, uint32_t peer, uint64_t id);
void collet_p2p_free_withdrawn(struct collet_p2p *p2p);

/* ---- p2p_rendezvous.c */
/* True if the transport can access the user buffer behind a bounce buffer, for a message of this length. */
bool collet_p2p_may_gpudirect(const struct collet_request *request, uint64_t bytes);
/* Starts the data of a send after the receiver's RTR. Fails with COLLET_ERR_TRANSPORT. */
collet_status collet_p2p_handle_rtr(struct collet_request *request, const struct collet_p2p_header *header);
/* Queues the segments of a send that are ready, if its RTR has arrived. */
void collet_p2p_send_segments(struct collet_request *request);
/* Continues a send after one of its segments was sent, and completes it after the last. */
void collet_p2p_segment_sent(struct collet_request *request);
/* Starts to pull the message of a matched receive. Returns false if its owner cannot; *export_again as in
 * bounce_buffer.h. */
bool collet_p2p_pull(struct collet_request *request, const struct collet_bounce_rts *rts, bool *export_again);
/* Completes a send that its receiver has pulled. */
void collet_p2p_handle_ats(struct collet_request *request);
/* Fills in what the RTR of a matched receive asks for. */
void collet_p2p_fill_rtr(struct collet_request *request, struct collet_p2p_header *header);
/* Chooses where the next DATA goes. P2P_PLACED: the peer's incoming is filled in. P2P_NO_CELL: no cell is free yet.
 * P2P_NO_RECEIVE: no receive has asked for it. */
enum collet_p2p_placed { P2P_PLACED, P2P_NO_CELL, P2P_NO_RECEIVE };
enum collet_p2p_placed collet_p2p_place_segment(
	struct collet_p2p *p2p, uint32_t source, struct collet_p2p_peer *peer, const struct collet_message *next);
/* Continues a receive after a segment of this length, and completes it after the last. */
void collet_p2p_segment_received(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes);

#endif
