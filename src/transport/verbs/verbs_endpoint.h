/* verbs: ranks whose hosts have RDMA adapters (InfiniBand, RoCE, iWARP). A conduit is a few reliable connected queue
 * pairs.
 *
 * Small messages: one RDMA write with immediate each, header and bytes together, into the next place of the peer's
 * ring; inline where the adapter takes so much, else from a mirror of that ring. The receiver's completion says where
 * it lies, and the engine combines from there. A message needs no completion on the sending side: every 16th asks for
 * one. What the receiver has freed is told by a count in every immediate; where nothing goes that way, by an empty
 * write once a third of the window waits for it.
 *
 * Large messages: announced in the ring (so the order is the ring's), granted by the receiver once the receive is
 * posted (one write of 64 bytes into a slot of its own, which no ring full of messages can hold up), and then written
 * from the sender's memory into the receiver's, by all data queue pairs, each a part. The last write of each part
 * carries an immediate. Where the receiver cannot register its memory, pieces go through two landing places instead;
 * where the sender cannot, through two staging places.
 *
 * Receive requests carry no buffers, only room for immediates. There is always room, by counting: a window of small
 * messages not yet freed, two grants and two ends for each of LARGE_MAX announced messages, and credits, of which the
 * window bounds the number. So a peer that computes never makes a queue pair wait (receiver not ready).
 *
 * A rank with many conduits makes further ones lean: with a smaller ring, fewer and shorter queue pairs. If either end
 * wants it so, both have it (struct verbs_profile).
 *
 * iWARP has no immediates: what one would tell comes in a short message of its own behind the write, both posted at
 * once. Its queue pairs are connected by rdma_cm (verbs_iwarp.c); and since a write completes there when it has left,
 * whether the peer's adapter is there is asked by reading instead of by an empty write.
 *
 * The socket over which the ends met stays open: its end tells that the peer's process is gone, which a queue pair that
 * only receives would never learn. That the network is gone, it learns by an empty write after a time of silence.
 *
 * What a peer writes is copied once, checked, then used. It chooses no address and no length of ours. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_ENDPOINT_H
#define COLLET_TRANSPORT_VERBS_VERBS_ENDPOINT_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <collet/transport.h>

#include "verbs_adapter.h"
#include "verbs_profile.h"
#include "verbs_registration.h"
#include "verbs_wire.h"

enum verbs_state {
	VERBS_CLOSED = 0, /* as zeroed */
	VERBS_SEND_HELLO, /* waits for room to tell its queue pairs */
	VERBS_AWAIT_HELLO, /* waits for the peer's */
	VERBS_CONNECT,    /* iWARP: waits for rdma_cm */
	VERBS_SEND_CONNECTED,
	VERBS_AWAIT_CONNECTED, /* waits for the peer's queue pairs to be ready to receive */
	VERBS_PROBE,          /* waits for a write on each to be acknowledged: adapters reach each other */
	VERBS_SEND_READY,
	VERBS_AWAIT_READY,
	VERBS_READY
};

struct verbs_qp {
	struct ibv_qp *qp;
	uint32_t rail, peer_rail;
	uint32_t depth;                  /* of the send queue */
	uint32_t posted, completed;      /* sends; done as far as completions told */
	uint32_t consumed_receives;      /* receive requests used up and not given back */
	uint32_t inline_bytes;
	bool is_probing;                 /* an empty write is under way */
	int64_t probed_ns;
	/* iWARP: where notices arrive, in turns. */
	struct verbs_notice *notices;
	uint32_t notice_count, notice_next;
	uint32_t notice_lkey;
	struct rdma_cm_id *id;
	uint32_t attempts;
	bool is_established;
	bool is_answered; /* this end has probed back */
};

struct verbs_rail {
	struct verbs_adapter *adapter;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
};

/* A message in the ring that has come. */
struct verbs_arrival {
	struct verbs_header header;
	uint16_t start, units;           /* units: with what was skipped before it */
	bool is_freed;
};

/* An announced message, at its sender. */
struct verbs_outgoing {
	struct collet_transfer *transfer;  /* NULL: free */
	struct verbs_mr_ref mr;
	struct verbs_cts cts;
	bool is_bounced;                 /* its memory could not be registered */
	uint32_t parts;                  /* queue pairs that carry it */
	uint64_t next[DATA_QPS_MAX], end[DATA_QPS_MAX];
	uint32_t in_flight;              /* writes not yet completed */
};

/* The same at its receiver. */
struct verbs_incoming {
	struct collet_transfer *transfer;
	struct verbs_mr_ref mr;
	enum verbs_cts_mode mode;
	bool is_cts_sent;                /* else the grant waits for room, or for the places */
	uint32_t ended_parts;            /* parts that have come */
	uint64_t received_bytes;         /* PLACES */
	uint64_t allowed_bytes;
};

/* In a transfer's transport_private while it is lent: [0] what is left to do; of a view [1] which arrival, [2] that it
 * lies in the ring (the engine may have changed view before it gives it back). */
enum verbs_phase { PHASE_WAITING, PHASE_IN_FLIGHT, PHASE_DONE, PHASE_MISMATCH };

struct verbs_endpoint {
	struct collet_endpoint endpoint;
	enum verbs_state state;
	struct collet_device *device;
	const struct collet_services *services;
	const struct verbs_profile *profile; /* what this end wants, and from the peer's hello on what both have */
	struct verbs_memory *memory;
	size_t memory_bytes;
	uint8_t *ring, *recv_bounce, *mirror, *send_bounce; /* in it */
	uint64_t peer_memory;
	uint32_t peer_rkeys[RAILS_MAX];
	uint32_t rail_count, qp_count;
	struct verbs_rail rails[RAILS_MAX];
	struct verbs_qp qps[QPS_MAX];            /* the first carries the ring */
	bool is_dialer;                          /* this end connected the socket */
	struct rdma_event_channel *cm_channel;   /* iWARP, as are */
	struct rdma_cm_id *listeners[RAILS_MAX];
	uint64_t max_write_bytes;        /* bytes of one write */
	uint32_t rates_mbps[QPS_MAX];    /* Mb/s, of the slower end */

	/* Sending. */
	struct collet_transfer_queue sends;
	struct collet_transfer *unsent;  /* the first of them with nothing posted */
	uint32_t out_unit, out_free_units; /* units: where the next goes, how many are free */
	uint32_t out_sent, out_freed;    /* messages */
	uint16_t out_units[SLOTS];       /* of message i % SLOTS */
	uint32_t large_sent;             /* announced; the next is large_sent % LARGE_MAX */
	struct verbs_outgoing outgoing[LARGE_MAX];
	uint32_t send_bounce_used;       /* bits */

	/* Receiving. */
	struct collet_transfer_queue receives;
	struct collet_transfer *unmatched;       /* the first of them that no message has met */
	uint32_t in_unit;                /* unit after the last message */
	uint32_t in_arrived, in_matched, in_freed, in_credited;
	uint32_t in_units_uncredited;
	struct verbs_arrival arrivals[SLOTS];
	struct verbs_incoming incoming[LARGE_MAX];
	struct verbs_incoming *recv_bounce_owner; /* who uses the landing places */

	/* Waiting, faults, opening, closing. */
	bool is_armed, is_closing;
	bool is_lost;                    /* the peer, or the way to it: reason says why */
	collet_status lost_status;
	char lost_reason[400];
	uint32_t empty_rounds;           /* rounds of progress without any */
	_Atomic int fatal_event;         /* 1 + the enum ibv_event_type that ends it */
	uint32_t port_errors_seen;       /* of the device, that have been heeded */
	bool has_completed;              /* any completion, since somebody looked */
	int64_t completed_ns;
	uint32_t probes_pending;
	bool is_flush_pending;           /* at closing */
	int socket, epoll_fd;
	pid_t owner_pid;                 /* the process that opened it */
	const struct collet_peer_info *self, *peer;
	const struct collet_log *log;
	struct verbs_hello hello_out, hello_in;
	size_t hello_sent_bytes, hello_received_bytes;
};

static inline bool verbs_is_iwarp(const struct verbs_endpoint *verbs)
{
	return verbs->device->is_iwarp;
}

static inline uint64_t verbs_memory_offset(const struct verbs_endpoint *verbs, const void *place)
{
	return (uint64_t)((const uint8_t *)place - (const uint8_t *)verbs->memory);
}

/* verbs_connect.c */
collet_status collet_verbs_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
collet_status collet_verbs_open_progress(struct collet_endpoint *endpoint);
/* The sentence of a conduit that does not come to be. */
collet_status collet_verbs_fail_connect(const struct verbs_endpoint *verbs, const char *what, const char *why);

/* verbs_resources.c */
/* Memory, completion queues and queue pairs that can receive; on failure some of them. */
collet_status collet_verbs_create_resources(struct verbs_endpoint *verbs);
void collet_verbs_destroy_qps(struct verbs_endpoint *verbs);
/* Everything that was made. */
void collet_verbs_free_resources(struct verbs_endpoint *verbs);

/* verbs_ring.c */
/* Sends what there is room for. */
void collet_verbs_send(struct verbs_endpoint *verbs);
/* Sends it, if it is small and there is room. */
bool collet_verbs_try_send(struct verbs_endpoint *verbs, struct collet_transfer *transfer);
/* The peer has told what it freed. */
void collet_verbs_handle_credit(struct verbs_endpoint *verbs, uint32_t freed);
void collet_verbs_handle_arrival(struct verbs_endpoint *verbs, uint32_t start, uint32_t bytes);
/* Gives arrived messages to posted receives. */
void collet_verbs_match(struct verbs_endpoint *verbs);
void collet_verbs_free_arrival(struct verbs_endpoint *verbs, uint32_t index);
/* Tells the peer, if enough is free and nothing else has told it. */
void collet_verbs_send_credit(struct verbs_endpoint *verbs);
uint32_t collet_verbs_complete(struct verbs_endpoint *verbs);

/* verbs_rendezvous.c */
/* The transfer is being announced as the next large one. */
void collet_verbs_begin_large_send(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer);
/* An announced message has met its receive; transfer NULL: it was a mismatch. The last one of this number has ended. */
void collet_verbs_begin_large_recv(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer);
void collet_verbs_handle_cts(struct verbs_endpoint *verbs, uint32_t id);
void collet_verbs_handle_end(struct verbs_endpoint *verbs, uint32_t argument, uint32_t bytes);
void collet_verbs_handle_data_done(struct verbs_endpoint *verbs, uint32_t tag);
/* Grants and writes that there is room for. */
void collet_verbs_progress_large(struct verbs_endpoint *verbs);
void collet_verbs_reset_large(struct verbs_endpoint *verbs);

/* verbs_wait.c */
int64_t collet_verbs_now_ns(void);
bool collet_verbs_arm(struct collet_endpoint *endpoint);
void collet_verbs_disarm(struct collet_endpoint *endpoint);
int64_t collet_verbs_probe_timeout_ns(const struct verbs_options *options);
/* Nothing has moved for long: is the peer there? */
void collet_verbs_check_peer(struct verbs_endpoint *verbs);

/* verbs_errors.c */
/* The conduit will end, as soon as what has come is taken; the first reason stays. */
void collet_verbs_mark_lost(struct verbs_endpoint *verbs, collet_status status, const char *format, ...)
	COLLET_FORMAT(3, 4);
/* Asks the port, for a sentence: "active", "down", "gone". */
const char *collet_verbs_port_state(const struct verbs_adapter *adapter);
void collet_verbs_completion_failed(
	struct verbs_endpoint *verbs, uint32_t qp, const struct ibv_wc *completion);
/* Ends it: status becomes sticky, no adapter touches memory any more, every transfer settles. Returns how many. */
uint32_t collet_verbs_fail(struct verbs_endpoint *verbs);
/* Settles all as status. */
uint32_t collet_verbs_complete_all(struct verbs_endpoint *verbs, collet_status status);

#endif
