/* What the files of point to point know of each other. */
#ifndef COLLET_ENGINE_P2P_INTERNAL_H
#define COLLET_ENGINE_P2P_INTERNAL_H

#include "engine/channel.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"

enum collet_p2p_kind { P2P_EAGER = 1, P2P_RTS, P2P_RTR, P2P_DATA, P2P_RTS_PULL, P2P_ATS };

struct collet_bounce_rts;

struct collet_p2p_header {
	uint64_t bytes, id;
	uint64_t segment_bytes;             /* FETCH: DATA may be so long each; 0: as long as the sender likes */
	uint64_t may_gpudirect;             /* FETCH: or all of it at once */
	uint64_t export_again;              /* FETCH, of what was offered: what was shown has been lost */
};

/* A message on its way out. */
struct collet_p2p_outgoing {
	struct collet_p2p_outgoing *next;   /* in its peer's queue, or among the spare ones */
	struct collet_transfer transfer;
	struct collet_request *request;     /* whose data it is; NULL: a note */
	struct collet_p2p_header header;    /* the payload of ANNOUNCE and FETCH */
};

/* A message that nobody has asked for yet: of an eager one the bytes, of a large one the announcement, or the offer. */
struct collet_p2p_unexpected {
	struct collet_p2p_unexpected *next;
	uint32_t source, tag;
	bool is_rts;
	bool may_pull;                      /* its data is a collet_bounce_rts */
	struct collet_p2p_header header;
	char data[];
};

/* One peer's conduit. */
struct collet_p2p_peer {
	/* Messages to it, receives from it and sends that it has not fetched: while there are any, each round of
	 * progress looks at it. Others are looked at now and then, and before a sleep: what they send unasked has time,
	 * but they may wait until it has been taken. */
	uint32_t waiter_count;
	struct collet_p2p_peer *next_awaited, **previous_awaited;
	struct collet_p2p_outgoing *first_out, *last_out;
	uint64_t sent_count, received_count; /* messages, for their sequence */
	bool receiving;                     /* incoming is lent */
	struct collet_transfer incoming;
	enum collet_p2p_kind incoming_kind;
	struct collet_request *incoming_request; /* whose buffer it goes into; NULL: kept, or a note */
	struct collet_p2p_unexpected *incoming_unexpected; /* not yet in the list: its bytes are on their way */
	struct collet_p2p_header incoming_header;
	uint64_t unexpected_bytes;
	uint32_t eager_bytes;               /* longer messages to it are announced */
	struct collet_endpoint_stats pull_stats;
};

struct collet_p2p {
	struct collet_request *receives, **last_receive;  /* posted, in order; matched ones included until they end */
	struct collet_request *sends;       /* large ones, not fetched yet */
	struct collet_p2p_unexpected *unexpected, **last_unexpected; /* in order of arrival */
	uint64_t next_id;
	uint32_t request_count;             /* requests under way */
	uint32_t outgoing_count;            /* messages on their way out */
	struct collet_p2p_outgoing *free_outgoing; /* kept for the next messages */
	uint32_t free_count;
	struct collet_bounce_buffer *bounces; /* of requests under way */
	struct collet_p2p_peer *peers;      /* by rank */
	struct collet_p2p_peer *awaited, *next_poll; /* the second: whom a round under way comes to next */
	uint32_t any_source_count;          /* receives that whoever sends may satisfy */
	uint32_t poll_count;
	uint32_t fast_count;                /* receives that were tried so */
	uint32_t completed_count;           /* requests, and messages on their way out; it wraps */
};

static inline struct collet_peer_queue *collet_p2p_peer_queue(struct collet_comm_state *state, uint32_t peer)
{
	return collet_peer_queue_get(state, COLLET_CHANNEL_P2P, peer);
}

static inline struct collet_endpoint *collet_p2p_endpoint(struct collet_peer_queue *peer_queue)
{
	/* Pairs with the control thread's release store that publishes it. */
	return peer_queue ? atomic_load_explicit(&peer_queue->endpoint, memory_order_acquire) : NULL;
}

/* What a message says of itself. */
static inline uint64_t collet_p2p_signature(enum collet_p2p_kind kind, uint32_t tag)
{
	return (uint64_t)kind << 32 | tag;
}

/* ---- p2p.c */
/* Takes in what whoever it may be has sent. */
void collet_p2p_poll_all(struct collet_comm_state *state);

/* ---- p2p_send.c */
/* Something waits for this peer; as often as that is said, it ends with a request or with a message that is sent. */
void collet_p2p_add_waiter(struct collet_p2p *p2p, uint32_t rank);
/* The same for a request's peer, and until nothing of that is left; the latter is safe to repeat. */
void collet_p2p_await_peer(struct collet_p2p *p2p, struct collet_request *request);
void collet_p2p_stop_awaiting(struct collet_p2p *p2p, struct collet_request *request);
/* Off a list, if it is there. */
void collet_p2p_remove(struct collet_request **list, struct collet_request *request);
/* A request comes to its end; a receive with what it has got. */
void collet_p2p_complete(struct collet_p2p *p2p, struct collet_request *request);
void collet_p2p_complete_receive(struct collet_p2p *p2p, struct collet_request *request);
/* Queues a message: a note, or data of the request, which stay until it has been sent. tag: of DATA its id. */
collet_status collet_p2p_send_message(struct collet_comm_state *state, uint32_t to, enum collet_p2p_kind kind,
	uint32_t tag, const struct collet_p2p_header *header, const void *data, uint64_t bytes,
	struct collet_request *request);
/* Sends an eager message past the queue, where that is empty and the transport can. */
bool collet_p2p_send_now(struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
/* Posts what is queued, and takes what has settled; false: the conduit failed. */
bool collet_p2p_progress_sends(struct collet_comm_state *state, uint32_t rank, struct collet_endpoint *endpoint);
/* All of a list. */
void collet_p2p_free_outgoing(struct collet_p2p_outgoing *first);

/* ---- p2p_match.c */
/* Takes in what has come, one message after the other. */
collet_status collet_p2p_progress_receives(struct collet_comm_state *state, uint32_t source,
	struct collet_p2p_peer *peer, struct collet_endpoint *endpoint);

/* ---- p2p_rendezvous.c */
void collet_p2p_start_bounce(struct collet_request *request);
/* A round; returns how many have got on. */
uint32_t collet_p2p_progress_bounces(const struct collet_p2p *p2p);
/* Is no copy under way? */
bool collet_p2p_bounces_idle(const struct collet_p2p *p2p);
/* Can the transport reach a bounce's buffer itself, for so many bytes? */
bool collet_p2p_may_gpudirect(const struct collet_request *request, uint64_t bytes);
/* The receiver has asked for this send, so. COLLET_ERR_TRANSPORT. */
collet_status collet_p2p_handle_rtr(struct collet_request *request, const struct collet_p2p_header *header);
/* Queues what is there of a send, if it has been asked for. */
void collet_p2p_send_segments(struct collet_request *request);
/* One of its messages has been sent, which may be its end. */
void collet_p2p_segment_sent(struct collet_request *request);
/* A matched receive's owner begins to take the message from there. false: it does not; *again as of bounce_buffer.h. */
bool collet_p2p_pull(struct collet_request *request, const struct collet_bounce_rts *offer, bool *export_again);
/* Its receiver has taken this send. */
void collet_p2p_handle_ats(struct collet_request *request);
/* What a matched receive asks for. */
void collet_p2p_fill_rtr(struct collet_request *request, struct collet_p2p_header *header);
/* Where the DATA goes that is next: PLACED, into the peer's `into`. P2P_NO_CELL: there is no free cell yet.
 * P2P_NO_RECEIVE: nobody has asked for it. */
enum collet_p2p_placed { P2P_PLACED, P2P_NO_CELL, P2P_NO_RECEIVE };
enum collet_p2p_placed collet_p2p_place_segment(
	struct collet_p2p *p2p, uint32_t source, struct collet_p2p_peer *peer, const struct collet_message *next);
/* A message of so many bytes is there; it may be the receive's end. */
void collet_p2p_segment_received(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes);

#endif
