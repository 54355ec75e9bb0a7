/* Lays out the memory that the two ends of an shm endpoint share, and says who writes which part.
 *
 * Each end treats what the other has written as untrusted. It loads each word once and bounds each number before use.
 *
 *	side[i]     what end i publishes: what it has consumed, whether it sleeps, whether it has revoked its memory
 *	rtrs[i]     receives of end i that are ready for the sender to write to
 *	cells[i]    headers of the messages from end i, one cache line each, written by end i alone
 *	units[i]    payload of those of its messages that do not fit into their cells
 *	bulk[i]     payload of longer messages, in larger units with their own bit masks. Where ranks outnumber cores,
 *	            also of shorter messages for which units[] has no room
 *
 * A cell is its own flag: its first word is a stamp that contains the cell's position in the stream of cells. So one
 * transfer of one cache line carries flag, header and up to 40 bytes of payload. Up to 168 more bytes follow in the
 * next cells. A receiver that knows what it expects fetches these together with the first one; fetched one after the
 * other, each would cost a cache miss. They have stamps too, so a cell left from an earlier lap is never mistaken for
 * one of them.
 *
 * Payload lies in contiguous runs of units, so a receiver can work on it in place. Runs are released one by one, in any
 * order: a view that is held for long keeps only its own units. Two words with a bit per unit keep the account. The
 * sender toggles a unit's bit in its private word when it fills the unit. The receiver toggles the bit in `units_freed`
 * when it is done. Where the two words agree, the unit is free. Each word has one writer, so no read-modify-write is
 * needed. The 64 tokens of borrowed buffers are accounted for in the same way.
 *
 * A receive with a view leaves the bytes in place only in units below SHM_PINNABLE_UNITS; the others are always copied
 * out. It leaves bytes in bulk units only if a longest run without views remains. So the longest run becomes free
 * whatever views are held. */
#ifndef COLLET_TRANSPORT_SHM_SHM_REGION_H
#define COLLET_TRANSPORT_SHM_SHM_REGION_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/shm/shm_trials.h"

enum {
	SHM_CELLS = 64,
	SHM_CELL_STRIDE = 27,                      /* see shm_cell_at() */
	SHM_CELL_WORDS = 8,
	SHM_CELL_BYTES = 40,                       /* payload bytes in the first cell of a message */
	SHM_NEXT_CELL_BYTES = 56,                  /* payload bytes in each of the next cells */
	SHM_INLINE_BYTES = SHM_CELL_BYTES + 3 * SHM_NEXT_CELL_BYTES,
	SHM_UNITS = 52,
	SHM_UNIT_BYTES = 512,
	SHM_RUN_UNITS = 16,                        /* longest run */
	SHM_PINNABLE_UNITS = SHM_UNITS - SHM_RUN_UNITS,
	SHM_BULK_UNITS = 64,
	SHM_BULK_UNIT_BYTES = 8192,
	SHM_BULK_RUN_UNITS = 4,                    /* longest run of a message that is copied run by run */
	SHM_CONTIGUOUS_UNITS = 32,                 /* longest run of a message that is one run, for a view */
	SHM_TOKENS = 64,
	SHM_RTR_SLOTS = 16,                        /* RTRs outstanding at a time */
	SHM_COOP_UNIT_BYTES = 64 * 1024,           /* cooperative copies count in units of this size */
	SHM_COOP_BITS = 24,                        /* bits of a word for that count; above it is the message's number */
	SHM_COOP_UNITS_FAILED = 1 << (SHM_COOP_BITS - 1), /* this count means that the sender cannot write */
	SHM_REGION_BASE_BYTES = 64 * 1024,         /* memory of an endpoint before its first long message */
	/* Memory of an endpoint at most; pages exist once touched. */
	SHM_REGION_BYTES = SHM_REGION_BASE_BYTES + 2 * SHM_BULK_UNITS * SHM_BULK_UNIT_BYTES
};

/* Says how the bytes of a message travel, or that a cell continues a message. In UCX's words SHM_INLINE is short,
 * SHM_RING and SHM_BULK are bcopy. SHM_CMA, SHM_SAME_PROCESS and SHM_ARENA are zcopy by get, SHM_PUT is a put. */
enum shm_protocol {
	SHM_INLINE = 1,  /* in the cell and the following ones */
	SHM_RING,        /* the first bytes, or all, in a run of units */
	SHM_BULK,        /* the same in a run of bulk units */
	SHM_NEXT_RUN,    /* no message: the next run of the current message */
	SHM_CMA,         /* in the sender's memory, read by process_vm_readv (cross-memory attach) */
	SHM_SAME_PROCESS, /* in the memory of a sender that is a thread of this process */
	SHM_ARENA,       /* in the sender's arena, which the receiver has mapped */
	SHM_PUT,         /* in the receive buffer: the sender has put them there */
	SHM_NEXT_CELL    /* no message: more bytes of the preceding SHM_INLINE */
};

/* True if the bytes arrive in runs of units. */
static inline bool shm_uses_runs(enum shm_protocol protocol)
{
	return protocol == SHM_RING || protocol == SHM_BULK;
}

/* True if the bytes stay in the sender's memory until the receiver has read them. */
static inline bool shm_is_borrowed(enum shm_protocol protocol)
{
	return protocol == SHM_CMA || protocol == SHM_SAME_PROCESS || protocol == SHM_ARENA;
}

/* A cell, or an RTR slot.
 *
 * The words of a cell:
 * word[0]  bits 0..31: position + 1; bits 32..39: enum shm_protocol; bits 40..47: bytes, if SHM_INLINE;
 *          bits 48..63: the sender's collet_wake.shared_cpu, a hint
 * word[1]  signature
 * word[2]  sequence
 * word[3]  SHM_INLINE: payload, to word[7]; else bytes
 * word[4]  SHM_RING, SHM_BULK, SHM_NEXT_RUN: bits 0..31 first unit, bits 32..63 bytes of this run
 *          SHM_CMA, SHM_SAME_PROCESS: address; SHM_ARENA: offset
 * word[5]  SHM_CMA, SHM_SAME_PROCESS, SHM_ARENA: bits 0..31 token
 *          SHM_CMA, SHM_SAME_PROCESS: bit 32: the sender would copy a part itself (shm_coop.c)
 * SHM_NEXT_CELL has payload from word[1] on. It is written before the cell of its SHM_INLINE.
 *
 * An RTR slot has the same layout. The receiver writes it, except for the last two words. The i-th message belongs to
 * the i-th receive, and so to its slot:
 * word[0]  the number of the receive, counted from 1 since the endpoint was opened
 * word[1]  signature
 * word[2]  sequence
 * word[3]  bytes
 * word[4]  offset in its arena, or address
 * word[5]  enum shm_rtr: which of the two
 * word[6]  SHM_RTR_ADDRESS: shm_coop_word(): units that either end has claimed (shm_coop.c)
 * word[7]  the same: units that the sender has written; or SHM_COOP_UNITS_FAILED
 * Accesses are relaxed, except word[0], whose store publishes the rest, and the last two words. */
struct shm_cell {
	alignas(64) _Atomic uint64_t word[SHM_CELL_WORDS];
};

/* Returns the cell of a position. Consecutive cells are not neighbours in memory. A processor prefetches neighbouring
 * lines, so reading one message would pull the next cell's line away from the core that is about to fill it. */
static inline struct shm_cell *shm_cell_at(struct shm_cell *cells, uint64_t position)
{
	return &cells[position * SHM_CELL_STRIDE % SHM_CELLS];
}

enum shm_rtr { SHM_RTR_NONE, SHM_RTR_ARENA, SHM_RTR_ADDRESS };

/* Packs the number of a message and a count of its units into one word. */
static inline uint64_t shm_coop_word(uint64_t number, uint64_t units)
{
	return number << SHM_COOP_BITS | units;
}

/* Returns the units in a word that belongs to the message of this number; else more than any message has. */
static inline uint64_t shm_coop_units(uint64_t word, uint64_t number)
{
	return word - shm_coop_word(number, 0);
}

struct shm_side {
	/* Written for each message that is not inline. The other end reads them when it needs room or waits for a
	 * buffer. */
	/* The other end's cells that this end has consumed; stored every quarter of a lap. */
	alignas(64) _Atomic uint64_t cells_consumed;
	/* Toggled bits of the other end's units, bulk units and tokens that this end has released. */
	_Atomic uint64_t units_freed;
	_Atomic uint64_t bulk_freed;
	_Atomic uint64_t tokens_done;
	/* Number of the message for which this end reads (one process) or writes the other's memory right now; 0 if
	 * none. */
	_Atomic uint64_t accessing;
	/* The other end reads it after each store that it publishes. Cleared by the owner, or by the end that wakes
	 * it. */
	alignas(64) _Atomic uint32_t sleeping;
	/* Set once: the other end must not access this end's memory any more, and this end accesses no more. */
	alignas(64) _Atomic uint32_t closed;
	/* By call class, see shm_trials.h: the time of the last call at this end (ticks a MiB, plus 1; 0 if none), and
	 * the choice of this end for exchanges (enum shm_exchange_protocol). */
	alignas(64) _Atomic uint32_t call_times[SHM_CALL_CLASSES];
	_Atomic uint8_t exchange_protocols[SHM_CALL_CLASSES];
};

struct shm_region {
	alignas(64) _Atomic uint32_t refcount;      /* ends that use this mapping: 1, or 2 in one process */
	struct shm_side side[2];                    /* 0: the end that dialed */
	struct shm_cell rtrs[2][SHM_RTR_SLOTS];
	alignas(4096) struct shm_cell cells[2][SHM_CELLS];
	unsigned char units[2][SHM_UNITS][SHM_UNIT_BYTES];
	alignas(4096) unsigned char bulk[2][SHM_BULK_UNITS][SHM_BULK_UNIT_BYTES];
};

static_assert(sizeof(struct shm_cell) == 64, "one cache line");
static_assert(
	sizeof(struct shm_region) <= SHM_REGION_BYTES && offsetof(struct shm_region, bulk) <= SHM_REGION_BASE_BYTES,
	"memory of an endpoint");
static_assert(SHM_UNITS <= 64 && SHM_BULK_UNITS == 64 && SHM_TOKENS == 64, "one bit each in a word");
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
