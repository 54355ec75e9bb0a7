/* One end of an shm conduit, as its own files share it. */
#ifndef COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H
#define COLLET_TRANSPORT_SHM_SHM_ENDPOINT_H

#include <sys/types.h>

#include "transport/arena.h"
#include "transport/registry.h"
#include "transport/shm/shm_region.h"

/* Which way a message goes, by its size. Measured with tests/transport/bench_shm.c, where the answer depends on whether
 * the two cores share a cache and on whether the bytes are new to the reader's: these are in between. What fits into
 * the units goes through them, since such a send needs no answer: with more ranks than cores, answers cost a switch
 * each. Longer runs cost fewer cells, shorter ones let the reader begin sooner. */
enum {
	SHM_RUN_BYTES = SHM_RUN_UNITS * SHM_UNIT_BYTES, /* at most in one run */
	SHM_BULK_RUN_BYTES = SHM_BULK_RUN_UNITS * SHM_BULK_UNIT_BYTES,
	SHM_CONTIGUOUS_BYTES = SHM_CONTIGUOUS_UNITS * SHM_BULK_UNIT_BYTES,
	SHM_LONG_BYTES = 256 << 10,                     /* from here on in the longest runs, below in half of that */
	SHM_BULK_MIN = 3 * SHM_RUN_BYTES + 1,           /* from here on through the bulk units, or lent to a thread */
	SHM_ARENA_MIN = SHM_BULK_MIN,                   /* in its arena; getting less back is dearer than copying */
	SHM_ARENA_EXCHANGE_MIN = 2049,                  /* the same if the sender has a core and waits anyway; */
	SHM_PREFETCHW_BYTES = 1024,                     /* up to here the next message's lines are fetched ahead, */
	SHM_PREFETCHW_CELLS = 2,                        /* or, of one in cells, up to so many of these; */
	SHM_ONE_WAY_AFTER = 3,                          /* after so many in a row without one that came, another's; */
	SHM_PREFETCH_BYTES = 1024,                      /* likewise those of one that has come unasked for, */
	SHM_PREFETCH_AFTER = 3,                         /* if as many in a row had come by then */
	SHM_TUNED_MIN = 8 << 10,                        /* from here on the kernel's way is measured, perhaps taken */
	SHM_COOP_MIN = 64 << 10,                        /* from here on both ends move what is lent and goes one way */
	SHM_PUT_MIN = SHM_BULK_MIN,                     /* from here on receives tell where they want their bytes, */
	SHM_PUT_MAX = 1 << 20,                          /* up to here they are written there, in one go, */
	SHM_REVOKE_TIMEOUT_NS = 1000000000,             /* how long who closes waits for a write to end */
	SHM_SLICE_BYTES = 4 << 20,                      /* read from the peer in one call of progress() at most */
	SHM_COOP_CLAIM_UNITS = 16,                      /* and taken at most by either end that moves it: 1 MiB; */
	SHM_COOP_ALONE_UNITS = 4,                       /* fewer, and no other message with them, are read alone */
	SHM_RUNS_PER_CALL = 8,                          /* of a long message, in one call of progress() at most */
	SHM_IDLE_POLLS = 2048                           /* calls of progress() in vain until the peer is looked for */
};

/* What an end says of itself over the socket, first the dialer (hello), then the other (reply), then the dialer again
 * (done); see shm_connect.c. */
struct shm_hello {
	uint64_t magic;
	uint32_t type;
	uint32_t flags;
	uint64_t nonce;          /* what is to be found at nonce_address if the peer's memory can be read */
	uint64_t nonce_address;
	uint64_t region;         /* reply to a thread of the same process: the mapping */
	uint64_t arena;          /* reply, done to a thread of the same process: struct collet_arena_map, held for it */
};

enum { SHM_HELLO_DESCRIPTORS = 3 };

enum shm_state {
	SHM_CLOSED,         /* also: zeroed */
	SHM_SEND_HELLO,     /* dialer */
	SHM_AWAIT_REPLY,
	SHM_AWAIT_HELLO,    /* the other */
	SHM_AWAIT_DONE,
	SHM_READY
};

/* The message that is being received; it belongs to the first receive, unless it is being dropped. */
struct shm_incoming {
	enum shm_protocol protocol; /* 0: none. SHM_RING, SHM_BULK: its runs; else its slices */
	bool is_dropped;         /* nobody wants it: its receive has settled with a mismatch */
	bool is_coop;            /* its sender moves a part of it, too: then units count, not done */
	uint32_t token;
	const unsigned char *source;
	uint64_t bytes, done_bytes;
	uint64_t claimed_units;  /* that this end has taken */
};

/* Of calls of one number: see shm_tuning.c. */
struct shm_tuning {
	struct shm_trials trials;
	bool is_exchange;        /* the other end sends in them, too */
	uint8_t used;            /* how what could be read went since the last call ended, as bits */
};

enum { SHM_COST_MAX = INT32_MAX };

struct shm_endpoint {
	struct collet_endpoint endpoint;
	enum shm_state state;
	uint32_t empty_polls;                    /* calls of progress() in vain */
	bool is_peer_gone;                       /* the socket has hung up, or the peer has closed */
	bool is_peeked;                          /* since the last receive was posted: what arrives is waited for */
	bool is_same_process;
	bool is_read_by_peer;                    /* the peer can read this process's memory */
	bool is_mapped_by_peer;                  /* the peer has mapped this rank's arena */
	bool has_membarrier;                     /* whoever goes to sleep fences the other: see shm_tell() */
	uint64_t bulk_min, arena_min;            /* SHM_BULK_MIN, SHM_ARENA_MIN; measurements try others */
	uint64_t attach_min;                     /* COLLET_SHM_ATTACH_MIN: from here on left with the sender, and read
	                                          * by the receiver, whatever it takes */
	bool is_tuned;                           /* by default: if that is cheaper */

	struct shm_region *region;
	struct shm_side *mine, *theirs;

	/* Sending. */
	struct shm_cell *out_cells;
	unsigned char (*out_units)[SHM_UNIT_BYTES];
	unsigned char (*out_bulk)[SHM_BULK_UNIT_BYTES];
	uint64_t out_next;                       /* cells filled so far */
	uint64_t out_consumed;                   /* of these taken by the peer, as last seen */
	uint64_t out_units_used, out_units_freed;/* a bit a unit; second: as last seen */
	uint64_t out_bulk_used, out_bulk_freed;  /* the same of bulk units */
	uint64_t tokens_used, tokens_done;       /* a bit a token; second: as last seen */
	uint64_t tokens_borrowed;                /* a bit a token: has an owner in lent */
	struct collet_transfer *borrowed[SHM_TOKENS];
	uint64_t tokens_coop;                    /* a bit a token: was said to be moved by both ends when it was lent */
	bool is_write_denied;                    /* the kernel does not let this end write the peer's memory */
	struct collet_transfer_queue sends;      /* not, or not wholly, published yet */
	uint64_t out_messages;                   /* begun so far */
	uint32_t unanswered;                     /* short ones since one has come, up to SHM_ONE_WAY_AFTER */
	uint64_t sent_bytes;                     /* of the first of them, */
	enum shm_protocol sent_protocol;         /* which travels so */
	struct shm_cell *in_rtrs;                /* the peer's */

	/* Receiving. */
	struct shm_cell *in_cells;
	unsigned char (*in_units)[SHM_UNIT_BYTES];
	unsigned char (*in_bulk)[SHM_BULK_UNIT_BYTES];
	uint64_t in_next;                        /* cells taken so far */
	uint64_t in_reported;                    /* as last told to the peer */
	uint64_t in_units_freed, in_bulk_freed, in_tokens_done; /* what this end has told */
	uint64_t in_bulk_viewed;                 /* a bit a bulk unit: a view holds it */
	struct collet_transfer_queue receives;
	struct shm_incoming incoming;
	struct shm_cell *out_rtrs;
	uint64_t in_posted, in_messages;         /* receives posted, and messages that have come for them, so far */
	uint32_t early_count;                    /* messages in a row that had come when they were asked for */
	const struct collet_arena_map *peer_arena;
	pid_t peer_pid;                          /* in this process's pid namespace */
	uint64_t peer_nonce, peer_nonce_address;

	/* Learning which way is better, if it measures. */
	bool is_follower;                        /* in exchanges, the other end decides, if it sends any */
	struct shm_tuning tuning[SHM_CALL_CLASSES];
	uint8_t cma_classes[SHM_CALL_CLASSES];   /* as wanted now: changes only when a call has ended */

	/* The rest is for opening, sleeping and closing. */
	int socket;
	int peer_event_fd;
	pid_t owner_pid;                         /* the process that opened it: a forked child must not act for it */
	bool is_in_epoll;
	uint64_t nonce;                          /* read by the peer, to see that it reads the right process */
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

/* Counters may be read by another thread at any time, so they are stored whole. */
static inline void shm_count(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

/* Do ranks outnumber cores? */
static inline bool shm_is_oversubscribed(const struct shm_endpoint *shm)
{
	return shm->wake->shared_cpu != 0;
}

/* shm_hello.c */
collet_status collet_shm_fail_peer(const struct shm_endpoint *shm, collet_status status, const char *what);
/* The same with the system's words (errno); COLLET_ERR_SYSTEM. */
collet_status collet_shm_fail_system(const struct shm_endpoint *shm, const char *what);
/* COLLET_PENDING when the socket has no room. */
collet_status collet_shm_send_hello(const struct shm_endpoint *shm, const struct shm_hello *hello, const int *fds,
	uint32_t count);
/* Reads on until shm->inbox holds a whole hello; COLLET_PENDING until then. */
collet_status collet_shm_receive_hello(struct shm_endpoint *shm);
/* The next descriptor that came, once, now the caller's; -1 if there is none. *next begins at 0. */
int collet_shm_next_descriptor(struct shm_endpoint *shm, uint32_t *next);
/* Those that nobody took. */
void collet_shm_close_descriptors(struct shm_endpoint *shm);

/* shm_connect.c */
collet_status collet_shm_open(struct collet_endpoint *endpoint, const struct collet_endpoint_config *config);
collet_status collet_shm_open_progress(struct collet_endpoint *endpoint);
/* Lets go of socket, descriptors and mappings, and of what the peer may have sent and nobody read. */
void collet_shm_free_resources(struct shm_endpoint *shm, bool forked);

/* shm_send.c */
/* Publishes what there is room for; a bounded share of a long message, however fast the peer reads. */
void collet_shm_send_some(struct shm_endpoint *shm);
/* A message that fits into cells or into one run of units, with nothing in its way. */
enum collet_try_result collet_shm_try_send(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
/* Also collects what was lent; returns how many sends were settled. */
uint32_t collet_shm_send(struct shm_endpoint *shm);
/* Could collet_shm_send() do something? Reads what the peer has published with seq_cst. */
bool collet_shm_can_send(const struct shm_endpoint *shm);

/* shm_put.c */
/* Tells the sender where the receive that is about to be queued wants its bytes, if it may write there. */
void collet_shm_publish_rtr(struct shm_endpoint *shm, struct collet_transfer *transfer);
/* What it has been told. */
static inline enum shm_rtr shm_rtr_of(const struct collet_transfer *transfer)
{
	return (enum shm_rtr)transfer->transport_private[2];
}
/* The line of the receive of this number, from 1 on. */
static inline struct shm_cell *shm_rtr_slot(struct shm_cell *rtrs, uint64_t number)
{
	return &rtrs[(number - 1) % SHM_RTR_SLOTS];
}
/* Is that what the receive of this number, whose line it is, waits for? *where is what it says of its place. */
bool collet_shm_match_rtr(const struct shm_cell *slot, uint64_t number, const struct collet_message *message,
	enum shm_rtr kind, uint64_t *location);
/* May the first send, the next message, be written to where the peer wants it, which is in its arena? */
bool collet_shm_may_put(const struct shm_endpoint *shm);
/* Writes it there. False: the conduit has failed. */
bool collet_shm_put(struct shm_endpoint *shm);
/* This end touches the peer's memory, for the message of this number, from here, if the peer lets it, to there. */
bool collet_shm_access_begin(struct shm_endpoint *shm, uint64_t number);
void collet_shm_access_end(struct shm_endpoint *shm);

/* shm_tuning.c */
static inline unsigned shm_call_class(const struct collet_transfer *transfer)
{
	return (uint8_t)(transfer->flags >> COLLET_TRANSFER_CALL_CLASS_SHIFT);
}
/* A message of this call, which could be read, goes so, or does not. mutual: its peer sends, too. */
void collet_shm_tuning_sent(struct shm_endpoint *shm, unsigned call_class, bool is_exchange, bool by_cma);
void collet_shm_report_call_time(struct collet_endpoint *endpoint, uint32_t call_class, uint64_t bytes, uint64_t ticks);

/* shm_coop.c */
struct shm_range {
	uint64_t offset, bytes;
};
/* How a message that is shared stands. */
enum shm_coop_state {
	SHM_COOP_UNCLAIMED,  /* pieces are left to be taken */
	SHM_COOP_WRITING,    /* the sender still writes */
	SHM_COOP_COMPLETE,   /* it is all there */
	SHM_COOP_FAILED      /* the sender could not write: nothing that it has taken counts */
};
/* May ordinary memory of so many bytes be moved by both ends, as far as this one knows? Not where ranks outnumber
 * cores: the core of who helps is somebody else's then. */
bool collet_shm_may_coop(const struct shm_endpoint *shm, uint64_t bytes);
/* The receiver: the next piece to read of the message that is being read; false: none is left. */
bool collet_shm_claim_range(struct shm_endpoint *shm, struct shm_range *range);
enum shm_coop_state collet_shm_coop_state(const struct shm_endpoint *shm);
/* Is there something lent that this end can go on with by itself? */
bool collet_shm_can_read(const struct shm_endpoint *shm);
/* The sender: would it move a part of so many bytes that it lends so? */
bool collet_shm_may_coop_write(const struct shm_endpoint *shm, enum shm_protocol kind, uint64_t bytes);
/* Is there a piece for this end to write? */
bool collet_shm_can_coop_write(const struct shm_endpoint *shm);
/* Writes pieces of what it has lent; a bounded share in a call. */
void collet_shm_coop_write(struct shm_endpoint *shm);

/* shm_receive.c */
/* Returns how many receives were settled. What the peer has lent is read only if it is said here: whoever has just
 * posted a receive may have something to post that the peer waits for, and would keep it waiting for a whole copy. */
uint32_t collet_shm_receive(struct shm_endpoint *shm, bool may_read);
enum collet_try_result collet_shm_try_recv(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
bool collet_shm_is_recv_ready(struct collet_endpoint *endpoint, uint64_t bytes);
void collet_shm_release_view(struct collet_endpoint *endpoint, struct collet_transfer *transfer);
bool collet_shm_peek(struct collet_endpoint *endpoint, struct collet_message *message);
/* Is there a cell that has not been taken? With seq_cst, for the same purpose. */
bool collet_shm_has_next_cell(const struct shm_endpoint *shm);

/* shm.c */
/* Ends the conduit: takes this rank's memory back, settles everything lent. Returns how many that were. */
uint32_t collet_shm_fail(struct shm_endpoint *shm, collet_status status);
/* The same because the peer is gone; why: "has closed its connection". */
uint32_t collet_shm_lose_peer(struct shm_endpoint *shm, const char *why);
/* The peer, for sentences: "rank 3 on node7 (pid 1234)". The buffer is the caller's. */
const char *collet_shm_peer_name(const struct shm_endpoint *shm, char *text, size_t bytes);

/* Publishes what the peer may be waiting for, and wakes it if it sleeps. Release, pairing with the peer's acquire of
 * the same word.
 *
 * Of the two ends at least one must see the other: whoever tells stores the word and then loads `sleeping`, whoever
 * goes to sleep stores `sleeping` and then loads the words (arm()); on both sides the load must not be done before the
 * store is seen. Told with seq_cst that costs the teller, at each message, to wait until the line is its own, a trip to
 * the other core. So where the kernel offers it the one that goes to sleep, which is in no hurry, has it run a barrier
 * on all cores where the other may be (membarrier), and the teller needs none. */
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
