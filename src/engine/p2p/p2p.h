/* Point to point: send and receive with tags, beside the collectives and on conduits of their own. See p2p.c. */
#ifndef COLLET_ENGINE_P2P_P2P_H
#define COLLET_ENGINE_P2P_P2P_H

#include <collet/collet.h>

struct collet_bounce_buffer;
struct collet_endpoint_stats;
struct collet_comm_state;
struct collet_request;

/* The point-to-point part of a request. */
struct collet_p2p_call {
	bool is_send;
	bool matched;                /* a receive: a message has been matched with it */
	bool truncated;
	uint32_t peer;               /* group rank, or COLLET_ANY_SOURCE */
	uint32_t tag;
	uint32_t pending_ops;        /* of a sendrecv's own request: halves under way */
	bool awaits_peer;            /* something has yet to come from the peer, or to be asked for by it */
	bool may_gpudirect;          /* a large receive's buffer is a GPU's, and the transport may write there */
	bool is_gpudirect;           /* buffer is, and the message goes from there or into it as it is */
	bool has_rtr;                /* a large send: its receiver has asked for it */
	bool may_pull;               /* a large send: its receiver may take it by itself */
	void *buffer;
	struct collet_bounce_buffer *bounce;/* what stands for the buffer, which cannot be touched; NULL: it can */
	uint64_t bytes;              /* a receive: its capacity */
	size_t element_bytes;
	uint64_t id;                 /* of a large message, the sender's number for it; else 0 */
	uint64_t message_bytes;      /* a receive: once there is one */
	uint64_t moved_bytes;        /* posted to be sent, or come; of a large message, or a bounce's */
	uint64_t segment_bytes;      /* in which a large message is sent */
	uint32_t in_flight;          /* of these, posted and not sent yet */
	collet_received *received;
	struct collet_request *next; /* in the group's lists */
	struct collet_request *parent; /* of a sendrecv's half */
};

struct collet_p2p;

/* Under the engine's lock, all of them. */
collet_status collet_p2p_start(struct collet_request *request);
/* A whole message of a blocking call without a request, p2p_fast_path.c. false: nothing has happened, and a request is
 * needed. Never with a bounce. Of a receive: only one that fills its buffer. */
bool collet_p2p_send_fast(
	struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
bool collet_p2p_receive_fast(struct collet_comm_state *state, uint32_t from, uint32_t tag, void *data, uint64_t bytes);
/* A round for the peers that something waits for, now and then for all. Returns how much it has brought to its end. */
uint32_t collet_p2p_progress(struct collet_comm_state *state);
/* Before a sleep: a round for all peers. True: there was something to be moved. */
bool collet_p2p_progress_all(struct collet_comm_state *state);
/* What a round costs that finds nothing, in looks into memory. */
uint32_t collet_p2p_poll_cost(const struct collet_comm_state *state);
/* Does it wait for a rank that was last seen on this one's core? */
bool collet_p2p_awaits_own_core(const struct collet_comm_state *state);
/* Is a request or a message under way? */
bool collet_p2p_is_busy(const struct collet_comm_state *state);
/* Gives messages that came unasked to receives that ask for them now. */
void collet_p2p_match_unexpected(struct collet_comm_state *state);
/* As a conduit's arm and disarm, for all that point to point waits for. */
bool collet_p2p_arm(struct collet_comm_state *state);
void collet_p2p_disarm(struct collet_comm_state *state);
/* Of the messages that went to this peer, and came from it, past all conduits: the receiver took them from where they
 * were. NULL: none did. */
const struct collet_endpoint_stats *collet_p2p_pull_stats(const struct collet_comm_state *state, uint32_t peer);
/* Forgets everything; the conduits are closed. */
void collet_p2p_deinit(struct collet_comm_state *state);
void collet_p2p_describe(const struct collet_request *request, char *text, size_t capacity);
/* A message's other end, for a sentence; of a sendrecv, those of its halves that are under way. What waits for a
 * message has no transfer yet that would tell. Under lock. */
void collet_p2p_list_peers(const struct collet_request *request, char *text, size_t capacity);

#endif
