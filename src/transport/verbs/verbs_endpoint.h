/* verbs: the transport for hosts with RDMA adapters (InfiniBand, RoCE, iWARP). An endpoint is a small set of reliable
 * connected (RC) queue pairs. The first one carries small messages and control, the others carry large messages.
 *
 * Small messages (eager). The peer's ring is a registered buffer, cut into units of 64 bytes. A message is one RDMA
 * write with immediate that puts header and bytes behind the last message. It is posted inline if the adapter takes
 * that many bytes, else from a local mirror of the ring. The immediate tells the receiver where the message lies, and
 * the engine reduces from there. The sender needs no completion for a message, so only every 16th write is signalled.
 *
 * Flow control. Every immediate carries credits: the number of messages that its sender has freed in its own ring. If
 * nothing is sent that way, an empty write carries them once a third of the window is freed and not yet credited.
 *
 * Large messages (rendezvous). The sender announces the message by a header in the ring, so the ring keeps the order.
 * When the receive is posted, the receiver answers with a clear-to-send (CTS): one write of 64 bytes into a slot of its
 * own, which a full ring cannot block. The sender then writes from its memory into the receiver's. All data queue pairs
 * take part, each with a stripe of the message, and the last write of each stripe has an immediate. If the receiver
 * cannot register its memory, segments go through its two bounce buffers. If the sender cannot, they go through its own
 * two.
 *
 * Receive requests have no buffers, they only take immediates. The queue pair always has enough of them: one for each
 * small message of the window, for two CTS and two ends of each of the VERBS_LARGE_MAX announced messages, and for
 * credit writes, whose number the window bounds. So a peer that computes never causes "receiver not ready" (RNR).
 *
 * Profiles. A rank with many endpoints opens further ones with the lean profile: a smaller ring, fewer and shorter
 * queue pairs. If either end asks for it, both ends use it (struct verbs_profile).
 *
 * iWARP has no immediates. A short send behind the write, posted together with it, carries what an immediate would
 * (struct verbs_notice). rdma_cm connects its queue pairs (verbs_iwarp.c). An iWARP write completes when it has left
 * the adapter, so a small read instead of an empty write probes whether the peer's adapter is there.
 *
 * Failure detection. The socket of the connection setup stays open. Its end shows that the peer's process has gone,
 * which a queue pair that only receives would never notice. After a time of silence an empty write probes the network
 * path.
 *
 * Everything that a peer writes is copied once, checked, and then used. A peer chooses no address and no length
 * here. */
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

/* States of the connection setup, in order. Each names what the endpoint waits for. */
enum verbs_state {
	VERBS_CLOSED = 0,      /* zeroed memory, or closed */
	VERBS_SEND_HELLO,      /* waits for room in the socket, to send its queue pair numbers */
	VERBS_AWAIT_HELLO,     /* waits for the peer's hello */
	VERBS_CONNECT,         /* iWARP: waits for rdma_cm */
	VERBS_SEND_CONNECTED,  /* waits for room in the socket */
	VERBS_AWAIT_CONNECTED, /* waits until the peer's queue pairs can receive */
	VERBS_PROBE,           /* waits for a completed probe on each queue pair: the adapters reach each other */
	VERBS_SEND_READY,      /* waits for room in the socket */
	VERBS_AWAIT_READY,     /* waits until the peer's probes have completed too */
	VERBS_READY
};

struct verbs_qp {
	struct ibv_qp *qp;
	uint32_t rail, peer_rail;
	uint32_t depth;                  /* length of the send queue */
	uint32_t posted, completed;      /* send requests posted, and known to be completed */
	uint32_t consumed_receives;      /* receive requests consumed and not yet reposted */
	uint32_t inline_bytes;           /* most bytes of an inline write */
	bool is_probing;                 /* a probe of an idle connection is in flight */
	int64_t probed_ns;               /* time of that probe */
	/* iWARP only, from here on. Notices arrive in this array, used as a ring. */
	struct verbs_notice *notices;
	uint32_t notice_count, notice_next;
	uint32_t notice_lkey;
	struct rdma_cm_id *id;
	uint32_t attempts;               /* connection attempts so far */
	bool is_established;
	bool is_answered;                /* this end has answered the peer's first probe */
};

/* An adapter as one endpoint uses it. */
struct verbs_rail {
	struct verbs_adapter *adapter;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;               /* registration of verbs_endpoint.memory */
};

/* A message that has arrived in the ring. */
struct verbs_arrival {
	struct verbs_header header;
	uint16_t start, units;           /* first unit; number of units, including those skipped before it */
	bool is_freed;
};

/* A large message at its sender. */
struct verbs_outgoing {
	struct collet_transfer *transfer; /* NULL if the entry is free */
	struct verbs_mr_ref mr;
	struct verbs_cts cts;            /* the receiver's answer; its mode is VERBS_CTS_NONE before that */
	bool is_bounced;                 /* the memory could not be registered: segments are copied to send_bounce */
	uint32_t parts;                  /* number of stripes, one for each data queue pair that is used */
	/* Of each stripe: the offset of its next write, and its end. */
	uint64_t next[VERBS_DATA_QPS_MAX], end[VERBS_DATA_QPS_MAX];
	uint32_t in_flight;              /* posted writes that have not completed */
};

/* A large message at its receiver. */
struct verbs_incoming {
	struct collet_transfer *transfer;
	struct verbs_mr_ref mr;
	enum verbs_cts_mode mode;
	bool is_cts_sent;                /* false while the CTS waits for queue room or bounce buffers */
	uint32_t ended_parts;            /* stripes that have arrived */
	uint64_t received_bytes;         /* VERBS_CTS_BOUNCE: bytes copied out of the bounce buffers */
	uint64_t allowed_bytes;          /* VERBS_CTS_BOUNCE: bytes that the sender may have written so far */
};

/* Progress of a pending transfer, in transport_private[0]. For a view, [1] is the index of the arrival, and [2] is true
 * because it lies in the ring: the engine may change the view pointer before it releases the view. */
enum verbs_phase { VERBS_PHASE_WAITING, VERBS_PHASE_IN_FLIGHT, VERBS_PHASE_DONE, VERBS_PHASE_MISMATCH };

struct verbs_endpoint {
	struct collet_endpoint endpoint;
	enum verbs_state state;
	struct collet_device *device;
	const struct collet_services *services;
	const struct verbs_profile *profile; /* what this end asks for; after the peer's hello, what both ends use */
	struct verbs_memory *memory;
	size_t memory_bytes;
	uint8_t *ring, *recv_bounce, *mirror, *send_bounce; /* parts of memory */
	uint64_t peer_memory;
	uint32_t peer_rkeys[VERBS_RAILS_MAX];
	uint32_t rail_count, qp_count;
	struct verbs_rail rails[VERBS_RAILS_MAX];
	struct verbs_qp qps[VERBS_QPS_MAX];      /* the first carries the ring, the others carry large messages */
	bool is_dialer;                          /* this end connected the socket */
	struct rdma_event_channel *cm_channel;   /* iWARP only, like listeners */
	struct rdma_cm_id *listeners[VERBS_RAILS_MAX];
	uint64_t max_write_bytes;        /* most bytes of one write, of all adapters at both ends */
	uint32_t rates_mbps[VERBS_QPS_MAX];    /* rate of the slower end */

	/* Sending. */
	struct collet_transfer_queue sends;
	struct collet_transfer *unsent;  /* first send with nothing posted yet */
	uint32_t out_unit, out_free_units; /* in the peer's ring: unit of the next message, number of free units */
	uint32_t out_sent, out_freed;    /* messages sent, and freed by the peer */
	uint16_t out_units[VERBS_SLOTS];       /* units of message i, at i % VERBS_SLOTS */
	uint32_t large_sent;             /* announced messages; the next uses outgoing[large_sent % VERBS_LARGE_MAX] */
	struct verbs_outgoing outgoing[VERBS_LARGE_MAX];
	uint32_t send_bounce_used;       /* bit mask of the bounce buffers in use */

	/* Receiving. */
	struct collet_transfer_queue receives;
	struct collet_transfer *unmatched;       /* first receive that has not been matched to a message */
	uint32_t in_unit;                /* unit after the last message */
	uint32_t in_arrived, in_matched, in_freed, in_credited; /* messages; credited: the peer knows they are freed */
	uint32_t in_units_uncredited;    /* units freed and not yet credited */
	struct verbs_arrival arrivals[VERBS_SLOTS];
	struct verbs_incoming incoming[VERBS_LARGE_MAX];
	struct verbs_incoming *recv_bounce_owner; /* message that uses recv_bounce; NULL if none does */

	/* Sleep, faults, setup and close. */
	bool is_armed, is_closing;
	bool is_lost;                    /* the peer or the path to it is lost, see lost_reason */
	collet_status lost_status;
	char lost_reason[400];
	uint32_t empty_rounds;           /* calls of progress in a row without a completion */
	_Atomic int fatal_event;         /* 1 + the enum ibv_event_type that ends the endpoint; else 0 */
	uint32_t port_errors_seen;       /* value of device->port_errors that has been handled */
	bool has_completed;              /* something has completed since the last check */
	int64_t completed_ns;            /* time of the last check that found a completion */
	uint32_t probes_pending;         /* queue pairs whose probe of the setup has not completed */
	bool is_flush_pending;           /* closing: the last write has not completed */
	int socket, epoll_fd;
	pid_t owner_pid;                 /* process that opened the endpoint */
	const struct collet_peer_info *self, *peer;
	const struct collet_log *log;
	struct verbs_hello hello_out, hello_in;
	size_t hello_sent_bytes, hello_received_bytes;
};

static inline bool verbs_is_iwarp(const struct verbs_endpoint *verbs)
{
	return verbs->device->is_iwarp;
}

static inline uint64_t verbs_memory_offset(const struct verbs_endpoint *verbs, const void *address)
{
	return (uint64_t)((const uint8_t *)address - (const uint8_t *)verbs->memory);
}

/* verbs_connect.c */
collet_status collet_verbs_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
collet_status collet_verbs_open_progress(struct collet_endpoint *endpoint);
/* Sets the error text of an endpoint that cannot be opened. */
collet_status collet_verbs_fail_connect(const struct verbs_endpoint *verbs, const char *what, const char *why);

/* verbs_resources.c */
/* Creates memory, completion queues, and queue pairs that can receive. On failure some of them exist. */
collet_status collet_verbs_create_resources(struct verbs_endpoint *verbs);
void collet_verbs_destroy_qps(struct verbs_endpoint *verbs);
/* Frees everything that collet_verbs_create_resources() created. */
void collet_verbs_free_resources(struct verbs_endpoint *verbs);

/* verbs_ring.c */
/* Sends the messages that there is room for. */
void collet_verbs_send(struct verbs_endpoint *verbs);
/* Sends a message at once and completes it, if it is small, no send is pending and there is room. */
bool collet_verbs_try_send(struct verbs_endpoint *verbs, struct collet_transfer *transfer);
/* Handles the credits of an immediate: freed is the peer's count of freed messages, modulo 2^20. */
void collet_verbs_handle_credit(struct verbs_endpoint *verbs, uint32_t freed);
/* Handles a message of this many bytes, header included, that starts at this unit of the ring. */
void collet_verbs_handle_arrival(struct verbs_endpoint *verbs, uint32_t start, uint32_t bytes);
/* Matches arrived messages with posted receives. */
void collet_verbs_match(struct verbs_endpoint *verbs);
/* Frees a message of the ring. Its units become credits once all messages before it are free too. */
void collet_verbs_free_arrival(struct verbs_endpoint *verbs, uint32_t index);
/* Sends an empty write with credits, if enough units or messages are freed and not yet credited. */
void collet_verbs_send_credit(struct verbs_endpoint *verbs);
/* Completes transfers that are done, in posting order. Returns their number. */
uint32_t collet_verbs_complete(struct verbs_endpoint *verbs);

/* verbs_rendezvous.c */
/* Starts a large send under this number. Its announcement has been posted. */
void collet_verbs_begin_large_send(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer);
/* Starts a large receive under this number, which no earlier message may still use. transfer is NULL after a mismatch:
 * the message is then discarded. */
void collet_verbs_begin_large_recv(struct verbs_endpoint *verbs, uint32_t id, struct collet_transfer *transfer);
/* Handles the receiver's CTS for an outgoing message. */
void collet_verbs_handle_cts(struct verbs_endpoint *verbs, uint32_t id);
/* Handles the end of a stripe, or a bounced segment of this many bytes. argument is that of the immediate. */
void collet_verbs_handle_end(struct verbs_endpoint *verbs, uint32_t argument, uint32_t bytes);
/* Handles the completion of a data write; tag is that of the write, without its lowest eight bits. */
void collet_verbs_handle_data_done(struct verbs_endpoint *verbs, uint32_t tag);
/* Posts the CTS messages and data writes that there is room for. */
void collet_verbs_progress_large(struct verbs_endpoint *verbs);
/* Releases the registrations of all large messages and forgets them. */
void collet_verbs_reset_large(struct verbs_endpoint *verbs);

/* verbs_wait.c */
int64_t collet_verbs_now_ns(void);
bool collet_verbs_arm(struct collet_endpoint *endpoint);
void collet_verbs_disarm(struct collet_endpoint *endpoint);
int64_t collet_verbs_probe_timeout_ns(const struct verbs_options *options);
/* Checks whether the peer is still there; called when nothing has completed for some time. */
void collet_verbs_check_peer(struct verbs_endpoint *verbs);

/* verbs_errors.c */
/* Marks the endpoint as lost, with a reason. It ends as soon as everything that has arrived is delivered. Only the
 * first call counts. */
void collet_verbs_mark_lost(struct verbs_endpoint *verbs, collet_status status, const char *format, ...)
	COLLET_FORMAT(3, 4);
/* Returns the current state of the port for an error text: "active", "down", "gone". */
const char *collet_verbs_port_state(const struct verbs_adapter *adapter);
void collet_verbs_completion_failed(
	struct verbs_endpoint *verbs, uint32_t qp, const struct ibv_wc *completion);
/* Ends the endpoint: makes its status sticky, stops every access of adapters to memory, and completes all transfers.
 * Returns their number. */
uint32_t collet_verbs_fail(struct verbs_endpoint *verbs);
/* Completes all transfers with this status. Returns their number. */
uint32_t collet_verbs_complete_all(struct verbs_endpoint *verbs, collet_status status);

#endif
