/* The transport contract: what a transport must do, what it may do, and what it can rely on. It is for people who write
 * a transport. A program that only calls collectives does not need this header.
 *
 * A transport moves messages between two ranks. It knows nothing of collectives or element types. It is a constant
 * table of functions, struct collet_transport. The transports self, shm and tcp are built into the library. Any other
 * one is a module: a shared object named libcollet-transport-NAME.so that exports its table as
 *
 *     const struct collet_transport collet_transport_module = { ... };
 *
 * The table's name must be NAME. The library looks for modules in the folders of COLLET_TRANSPORT_PATH and in its own
 * module folder (pkg-config --variable=moduledir collet). A module links no symbol of the library: the functions that
 * it may call are handed to it in a table, struct collet_services. To begin, copy examples/transport-skeleton. To check
 * a transport, run the installed program transport-contract: it tests what this header promises.
 *
 * Terms
 *   transport  the table of functions; static, and the same for all contexts
 *   device     the state of a transport in one context (one rank of a process): adapters, a protection domain; optional
 *   endpoint   one connection between two ranks on one channel. It carries messages in both directions, and each
 *              direction keeps the posting order: the k-th send matches the k-th receive posted on the other side
 *   transfer   one message to send or to receive
 *   peer info  what a rank has told all others about itself during bootstrap
 *
 * Life of an endpoint
 *   1. The control thread brings a connected, authenticated stream socket to each of the two ranks.
 *   2. open() starts the setup, and open_progress() continues it until both ends are ready. The two ends exchange what
 *      they need over the socket (descriptors, keys, queue pair numbers). They may keep the socket, to send data or
 *      only to detect that the peer has gone.
 *   3. Data path: post_send(), post_recv(), progress() and the other slots.
 *   4. close() may come at any time after open(). It frees everything that open() took over or created, the socket too.
 *      The memory of the endpoint itself belongs to the caller.
 *
 * Threads
 *   - Calls on one endpoint never overlap. The control thread calls open() and open_progress(). Once open_progress()
 *     has returned COLLET_OK, any thread that makes progress for the rank may call the other slots, one at a time.
 *     Either of these threads calls close().
 *   - Calls on different endpoints of one device may overlap: one can open while another moves data.
 *   - device_open() and device_close() run on the thread that creates or destroys the context.
 *   - memory_register() and memory_deregister() run on any thread, one at a time, while endpoints move data.
 *   - reaches() runs on any thread, several calls at once.
 *
 * No call blocks, and no call enters the engine again. Each result is left in the transfer or in the endpoint, so there
 * is one place to look for errors. Nothing on the data path allocates memory.
 *
 * Errors
 *   A call that fails says why, once: services->fail(status, "NAME: what failed, with which rank on which host, what to
 *   try"). That sentence becomes collet_last_error() of the calling thread. An endpoint ends with
 *     COLLET_ERR_PEER_LOST          if the peer, its host or the network path is gone,
 *     COLLET_ERR_TRANSPORT          if it received invalid data, or an adapter failed,
 *     COLLET_ERR_SYSTEM, _MEMORY    if this rank cannot continue.
 *   An endpoint that has ended stays so: its pending transfers complete with its status, and so does each one posted
 *   later. COLLET_ERR_MISMATCH concerns one receive only and does not end the endpoint.
 *
 * Versions
 *   The table begins with the version of the contract, which must equal the library's, and with its own size. A later
 *   library may add slots at the end. A slot that a shorter table lacks counts as NULL, so new slots are always
 *   optional. The structs that the library passes in (peer info, configs, services) may grow at the end too, so do not
 *   copy or embed them. struct collet_endpoint keeps its size, because transports embed it. */
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

/* Numbers of the contract. */
enum {
	COLLET_TRANSPORT_VERSION = 2,    /* version of this contract */
	COLLET_TRANSPORT_NAME_BYTES = 22 /* longest name of a transport, with its NUL */
};

struct collet_transport;
struct collet_device;                    /* defined by the transport */
struct collet_arena;                     /* the library's memory behind collet_mem_alloc(), one for each rank */
struct collet_log;                       /* opaque; passed back to services->log() */

/* ---- Services: what a transport may call --------------------------------------------------------------------- */

/* Origin of memory that memory_register() is told about. */
enum collet_memory_kind {
	COLLET_MEMORY_HOST,              /* host memory that the user passed to collet_mem_register() */
	COLLET_MEMORY_ARENA,             /* a block of collet_mem_alloc(), or a staging buffer of the library */
	COLLET_MEMORY_GPU                /* GPU memory: base is a device address */
};

/* Memory that memory_register() is told about. */
struct collet_memory {
	void *base;                      /* its first byte */
	uint64_t bytes;                  /* its size */
	uint32_t kind;                   /* enum collet_memory_kind */
	int32_t gpu;                     /* ordinal of the GPU; -1 if it is host memory */
	int32_t dmabuf;                  /* dma-buf descriptor that exports the memory, or -1; the caller closes it
					    after the call */
	uint32_t reserved;
	uint64_t dmabuf_offset;          /* offset of base in the dma-buf */
};

/* Functions of the library for a transport. The table exists as long as the library is loaded. Any thread may call. */
struct collet_services {
	uint32_t bytes;                  /* size of the library's table; check it before using a later member */
	uint32_t version;                /* COLLET_TRANSPORT_VERSION of the library */
	/* Sets collet_last_error() of this thread and returns status, so a failure reads `return
	 * services->fail(STATUS, ...)`. End the sentence without a full stop or newline. At most 1023 characters are
	 * kept. */
	collet_status (*fail)(collet_status status, const char *format, ...) COLLET_FORMAT(2, 3);
	/* Returns collet_last_error() of this thread. */
	const char *(*last_error)(void);
	/* Writes a line to standard error if COLLET_LOG enables this level. On the data path use DEBUG only. */
	void (*log)(const struct collet_log *log, enum collet_log_level level, const char *format, ...)
		COLLET_FORMAT(3, 4);
	/* Returns true if COLLET_LOG enables this level. */
	bool (*log_enabled)(const struct collet_log *log, enum collet_log_level level);
	/* Returns the value of an option (today an environment variable), or NULL if it is unset or empty. Name options
	 * COLLET_<TRANSPORT>_<WHAT>, and read them once, in device_open(). */
	const char *(*option)(const char *name);
	/* Gives the address range of the rank's arena. The range is reserved, and pages exist only where memory is in
	 * use. *fd is the memfd behind the arena and stays the library's. */
	void (*arena_span)(const struct collet_arena *arena, void **first, uint64_t *bytes, int *fd);
	/* Allocates and frees blocks of the arena. A block is zeroed and aligned to 64 bytes, or to 4 KiB if it has at
	 * least 4 KiB. memory_register() is not called for these blocks. Do not call them on the data path.
	 * arena_alloc: COLLET_ERR_MEMORY leaves *memory unchanged. arena_free: accepts NULL, and returns
	 * COLLET_ERR_ARGUMENT for an address that is no such block. */
	collet_status (*arena_alloc)(struct collet_arena *arena, void **memory, size_t bytes);
	collet_status (*arena_free)(struct collet_arena *arena, void *memory);
};

/* ---- Peer info: what ranks know of each other ---------------------------------------------------------------- */

/* Sizes in a peer info. */
enum {
	COLLET_PEER_TRANSPORTS = 6,      /* most transports that a rank offers, besides "self" */
	COLLET_PEER_DATA_BYTES = 112     /* room for the data of all of them together */
};

/* A transport that a rank offers. */
struct collet_peer_transport {
	char name[COLLET_TRANSPORT_NAME_BYTES]; /* "" if the entry is unused */
	uint8_t data_offset, data_bytes; /* the transport's part of collet_peer_info.data */
};

/* What a rank tells all others about itself during bootstrap, authenticated like the rest of it. The struct is sent as
 * it lies in memory; the version check has compared the byte order before. */
struct collet_peer_info {
	uint32_t rank;                   /* rank in the context's world */
	uint32_t pid;                    /* process, as its own namespace numbers it */
	uint64_t host_id;                /* equal on one host: COLLET_HOST_ID, else boot id and network namespace */
	uint64_t process_id;             /* equal for threads of one process */
	uint32_t uid;                    /* user */
	uint32_t usable_cores;           /* cores that the process may use, by affinity and cgroup quota */
	uint16_t quota_cores;            /* cores that the cgroups allow all their processes together */
	uint16_t host_cores;             /* cores that all ranks of this host may use together. Rank 0 fills in this
					    field and locality, so device_open() does not know them yet */
	struct collet_locality locality; /* where on its host the rank runs */
	char host[64];                   /* host name, for error texts and logs */
	uint16_t family;                 /* family of the TCP listener's address: AF_INET or AF_INET6; 0 if none */
	uint16_t port;                   /* in host byte order */
	uint32_t scope_id;               /* scope of a link-local IPv6 address */
	uint8_t address[16];             /* of the family; in network byte order */
	struct collet_peer_transport transports[COLLET_PEER_TRANSPORTS]; /* in order of preference, best first */
	uint8_t data[COLLET_PEER_DATA_BYTES]; /* read it with collet_peer_info_data() */

	/* ---- Used by the library only ---- */

	char unix_name[64]; /* abstract Unix socket that the rank listens on, without the leading NUL; "" if none */
	char settings[256]; /* "NAME=value\n" for each setting that all ranks must share; compared at creation */
	uint8_t gpu[16];    /* UUID of the GPU that the rank's thread uses; zeros if it is unknown */
	char handle_exchange[8]; /* address for descriptors of GPU memory; see src/cuda/driver/handle_exchange.h */
	uint32_t link_mbps; /* Mbit/s of the host's link to other hosts, each way; 0 if unknown */
	uint16_t cpu;       /* hardware thread that the rank ran on when it was created, plus 1; 0 if unknown */
	uint16_t allows_cma; /* 1: ranks of its host may read its memory (COLLET_SHM_CMA) */
};

/* Returns what the peer's transport of this name stored in collet_device_info.peer_data, and its size in *bytes.
 * Returns NULL if the peer does not offer the transport, or if it stored nothing. The pointer is valid as long as
 * peer_info. The data comes from the peer and is not checked by the library. */
static inline const void *collet_peer_info_data(
	const struct collet_peer_info *peer_info, const char *name, size_t *bytes)
{
	for (uint32_t i = 0; i < COLLET_PEER_TRANSPORTS; i++) {
		const struct collet_peer_transport *row = &peer_info->transports[i];
		uint32_t from = 0, c = 0;
		for (; c < COLLET_TRANSPORT_NAME_BYTES && row->name[c]; c++)
			if (row->name[c] == ':')
				from = c + 1;  /* skips the name of a wrapper, as in "trace:tcp" */
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

/* How a rank sleeps: one epoll set holds everything that it waits for. A transport reads these fields and changes none
 * of them. */
struct collet_wake {
	/* A transport adds its descriptors here, with any data.ptr but NULL. It adds them edge-triggered, or removes
	 * them again in disarm(). */
	int epoll_fd;
	/* A write to it wakes the rank. It is in the epoll set with data.ptr = NULL. A transport may pass it to a peer
	 * on the same host, which then wakes this rank by a write. */
	int event_fd;
	/* If ranks outnumber cores: 1 + the CPU on which the rank makes progress; else 0. A transport may tell its
	 * local peers, see collet_endpoint.peer_cpu. */
	uint32_t shared_cpu;
	/* Number of times that the rank polled and found nothing to do. A change between two posts tells a transport
	 * that the rank has waited. */
	uint32_t empty_polls;
};

/* ---- Transfers and endpoints --------------------------------------------------------------------------------- */

/* Envelope of a message. A receive states the envelope that it expects; any other one is a mismatch. */
struct collet_message {
	uint64_t signature;              /* identifies the call; any number */
	uint64_t sequence;               /* identifies the message; any number, not always the next one */
	uint64_t bytes;                  /* size of the data; a peer sends it, so check it before use */
};

/* Flags of a transfer. */
enum {
	/* Receive: the bytes may stay in the transport's or the peer's memory, see collet_transfer.view. */
	COLLET_TRANSFER_VIEW = 1 << 0,
	/* Send, a hint: the peer reduces the bytes once all have arrived. Leave them contiguous where it can view
	 * them. */
	COLLET_TRANSFER_CONTIGUOUS = 1 << 1,
	/* Send, a hint: the sender waits for the peer anyway, so waiting for an answer costs it little. */
	COLLET_TRANSFER_EXCHANGE = 1 << 2,
	/* data is GPU memory that accepts_gpu() has accepted. The CPU must not touch it. */
	COLLET_TRANSFER_GPU = 1 << 3,
	/* Send, a hint: the peer may post its receive much later, so complete the send without waiting for it. */
	COLLET_TRANSFER_EAGER = 1 << 4,
	/* Send, a hint: this rank has just computed the bytes, and its peer sends it as many. Write them to the peer's
	 * buffer instead of letting the peer read them. */
	COLLET_TRANSFER_IN_CACHE = 1 << 5,
	/* Receive, set by the transport with COLLET_OK and a view: the caller may write to the view, and may send it
	 * back. */
	COLLET_TRANSFER_RETURNABLE = 1 << 6,
	/* Send: data is such a view, of the same endpoint and as long as the message. The peer reads what the caller
	 * has written there, so nothing is copied. Posting the send ends the view, instead of release_view(). */
	COLLET_TRANSFER_RETURN = 1 << 7,
	/* Receive, a hint: the call moves more than caches hold. Store the bytes past them. */
	COLLET_TRANSFER_NONTEMPORAL = 1 << 8
};

/* One message to send or to receive. The caller owns it. The transport borrows it, with its buffer, from the post until
 * status leaves COLLET_PENDING; for a receive with COLLET_TRANSFER_VIEW until release_view(). A transport writes status
 * last, because the caller may reuse or free the transfer from then on. */
struct collet_transfer {
	/* COLLET_PENDING while borrowed. COLLET_OK: every byte has moved; there are no short transfers. For a send,
	 * COLLET_OK means that the caller may overwrite the bytes, not that they have arrived. */
	collet_status status;
	uint32_t flags;                  /* COLLET_TRANSFER_* */
	/* Send: the envelope to send. Receive: the envelope that is expected. With COLLET_ERR_MISMATCH the transport
	 * stores here the envelope that came instead and leaves data untouched. It drops that message, and the next
	 * receive is for the next message. */
	struct collet_message message;
	void *data;                      /* message.bytes bytes; a send only reads them. May be NULL for 0 bytes */
	/* Receive with COLLET_TRANSFER_VIEW, set with COLLET_OK: where the bytes lie, for reading. It points to data or
	 * into memory of the transport or the peer, and is valid until release_view(). */
	const void *view;
	/* For the transport's use while it borrows the transfer, from here on. */
	struct collet_transfer *next;
	uint64_t transport_private[3];
};

/* Result of try_send() and try_recv(). */
enum collet_try_result {
	COLLET_TRY_DONE,                 /* the transfer has completed with COLLET_OK */
	COLLET_TRY_AGAIN,                /* receive: nothing has arrived yet; try again, it costs as little as
					    is_recv_ready() */
	COLLET_TRY_POST                  /* not possible, or not worth it, this way: post the transfer */
};

/* Byte counts are those of messages, without what a transport adds. */
struct collet_endpoint_stats {
	uint64_t bytes_sent, bytes_received; /* payload */
	uint64_t messages_sent, messages_received; /* number of messages */
	uint64_t system_calls;           /* on the data path */
};

/* Common part of all endpoints. It is the first member of the endpoint struct of each transport. */
struct collet_endpoint {
	const struct collet_transport *transport; /* set by the caller before open() */

	/* ---- Set by the transport, except peer and channel ---- */

	collet_status status;            /* COLLET_OK, or what ended the endpoint (sticky). The call that changes it
					    also sets collet_last_error() */
	uint32_t peer;                   /* set by the caller: world rank of the peer, for error texts */
	uint32_t channel;                /* set by the caller: number of the connection between the two ranks */
	uint32_t posted;                 /* pending transfers; the engine calls progress() while this is not 0 */
	/* The peer reads data in this rank's arena in place. Set by open_progress() and constant afterwards. The engine
	 * then gathers what it sends in the arena. */
	bool peer_reads_arena;
	uint32_t peer_cpu;               /* the peer's collet_wake.shared_cpu when it last sent; 0 if unknown */
	struct collet_endpoint_stats stats; /* counts transfers that complete with COLLET_OK, and system calls */
	uint64_t reserved[2];            /* 0 */
};

/* ---- Arguments of device_open() and open() ------------------------------------------------------------------- */

/* Arguments of device_open(). */
struct collet_device_config {
	const struct collet_services *services; /* the library's functions */
	const struct collet_log *log;    /* this and all members below live as long as the context */
	const struct collet_peer_info *self; /* what is known before bootstrap: rank, pid, host, cores of the process */
	struct collet_arena *arena;      /* this rank's arena */
	struct collet_wake *wake;        /* how the rank sleeps */
	/* Equal on all ranks of a job and different in most other jobs. It is made from the job's name and its
	 * bootstrap address. It is not secret and proves nothing. */
	uint64_t job_id;
};

/* Result of device_open(); zeroed before the call. */
struct collet_device_info {
	char description[128];           /* for people, with its NUL: adapter, port, speed */
	/* Data for reaches() and open() of the peers, which read it with collet_peer_info_data(). All transports of a
	 * rank share the room, so store few bytes: if they do not fit, creation of the context fails. */
	uint8_t peer_data[COLLET_PEER_DATA_BYTES];
	uint32_t peer_data_bytes;        /* used bytes of peer_data */
	uint32_t link_mbps;              /* most Mbit/s (10^6 bits) that this rank can send to other hosts, all adapters
					    together; 0 if unknown or if the transport does not leave the host */
};

/* Arguments of open(). */
struct collet_endpoint_config {
	const struct collet_peer_info *self, *peer; /* live as long as the context */
	uint32_t channel;                /* number of the connection between the two ranks */
	bool dialed;                     /* this side connected the socket; the other side accepted it */
	/* Connected, authenticated, non-blocking stream socket: AF_UNIX for local transports, else TCP. The endpoint
	 * owns it from open() on, even if open() fails; close() closes it. -1 for "self". */
	int socket;
	struct collet_wake *wake;        /* lives as long as the context */
	struct collet_arena *arena;      /* this rank's arena, lives as long as the context; may be NULL */
	const struct collet_log *log;    /* lives as long as the context */
	const struct collet_services *services; /* the library's functions */
	struct collet_device *device;    /* from device_open(), valid until device_close(); NULL without that slot */
};

/* ---- The table ---------------------------------------------------------------------------------------------- */

/* Capabilities of a transport. */
enum {
	COLLET_CAP_VIEW = 1 << 0,        /* receives with COLLET_TRANSFER_VIEW may save a copy */
	COLLET_CAP_LOCAL = 1 << 1,       /* reaches only ranks of this host; the socket is then AF_UNIX */
	COLLET_CAP_SYSCALLS = 1 << 2     /* progress() makes a system call even if nothing has arrived */
};

/* A transport: what it can do, and its functions. */
struct collet_transport {
	uint32_t version;                /* COLLET_TRANSPORT_VERSION */
	uint32_t bytes;                  /* sizeof(struct collet_transport) */
	const char *name;                /* such as "tcp": lower-case letters, digits, '_', '-'; static */
	const char *summary;             /* one line for people: which ranks it reaches, how bytes move; static */
	uint32_t caps;                   /* COLLET_CAP_* */
	/* Of the transports that reach a peer, the one with the highest priority is tried first. self has 1000, shm
	 * 800, tcp 200. A transport between hosts that is faster than tcp should say 400 to 600. */
	uint32_t priority;
	size_t endpoint_bytes;           /* size of the transport's endpoint struct; the caller allocates it, zeroed
					    and aligned to 64 bytes */

	/* ---- Devices: optional. device_open and device_close come together. ---- */

	/* Optional. Opens the device, once for each context and before bootstrap. It may take about 100 ms. *device is
	 * passed to the calls that need it, and *info tells peers and people about it. Any error leaves nothing behind,
	 * and the rank continues without this transport; but if COLLET_TRANSPORT names it, creation of the context
	 * fails. COLLET_ERR_UNSUPPORTED: there is no device here; the error text says what was looked for. */
	collet_status (*device_open)(struct collet_device **device, const struct collet_device_config *config,
		struct collet_device_info *info);
	/* Optional. Closes the device, after all endpoints of the context are closed. Not called in a forked child. */
	void (*device_close)(struct collet_device *device);
	/* Optional; both or neither, and only with device_open. Announces memory that transfers will use: blocks of
	 * collet_mem_alloc(), memory of collet_mem_register(), staging buffers of the engine, and GPU memory with its
	 * dma-buf. *registration names it to memory_deregister(), which is called after the last transfer that uses the
	 * memory and before the memory is freed. Transfers must also work in memory that is not registered, perhaps
	 * slower, so a failure matters for GPU memory only. GPU memory without a dma-buf: COLLET_ERR_UNSUPPORTED. */
	collet_status (*memory_register)(
		struct collet_device *device, const struct collet_memory *memory, void **registration);
	void (*memory_deregister)(struct collet_device *device, void *registration);

	/* ---- Connections: mandatory ---- */

	/* Returns true if the two ranks can talk over this transport, as far as their peer infos tell. Pure: it opens
	 * and allocates nothing. Both ranks offer the transport. self is always the calling rank. */
	bool (*reaches)(const struct collet_peer_info *self, const struct collet_peer_info *peer);
	/* Starts to open an endpoint. The memory is zeroed except for the members that the caller sets. config is valid
	 * during the call only; what its members point to lives as stated there. On failure too the endpoint is fit for
	 * close(), which follows. */
	collet_status (*open)(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
	/* Continues to open an endpoint. Returns COLLET_PENDING until both ends are ready, and is then called again
	 * when the socket is readable, or after 10 ms. Returns COLLET_OK when both ends are ready, and from then on.
	 * Returns an error if the endpoint cannot be opened: the pair then falls back to another transport. Neither end
	 * may report COLLET_OK for an endpoint that the other end has refused. Until COLLET_OK, only the control thread
	 * calls, and it calls nothing but open_progress() and close(). close() also comes when nobody waits for the
	 * endpoint any more, so open_progress() needs no deadline of its own. */
	collet_status (*open_progress)(struct collet_endpoint *endpoint);
	/* Completes every pending transfer with COLLET_CANCELLED, makes sure that the peer no longer reads or writes
	 * this rank's memory through this endpoint, and then undoes open(). A message whose send has completed still
	 * reaches a live peer; close() may wait for that, at most 1 s. Safe to repeat, and safe if open() was never
	 * called. In a forked child (getpid() differs from that in open()) it only closes the child's copies of
	 * descriptors: the connection belongs to the parent and continues. */
	void (*close)(struct collet_endpoint *endpoint);

	/* ---- Data path: mandatory, except is_recv_ready ---- */

	/* Post a transfer: the transport borrows it with its buffer. It may complete before the call returns. If the
	 * endpoint has ended, it completes with the endpoint's status. Any number of transfers may be pending. Each
	 * direction completes in posting order, except for sends whose bytes the peer views: later sends may complete
	 * before the peer releases those. A message of 0 bytes is a message. */
	void (*post_send)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	void (*post_recv)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	/* Ends the view of a receive that was posted with COLLET_TRANSFER_VIEW and has completed with COLLET_OK. The
	 * caller calls it once for each such receive whose bytes it wants, in any order; close() ends all other views.
	 * It leaves status unchanged, or sets it to COLLET_ERR_PEER_LOST if the peer has taken its memory back
	 * meanwhile: what the caller has read is then invalid. */
	void (*release_view)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	/* Moves what can move without waiting, and returns the number of transfers that it completed. It also detects
	 * that the peer has gone: the endpoint's status becomes COLLET_ERR_PEER_LOST, and transfers that can no longer
	 * move complete with it. Messages that the peer sent before are delivered first. */
	uint32_t (*progress)(struct collet_endpoint *endpoint);
	/* Optional. Returns true if data has arrived for a receive of this many bytes that would be posted now. Called
	 * only while no receive is pending. It must be cheap: it may read into the endpoint's own memory, and with
	 * COLLET_CAP_SYSCALLS it makes at most one system call. */
	bool (*is_recv_ready)(struct collet_endpoint *endpoint, uint64_t bytes);
	/* Returns true and stores the envelope of the next message that no receive has matched. Returns false if there
	 * is none yet, or if the endpoint has ended. Called only while no receive is pending. Nobody calls progress()
	 * while nothing is pending, so peek() moves what can move. It also detects that the peer has gone, after
	 * everything that the peer sent has been received. */
	bool (*peek)(struct collet_endpoint *endpoint, struct collet_message *message);

	/* ---- Sleep: mandatory ---- */

	/* Prepares to sleep. Called on every endpoint that is waited for: those with posted != 0, and those that are
	 * peeked at. Returns false if something can move right now, or if the endpoint has ended. Else returns true,
	 * and the epoll set or the wake event fires when something can move or the peer has gone. */
	bool (*arm)(struct collet_endpoint *endpoint);
	/* Undoes arm() after the sleep. Also called after an arm() that returned false, and without any arm(). */
	void (*disarm)(struct collet_endpoint *endpoint);

	/* ---- Fast path: optional, both or neither ---- */

	/* Complete a transfer before they return: COLLET_TRY_DONE, with COLLET_OK in its status. Any other result
	 * leaves the transfer as it was, not borrowed and its data untouched, and says whether to try again or to post.
	 * Errors are not reported here either: posting the transfer reports them. Called only while no transfer of that
	 * direction is pending. They make no system call. */
	enum collet_try_result (*try_send)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
	enum collet_try_result (*try_recv)(struct collet_endpoint *endpoint, struct collet_transfer *transfer);

	/* ---- GPU memory: optional, only with memory_register ---- */

	/* Returns true if a message of this many bytes at data, in GPU memory, may be posted in either direction. It is
	 * then posted with COLLET_TRANSFER_GPU, whatever memory the other end uses. Accept only memory that
	 * memory_register() has registered. Refuse short messages that the CPU would copy: the engine moves them
	 * through host memory. If the memory is deregistered before the transfer completes, the transfer fails. */
	bool (*accepts_gpu)(struct collet_endpoint *endpoint, const void *data, uint64_t bytes);
};

/* Name of the table that a module exports. */
#define COLLET_TRANSPORT_SYMBOL "collet_transport_module"
/* The table that a module defines. */
extern COLLET_API const struct collet_transport collet_transport_module;

/* ---- Helpers: queues of borrowed transfers ------------------------------------------------------------------- */

/* Borrowed transfers in posting order. A zeroed queue is empty. */
struct collet_transfer_queue {
	struct collet_transfer *first, *last; /* oldest and newest; NULL if it is empty */
};

/* Appends a transfer. The caller sets its status and counts it in endpoint->posted. */
static inline void collet_transfer_queue_add(struct collet_transfer_queue *queue, struct collet_transfer *transfer)
{
	transfer->next = NULL;
	if (queue->first)
		queue->last->next = transfer;
	else
		queue->first = transfer;
	queue->last = transfer;
}

/* Removes the oldest transfer and completes it with this status. Its owner may reuse or free it from then on, so
 * nothing touches it after status is written. */
static inline void collet_transfer_queue_complete(
	struct collet_transfer_queue *queue, struct collet_endpoint *endpoint, collet_status status)
{
	struct collet_transfer *transfer = queue->first;
	queue->first = transfer->next;
	transfer->next = NULL;
	endpoint->posted--;
	transfer->status = status;
}

/* Completes all transfers with this status. Returns their number. */
static inline uint32_t collet_transfer_queue_complete_all(
	struct collet_transfer_queue *queue, struct collet_endpoint *endpoint, collet_status status)
{
	uint32_t completed = 0;
	for (; queue->first; completed++)
		collet_transfer_queue_complete(queue, endpoint, status);
	return completed;
}

/* Returns true if the envelopes are equal. */
static inline bool collet_message_equal(const struct collet_message *a, const struct collet_message *b)
{
	return a->signature == b->signature && a->sequence == b->sequence && a->bytes == b->bytes;
}

#ifdef __cplusplus
}
#endif

#endif
