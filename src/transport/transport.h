/* The transport contract: a transport moves messages between two ranks; it knows nothing of collectives or dtypes.
 *
 * A conduit is one connection between two ranks on one channel. It carries messages both ways, each way in posting
 * order; the k-th message sent is taken by the k-th receive posted on the other side. (design.md calls a conduit
 * directed; one object holds the two directions because a socket, a queue pair and a pair of rings do.)
 *
 * A conduit is made by the control plane: it brings a connected, authenticated stream socket to the same conduit's
 * other end, over which the two ends may exchange what they need (descriptors, keys) and which they may keep. From then
 * on all calls on one conduit are made by one thread at a time. They never block and never call back: every outcome is
 * left in the transfer, so there is one place to look for errors. Nothing on the data path allocates. */
#ifndef COLLET_TRANSPORT_TRANSPORT_H
#define COLLET_TRANSPORT_TRANSPORT_H

#include <collet/collet.h>

#include "core/log.h"
#include "topology/spot.h"

struct collet_arena;

/* What travels with a message, beside its bytes. The receiver says what it expects; anything else is a mismatch. */
struct collet_message {
	uint64_t signature;  /* what is being called */
	uint64_t sequence;   /* which message this is */
	uint64_t bytes;
};

enum {
	COLLET_TRANSFER_VIEW = 1 << 0  /* receive: the bytes may stay where they are, see view */
};

/* One message, sent or received. Owned by the caller, and lent with its buffer until status leaves COLLET_PENDING (a
 * receive with COLLET_TRANSFER_VIEW: until release). */
struct collet_transfer {
	enum collet_status status;       /* COLLET_OK: every byte moved; there are no short transfers. For a send: the
	                                    bytes may be overwritten now */
	uint32_t flags;                  /* COLLET_TRANSFER_* */
	struct collet_message message; /* send: what travels. Receive: what is expected; left by COLLET_ERR_MISMATCH as
					  what came instead, data untouched */
	void *data;                      /* message.bytes bytes; a send only reads them. May be NULL if 0 bytes */
	const void *view; /* receive with COLLET_TRANSFER_VIEW, settled COLLET_OK: where the bytes are, for
			     reading: data, or the transport's or peer's own memory. Valid until release() */
	struct collet_transfer *next;          /* from here on the transport's own, while lent */
	uint64_t transport_private[3];
};

/* What a rank tells all others about itself at the rendezvous. Travels as it is, in the byte order of the machine,
 * which the version check has compared. */
struct collet_card {
	uint32_t rank;                   /* in the context's world */
	uint32_t pid;
	uint64_t host_id;                /* equal: same host (COLLET_HOST_ID, else boot id and network namespace) */
	uint64_t process_id;             /* equal: threads of one process */
	uint32_t uid;
	uint32_t transports;             /* bit i: collet_transports[i] is built in and allowed */
	char host[64];                   /* host name, for people */
	char unix_name[64]; /* abstract Unix socket that this rank listens on (without the leading NUL); "" none */
	uint16_t family;                 /* AF_INET, AF_INET6; 0: no TCP listener */
	uint16_t port;                   /* host byte order */
	uint32_t scope_id;               /* of a link-local IPv6 address */
	uint8_t address[16];
	uint32_t usable_cores;           /* of the process: affinity and cgroup quota */
	uint16_t quota_cores;            /* that the cgroups allow all their processes together */
	uint16_t host_cores; /* that all ranks of this host may use together. This and spot are filled in by rank 0 */
	struct collet_spot spot;
	char settings[256]; /* "NAME=value\n" for each setting that all ranks must share, compared at creation */
};

/* How a rank sleeps: one epoll set for everything that it waits for. */
struct collet_wake {
	int epoll_fd;                    /* transports add descriptors with data.ptr = their struct collet_conduit */
	int event_fd;                    /* any write wakes the rank; in the set with data.ptr = NULL. A transport may
	                                    pass it to a peer on the same host, which then wakes this rank by a write */
	uint32_t cpu; /* 1 + the one on which the rank makes progress, if ranks outnumber cores; else 0. A
			 transport may tell local peers, see collet_conduit */
};

enum {
	COLLET_CAP_VIEW = 1 << 0,        /* receives of COLLET_TRANSFER_VIEW may cost no copy */
	COLLET_CAP_LOCAL = 1 << 1,       /* reaches ranks of this host only */
	COLLET_CAP_CALLS = 1 << 2        /* progress() costs a system call, even where nothing has come */
};

struct collet_conduit_stats {
	uint64_t bytes_sent, bytes_received, messages_sent, messages_received, system_calls;
};

struct collet_transport;

/* The common head of every transport's own conduit struct. */
struct collet_conduit {
	const struct collet_transport *transport;
	enum collet_status status; /* COLLET_OK, or what has ended it (sticky). The transport leaves the sentence in
				      collet_last_error() of the call during which status left COLLET_OK */
	uint32_t peer;                   /* world rank, for error texts */
	uint32_t channel;
	uint32_t posted;                 /* transfers lent and not yet settled, kept by the transport: the engine makes
	                                    progress on conduits where this is not 0 */
	bool reads_arena;                /* the peer reads what lies in this rank's arena where it is; since opening */
	uint32_t peer_cpu; /* the peer's collet_wake.cpu when it sent last, kept by the transport; 0: unknown */
	struct collet_conduit_stats stats;
};

struct collet_conduit_config {
	const struct collet_card *self, *peer;  /* live as long as the context */
	uint32_t channel;
	bool dialed;                     /* this side connected the socket, the other accepted */
	int socket; /* connected, authenticated, non-blocking, stream: AF_UNIX for local transports, else
		       TCP. The conduit's from open() on, even if open() fails. -1 for "self" */
	struct collet_wake *wake;        /* lives as long as the context */
	struct collet_arena *arena;      /* this rank's collet_mem_alloc memory; may be NULL */
	const struct collet_log *log;    /* lives as long as the context */
};

struct collet_transport {
	const char *name;                /* "tcp"; static */
	uint32_t caps;                   /* COLLET_CAP_* */
	size_t conduit_bytes; /* sizeof the transport's struct; the caller allocates it zeroed, 64-byte aligned */

	/* Can these two ranks talk this way? Pure: opens nothing, allocates nothing. */
	bool (*reaches)(const struct collet_card *self, const struct collet_card *peer);

	/* Begins. config is read during the call only. Even on failure the conduit is left fit for close(). */
	enum collet_status (*open)(struct collet_conduit *conduit, const struct collet_conduit_config *config);
	/* Goes on: COLLET_PENDING until both ends are ready (ask again when the socket is readable, or after 10 ms),
	 * then COLLET_OK for ever; or an error, after which the pair falls back to another transport. Called by the
	 * control thread, until it has returned COLLET_OK; nothing else is called before but close(). */
	enum collet_status (*opening)(struct collet_conduit *conduit);
	/* Settles every lent transfer as COLLET_CANCELLED, makes sure that no peer reads or writes this rank's memory
	 * through this conduit any more, then undoes open(). A message whose send has settled still reaches a peer that
	 * is alive. Safe to repeat, and on a zeroed conduit. */
	void (*close)(struct collet_conduit *conduit);

	/* Lend transfer and buffer. May settle at once. On a conduit whose status is not COLLET_OK: settles with it. */
	void (*post_send)(struct collet_conduit *conduit, struct collet_transfer *transfer);
	void (*post_recv)(struct collet_conduit *conduit, struct collet_transfer *transfer);
	/* Ends a view (every settled COLLET_TRANSFER_VIEW receive, once, in any order). Leaves status as it is, or as
	 * COLLET_ERR_PEER_LOST: the peer took its memory back meanwhile, and what was seen in the view means
	 * nothing. */
	void (*release)(struct collet_conduit *conduit, struct collet_transfer *transfer);
	/* Moves what can move without waiting; returns how many transfers it settled. Finds out that the peer is
	 * gone. */
	uint32_t (*progress)(struct collet_conduit *conduit);
	/* Optional: has something come for a receive of so many bytes, if it is posted now? Cheap, and only while none
	 * is posted. */
	bool (*has_come)(const struct collet_conduit *conduit, uint64_t bytes);
	/* The header of the next message that no posted receive has taken: true and *message, or false (none yet, or
	 * status not COLLET_OK). Only while no receive is posted. Moves what can move. */
	bool (*peek)(struct collet_conduit *conduit, struct collet_message *message);

	/* Before sleeping, on every conduit that is waited for (posted != 0, or peeked at): false when something can
	 * move right now; else true, and the epoll set or the wake event will tell when it can. */
	bool (*arm)(struct collet_conduit *conduit);
	/* After sleeping. */
	void (*disarm)(struct collet_conduit *conduit);
};

/* Every transport built in, best first; NULL ends. The index is the bit in collet_card.transports. */
extern const struct collet_transport *const collet_transports[];

/* "shm,tcp" -> bits, all when NULL; COLLET_ERR_CONFIG naming those there are. */
collet_status collet_transports_parse(const char *text, uint32_t *bits);

#endif
