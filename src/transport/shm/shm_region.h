/* Lays out the memory that the two ends of an shm endpoint share, and says who writes which part.
 *
 * Each end treats what the other has written as untrusted. It loads each word once and bounds each number before use.
 *
 *	side[i]     what end i publishes: what it has consumed, whether it sleeps, whether it has revoked its memory
 *	rtrs[i]     receives of end i that are ready for the sender to write to
 *	cells[i]    headers of the messages from end i, one cache line each, written by end i alone
 *	small       payload of messages that do not fit into their cells; either end writes the units that it owns
 *	large       payload of longer messages, likewise. Where ranks outnumber cores, also of shorter messages when
 *	            the small units are full
 *
 * A cell is its own flag: its first word is a stamp that contains the cell's position in the stream of cells. So one
 * transfer of one cache line carries flag, header and up to 40 bytes of payload. Up to 168 more bytes follow in the
 * next cells. A receiver that knows what it expects fetches these together with the first one; fetched one after the
 * other, each would cost a cache miss. They have stamps too, so a cell left from an earlier lap is never mistaken for
 * one of them.
 *
 * Payload lies in contiguous runs of units, so a receiver can work on it in place. shm_pool.h says who owns which
 * units. The 64 tokens of borrowed buffers are accounted for by two words with a bit for each. The sender toggles a
 * token's bit in its private word when the peer borrows the buffer, and the receiver toggles the bit in `tokens_done`
 * when it is done. Where the two words agree, the token is free. Each word has one writer, so no read-modify-write is
 * needed. */
#ifndef COLLET_TRANSPORT_SHM_SHM_REGION_H
#define COLLET_TRANSPORT_SHM_SHM_REGION_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SHM_CELLS = 64,
	SHM_CELL_STRIDE = 27,                      /* see shm_cell_at() */
	SHM_CELL_WORDS = 8,
	SHM_CELL_BYTES = 40,                       /* payload bytes in the first cell of a message */
	SHM_NEXT_CELL_BYTES = 56,                  /* payload bytes in each of the next cells */
	SHM_INLINE_BYTES = SHM_CELL_BYTES + 3 * SHM_NEXT_CELL_BYTES,
	SHM_SMALL_UNIT_COUNT = 48,
	SHM_SMALL_UNIT_BYTES = 1024,
	SHM_LARGE_UNIT_COUNT = 64,
	SHM_LARGE_UNIT_BYTES = 16 * 1024,
	SHM_RUN_UNITS = 8,                         /* longest run */
	SHM_IDLE_AFTER = 16,                       /* runs read without a send, after which an end is idle */
	SHM_RESERVE_UNITS = 2,                     /* of each end, see shm_pool.h */
	SHM_COPIED_RUN_UNITS = 4,                  /* longest run of large units whose message is copied run by run */
	SHM_SMALL_RUN_BYTES = 2 * SHM_SMALL_UNIT_BYTES,
	SHM_LARGE_RUN_BYTES = SHM_RUN_UNITS * SHM_LARGE_UNIT_BYTES,
	SHM_COPIED_RUN_BYTES = SHM_COPIED_RUN_UNITS * SHM_LARGE_UNIT_BYTES,
	SHM_TOKENS = 64,
	SHM_RTR_SLOTS = 16,                        /* RTRs outstanding at a time */
	SHM_REGION_BASE_BYTES = 64 * 1024,         /* memory of an endpoint before its first long message */
	/* Memory of an endpoint at most; pages exist once touched. */
	SHM_REGION_BYTES = SHM_REGION_BASE_BYTES + SHM_LARGE_UNIT_COUNT * SHM_LARGE_UNIT_BYTES
};

/* Each kind of unit is a pool of its own. */
enum shm_pool_kind { SHM_SMALL_UNITS, SHM_LARGE_UNITS, SHM_POOLS };

/* Says how the bytes of a message travel, or that a cell continues a message. In UCX's words SHM_INLINE is short,
 * the runs are bcopy, SHM_ARENA and SHM_CMA are zcopy by get, and SHM_PUT is a put. */
enum shm_protocol {
	SHM_INLINE = 1,  /* in the cell and the following ones */
	SHM_SMALL_RUN,   /* the first bytes, or all, in a run of small units */
	SHM_LARGE_RUN,   /* the same in a run of large units */
	SHM_NEXT_RUN,    /* no message: the next run of the current message */
	SHM_ARENA,       /* in the sender's arena, which the receiver has mapped */
	SHM_CMA,         /* in the sender's memory, which the kernel lets the receiver read (cross-memory attach) */
	SHM_PUT,         /* in the receive buffer: the sender has put them there */
	SHM_NEXT_CELL    /* no message: more bytes of the preceding SHM_INLINE */
};

/* True if the bytes arrive in runs of units. */
static inline bool shm_uses_runs(enum shm_protocol protocol)
{
	return protocol == SHM_SMALL_RUN || protocol == SHM_LARGE_RUN;
}

/* Returns the pool of such a run. */
static inline enum shm_pool_kind shm_pool_of(enum shm_protocol protocol)
{
	return protocol == SHM_LARGE_RUN ? SHM_LARGE_UNITS : SHM_SMALL_UNITS;
}

/* A cell, or an RTR slot.
 *
 * The words of a cell:
 * word[0]  bits 0..31: position + 1; bits 32..39: enum shm_protocol; bits 40..47: bytes, if SHM_INLINE;
 *          bits 48..63: the sender's collet_wake.shared_cpu, a hint
 * word[1]  signature
 * word[2]  sequence
 * word[3]  SHM_INLINE: payload, to word[7]; else bytes
 * word[4]  runs: bits 0..31 first unit, bits 32..63 bytes of this run; SHM_ARENA: offset; SHM_CMA: address
 * word[5]  runs: 1 if they were written past the sender's caches, else 0; SHM_ARENA, SHM_CMA: token
 * SHM_NEXT_CELL has payload from word[1] on. It is written before the cell of its SHM_INLINE.
 *
 * An RTR slot has the same layout. The receiver writes it. The i-th message belongs to the i-th receive, and so to its
 * slot:
 * word[0]  the number of the receive, counted from 1 since the endpoint was opened
 * word[1]  signature
 * word[2]  sequence
 * word[3]  bytes
 * word[4]  offset in its arena
 * Accesses are relaxed, except word[0], whose store publishes the rest. */
struct shm_cell {
	alignas(64) _Atomic uint64_t word[SHM_CELL_WORDS];
};

/* Returns the cell of a position. Consecutive cells are not neighbours in memory. A processor prefetches neighbouring
 * lines, so reading one message would pull the next cell's line away from the core that is about to fill it. */
static inline struct shm_cell *shm_cell_at(struct shm_cell *cells, uint64_t position)
{
	return &cells[position * SHM_CELL_STRIDE % SHM_CELLS];
}

struct shm_side {
	/* Written for each message that is not inline. The other end reads them when it needs room or waits for a
	 * buffer. */
	/* The other end's cells that this end has consumed; stored every quarter of a lap. */
	alignas(64) _Atomic uint64_t cells_consumed;
	/* Toggled bits of the units that this end has given back, by pool, and of the other end's tokens that it has
	 * released. */
	_Atomic uint64_t returned[SHM_POOLS];
	_Atomic uint64_t tokens_done;
	/* Number of the message that this end puts into the other's memory right now; 0 if none. */
	_Atomic uint64_t accessing;
	/* The other end reads it after each store that it publishes. Cleared by the owner, or by the end that wakes
	 * it. */
	alignas(64) _Atomic uint32_t sleeping;
	/* Set once: the other end must not access this end's memory any more, and this end accesses no more. */
	alignas(64) _Atomic uint32_t closed;
};

struct shm_region {
	alignas(64) _Atomic uint32_t refcount;      /* ends that use this mapping: 1, or 2 in one process */
	struct shm_side side[2];                    /* 0: the end that dialed */
	struct shm_cell rtrs[2][SHM_RTR_SLOTS];
	alignas(4096) struct shm_cell cells[2][SHM_CELLS];
	unsigned char small[SHM_SMALL_UNIT_COUNT][SHM_SMALL_UNIT_BYTES];
	alignas(4096) unsigned char large[SHM_LARGE_UNIT_COUNT][SHM_LARGE_UNIT_BYTES];
};

static_assert(sizeof(struct shm_cell) == 64, "one cache line");
static_assert(
	sizeof(struct shm_region) <= SHM_REGION_BYTES && offsetof(struct shm_region, large) <= SHM_REGION_BASE_BYTES,
	"memory of an endpoint");
static_assert(SHM_SMALL_UNIT_COUNT <= 64 && SHM_LARGE_UNIT_COUNT <= 64 && SHM_TOKENS == 64, "one bit each in a word");
static_assert((SHM_CELLS & (SHM_CELLS - 1)) == 0 && SHM_CELL_STRIDE % 2,
	"positions wrap with the stamp, and each has a cell of its own");

/* Returns a mask of count bits from bit `first` on. */
static inline uint64_t shm_bits(unsigned first, unsigned count)
{
	return (count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX) << first;
}

/* Returns the first bit of the lowest run of count ones in free; -1 if there is none. */
static inline int shm_find_run(uint64_t free, unsigned count)
{
	/* Bit i of runs is set if the `length` bits from i on are all ones. */
	uint64_t runs = free;
	for (unsigned length = 1; length < count;) {
		const unsigned step = length < count - length ? length : count - length;
		runs &= runs >> step;
		length += step;
	}
	return runs ? __builtin_ctzll(runs) : -1;
}

#endif
