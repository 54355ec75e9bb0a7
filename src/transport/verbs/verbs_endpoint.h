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
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <collet/transport.h>

enum {
	RAILS_MAX = 4,                   /* adapters used by one conduit */
	DATA_QPS_MAX = 4,                /* queue pairs for large messages */
	QPS_MAX = 1 + DATA_QPS_MAX,

	UNIT_BYTES = 64,
	SLOTS = 64,                      /* of messages in a ring; no window is larger. A power of two: numbers wrap */
	HEADER_BYTES = 32,               /* struct verbs_header */
	CREDIT_PARTS = 3,                /* a window's part freed and untold is told by a write of its own */

	LARGE_MAX = 4,                   /* announced and not over, each way */
	BOUNCE_BUFFERS = 2,              /* landing, and staging */

	SEGMENT_BYTES = 1 << 20,         /* of a large message, a write */
	STRIPE_BYTES = 65536,            /* less for each data queue pair is not worth another one */

	SIGNAL_EVERY = 16
};

/* What a conduit has of everything. */
struct verbs_profile {
	uint32_t units;                  /* of a ring */
	uint32_t window;                 /* small messages that the receiver has not freed */
	uint32_t bounce_bytes;           /* of a landing or staging place */
	uint32_t data_qps;               /* queue pairs for large messages, and on each adapter one */
	bool is_lean;                    /* only one adapter is used */
	uint32_t depth, data_depth;      /* of send queues; more than SIGNAL_EVERY, where not all are signalled */
	uint32_t receive_batch;          /* receive requests given back at a time */
	uint32_t inline_bytes;           /* asked for */
};
/* Depths, and their sums in completion queues, stay below powers of two: drivers have one place more and round up. */
static const struct verbs_profile collet_verbs_profile_wide = { .units = 256,
	.window = 48,
	.bounce_bytes = 4096,
	.data_qps = 2,
	.depth = 63,
	.data_depth = 15,
	.receive_batch = 16,
	.inline_bytes = 220 };
/* Its registered memory is three pages. */
static const struct verbs_profile collet_verbs_profile_lean = { .units = 56,
	.window = 8,
	.bounce_bytes = 1024,
	.data_qps = 1,
	.is_lean = true,
	.depth = 20,
	.data_depth = 3,
	.receive_batch = 3,
	.inline_bytes = 128 };

/* Bytes of a message in the ring: with its header a quarter of it. */
static inline uint32_t verbs_max_small_bytes(const struct verbs_profile *profile)
{
	return profile->units / 4 * UNIT_BYTES - HEADER_BYTES;
}

/* ---- Adapters and memory (verbs_adapters.c, verbs_registration.c) ---------------------------------------- */

/* Bits: on a rank's card are those of all its adapters. */
enum verbs_network { NETWORK_INFINIBAND = 1, NETWORK_ROCE = 2, NETWORK_IWARP = 4 };

/* A port of a device. */
struct verbs_adapter {
	struct ibv_context *context;
	struct ibv_pd *pd;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	uint8_t gid_index;
	enum verbs_network network; /* of an adapter: InfiniBand is addressed by LID, the others by GID */
	union ibv_gid gid;          /* iWARP: the IP address, as RoCE writes it */
	uint16_t lid;
	enum ibv_mtu mtu;
	uint32_t rate_mbps;
	uint64_t max_write_bytes;        /* bytes of one write */
	struct ibv_device_attr attributes;
	_Atomic bool is_fatal;           /* its device has told that it is broken */
};

struct verbs_options {
	uint8_t timeout, retries;        /* as verbs have them: 4.096 us * 2^timeout, up to 7 */
	uint8_t service_level, traffic_class;
	int gid_index;                   /* -1: chosen */
	uint64_t max_pinned_bytes;       /* bytes of kept registrations */
	uint32_t max_wide;               /* conduits; further ones are lean */
};

/* Memory that memory_register() has named: registered when it is first used. */
struct verbs_region {
	uintptr_t begin, end;
	uintptr_t max_end;               /* end, of this and all before it in the list */
	struct ibv_mr *mrs[RAILS_MAX];
	uint32_t refcount;
	uint64_t last_used;              /* for eviction */
	int32_t dmabuf;
	uint64_t dmabuf_offset;
	bool is_deregistered;            /* to be freed when the last user lets go */
};

struct verbs_rdmacm;
struct collet_device {
	const struct collet_services *services;
	const struct collet_log *log;
	struct verbs_options options;
	uint32_t adapter_count;
	struct verbs_adapter adapters[RAILS_MAX];
	bool is_iwarp;               /* all of them are, or none is */
	struct verbs_rdmacm *rdmacm; /* loaded when there is such a one */

	pthread_mutex_t lock;            /* of everything below */
	struct verbs_region **regions;   /* by first */
	size_t region_count, region_capacity;
	uint64_t pinned_bytes, use_count;
	uint32_t endpoint_count;         /* that are open */
	bool is_closed_in_child;         /* of a fork: its descriptors are closed there */

	int epoll_fd;                    /* the rank's */
	_Atomic uint32_t port_errors;    /* ports that went down */
	bool has_warned;                 /* that registration is refused */
};

/* A transfer's memory, registered for its time. */
struct verbs_mr_ref {
	struct verbs_region *region;     /* kept, or NULL: */
	struct ibv_mr *own_mrs[RAILS_MAX];
};

/* ---- What travels ------------------------------------------------------------------------------------------- */

/* An immediate: what, an argument of ten bits, and how many messages the sender of it has freed, modulo 2^20. */
enum verbs_immediate_kind { KIND_MESSAGE, KIND_CREDIT, KIND_CTS, KIND_END };

/* What an immediate's completion says, as iWARP sends it. */
struct verbs_notice {
	uint32_t immediate; /* big endian, as the other one */
	uint32_t bytes;     /* of the write before it */
};

/* At the beginning of a message in the ring. */
struct verbs_header {
	struct collet_message message;
	uint32_t large_id;               /* 0: the bytes follow; else 1 + which of LARGE_MAX */
	uint32_t magic;
};

enum verbs_cts_mode { CTS_NONE, CTS_DIRECT, CTS_BOUNCE, CTS_DISCARD };

/* The receiver's answer to an announced message. */
struct verbs_cts {
	uint64_t address;                /* DIRECT */
	uint64_t allowed_bytes;          /* PLACES: bytes that may have been written so far */
	uint32_t rkeys[RAILS_MAX];       /* DIRECT: by the receiver's rail */
	uint32_t mode;
	uint32_t reserved[3];
};

/* Registered memory of a conduit, laid out alike at both ends. Behind what is here come, by the shape, ring and landing
 * places, which the peer writes, and mirror and staging places, which only this end's adapters read. */
struct verbs_memory {
	struct verbs_cts cts_in[LARGE_MAX];
	uint64_t probe[8]; /* written by nothing but empty writes and probes; iWARP: the first is read by
			      the peer, into its second */
	struct verbs_cts cts_out[LARGE_MAX];     /* only read, by this end's adapters */
	uint8_t rest[];
};

static inline size_t verbs_memory_bytes(const struct verbs_profile *profile)
{
	return sizeof(struct verbs_memory) +
	       2 * ((size_t)profile->units * UNIT_BYTES + BOUNCE_BUFFERS * profile->bounce_bytes);
}

/* Said by both ends over the socket. */
struct verbs_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t state;                  /* enum verbs_state: what is said */
	uint32_t from, to;               /* ranks */
	uint32_t channel;
	uint32_t rail_count, qp_count;
	uint32_t start_sequence;
	uint32_t is_lean, reserved;
	uint64_t memory;                 /* address of struct verbs_memory */
	uint8_t token[16];               /* iWARP: whoever connects has to show it */
	struct {
		uint8_t gid[16];
		uint32_t rkey;           /* of memory */
		uint32_t rate_mbps;
		uint64_t max_write_bytes;
		uint16_t lid;
		uint8_t mtu;
		uint8_t network;
		uint16_t port; /* iWARP: where the end that accepts awaits connections */
		uint16_t reserved;
	} rails[RAILS_MAX];
	struct {
		uint32_t qp_number;
		uint32_t rail;
	} qps[QPS_MAX];
};

/* ---- A conduit ---------------------------------------------------------------------------------------------- */

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

/* verbs_options.c */
collet_status collet_verbs_read_options(const struct collet_services *services, struct verbs_options *options);

/* verbs_adapters.c */
collet_status collet_verbs_device_open(struct collet_device **device, const struct collet_device_config *config,
	struct collet_device_info *info);
void collet_verbs_device_close(struct collet_device *device);
/* In a forked child: closes its copies of descriptors, and leaves everything to the parent. */
void collet_verbs_close_fds_in_child(const struct collet_device *device);
/* Asks the port now: its state changes. */
bool collet_verbs_is_adapter_active(const struct verbs_adapter *adapter);
/* "rxe0 port 1 (10.77.0.1)" */
const char *collet_verbs_adapter_name(const struct verbs_adapter *adapter, char *text, size_t bytes);
const char *collet_verbs_gid_text(const uint8_t gid[16], char *text, size_t bytes);

/* verbs_events.c */
collet_status collet_verbs_watch_events(struct collet_device *device);
void collet_verbs_unwatch_events(struct collet_device *device);
/* Takes what adapters have told. The conduit is lost if it was about that; true: a port has gone, so the adapters are
 * to be asked now. */
bool collet_verbs_handle_events(struct verbs_endpoint *verbs);

/* verbs_registration.c */
collet_status collet_verbs_memory_register(
	struct collet_device *device, const struct collet_memory *memory, void **registration);
void collet_verbs_memory_deregister(struct collet_device *device, void *registration);
enum verbs_access { ACCESS_READ = 0, ACCESS_WRITE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
/* False: it is refused (a warning has said so, once), and the caller goes through its own memory. */
bool collet_verbs_acquire_mr(struct collet_device *device, struct verbs_mr_ref *mr, void *data, uint64_t bytes,
	enum verbs_access access);
/* The same of a GPU's memory. False: none of it is registered there now. knows: would it be true? */
bool collet_verbs_acquire_gpu_mr(
	struct collet_device *device, struct verbs_mr_ref *mr, const void *data, uint64_t bytes);
bool collet_verbs_has_gpu_mr(struct collet_device *device, const void *data, uint64_t bytes);
void collet_verbs_release_mr(struct collet_device *device, struct verbs_mr_ref *mr);
static inline struct ibv_mr *collet_verbs_mr(const struct verbs_mr_ref *mr, uint32_t adapter)
{
	return mr->region ? mr->region->mrs[adapter] : mr->own_mrs[adapter];
}

/* verbs_connect.c */
collet_status collet_verbs_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
collet_status collet_verbs_open_progress(struct collet_endpoint *endpoint);
/* The sentence of a conduit that does not come to be. */
collet_status collet_verbs_fail_connect(const struct verbs_endpoint *verbs, const char *what, const char *why);

/* verbs_iwarp.c; without librdmacm's headers verbs_iwarp_none.c, which knows no address and is asked for nothing
 * else */
/* Fills in the address of an iWARP adapter; NULL: it can be used, else why not. */
const char *collet_verbs_iwarp_address(struct collet_device *device, struct verbs_adapter *adapter);
/* The end that accepts: opens its doors, to be told in the hello. */
collet_status collet_verbs_iwarp_listen(struct verbs_endpoint *verbs);
/* The end that dialed: begins to connect its queue pairs to the doors in the peer's hello. */
collet_status collet_verbs_iwarp_connect(struct verbs_endpoint *verbs);
/* COLLET_OK when all queue pairs are connected. */
collet_status collet_verbs_iwarp_connect_progress(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_disconnect(struct verbs_endpoint *verbs);
void collet_verbs_iwarp_close_in_child(const struct verbs_endpoint *verbs);
void collet_verbs_unload_rdmacm(struct verbs_rdmacm *rdmacm);

/* verbs_resources.c */
/* Memory, completion queues and queue pairs that can receive; on failure some of them. */
collet_status collet_verbs_create_resources(struct verbs_endpoint *verbs);
void collet_verbs_destroy_qps(struct verbs_endpoint *verbs);
/* Everything that was made. */
void collet_verbs_free_resources(struct verbs_endpoint *verbs);

/* verbs_completion.c: what queue pairs are given and what they give back */
struct verbs_write {
	struct ibv_sge parts[2];
	int part_count;
	uint64_t to;
	uint32_t rkey;
	bool is_read; /* instead, into its part */
	bool has_immediate;
	uint32_t immediate;
	bool is_signalled;               /* on the first queue pair; on the others every write is */
	uint32_t tag;                    /* of its completion: TAG_*, and above 8 bits what its owner wants */
};
enum { TAG_RING, TAG_EMPTY, TAG_PROBE, TAG_FLUSH, TAG_DATA };
static inline bool collet_verbs_has_room(const struct verbs_qp *qp)
{
	return qp->posted - qp->completed < qp->depth;
}
/* Only with room. Should it fail, the conduit is lost. */
void collet_verbs_post_write(struct verbs_endpoint *verbs, uint32_t qp, const struct verbs_write *write);
/* A write of nothing (iWARP: a small read): it asks the peer's adapter whether it is there. */
void collet_verbs_post_probe(struct verbs_endpoint *verbs, uint32_t qp, uint32_t tag);
/* Over each queue pair. The answers are counted by probes_pending. */
void collet_verbs_begin_probes(struct verbs_endpoint *verbs);
/* For the first queue pair, which is in order: carries what has been freed. */
uint32_t collet_verbs_immediate(struct verbs_endpoint *verbs, enum verbs_immediate_kind kind, uint32_t argument);
/* Receive requests; false: refused. */
bool collet_verbs_post_receives(struct verbs_qp *qp, uint32_t count);
/* Takes completions; returns how many there were. */
uint32_t collet_verbs_poll(struct verbs_endpoint *verbs);

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
int64_t collet_verbs_now_ns(void);

#endif
