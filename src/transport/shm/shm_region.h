/* The memory that the two ends of an shm conduit share: what lies where, and who writes it.
 *
 * Everything that one end writes is read by the other as untrusted: it is copied out once, and each number in it is
 * bounded before use.
 *
 *	side[i]     what end i tells: what it has taken, whether it sleeps, whether it has revoked its memory
 *	cells[i]    headers of the messages from end i, one cache line each, which is written by end i alone
 *	units[i]    payload of those of its messages that do not fit into their cell
 *	bulk[i]     payload of longer ones, which flows through: in larger units, with an account of its own; where
 *	            ranks outnumber cores also of shorter ones for which there is no room among the others
 *
 * A cell is its own flag: its first word is a stamp that names the cell's position in the stream of cells, so that one
 * transfer of one cache line carries flag, header and up to 40 bytes. Up to 168 more follow in the next cells, which a
 * receiver that knows what it waits for asks for together with the first: one after the other they would cost a
 * transfer each. These have stamps too, so that nothing left from an earlier lap is ever taken for one.
 *
 * Payload lies in runs of units, contiguous, so that a receiver can work on it in place. Runs are handed back one by
 * one in any order: a view that is held for long keeps its own units and no others. The account is two words with a bit
 * for each unit: the sender toggles a unit's bit in its own (private) word when it fills it, the receiver in
 * `units_freed` when it is done; where the two agree, the unit is free. Each word has one writer, so none of this needs
 * a read-modify-write. The 64 tokens of lent buffers are accounted for in the same way.
 *
 * A receive with a view leaves the bytes where they are only in the units below SHM_PINNABLE_UNITS; what lies above is
 * always copied out at once. Of bulk units it leaves them if a longest run without any is left then. So the longest run
 * that is ever asked for becomes free whatever views are held. */
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
	SHM_CELL_BYTES = 40,                       /* of payload in a message's first cell */
	SHM_NEXT_CELL_BYTES = 56,                  /* and in each of the next ones */
	SHM_INLINE_BYTES = SHM_CELL_BYTES + 3 * SHM_NEXT_CELL_BYTES,
	SHM_UNITS = 52,
	SHM_UNIT_BYTES = 512,
	SHM_RUN_UNITS = 16,                        /* longest run */
	SHM_PINNABLE_UNITS = SHM_UNITS - SHM_RUN_UNITS,
	SHM_BULK_UNITS = 64,
	SHM_BULK_UNIT_BYTES = 8192,
	SHM_BULK_RUN_UNITS = 4,                    /* longest run of a message that is taken run by run */
	SHM_CONTIGUOUS_UNITS = 32,                 /* and of one that is a single run, for a view */
	SHM_TOKENS = 64,
	SHM_RTR_SLOTS = 16,                        /* places of receives that the sender is told */
	SHM_COOP_UNIT_BYTES = 64 * 1024,           /* what is moved by both ends is counted in units of so many */
	SHM_COOP_BITS = 24,                        /* of a word for that number, above it the message's number */
	SHM_COOP_UNITS_FAILED = 1 << (SHM_COOP_BITS - 1), /* this number: the sender cannot write */
	SHM_REGION_BASE_BYTES = 64 * 1024,         /* all that a conduit costs while no long message has come, */
	SHM_REGION_BYTES = SHM_REGION_BASE_BYTES + 2 * SHM_BULK_UNITS * SHM_BULK_UNIT_BYTES /* and ever; pages exist
						      once touched */
};

/* How a message's bytes travel. */
enum shm_protocol {
	SHM_INLINE = 1,  /* in the cell, and the next ones */
	SHM_RING,        /* the first bytes, or all, in a run of units */
	SHM_BULK,        /* the same in a run of bulk units */
	SHM_NEXT_RUN,    /* the next bytes of the message before */
	SHM_CMA,         /* in the sender's memory, read by process_vm_readv */
	SHM_SAME_PROCESS, /* in the sender's memory, and the sender is a thread of this process */
	SHM_ARENA,       /* in the sender's arena, which the receiver has mapped */
	SHM_PUT,         /* where the receive wants them: the sender has written them there */
	SHM_NEXT_CELL    /* no message: more bytes of the SHM_INLINE before it */
};

/* Its bytes come one run after the other. */
static inline bool shm_uses_runs(enum shm_protocol protocol)
{
	return protocol == SHM_RING || protocol == SHM_BULK;
}

/* They stay in the sender's memory until they have been read. */
static inline bool shm_is_borrowed(enum shm_protocol protocol)
{
	return protocol == SHM_CMA || protocol == SHM_SAME_PROCESS || protocol == SHM_ARENA;
}

/* word[0]  bits 0..31: position + 1; bits 32..39: enum shm_kind; bits 40..47: bytes, if SHM_INLINE;
 *          bits 48..63: the CPU that the sender was on (a hint; collet_wake.cpu)
 * word[1]  signature
 * word[2]  sequence
 * word[3]  SHM_INLINE: payload, to word[7]; else bytes
 * word[4]  SHM_RING, SHM_BULK, SHM_MORE: bits 0..31 first unit, bits 32..63 bytes of this run
 *          SHM_PULL, SHM_SAME_PROCESS: address; SHM_ARENA: offset
 * word[5]  SHM_PULL, SHM_SAME_PROCESS, SHM_ARENA: bits 0..31 token; SHM_PULL, SHM_SAME_PROCESS: bit 32: the sender
 * would move a
 *          part of it itself (shm_coop.c)
 * SHM_REST: payload from word[1] on; written before the cell of its SHM_INLINE.
 *
 * An offer is such a line too, the receiver's to write but for the last two words. The i-th message fits the i-th
 * receive, and so its offer:
 * word[0]  the receive's number, from 1 on, of all since the conduit was opened
 * word[1]  signature
 * word[2]  sequence
 * word[3]  bytes
 * word[4]  offset in its arena; or address
 * word[5]  enum shm_rtr: which of these
 * word[6]  SHM_RTR_ADDRESS: shm_coop_word(): units that either end has taken to move them (shm_coop.c)
 * word[7]  the same: units that the sender has written; or SHM_COOP_UNITS_FAILED
 * Relaxed but for word[0], whose store publishes the rest, and the last two. */
struct shm_cell {
	alignas(64) _Atomic uint64_t word[SHM_CELL_WORDS];
};

/* The cell of this position. Those that follow each other are not neighbours: a processor fetches a line's neighbours
 * along with it, and whoever reads a message would take the next one's cell from the core that is about to fill it. */
static inline struct shm_cell *shm_cell_at(struct shm_cell *cells, uint64_t position)
{
	return &cells[position * SHM_CELL_STRIDE % SHM_CELLS];
}

enum shm_rtr { SHM_RTR_NONE, SHM_RTR_ARENA, SHM_RTR_ADDRESS };

/* A number of units of a message, together with the message's number. */
static inline uint64_t shm_coop_word(uint64_t number, uint64_t units)
{
	return number << SHM_COOP_BITS | units;
}

/* The units in it, if it is of the message of this number; else more than a message has. */
static inline uint64_t shm_coop_units(uint64_t word, uint64_t number)
{
	return word - shm_coop_word(number, 0);
}

struct shm_side {
	/* Written for each message that is not inline, read by the other end when it needs room or waits for a
	 * buffer. */
	alignas(64) _Atomic uint64_t cells_consumed; /* of the other end's; told every quarter of a lap */
	_Atomic uint64_t units_freed;               /* of the other end's */
	_Atomic uint64_t bulk_freed;                /* of the other end's bulk units */
	_Atomic uint64_t tokens_done;               /* of the other end's */
	/* This end reads (one process) or writes the other's memory right now: the message of this number; 0: not. */
	_Atomic uint64_t accessing;
	/* Read by the other end after everything that it publishes. Taken down by whoever wakes, too. */
	alignas(64) _Atomic uint32_t sleeping;
	/* Set once: this end's memory must not be touched any more, and this end touches no more. */
	alignas(64) _Atomic uint32_t closed;
	/* See shm_trials.h, by kind and size of calls: what the last one took this end (ns a MiB; 0: there was none),
	 * and how it sends if both do (enum shm_exchange_protocol). */
	alignas(64) _Atomic uint32_t call_times[SHM_CALL_CLASSES];
	_Atomic uint8_t exchange_protocols[SHM_CALL_CLASSES];
};

struct shm_region {
	alignas(64) _Atomic uint32_t refcount;      /* ends that use this mapping (1, or 2 in one process) */
	struct shm_side side[2];                    /* 0: the end that dialed */
	struct shm_cell rtrs[2][SHM_RTR_SLOTS];
	alignas(4096) struct shm_cell cells[2][SHM_CELLS];
	unsigned char units[2][SHM_UNITS][SHM_UNIT_BYTES];
	alignas(4096) unsigned char bulk[2][SHM_BULK_UNITS][SHM_BULK_UNIT_BYTES];
};

static_assert(sizeof(struct shm_cell) == 64, "one cache line");
static_assert(
	sizeof(struct shm_region) <= SHM_REGION_BYTES && offsetof(struct shm_region, bulk) <= SHM_REGION_BASE_BYTES,
	"what a conduit costs");
static_assert(SHM_UNITS <= 64 && SHM_BULK_UNITS == 64 && SHM_TOKENS == 64, "one bit each in a word");
static_assert((SHM_CELLS & (SHM_CELLS - 1)) == 0 && SHM_CELL_STRIDE % 2,
	"positions wrap with the stamp, and each has a cell of its own");

static inline uint64_t shm_bits(unsigned first, unsigned count)
{
	return (count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX) << first;
}

/* The lowest run of count ones in free; -1 if there is none. */
static inline int shm_find_run(uint64_t free, unsigned count)
{
	/* Bit i of runs: the `length` bits from i on are all ones. */
	uint64_t runs = free;
	for (unsigned length = 1; length < count;) {
		const unsigned step = length < count - length ? length : count - length;
		runs &= runs >> step;
		length += step;
	}
	return runs ? __builtin_ctzll(runs) : -1;
}

#endif
