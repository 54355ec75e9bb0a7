/* Defines one end of an shm endpoint pair, and the functions that the files of this folder share. */
#ifndef COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H
#define COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H

#include <sys/types.h>

#include "transport/arena.h"
#include "transport/registry.h"
#include "transport/shm/shm_region.h"

/* Sets the sizes at which the protocol of a message changes.
 *
 * They were measured with tests/transport/bench_shm.c. The best value depends on two things: whether the two cores
 * share a cache, and whether the bytes are new to the reader's cache. These values lie in between. A message that fits
 * into the units is copied through them, because such a send needs no answer from the receiver. With more ranks than
 * cores, each answer costs a context switch. Longer runs use fewer cells. Shorter runs let the reader start sooner. */
enum {
	SHM_RUN_BYTES = SHM_RUN_UNITS * SHM_UNIT_BYTES, /* bytes of the longest run of units */
	SHM_BULK_RUN_BYTES = SHM_BULK_RUN_UNITS * SHM_BULK_UNIT_BYTES,
	SHM_CONTIGUOUS_BYTES = SHM_CONTIGUOUS_UNITS * SHM_BULK_UNIT_BYTES,
	/* Messages from this size use the longest bulk runs, smaller ones half of that. */
	SHM_LONG_BYTES = 256 << 10,
	/* From this size messages go through bulk units, or are read directly by a thread of this process. */
	SHM_BULK_MIN = 3 * SHM_RUN_BYTES + 1,
	/* From this size arena memory is borrowed. Below, a copy costs less than waiting for the release. */
	SHM_ARENA_MIN = SHM_BULK_MIN,
	/* The same for a sender that has its own core and waits for an answer anyway. */
	SHM_ARENA_EXCHANGE_MIN = 2049,
	/* The sender prefetches for writing: unit lines up to this size, and up to this many cells. */
	SHM_PREFETCHW_BYTES = 1024,
	SHM_PREFETCHW_CELLS = 2,
	/* Traffic is one-way after this many short sends in a row without a received message. */
	SHM_ONE_WAY_AFTER = 3,
	/* The receiver prefetches messages up to this size, after this many early ones in a row. */
	SHM_PREFETCH_BYTES = 1024,
	SHM_PREFETCH_AFTER = 3,
	SHM_TUNED_MIN = 8 << 10,            /* from this size CMA is measured and may be chosen */
	SHM_COOP_MIN = 64 << 10,            /* from this size both ends copy a borrowed one-way message */
	SHM_PUT_MIN = SHM_BULK_MIN,         /* receives from this size publish an RTR */
	SHM_PUT_MAX = 1 << 20,              /* the sender puts messages up to this size, each in one call */
	SHM_REVOKE_TIMEOUT_NS = 1000000000, /* how long a closing end waits for a peer's write to end */
	SHM_SLICE_BYTES = 4 << 20,          /* limit of bytes read from the peer in one call of progress() */
	SHM_COOP_CLAIM_UNITS = 16,          /* largest claim of one end of a cooperative copy: 1 MiB */
	SHM_COOP_ALONE_UNITS = 4,           /* a single message of fewer units is read by the receiver alone */
	SHM_RUNS_PER_CALL = 8,              /* limit of runs of a long message in one call of progress() */
	SHM_IDLE_POLLS = 2048               /* empty calls of progress() before a check that the peer is alive */
};

/* Carries what an end tells the other over the socket: hello from the dialer, reply from the acceptor, done from the
 * dialer. See shm_connect.c. */
struct shm_hello {
	uint64_t magic;
	uint32_t type;
	uint32_t flags;
	uint64_t nonce;          /* the value at nonce_address, which proves that the peer's memory can be read */
	uint64_t nonce_address;
	uint64_t region;         /* reply to a thread of the same process: address of the mapping */
	/* Reply and done to a thread of the same process: a struct collet_arena_map with a reference for the
	 * receiver. */
	uint64_t arena;
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
	enum shm_protocol protocol; /* 0 if none. SHM_RING and SHM_BULK expect runs; the others are read in slices */
	bool is_dropped;         /* its receive has completed with a mismatch; the bytes are discarded */
	bool is_coop;            /* the sender copies a part of it too; claimed_units counts then, not done_bytes */
	uint32_t token;
	const unsigned char *source;
	uint64_t bytes, done_bytes;
	uint64_t claimed_units;  /* units that this end has claimed */
};

/* Holds what is learnt about the calls of one class; see shm_tuning.c. */
struct shm_tuning {
	struct shm_trials trials;
	bool is_exchange;        /* the other end sends in these calls too */
	uint8_t used;            /* protocols used by CMA-capable messages since the last call ended: a bit mask */
};

enum { SHM_COST_MAX = INT32_MAX };

struct shm_endpoint {
	struct collet_endpoint endpoint;
	enum shm_state state;
	uint32_t empty_polls;                    /* empty calls of progress() since the last completion */
	bool is_peer_gone;                       /* the socket has hung up, or the peer has closed */
	bool is_peeked;                          /* peek() was called since the last posted receive */
	bool is_same_process;
	bool is_read_by_peer;                    /* the peer can read this process's memory */
	bool is_mapped_by_peer;                  /* the peer has mapped this rank's arena */
	bool has_membarrier;                     /* the end that goes to sleep runs membarrier: see shm_publish() */
	uint64_t bulk_min, arena_min;            /* SHM_BULK_MIN and SHM_ARENA_MIN; benchmarks set others */
	uint64_t attach_min;                     /* COLLET_SHM_ATTACH_MIN: from this size always CMA */
	bool is_tuned;                           /* the default: CMA is used where it is measured to be faster */

	struct shm_region *region;
	struct shm_side *mine, *theirs;

	/* Sending. */
	struct shm_cell *out_cells;
	unsigned char (*out_units)[SHM_UNIT_BYTES];
	unsigned char (*out_bulk)[SHM_BULK_UNIT_BYTES];
	uint64_t out_next;                       /* number of cells filled so far */
	uint64_t out_consumed;                   /* number of them that the peer had consumed when last read */
	uint64_t out_units_used, out_units_freed; /* a bit per unit; units_freed as last read from the peer */
	uint64_t out_bulk_used, out_bulk_freed;  /* the same for bulk units */
	uint64_t tokens_used, tokens_done;       /* a bit per token; tokens_done as last read from the peer */
	uint64_t tokens_borrowed;                /* a bit per token: the peer holds the buffer in borrowed[token] */
	struct collet_transfer *borrowed[SHM_TOKENS];
	uint64_t tokens_coop;                    /* a bit per token: offered for a cooperative copy */
	bool is_write_denied;                    /* process_vm_writev() to the peer has failed */
	struct collet_transfer_queue sends;      /* sends not yet, or not completely, published */
	uint64_t out_messages;                   /* number of messages started so far */
	uint32_t unanswered;                     /* short sends since the last receive, at most SHM_ONE_WAY_AFTER */
	uint64_t sent_bytes;                     /* bytes of the first queued send already published */
	enum shm_protocol sent_protocol;         /* protocol of that send */
	struct shm_cell *in_rtrs;                /* RTR slots that the peer writes */

	/* Receiving. */
	struct shm_cell *in_cells;
	unsigned char (*in_units)[SHM_UNIT_BYTES];
	unsigned char (*in_bulk)[SHM_BULK_UNIT_BYTES];
	uint64_t in_next;                        /* number of cells consumed so far */
	uint64_t in_reported;                    /* the value of in_next last published to the peer */
	uint64_t in_units_freed, in_bulk_freed, in_tokens_done; /* the values last published to the peer */
	uint64_t in_bulk_viewed;                 /* a bit per bulk unit: a view holds it */
	struct collet_transfer_queue receives;
	struct shm_incoming incoming;
	struct shm_cell *out_rtrs;               /* RTR slots that this end writes */
	uint64_t in_posted, in_messages;         /* numbers of receives posted and of messages started so far */
	uint32_t early_count;                    /* messages in a row that had arrived before their receive */
	const struct collet_arena_map *peer_arena;
	pid_t peer_pid;                          /* in this process's pid namespace; 0 if the peer cannot be read */
	uint64_t peer_nonce, peer_nonce_address;

	/* Protocol tuning, if is_tuned. */
	bool is_follower;                        /* in exchanges the other end decides */
	struct shm_tuning tuning[SHM_CALL_CLASSES];
	uint8_t cma_classes[SHM_CALL_CLASSES];   /* the current choice by class; changes only when a call has ended */

	/* Opening, sleeping and closing. */
	int socket;
	int peer_event_fd;
	pid_t owner_pid;                         /* the process that opened it; a forked child must not act for it */
	bool is_in_epoll;
	uint64_t nonce;                          /* the peer reads it to check that it reads the right process */
	struct collet_arena *arena;
	struct collet_arena_map *peer_arena_ref;
	struct collet_wake *wake;
	const struct collet_peer_info *self, *peer;
	const struct collet_log *log;
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
/* True if the memory of pid holds the nonce of the peer's hello. Otherwise errno says why; 0: it is another process. */
bool collet_shm_check_nonce(const struct shm_endpoint *shm, pid_t pid);
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
/* Sends a message that fits into cells or into one run of units, if the queue is empty. */
enum collet_try_result collet_shm_try_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
/* Sends, and completes the sends whose buffers the peer has released. Returns the number of completed sends. */
uint32_t collet_shm_send(struct shm_endpoint *shm);
/* True if collet_shm_send() could make progress. Reads the peer's words with seq_cst. */
bool collet_shm_can_send(const struct shm_endpoint *shm);

/* shm_put.c */
/* Publishes an RTR for the receive that is about to be queued, if the sender may write there. */
void collet_shm_publish_rtr(struct shm_endpoint *shm, struct collet_transfer *transfer);
/* Returns the kind of RTR that was published for a receive. */
static inline enum shm_rtr shm_rtr_of(const struct collet_transfer *transfer)
{
	return (enum shm_rtr)transfer->transport_private[2];
}
/* Returns the RTR slot of the receive with this number (from 1). */
static inline struct shm_cell *shm_rtr_slot(struct shm_cell *rtrs, uint64_t number)
{
	return &rtrs[(number - 1) % SHM_RTR_SLOTS];
}
/* True if the slot holds an RTR of this kind and number for this message. *location is then where it wants the
 * bytes. */
bool collet_shm_match_rtr(const struct shm_cell *slot, uint64_t number, const struct collet_message *message,
	enum shm_rtr kind, uint64_t *location);
/* True if the first send can be put into the peer's arena, where its RTR wants it. */
bool collet_shm_may_put(const struct shm_endpoint *shm);
/* Puts the first send. False if the endpoint has failed. */
bool collet_shm_put(struct shm_endpoint *shm);
/* Brackets an access to the peer's memory for the message of this number. Begin returns false if the peer has closed;
 * the end must be called in both cases. */
bool collet_shm_access_begin(struct shm_endpoint *shm, uint64_t number);
void collet_shm_access_end(struct shm_endpoint *shm);

/* shm_tuning.c */
static inline unsigned shm_call_class(const struct collet_transfer *transfer)
{
	return (uint8_t)(transfer->flags >> COLLET_TRANSFER_CALL_CLASS_SHIFT);
}
/* Records the protocol of a CMA-capable message of this call class. is_exchange: its peer sends too. */
void collet_shm_tuning_sent(struct shm_endpoint *shm, unsigned call_class, bool is_exchange, bool by_cma);
void collet_shm_report_call_time(struct collet_endpoint *endpoint, uint32_t call_class, uint64_t bytes, uint64_t ticks);

/* shm_coop.c */
struct shm_range {
	uint64_t offset, bytes;
};
/* The state of a cooperative copy. */
enum shm_coop_state {
	SHM_COOP_UNCLAIMED,  /* some ranges are not claimed */
	SHM_COOP_WRITING,    /* all ranges are claimed; the sender still writes */
	SHM_COOP_COMPLETE,   /* all bytes have been copied */
	SHM_COOP_FAILED      /* the sender could not write; its claims do not count */
};
/* True if a message of this size in ordinary memory may be copied by both ends, as far as this end knows. False where
 * ranks outnumber cores, because the helper's core then belongs to another rank. */
bool collet_shm_may_coop(const struct shm_endpoint *shm, uint64_t bytes);
/* Claims the next range of the message that this end receives; false if none is left. */
bool collet_shm_claim_range(struct shm_endpoint *shm, struct shm_range *range);
enum shm_coop_state collet_shm_coop_state(const struct shm_endpoint *shm);
/* True if this end can read more of a borrowed message now. */
bool collet_shm_can_read(const struct shm_endpoint *shm);
/* True if the sender would copy a part of a borrowed message of this protocol and size. */
bool collet_shm_may_coop_write(const struct shm_endpoint *shm, enum shm_protocol kind, uint64_t bytes);
/* True if there is a range for this end to write. */
bool collet_shm_can_coop_write(const struct shm_endpoint *shm);
/* Writes ranges of borrowed messages, at most SHM_PUT_MAX bytes or one more range in a call. */
void collet_shm_coop_write(struct shm_endpoint *shm);

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
