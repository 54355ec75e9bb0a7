/* Step programs: what an algorithm is.
 *
 * An algorithm is a pure function from (shape, part, index) to a step; whoever holds the shape can ask for any step at
 * any time. No I/O, no allocation, no state. The engine runs programs over transports, kernels run them over mapped
 * memory, tests interpret and prove them. This header and the programs compile as C17, as C++20 and for the device.
 *
 * A step is one move: operands are taken from its sources, combined in the listed order (or kept), and the value goes
 * to each of its destinations. An end of a move is some ranks' buffer and span; ranks are named by position in the
 * communicator's rank order. Exactly one side of every transfer is the rank itself, so that a move reads as one of
 *	send		{self}			-> {peers}
 *	receive		{peer}			-> {self}
 *	reduce		{left} {self}		-> {self}		operands in rank order
 *	pass on		{left} {self}		-> {self} {right}	reduced or kept, and sent on in one go
 *	read all	{everybody, self too}	-> {self} {others}
 * Every send has its receive on the other rank: between two ranks and one part, the k-th transfer that one's program
 * sends is the k-th that the other's receives, and both name the same number of elements. Empty spans travel too.
 *
 * How programs are executed, which is all that they may rely on (and the tests' interpreter does it as badly as these
 * rules allow):
 *   - A step's span is cut into pieces of at most `piece` elements, each a message; an empty span is one empty piece.
 *     All spans of a step are equally long (not per_peer: its i-th piece is the i-th of every chunk that has so many).
 *     Items (step, piece) are issued in this order: passes; in a pass, steps; in a step, the pass's pieces; of two
 *     paired steps, piece by piece in turn, and what the longer has more, after that.
 *   - Programs whose spans are cut at the same places in all steps (`sliced`) run in many passes: pass k has pieces
 *     few * k, few * k + 1, ... few * k + few - 1 of every step that has so many, with few < COLLET_LOOKAHEAD. All
 *others run in one pass, which has all pieces.
 *   - At least COLLET_LOOKAHEAD items beyond the oldest unfinished one are issued. An item's receives are under way as
 *soon as it is issued. What else it does waits for earlier items that write what it reads, and for those that read what
 *it writes, their sends included, until the peer has the bytes; what has come for a place that is not free yet is kept
 *by the executor. So two ranks may swap spans in place. An item may overtake others, but the messages between two ranks
 *     never change order.
 *   - A send may wait until the peer's matching receive is under way (no buffering at all), or be buffered.
 *   - A value with no destination of its own rank is kept by the executor until the peers have it. Its receivers name
 *the end as if it had been sent from INPUT.
 *   - INPUT is never written, except where the caller made it the same memory as RESULT (in place); then a program must
 *     not read an element of INPUT after an item that wrote that element of RESULT.
 *   - Positions are ranks (order NULL) whenever an operation does not commute. */
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

/* How far the engine looks ahead, in items, at the least. */
enum { COLLET_LOOKAHEAD = 4 };

#define COLLET_SAME_OFFSET UINT64_MAX

/* A run of elements of one buffer. */
struct collet_span {
	uint64_t first;
	uint64_t count;
};

/* Positions first, first + stride, first + 2 stride, ...; doubling: first, first + stride, first + 3 stride,
 * first + 7 stride (a binomial node's children are {rank + 1, 1, k, doubling}); all modulo the world size. */
struct collet_peers {
	uint32_t first;
	uint32_t stride;
	uint32_t count;
	bool is_doubling;
};

/* INPUT and RESULT are the caller's send and recv buffers, in the elements of the collective's own layout; SCRATCH is
 * the communicator's, of which the program declares how many elements it needs. */
enum collet_buffer { COLLET_INPUT, COLLET_RESULT, COLLET_SCRATCH };

struct collet_buffer_range {
	struct collet_peers peers; /* may include, or be, the rank itself */
	enum collet_buffer buffer; /* on that peer */
	struct collet_span span;   /* on that peer */
};

enum { COLLET_STEP_SOURCES = 3, COLLET_STEP_DESTINATIONS = 2 };

struct collet_step {
	struct collet_buffer_range source[COLLET_STEP_SOURCES];  /* operands: end by end, and peer by peer inside one */
	struct collet_buffer_range destination[COLLET_STEP_DESTINATIONS]; /* itself first, if it is one */
	uint8_t source_count;                                    /* 0: nothing to do in this step */
	uint8_t destination_count;
	bool is_reduction; /* combine all operands in one pass, rounding once; else there is one operand */
	bool is_per_peer; /* not one value but one transfer for each remote peer p: a send takes its own span
			    from chunk p of the source's cut, a receive (source_count 1, kept) puts it into chunk
			    p of the destination's cut (SCRATCH is cut as INPUT is); of the ends' spans only
			    the remote one's start counts (COLLET_SAME_OFFSET: where the local chunk starts) */
	bool is_final;   /* the value is the finished result: average divides here, before rounding */
	bool is_paired;  /* alternate pieces with the next step's: an exchange */
};

/* How a buffer is cut into chunks, one for each rank. */
enum collet_partition_kind {
	COLLET_PARTITION_EVEN, /* `count` elements in all; the first count % size chunks have one more than the
	                          others */
	COLLET_PARTITION_BLOCKS, /* `count` elements each */
	COLLET_PARTITION_VECTOR /* counts[] and displacements[] by rank */
};

struct collet_partition {
	enum collet_partition_kind kind;
	uint64_t count;
	const uint64_t *counts;
	const uint64_t *displacements;
};

/* Everything an algorithm may know. */
struct collet_shape {
	uint32_t rank; /* this rank's position */
	uint32_t size;
	uint32_t root;  /* a position */
	uint64_t count; /* as the caller gave it: elements in all, or of each block */
	struct collet_partition
		input; /* of the collective's send buffer, and of its recv buffer. A buffer that holds only the */
	struct collet_partition result; /* rank's own block has that block's count here, and its kind is not looked
	                                   at */
	const uint32_t *order;    /* position -> rank; NULL: the same. Blocks are numbered by rank */
	const uint32_t
		*host_first; /* position of each host's first rank, ascending; host_first[hosts] == size; NULL: one */
	uint32_t host_count;
	bool leader_is_first; /* what leads a host is its first rank, also where the root is another */
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

/* How a buffer is cut; SCRATCH as INPUT. */
COLLET_PURE static inline const struct collet_partition *collet_step_partition(
	const struct collet_shape *shape, enum collet_buffer buffer)
{
	return buffer == COLLET_RESULT ? &shape->result : &shape->input;
}

/* The i-th peer's position. */
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

/* The position `hops` to the right (negative: left) of this rank. */
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

/* A step that does nothing; programs fill in what they do. */
COLLET_PURE static inline struct collet_step collet_step_none(void)
{
	struct collet_step step = {};
	return step;
}

#endif
