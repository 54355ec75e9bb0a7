/* Defines one end of an shm endpoint pair, and the functions that the files of this folder share. */
#ifndef COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H
#define COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H

#include <sys/types.h>

#include "transport/arena.h"
#include "transport/registry.h"
#include "transport/shm/shm_distance.h"
#include "transport/shm/shm_pool.h"
#include "transport/shm/shm_region.h"

/* Sets the sizes at which the protocol of a message changes. They were measured with tests/transport/bench_shm.c. */
enum {
	/* From this size arena memory is borrowed. Below, a copy costs less than waiting for the release. */
	SHM_ARENA_MIN = 24 * 1024 + 1,
	/* The same for a sender that has its own core and waits for an answer anyway. */
	SHM_ARENA_EXCHANGE_MIN = 2049,
	/* The sender prefetches up to this many cells for writing. */
	SHM_PREFETCHW_CELLS = 2,
	/* Traffic is one-way after this many short sends in a row without a received message. */
	SHM_ONE_WAY_AFTER = 3,
	/* The receiver prefetches messages up to this size, after this many early ones in a row. */
	SHM_PREFETCH_BYTES = 1024,
	SHM_PREFETCH_AFTER = 3,
	/* From this size the receiver reads other memory of the sender, if it may. Below, two copies cost less than the
	 * system call and the wait for the release. */
	SHM_CMA_MIN = 64 * 1024,
	SHM_PUT_MIN = SHM_ARENA_MIN,        /* receives from this size publish an RTR */
	SHM_PUT_MAX = 1 << 20,              /* the sender puts messages up to this size, each in one call */
	SHM_REVOKE_TIMEOUT_NS = 1000000000, /* how long a closing end waits for a peer's write to end */
	SHM_SLICE_BYTES = 4 << 20,          /* limit of bytes read from the peer's memory in one call of progress() */
	SHM_PATIENCE_POLLS = 4096,          /* how often a message that should be one run waits for one */
	SHM_RUNS_PER_CALL = 8,              /* limit of runs of a long message in one call of progress() */
	SHM_IDLE_POLLS = 2048               /* empty calls of progress() before a check that the peer is alive */
};

/* Carries what an end tells the other over the socket: hello from the dialer, reply from the acceptor, done from the
 * dialer. See shm_connect.c. */
struct shm_hello {
	uint64_t magic;
	uint32_t type;
	uint32_t flags;
	uint64_t region;         /* reply to a thread of the same process: address of the mapping */
	/* Reply and done to a thread of the same process: a struct collet_arena_map with a reference for the
	 * receiver. */
	uint64_t arena;
	uint64_t nonce, nonce_address; /* a random number, and where the sender of this hello keeps it */
};

enum { SHM_HELLO_DESCRIPTORS = 3 };

enum shm_state {
	SHM_CLOSED,         /* also the state of a zeroed struct */
	SHM_SEND_HELLO,     /* the dialer's states: this and the next */
	SHM_AWAIT_REPLY,
	SHM_AWAIT_HELLO,    /* the acceptor's states: this and the next */
	SHM_AWAIT_DONE,
	SHM_READY
};

/* Describes the message that is being received. It belongs to the first receive, unless it is dropped. */
struct shm_incoming {
	enum shm_protocol protocol; /* 0 if none */
	bool is_dropped;         /* its receive has completed with a mismatch; the bytes are discarded */
	uint32_t token;          /* SHM_ARENA and SHM_CMA, as the next one */
	const unsigned char *source; /* SHM_ARENA */
	uint64_t address;        /* SHM_CMA, in the peer's process */
	uint64_t bytes, done_bytes;
};

/* True if this end has begun to read a message in the peer's memory: it can make progress whatever the peer does. */
static inline bool shm_is_reading(const struct shm_incoming *incoming)
{
	return incoming->protocol == SHM_ARENA || incoming->protocol == SHM_CMA;
}

/* A range of this process's memory, and whether the kernel reads it for the peer. */
struct shm_own_range {
	uintptr_t first, end;
	bool is_readable;
};

struct shm_endpoint {
	struct collet_endpoint endpoint;
	enum shm_state state;
	uint32_t empty_polls;                    /* empty calls of progress() since the last completion */
	bool is_peer_gone;                       /* the socket has hung up, or the peer has closed */
	bool is_peeked;                          /* peek() was called since the last posted receive */
	bool is_same_process;
	bool is_mapped_by_peer;                  /* the peer has mapped this rank's arena */
	bool is_read_by_peer;                    /* the peer reads long messages in this rank's memory: shm_cma.c */
	bool has_membarrier;                     /* the end that goes to sleep runs membarrier: see shm_publish() */

	struct shm_region *region;
	struct shm_side *mine, *theirs;
	struct shm_pool pools[SHM_POOLS];
	struct shm_distance distance;            /* of the peer's core */

	/* Sending. */
	struct shm_cell *out_cells;
	uint64_t out_next;                       /* number of cells filled so far */
	uint64_t out_consumed;                   /* number of them that the peer had consumed when last read */
	uint64_t tokens_used, tokens_done;       /* a bit per token; tokens_done as last read from the peer */
	uint64_t tokens_borrowed;                /* a bit per token: the peer holds the buffer in borrowed[token] */
	struct collet_transfer *borrowed[SHM_TOKENS];
	struct collet_transfer_queue sends;      /* sends not yet, or not completely, published */
	uint64_t out_messages;                   /* number of messages started so far */
	uint32_t starved_polls;                  /* attempts to send the first send, since units were too few */
	uint32_t unanswered;                     /* short sends since the last receive, at most SHM_ONE_WAY_AFTER */
	struct shm_own_range own_range;          /* the last that collet_shm_cma_is_readable() has tried */
	uint64_t sent_bytes;                     /* bytes of the first queued send already published */
	enum shm_protocol sent_protocol;         /* protocol of that send */
	struct shm_cell *in_rtrs;                /* RTR slots that the peer writes */

	/* Receiving. */
	struct shm_cell *in_cells;
	uint64_t in_next;                        /* number of cells consumed so far */
	uint64_t in_reported;                    /* the value of in_next last published to the peer */
	uint64_t in_tokens_done;                 /* the value last published to the peer */
	struct collet_transfer_queue receives;
	struct shm_incoming incoming;
	struct shm_cell *out_rtrs;               /* RTR slots that this end writes */
	uint64_t in_posted, in_messages;         /* numbers of receives posted and of messages started so far */
	uint32_t early_count;                    /* messages in a row that had arrived before their receive */
	const struct collet_arena_map *peer_arena;
	pid_t peer_pid;                          /* of the process whose memory this end can read; 0 if it cannot */
	uint64_t peer_nonce, peer_nonce_address;

	/* Opening, sleeping and closing. */
	int socket;
	int peer_event_fd;
	pid_t owner_pid;                         /* the process that opened it; a forked child must not act for it */
	bool is_in_epoll;
	struct collet_arena *arena;
	struct collet_arena_map *peer_arena_ref;
	struct collet_wake *wake;
	const struct collet_peer_info *self, *peer;
	const struct collet_log *log;
	uint64_t nonce;                          /* 0 when the endpoint is closed */
	struct shm_hello inbox;
	size_t inbox_bytes;
	int inbox_fds[SHM_HELLO_DESCRIPTORS];
	uint32_t inbox_fd_count;
};

/* Adds to a counter. Another thread may read it at any time, so the store is atomic. */
static inline void shm_count(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

/* True if ranks outnumber cores. */
static inline bool shm_is_oversubscribed(const struct shm_endpoint *shm)
{
	return shm->wake->shared_cpu != 0;
}

/* shm_hello.c */
collet_status collet_shm_fail_peer(const struct shm_endpoint *shm, collet_status status, const char *what);
/* Does the same with the text of errno; returns COLLET_ERR_SYSTEM. */
collet_status collet_shm_fail_system(const struct shm_endpoint *shm, const char *what);
/* Sends a hello with its descriptors. COLLET_PENDING if the socket has no room. */
collet_status collet_shm_send_hello(const struct shm_endpoint *shm, const struct shm_hello *hello, const int *fds,
	uint32_t count);
/* Reads until shm->inbox holds a whole hello; COLLET_PENDING until then. */
collet_status collet_shm_receive_hello(struct shm_endpoint *shm);
/* Returns the next received descriptor, which the caller then owns; -1 if there is none. *next starts at 0. */
int collet_shm_next_descriptor(struct shm_endpoint *shm, uint32_t *next);
/* Closes the received descriptors that nobody has claimed. */
void collet_shm_close_descriptors(struct shm_endpoint *shm);

/* shm_connect.c */
collet_status collet_shm_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
collet_status collet_shm_open_progress(struct collet_endpoint *endpoint);
/* Releases the socket, descriptors and mappings, and those in hellos that were received but not read. */
void collet_shm_free_resources(struct shm_endpoint *shm, bool forked);

/* shm_send.c */
/* Publishes queued sends while there is room. Sends a bounded part of a long message, however fast the peer reads. */
void collet_shm_send_some(struct shm_endpoint *shm);
/* Sends a message that fits into cells or into one run, if the queue is empty. */
enum collet_try_result collet_shm_try_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
/* Sends, and completes the sends whose buffers the peer has released. Returns the number of completed sends. */
uint32_t collet_shm_send(struct shm_endpoint *shm);
/* True if collet_shm_send() could make progress. Reads the peer's words with seq_cst. */
bool collet_shm_can_send(struct shm_endpoint *shm);

/* shm_put.c */
/* Publishes an RTR for the receive that is about to be queued, if the sender may write there. */
void collet_shm_publish_rtr(struct shm_endpoint *shm, struct collet_transfer *transfer);
/* True if an RTR was published for a receive. */
static inline bool shm_has_rtr(const struct collet_transfer *transfer)
{
	return transfer->transport_private[2] != 0;
}
/* Returns the RTR slot of the receive with this number (from 1). */
static inline struct shm_cell *shm_rtr_slot(struct shm_cell *rtrs, uint64_t number)
{
	return &rtrs[(number - 1) % SHM_RTR_SLOTS];
}
/* True if the next send can be put into the peer's arena, where its RTR wants it. */
bool collet_shm_may_put(const struct shm_endpoint *shm, const struct collet_transfer *transfer);
/* Puts the first send. False if the endpoint has failed. */
bool collet_shm_put(struct shm_endpoint *shm);

/* shm_cma.c */
/* Makes the nonce. */
collet_status collet_shm_cma_init(struct shm_endpoint *shm);
/* Finds out whether this process can read the memory of the peer, whose hello is in the inbox, and may. */
bool collet_shm_cma_probe(struct shm_endpoint *shm);
/* True if the kernel reads this memory of this process, as far as its first and last byte show. It reads no memory of
 * devices, such as what a GPU's driver has page-locked. Later calls remember the last range. */
bool collet_shm_cma_is_readable(struct shm_endpoint *shm, const void *data, uint64_t bytes);
/* Reads bytes of the incoming message from `at` on into the first receive. False: the endpoint has failed. */
bool collet_shm_cma_read(struct shm_endpoint *shm, uint64_t at, uint64_t bytes);

/* shm_receive.c */
/* Receives messages; returns the number of completed receives. may_read: also reads borrowed buffers. A rank that has
 * just posted a receive passes false: it may still have to post something that the peer waits for, and a whole copy
 * would delay that. */
uint32_t collet_shm_receive(struct shm_endpoint *shm, bool may_read);
enum collet_try_result collet_shm_try_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
bool collet_shm_is_recv_ready(struct collet_endpoint *endpoint, uint64_t bytes);
void collet_shm_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
bool collet_shm_peek(struct collet_endpoint *endpoint, struct collet_message *message);
/* True if a cell has not been consumed. Loads with seq_cst, as collet_shm_can_send() does. */
bool collet_shm_has_next_cell(const struct shm_endpoint *shm);

/* shm.c */
/* Ends the endpoint: revokes the peer's access to this rank's memory and completes every transfer. Returns how many. */
uint32_t collet_shm_fail(struct shm_endpoint *shm, collet_status status);
/* Does the same because the peer is gone. why: for example "has closed its connection". */
uint32_t collet_shm_lose_peer(struct shm_endpoint *shm, const char *why);
/* True if the peer's socket has hung up, or it has closed its end. */
bool collet_shm_is_peer_gone(struct shm_endpoint *shm);
/* Writes the peer's name for sentences: "rank 3 on node7 (pid 1234)". The buffer is the caller's. */
const char *collet_shm_peer_name(const struct shm_endpoint *shm, char *text, size_t bytes);

/* Stores a word that the peer may wait for, and wakes the peer if it sleeps. Release, pairing with the peer's acquire
 * of the same word.
 *
 * At least one of the two ends must see the other's store. The publisher stores the word and then loads `sleeping`. The
 * end that goes to sleep stores `sleeping` and then loads the words (arm()). On both sides the load must not happen
 * before the store is visible. A seq_cst store would guarantee that, but each message would then wait until the sender
 * owns the cache line, a round trip to the other core. Where the kernel offers membarrier, the end that goes to sleep
 * runs a barrier on all cores of the other instead. It is in no hurry, and the publisher then needs no barrier. */
void collet_shm_wake(struct shm_endpoint *shm);
static inline void shm_publish(struct shm_endpoint *shm, _Atomic uint64_t *word, uint64_t value)
{
	if (shm->has_membarrier) {
		atomic_store_explicit(word, value, memory_order_release);
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		atomic_store_explicit(word, value, memory_order_seq_cst);
	}
	if (atomic_load_explicit(&shm->theirs->sleeping, memory_order_seq_cst))
		collet_shm_wake(shm);
}

#endif
