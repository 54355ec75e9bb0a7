/* Step programs: the form in which every algorithm is written.
 *
 * An algorithm is a pure function from (shape, part, index) to a step. It does no I/O, allocates nothing and has no
 * state, so any step of any rank can be asked for at any time. The engine runs programs over transports, GPU kernels
 * run them over mapped memory, and the tests interpret and prove them. This header and the programs compile as C17, as
 * C++20 and for CUDA devices.
 *
 * A step is one move: it takes operands from its sources, reduces them in the listed order (or keeps the only one), and
 * writes the value to each destination. A source or destination is a set of ranks, a buffer and a span of elements.
 * Ranks are named by position in the communicator's rank order. Exactly one side of every transfer is the rank itself,
 * so a move reads as one of
 *	send		{self}			-> {peers}
 *	receive		{peer}			-> {self}
 *	reduce		{left} {self}		-> {self}		operands in rank order
 *	pass on		{left} {self}		-> {self} {right}	reduced or kept, and sent in the same move
 *	read all	{all ranks}		-> {self} {others}
 *
 * Every send has its receive on the other rank. Between two ranks and within one part, the k-th transfer that one
 * program sends is the k-th that the other receives. Both name the same number of elements. Empty spans are sent too.
 *
 * A program may rely on these rules of execution only. The tests' interpreter follows them as unfavourably as they
 * allow.
 *   - A step's span is cut into segments of at most a given number of elements. Each segment is a message; an empty
 *     span is one empty segment. All spans of a step have the same length. (In an is_per_peer step, the i-th segment
 *     is the i-th of every chunk that has so many.)
 *   - A work item is one (step, segment). Programs that are not `segmented` issue all items in one pass: step by step,
 *     and segment by segment within a step. (Their messages are cut into segments all the same.) Of two paired steps,
 *     segments alternate; the longer one's surplus follows.
 *   - `segmented` programs cut the spans of all steps at the same places. They run in many passes: pass k issues the
 *     segments s * k ... s * k + s - 1 of every step that has so many, with s < COLLET_LOOKAHEAD.
 *   - At least COLLET_LOOKAHEAD items beyond the oldest unfinished one are issued. An item's receives are posted when
 *     it is issued. The rest of it waits for earlier items that write what it reads. It also waits for earlier items
 *     that read what it writes, including their sends, until the peer has the bytes. The executor keeps data that
 *     arrives for a place that is not free yet, so two ranks may swap spans in place. An item may overtake others, but
 *     the messages between two ranks never change order.
 *   - A send may block until the peer's matching receive is posted (no buffering at all), or it may be buffered.
 *   - The executor keeps a value without a destination on its own rank until the peers have it. The receivers name the
 *     source as if it had been sent from INPUT.
 *   - INPUT is never written, unless the caller made it the same memory as RESULT (in place). A program must not read
 *     an element of INPUT after an item that wrote the same element of RESULT.
 *   - Positions are ranks (order NULL) if the operation does not commute.
 */
#ifndef COLLET_COLLECTIVES_STEP_H
#define COLLET_COLLECTIVES_STEP_H

#ifdef __cplusplus
#include <cassert>
#include <cstdint>
#else
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#endif

#ifdef __CUDACC__
#define COLLET_PURE __host__ __device__
#else
#define COLLET_PURE
#endif

/* Least number of work items that an executor issues ahead. */
enum { COLLET_LOOKAHEAD = 4 };

#define COLLET_SAME_OFFSET UINT64_MAX

/* Consecutive elements of one buffer. */
struct collet_span {
	uint64_t first;
	uint64_t count;
};

/* A set of positions: first, first + stride, first + 2 stride, ... If is_doubling: first, first + stride, first + 3
 * stride, first + 7 stride, ...; so a binomial node's children are {rank + 1, 1, k, true}. All are modulo the world
 * size. */
struct collet_peers {
	uint32_t first;
	uint32_t stride;
	uint32_t count;
	bool is_doubling;
};

/* INPUT and RESULT are the caller's send and recv buffers, in elements of the collective's own layout. SCRATCH belongs
 * to the communicator; the program declares how many elements of it it needs. */
enum collet_buffer { COLLET_INPUT, COLLET_RESULT, COLLET_SCRATCH };

struct collet_buffer_range {
	struct collet_peers peers; /* may include the rank itself, or be it */
	enum collet_buffer buffer; /* on that peer */
	struct collet_span span;   /* on that peer */
};

enum { COLLET_STEP_SOURCES = 3, COLLET_STEP_DESTINATIONS = 2 };

struct collet_step {
	/* Operands in order: range by range, and peer by peer within a range. */
	struct collet_buffer_range source[COLLET_STEP_SOURCES];
	/* Places to write to; the rank itself comes first if it is one of them. */
	struct collet_buffer_range destination[COLLET_STEP_DESTINATIONS];
	uint8_t source_count; /* 0: the step does nothing */
	uint8_t destination_count;
	bool is_reduction; /* Reduce all operands in one pass, rounding once. Otherwise there is one operand. */
	/* One transfer for each remote peer p instead of one value. A send takes its span from chunk p of the source's
	 * partition. A receive (source_count 1, kept) writes to chunk p of the destination's partition. SCRATCH is
	 * partitioned as INPUT. Of the two spans, only the remote one's start is read; COLLET_SAME_OFFSET is where the
	 * local chunk starts. */
	bool is_per_peer;
	bool is_final;   /* The value is the finished result: average divides here, before rounding. */
	bool is_paired;  /* Segments alternate with those of the next step: an exchange. */
};

/* How a buffer is partitioned into chunks, one per rank. */
enum collet_partition_kind {
	/* `count` elements in all; the first count % size chunks have one more than the others. */
	COLLET_PARTITION_EVEN,
	COLLET_PARTITION_BLOCKS, /* `count` elements each */
	COLLET_PARTITION_VECTOR  /* counts[] and displacements[], by rank */
};

struct collet_partition {
	enum collet_partition_kind kind;
	uint64_t count;
	const uint64_t *counts;
	const uint64_t *displacements;
};

/* The parameters of a collective call: everything that an algorithm may depend on. */
struct collet_shape {
	uint32_t rank; /* this rank's position */
	uint32_t size;
	uint32_t root;  /* a position */
	uint64_t count; /* as given by the caller: elements in all, or per block */
	/* The partitions of the collective's send and recv buffers. If a buffer holds only the rank's own block,
	 * `count` is that block's and `kind` is ignored. */
	struct collet_partition input;
	struct collet_partition result;
	const uint32_t *order; /* position -> rank; NULL: identical. Blocks are numbered by rank */
	/* Position of each host's first rank, ascending; host_first[host_count] == size. NULL: one host. */
	const uint32_t *host_first;
	uint32_t host_count;
	uint32_t host_most, host_least; /* ranks of the host with the most, and with the fewest; 0: not counted yet */
	bool leader_is_first; /* a host's first rank leads it, even if the root is another */
};

COLLET_PURE static inline struct collet_span collet_partition_chunk(
	const struct collet_partition *partition, const struct collet_shape *shape, uint32_t position)
{
	assert(position < shape->size);
	struct collet_span span;
	if (partition->kind == COLLET_PARTITION_EVEN) {
		const uint64_t base = partition->count / shape->size, longer = partition->count % shape->size;
		span.first = position * base + (position < longer ? position : longer);
		span.count = base + (position < longer);
		return span;
	}
	const uint32_t rank = shape->order ? shape->order[position] : position;
	if (partition->kind == COLLET_PARTITION_BLOCKS) {
		span.first = rank * partition->count;
		span.count = partition->count;
	} else {
		span.first = partition->displacements[rank];
		span.count = partition->counts[rank];
	}
	return span;
}

/* Returns a buffer's partition; SCRATCH is partitioned as INPUT. */
COLLET_PURE static inline const struct collet_partition *collet_step_partition(
	const struct collet_shape *shape, enum collet_buffer buffer)
{
	return buffer == COLLET_RESULT ? &shape->result : &shape->input;
}

/* Returns the i-th peer's position. */
COLLET_PURE static inline uint32_t collet_peers_at(const struct collet_peers *peers, uint32_t i, uint32_t size)
{
	assert(i < peers->count);
	const uint64_t hops = peers->is_doubling ? ((uint64_t)1 << i) - 1 : i;
	return (uint32_t)((peers->first + hops * peers->stride) % size);
}

COLLET_PURE static inline struct collet_peers collet_peers_one(uint32_t position)
{
	struct collet_peers peers = {position, 0, 1, false};
	return peers;
}

/* Returns the position `hops` to the right of this rank (negative: to the left). */
COLLET_PURE static inline uint32_t collet_position_at(const struct collet_shape *shape, int64_t hops)
{
	const int64_t size = shape->size;
	return (uint32_t)((((int64_t)shape->rank + hops) % size + size) % size);
}

COLLET_PURE static inline struct collet_buffer_range collet_buffer_range_at(
	struct collet_peers peers, enum collet_buffer buffer, struct collet_span span)
{
	struct collet_buffer_range range = {peers, buffer, span};
	return range;
}

/* Returns a step that does nothing, for programs to fill in. */
COLLET_PURE static inline struct collet_step collet_step_none(void)
{
	struct collet_step step = {};
	return step;
}

#endif
