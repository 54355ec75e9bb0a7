/* The transport contract: what a transport must do, may do and may count on. For those who write one; a program that
 * calls collectives needs none of this.
 *
 * A transport moves messages between two ranks; it knows nothing of collectives or types. It is a const table of
 * functions (struct collet_transport) that is built into the library (self, shm, tcp), or that a module brings: a
 * shared object libcollet-transport-NAME.so which exports
 *
 *     const struct collet_transport collet_transport_module = { ... };
 *
 * whose name is NAME, and lies in a folder of COLLET_TRANSPORT_PATH or in the library's module folder (pkg-config
 * --variable=moduledir collet). A module needs no symbol of the library: what it may call comes as a table (struct
 * collet_host_group). examples/transport-skeleton is one to begin with; transport-contract runs what is said here
 * against any.
 *
 * Things
 *   transport  the table; static, the same for all contexts
 *   device     what a transport holds for one context (one rank in a process): adapters, a protection domain. Optional
 *   conduit    one connection of two ranks on one channel. It carries messages both ways, each way in posting order;
 *              the k-th message sent is taken by the k-th receive posted on the other side
 *   transfer   one message, sent or received
 *   card       what a rank has told all others of itself at the rendezvous
 *
 * Life of a conduit. The control plane brings a connected, authenticated stream socket to the same conduit's other end.
 * open() begins, opening() goes on until both ends are ready: over the socket the two may exchange what they need
 * (descriptors, keys, queue pair numbers), and they may keep it, to send over or only to learn of the peer's end.
 * Then the data path: posts and progress. close() ends it at any time, and frees what open() has taken over or made,
 * the socket too; the conduit's own memory is the caller's.
 *
 * Threads. Calls on one conduit never overlap; open() and opening() come from the control thread, everything after
 * opening() has returned COLLET_OK from whichever thread makes progress for the rank, one at a time. close() comes from
 * either. Calls on different conduits of one device may overlap (one opens while another moves). device_open() and
 * device_close() come from the thread that creates or destroys the context; memory_register() and memory_deregister()
 * from any thread, one at a time, while conduits move; reaches() from any, and several at once.
 *
 * No call blocks, and none calls back into the engine: every outcome is left in the transfer or the conduit, so there
 * is one place to look for errors. Nothing on the data path allocates.
 *
 * Errors. A call that fails says why, once, by host->fail(status, "NAME: what failed, with which rank on which host,
 * what to try"): the sentence becomes this thread's collet_last_error(). What ends a conduit is COLLET_ERR_PEER_LOST
 * where the peer, its host or the way to it is gone; COLLET_ERR_TRANSPORT where what came makes no sense, or an adapter
 * has failed; COLLET_ERR_SYSTEM or _MEMORY where this rank cannot go on. A conduit that has ended stays so: what is
 * lent settles with its status, and so does what is posted later. COLLET_ERR_MISMATCH is one receive's, and ends
 * nothing.
 *
 * Versions. The table begins with the contract's version, which must be the library's, and with its own size. A later
 * library may know more slots, at the end: what a shorter table does not have counts as NULL, so new slots are always
 * optional. What the library hands over (cards, configs, host functions) may likewise grow at the end; nobody copies or
 * embeds it. struct collet_endpoint, which a transport embeds, keeps its size. */
#ifndef COLLET_TRANSPORT_H
#define COLLET_TRANSPORT_H

#include <collet/collet.h>
#include <collet/locality.h>
#include <collet/log_level.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define COLLET_FORMAT(text, first) __attribute__((format(printf, text, first)))
#else
#define COLLET_FORMAT(text, first)
#endif

enum {
	COLLET_TRANSPORT_VERSION = 2,    /* of this contract */
	COLLET_TRANSPORT_NAME_BYTES = 22 /* longest name, with its NUL */
};

struct collet_transport;
struct collet_device;                    /* a transport's own */
struct collet_arena;                     /* the library's: a rank's collet_mem_alloc() memory */
struct collet_log;                       /* the library's */

/* ---- What a transport may call ------------------------------------------------------------------------------ */

enum collet_memory_kind {
	COLLET_MEMORY_HOST,              /* the user's own, from collet_mem_register() */
	COLLET_MEMORY_ARENA,             /* a block from collet_mem_alloc(), or of the library's own staging */
	COLLET_MEMORY_GPU                /* of a GPU: addresses are of the device */
};

struct collet_memory {
	void *base;
	uint64_t bytes;
	uint32_t kind;                   /* enum collet_memory_kind */
	int32_t gpu;                     /* its ordinal; -1: none */
	int32_t dmabuf;                  /* a dma-buf descriptor that exports it, the caller's to close after the call;
					    -1: none */
	uint32_t reserved;
	uint64_t dmabuf_offset;          /* of first in it */
};

/* Lives as long as the library is loaded. Any thread. */
struct collet_services {
	uint32_t bytes;                  /* sizeof of what the library has; look before using what was added later */
	uint32_t version;                /* COLLET_TRANSPORT_VERSION of the library */
	/* Sets this thread's sentence and returns status, so that a failure reads `return host->fail(STATUS, ...)`.
	 * Without a final full stop or newline; at most 1023 characters are kept. */
	collet_status (*fail)(collet_status status, const char *format, ...) COLLET_FORMAT(2, 3);
	const char *(*last_error)(void);
	/* A line on standard error, if COLLET_LOG asks for this level. Not on the data path above DEBUG. */
	void (*log)(const struct collet_log *log, enum collet_log_level level, const char *format, ...)
		COLLET_FORMAT(3, 4);
	bool (*log_enabled)(const struct collet_log *log, enum collet_log_level level); /* would it be shown? */
	/* An option's value, of the environment today; NULL when unset or empty. Name it COLLET_<TRANSPORT>_<WHAT>, and
	 * read it once, in device_open(). */
	const char *(*option)(const char *name);
	/* The rank's arena: address space reserved, of which pages exist where memory is in use. *fd is the memfd
	 * behind it (the library's). */
	void (*arena_span)(const struct collet_arena *arena, void **first, uint64_t *bytes, int *fd);
	/* Blocks in it: zeroed, aligned to 64 bytes, to 4 KiB from 4 KiB on; memory_register() is not told of them. Not
	 * on the data path. alloc: COLLET_ERR_MEMORY, and *memory is as it was. free: NULL is fine;
	 * COLLET_ERR_ARGUMENT, it is no such block. */
	collet_status (*arena_alloc)(struct collet_arena *arena, void **memory, size_t bytes);
	collet_status (*arena_free)(struct collet_arena *arena, void *memory);
};

/* ---- Who talks ---------------------------------------------------------------------------------------------- */

enum {
	COLLET_PEER_TRANSPORTS = 6,      /* that a rank can offer at a time, beside "self" */
	COLLET_PEER_DATA_BYTES = 112     /* of all of them together */
};

/* A transport that the rank offers. */
struct collet_peer_transport {
	char name[COLLET_TRANSPORT_NAME_BYTES]; /* "": none */
	uint8_t data_offset, data_bytes; /* its part of data */
};

/* What a rank tells all others of itself at the rendezvous, under the job's authentication. Travels as it is, in the
 * byte order of the machine, which the version check has compared. */
struct collet_peer_info {
	uint32_t rank;                   /* in the context's world */
	uint32_t pid;
	uint64_t host_id;                /* equal: same host (COLLET_HOST_ID, else boot id and network namespace) */
	uint64_t process_id;             /* equal: threads of one process */
	uint32_t uid;
	uint32_t usable_cores;           /* of the process: affinity and cgroup quota */
	uint16_t quota_cores;            /* that the cgroups allow all their processes together */
	uint16_t host_cores;             /* that all ranks of this host may use together. This and spot are filled in by
					    rank 0: not known yet in device_open() */
	struct collet_locality locality;
	char host[64];                   /* host name, for people */
	uint16_t family;                 /* of the address it listens on: AF_INET, AF_INET6; 0: no TCP listener */
	uint16_t port;                   /* host byte order */
	uint32_t scope_id;               /* of a link-local IPv6 address */
	uint8_t address[16];
	struct collet_peer_transport transports[COLLET_PEER_TRANSPORTS]; /* best first */
	uint8_t data[COLLET_PEER_DATA_BYTES];
	/* From here on the library's own. */
	char unix_name[64]; /* abstract Unix socket that this rank listens on (without the leading NUL); "" none */
	char settings[256]; /* "NAME=value\n" for each setting that all ranks must share, compared at creation */
	uint8_t gpu[16];    /* the UUID of the GPU that this rank's thread uses; zeros: none that it knows */
	char handle_exchange[8]; /* where it takes descriptors of GPU memory: see src/cuda/driver/handle_exchange.h */
	uint32_t link_mbps; /* that its host's link to other hosts carries each way; 0: not known */
	uint32_t reserved;
};

/* What the rank's transport of this name has put on its card in device_open(); NULL when the rank does not offer it or
 * put nothing. As long as the card. Not checked by the library: bytes of a peer. */
static inline const void *collet_peer_info_data(
	const struct collet_peer_info *peer_info, const char *name, size_t *bytes)
{
	for (uint32_t i = 0; i < COLLET_PEER_TRANSPORTS; i++) {
		const struct collet_peer_transport *row = &peer_info->transports[i];
		uint32_t from = 0, c = 0;
		for (; c < COLLET_TRANSPORT_NAME_BYTES && row->name[c]; c++)
			if (row->name[c] == ':')
				from = c + 1;  /* a wrapper's name comes before */
		if (c == from || c == COLLET_TRANSPORT_NAME_BYTES)
			continue;
		for (c = from; row->name[c] && row->name[c] == name[c - from];)
			c++;
		if (row->name[c] || name[c - from])
			continue;
		*bytes = row->data_bytes;
		if (row->data_bytes && row->data_offset + row->data_bytes <= COLLET_PEER_DATA_BYTES)
			return peer_info->data + row->data_offset;
		break;
	}
	*bytes = 0;
	return NULL;
}

/* How a rank sleeps: one epoll set for everything that it waits for. */
struct collet_wake {
	/* A transport reads what is here, and changes none of it. */
	int epoll_fd;                    /* transports add descriptors, edge-triggered or taken out again by
					    disarm(), with any data.ptr but NULL */
	int event_fd;                    /* any write wakes the rank; in the set with data.ptr = NULL. A transport may
					    pass it to a peer on the same host, which then wakes this rank by a write */
	uint32_t shared_cpu;             /* 1 + the one on which the rank makes progress, if ranks outnumber cores;
					    else 0. A transport may tell local peers, see collet_endpoint */
	uint32_t empty_polls;            /* how often the rank has looked for something to do and found nothing: a
					    transport sees whether it waited between two posts */
};

/* ---- What travels ------------------------------------------------------------------------------------------- */

/* What travels with a message, beside its bytes. The receiver says what it expects; anything else is a mismatch. */
struct collet_message {
	uint64_t signature;              /* what is being called; any number */
	uint64_t sequence;               /* which message this is; any number, and not always the next */
	uint64_t bytes;                  /* of data; a peer's say, so bounded before it is used */
};

enum {
	COLLET_TRANSFER_VIEW = 1 << 0,   /* receive: the bytes may stay where they are, see view */
	COLLET_TRANSFER_CONTIGUOUS = 1 << 1, /* send: the peer combines the bytes, when all are there: a hint to
	                                        leave them for it in one piece, where it could view them */
	COLLET_TRANSFER_EXCHANGE = 1 << 2, /* send: whoever sends waits for the peer all the same: a hint that an answer
					    costs it little */
	COLLET_TRANSFER_GPU = 1 << 3,    /* data is GPU memory, as takes_gpu() has allowed: the processor must not
					    touch it */
	COLLET_TRANSFER_EAGER = 1 << 4,  /* send: the peer may not want it for long: a hint to settle it without */
	COLLET_TRANSFER_IN_CACHE = 1 << 5, /* send: this rank has just made the bytes, and its peer sends it as many: a
					    hint to bring them to where the peer wants them, rather than have it
					    fetch them */
	/* Eight bits from this one on are a number below COLLET_CALL_CLASSES: which kind and size of call the
	 * transfer belongs to. Calls of one number are alike, so that what they take can be compared. */
	COLLET_TRANSFER_CALL_CLASS_SHIFT = 8,
	COLLET_CALL_CLASSES = 144
};

/* One message, sent or received. Owned by the caller, and lent with its buffer until status leaves COLLET_PENDING (a
 * receive with COLLET_TRANSFER_VIEW: until release). The caller's own from then on: status is the last thing that a
 * transport writes. */
struct collet_transfer {
	collet_status status;            /* COLLET_OK: every byte moved; there are no short transfers. For a send: the
					    bytes may be overwritten now */
	uint32_t flags;                  /* COLLET_TRANSFER_* */
	struct collet_message message;   /* send: what travels. Receive: what is expected; left by
					    COLLET_ERR_MISMATCH as what came instead, data untouched: that message
					    is dropped, and the next receive is for the next one */
	void *data;                      /* message.bytes bytes; a send only reads them. May be NULL if 0 bytes */
	const void *view;                /* receive with COLLET_TRANSFER_VIEW, settled COLLET_OK: where the bytes
					    are, for reading: data, or the transport's or peer's own memory. Valid
					    until release() */
	struct collet_transfer *next;    /* from here on the transport's own, while lent */
	uint64_t transport_private[3];
};

/* What becomes of a transfer that is to settle at once. */
enum collet_try_result {
	COLLET_TRY_DONE,                 /* it has */
	COLLET_TRY_AGAIN,                /* a receive: nothing has come yet; trying again is as cheap as has_come() */
	COLLET_TRY_POST                  /* this way it does not, or not well: it is to be posted */
};

/* bytes: of messages, without what a transport sends along. */
struct collet_endpoint_stats {
	uint64_t bytes_sent, bytes_received, messages_sent, messages_received, system_calls;
};

/* The common head of every transport's own conduit struct. */
struct collet_endpoint {
	/* The caller's; set before open(). */
	const struct collet_transport *transport;
	/* The transport's from here on, but for what says otherwise. */
	collet_status status;            /* COLLET_OK, or what has ended it (sticky). The sentence is in last_error() of
					    the call during which status left COLLET_OK */
	uint32_t peer;                   /* the caller's: world rank, for error texts */
	uint32_t channel;                /* the caller's */
	uint32_t posted;                 /* transfers lent and not yet settled: the engine makes progress on conduits
					    where this is not 0 */
	bool peer_reads_arena;           /* the peer reads what lies in this rank's arena where it is: said in
					    opening(), not changed after. The engine then gathers what it sends in
					    there */
	uint32_t peer_cpu;               /* the peer's collet_wake.cpu when it sent last; 0: unknown */
	struct collet_endpoint_stats stats; /* counted as transfers settle COLLET_OK; system calls as they are made */
	uint64_t peer_read_min_bytes;    /* as reads_arena, of ordinary memory: from so many bytes on the peer reads it
					    where it is about as fast as it would what was gathered for it; 0: it
					    does not. May change; the engine then leaves there what goes to one
					    peer */
	const uint8_t *peer_read_classes; /* and does it so of calls of this number (COLLET_CALL_CLASSES of them)? May
					    change; NULL: of all */
	uint64_t reserved[2];            /* 0 */
};

/* ---- Arguments of device_open() and open() ------------------------------------------------------------------- */

struct collet_device_config {
	const struct collet_services *services;
	const struct collet_log *log;    /* this and what follows lives as long as the context */
	const struct collet_peer_info *self; /* what is known before the rendezvous: rank, pid, host, cores of the
					    process */
	struct collet_arena *arena;
	struct collet_wake *wake;
	uint64_t job_id;                 /* alike on all ranks of a job, and another in most other jobs: made from the
					    job's name and where it meets. No secret, and no proof of anything */
};

/* Filled by device_open(); zeroed before. */
struct collet_device_info {
	char description[128];           /* for people: which adapter, port, speed; with its NUL */
	uint8_t peer_data[COLLET_PEER_DATA_BYTES]; /* for the peers' reaches() and open(), see
	                                              collet_peer_info_data() */
	uint32_t peer_data_bytes;        /* of it; few, since all transports of a rank share the card: where they do
					    not fit, creation fails */
	uint32_t link_mbps;              /* 10^6 bits a second that this rank sends to other hosts at the most, by
					    all adapters together; 0: not known, or none of this transport's */
};

struct collet_endpoint_config {
	const struct collet_peer_info *self, *peer; /* live as long as the context */
	uint32_t channel;
	bool dialed;                     /* this side connected the socket, the other accepted */
	int socket;                      /* connected, authenticated, non-blocking, stream: AF_UNIX for local
					    transports, else TCP. The conduit's from open() on, even if open() fails:
					    close() closes it. -1 for "self" */
	struct collet_wake *wake;        /* lives as long as the context */
	struct collet_arena *arena;      /* this rank's collet_mem_alloc memory, which lives as long; may be NULL */
	const struct collet_log *log;    /* lives as long as the context */
	const struct collet_services *services;
	struct collet_device *device;    /* what device_open() has made: until device_close(); NULL: there is no such
					    slot */
};

/* ---- The table ---------------------------------------------------------------------------------------------- */

enum {
	COLLET_CAP_VIEW = 1 << 0,        /* receives of COLLET_TRANSFER_VIEW may cost no copy */
	COLLET_CAP_LOCAL = 1 << 1,       /* reaches ranks of this host only; then the socket is AF_UNIX */
	COLLET_CAP_SYSCALLS = 1 << 2     /* progress() costs a system call, even where nothing has come */
};

struct collet_transport {
	uint32_t version;                /* COLLET_TRANSPORT_VERSION */
	uint32_t bytes;                  /* sizeof(struct collet_transport) */
	const char *name;                /* "tcp": lower-case letters, digits, '_', '-'; static */
	const char *summary;             /* one line for people: whom it reaches and how bytes move; static */
	uint32_t caps;                   /* COLLET_CAP_* */
	uint32_t priority;               /* of the transports that reach a peer the highest is tried first. self
					    1000, shm 800, tcp 200; between hosts something faster than tcp should
					    say 400 to 600 */
	size_t endpoint_bytes;           /* sizeof the transport's struct; the caller allocates it zeroed, 64-byte
					    aligned */

	/* ---- Devices: all optional, device_open and device_close together ---- */

	/* Once for each context, before the rendezvous. May take a moment (100 ms), since it is no part of the data
	 * path. *device is handed to the calls that need it; *info says what peers and people should know.
	 * COLLET_ERR_UNSUPPORTED: there is no device here, and the sentence says what was looked for. That, or any
	 * other error, leaves nothing behind, and the rank goes on without this transport (but for a transport that
	 * COLLET_TRANSPORT names: then creation fails with it). */
	collet_status (*device_open)(struct collet_device **device, const struct collet_device_config *config,
		struct collet_device_info *info);
	/* After every conduit of the context has been closed. Not called in a forked child. */
	void (*device_close)(struct collet_device *device);
	/* Memory that transfers will lie in, if the transport gains by knowing ahead: from collet_mem_alloc(),
	 * collet_mem_register(), the engine's staging; GPU memory by its dma-buf. *registration names it to
	 * memory_deregister(), which comes before the memory goes and after its last transfer. Failing is no error but
	 * for GPU memory (of which that there is no dma-buf is COLLET_ERR_UNSUPPORTED): transfers in memory that is not
	 * registered must work too, if slower. Both or neither; only with device_open. */
	collet_status (*memory_register)(
		struct collet_device *device, const struct collet_memory *memory, void **registration);
	void (*memory_deregister)(struct collet_device *device, void *registration);

	/* ---- Connections: mandatory ---- */

	/* Can these two ranks talk this way, as far as their cards tell? Pure: opens nothing, allocates nothing. Both
	 * offer this transport. Asked in the order (this rank, the other). */
	bool (*reaches)(const struct collet_peer_info *self, const struct collet_peer_info *peer);
	/* Begins. The conduit is zeroed but for what its struct says. config is read during the call only; what it
	 * points to lives as its members say. Even on failure the conduit is left fit for close(), which follows. */
	collet_status (*open)(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
	/* Goes on: COLLET_PENDING until both ends are ready (asked again when the socket is readable, or after 10 ms),
	 * then COLLET_OK for ever; or an error, after which the pair falls back to another transport. Called by the
	 * control thread, until it has returned COLLET_OK; nothing else is called before but close(), which also comes
	 * when nobody waits for the conduit any more: it needs no deadline of its own. No end may take the conduit for
	 * ready that the other has refused. */
	collet_status (*open_progress)(struct collet_endpoint *endpoint);
	/* Settles every lent transfer as COLLET_CANCELLED, makes sure that no peer reads or writes this rank's memory
	 * through this conduit any more, then undoes open(). A message whose send has settled still reaches a peer that
	 * is alive; for that it may wait, for 1 s at most. Safe to repeat, and on a conduit that was never opened. In a
	 * forked child (another getpid() than in open()) it only lets go of the child's own copies: the connection is
	 * the parent's and goes on. */
	void (*close)(struct collet_endpoint *endpoint);

	/* ---- Moving: mandatory but for has_come ---- */

	/* Lend transfer and buffer. May settle at once. On a conduit whose status is not COLLET_OK: settles with it.
	 * Any number may be lent; each direction settles in posting order (but for views of which the peer's release
	 * is awaited: sends in which bytes are lent to the peer may be overtaken by later ones). 0 bytes is a
	 * message. */
	void (*post_send)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	void (*post_recv)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	/* Ends a view (of every COLLET_TRANSFER_VIEW receive that has settled COLLET_OK and whose bytes are wanted:
	 * once, in any order; close() ends the others). Leaves status as it is, or as COLLET_ERR_PEER_LOST: the peer
	 * took its memory back meanwhile, and what was seen in the view means nothing. */
	void (*release_view)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	/* Moves what can move without waiting; returns how many transfers it settled. Finds out that the peer is gone:
	 * transfers that can no longer move settle as COLLET_ERR_PEER_LOST, and so does the conduit's status; what a
	 * peer had sent before it went is delivered first. */
	uint32_t (*progress)(struct collet_endpoint *endpoint);
	/* Optional: has something come for a receive of so many bytes, if it is posted now? Cheap: it may read into
	 * the conduit's own memory, and with COLLET_CAP_SYSCALLS makes one system call at most. Only while none is
	 * posted. */
	bool (*is_recv_ready)(struct collet_endpoint *endpoint, uint64_t bytes);
	/* The header of the next message that no posted receive has taken: true and *message, or false (none yet, or
	 * status not COLLET_OK). Only while no receive is posted. Moves what can move, and finds out as progress() does
	 * that the peer is gone, once nothing is left of what it had sent: nobody calls progress() while nothing is
	 * posted. */
	bool (*peek)(struct collet_endpoint *endpoint, struct collet_message *message);

	/* ---- Sleeping: mandatory ---- */

	/* Before sleeping, on every conduit that is waited for (posted != 0, or peeked at): false when something can
	 * move right now, or the conduit has ended; else true, and the epoll set or the wake event will tell when it
	 * can, or that the peer is gone. */
	bool (*arm)(struct collet_endpoint *endpoint);
	/* After sleeping; also after an arm() that has returned false, or none. */
	void (*disarm)(struct collet_endpoint *endpoint);

	/* ---- At once: optional, both or neither ---- */

	/* As post_send() and post_recv() where these settle the transfer before they return, COLLET_OK. Else the
	 * transfer is as it was and not lent, data untouched, and the answer says whether to try again. That is so for
	 * every error too: posting tells which it is. Only while no transfer of that direction is lent; without a
	 * system call. */
	enum collet_try_result (*try_send)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	enum collet_try_result (*try_recv)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);

	/* ---- GPUs: optional, with memory_register ---- */

	/* May a message of so many bytes be posted, sent or received, that lie at data in a GPU's memory? So it is
	 * then, with COLLET_TRANSFER_GPU, whatever the other end's memory is. Only of what memory_register() has taken;
	 * short messages, which a processor copies somewhere, had better be refused: they come by way of the host's
	 * memory. That it has been deregistered since is an error of the transfer. */
	bool (*accepts_gpu)(struct collet_endpoint *endpoint, const void *data, uint64_t bytes);

	/* ---- Learning: optional ---- */

	/* A call of this number (COLLET_TRANSFER_CALL_CLASS_SHIFT), of so many bytes in all, has ended. It may have had
	 * transfers here, and has taken so many of the processor's ticks from its start to its end on this rank. */
	void (*report_call_time)(struct collet_endpoint *endpoint, uint32_t call_class, uint64_t bytes,
		uint64_t ticks);
};

/* What a module defines and exports: its table, under this name. */
#define COLLET_TRANSPORT_SYMBOL "collet_transport_module"
extern COLLET_API const struct collet_transport collet_transport_module;

/* ---- For transports that keep what they are lent in queues --------------------------------------------------- */

/* Transfers that a transport has been lent, in posting order; zeroed is empty. */
struct collet_transfer_queue {
	struct collet_transfer *first, *last;
};

static inline void collet_transfer_queue_add(struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->next = NULL;
	if (queue->first)
		queue->last->next = transfer;
	else
		queue->first = transfer;
	queue->last = transfer;
}

/* Hands the oldest back. Its owner may reuse or free it from then on, so nothing of it is touched after status. */
static inline void collet_transfer_queue_complete(
	struct collet_transfer_queue *queue, struct collet_endpoint *endpoint, collet_status status)
{
	struct collet_transfer *transfer = queue->first;
	queue->first = transfer->next;
	transfer->next = NULL;
	endpoint->posted--;
	transfer->status = status;
}

/* Hands all back; returns how many. */
static inline uint32_t collet_transfer_queue_complete_all(
	struct collet_transfer_queue *queue, struct collet_endpoint *endpoint, collet_status status)
{
	uint32_t completed = 0;
	for (; queue->first; completed++)
		collet_transfer_queue_complete(queue, endpoint, status);
	return completed;
}

static inline bool collet_message_equal(const struct collet_message *a, const struct collet_message *b)
{
	return a->signature == b->signature && a->sequence == b->sequence && a->bytes == b->bytes;
}

#ifdef __cplusplus
}
#endif

#endif
