/* A tape: what one rank does in one collective, for the executor kernel; and the window, the memory of a rank's GPU by
 * which its peers reach it. For the host, which lays both down, and for the kernel.
 *
 * A tape is a step program's steps for one rank and shape, with peers and elements named and buffers left open, so that
 * it serves every call of that shape. It is position-independent: arrays lie behind the head at the offsets it says. */
#ifndef COLLET_CUDA_KERNELS_PLAN_FORMAT_H
#define COLLET_CUDA_KERNELS_PLAN_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define COLLET_HOST_DEVICE __host__ __device__
#else
#define COLLET_HOST_DEVICE
#endif

enum {
	COLLET_PLAN_RANKS = 64,
	COLLET_PLAN_PARTS = 4,
	COLLET_WINDOW_SLOTS = 4,     /* messages that may be under way between two ranks of a lane */
	COLLET_PLAN_SEGMENTS_PER_PASS = 3, /* pieces of a step in a pass, of a sliced program: fewer than slots */
	COLLET_LL_BYTES = 2048,      /* the longest piece that goes with flags between its bytes */
	COLLET_FLAG_STRIDE_BYTES = 64
};

enum collet_plan_buffer { COLLET_PLAN_INPUT, COLLET_PLAN_RESULT, COLLET_PLAN_SCRATCH, COLLET_PLAN_PEER };

struct collet_plan_range {
	uint64_t first;              /* element of the buffer; of a peer: nothing */
	uint32_t buffer;
	uint32_t peer;
};

/* Sources folded in their order into every result; ends[end ...]: sources, then results. */
struct collet_plan_move {
	uint64_t count;
	uint32_t first_range;
	uint16_t source_count, result_count;
	uint8_t is_final;            /* the elements' last touch */
	uint8_t unused[7];
};

struct collet_plan_step {
	uint32_t first_move, move_count;
	uint64_t longest_move;       /* elements */
	uint8_t is_paired;           /* piece by piece in turn with the next one */
	uint8_t has_barrier;         /* a part's channels wait for each other first: what one reads, another wrote */
	uint8_t unused[6];
};

struct collet_kernel_plan {
	uint32_t bytes;              /* of all of it */
	uint32_t rank, size;
	uint32_t parts, channels_per_part; /* a lane is a part's channel: one block */
	uint32_t segments_per_pass;  /* pieces of a step in a pass; UINT32_MAX: there is one pass */
	uint32_t element_bytes;
	uint32_t is_ll;              /* pieces go with flags between their bytes */
	uint64_t segment_elements;   /* elements */
	uint32_t first_step[COLLET_PLAN_PARTS + 1]; /* part p's: from steps[p] to steps[p + 1] */
	uint32_t steps_offset, moves_offset, ranges_offset; /* bytes */
};

/* What all windows of a communicator have in common. */
struct collet_window {
	uint32_t size, channels;
	uint32_t slot_bytes;         /* a multiple of 64 */
};

/* Words, each on a line of its own. The peer of FULL and FREE is who writes it: how many messages it has sent here, and
 * how many of ours it has taken. SENT and TAKEN are the rank's own, kept from one launch to the next: a launch that is
 * replayed goes on where the last one was. */
enum collet_window_word {
	COLLET_WINDOW_FULL,
	COLLET_WINDOW_FREE,
	COLLET_WINDOW_SENT,
	COLLET_WINDOW_RECEIVED,
	COLLET_WINDOW_BARRIER,       /* by number of channels and part: how often one of them has come */
	COLLET_WINDOW_ENDED_CHANNELS, /* the first: how many lanes of this launch have ended */
	COLLET_WINDOW_LAUNCHES,      /* the first: how many there have been */
	COLLET_WINDOW_LAUNCH_ID,     /* the first lane's: what the peer has been launched for, see collet_launch_id() */
	COLLET_WINDOW_WORDS
};

COLLET_HOST_DEVICE static inline uint64_t collet_window_word_at(
	const struct collet_window *window, enum collet_window_word window_word, uint32_t channel, uint32_t peer)
{
	return (((uint64_t)window_word * window->channels + channel) * window->size + peer) * COLLET_FLAG_STRIDE_BYTES;
}

/* What a rank tells the others of a launch, in one word: which one it is, and what for. Of the last four there is one
 * each, every 16 bytes of a line. */
enum { COLLET_LAUNCH_ID_SLOTS = 4, COLLET_LAUNCH_SIGNATURE_BITS = 40 };
COLLET_HOST_DEVICE static inline uint64_t collet_launch_id(uint64_t launch, uint64_t signature)
{
	return (launch + 1) << COLLET_LAUNCH_SIGNATURE_BITS |
		(signature & (((uint64_t)1 << COLLET_LAUNCH_SIGNATURE_BITS) - 1));
}

COLLET_HOST_DEVICE static inline uint64_t collet_window_words(const struct collet_window *window)
{
	return collet_window_word_at(window, COLLET_WINDOW_WORDS, 0, 0);
}

/* Where a peer's message number n goes: plain, or quick, at two bytes for each. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_slot_at(
	const struct collet_window *window, bool is_ll, uint32_t channel, uint32_t peer, uint64_t number)
{
	const uint64_t slot_address =
		((uint64_t)channel * window->size + peer) * COLLET_WINDOW_SLOTS + number % COLLET_WINDOW_SLOTS;
	const uint64_t quick_at = collet_window_words(window);
	const uint64_t slots = (uint64_t)window->channels * window->size * COLLET_WINDOW_SLOTS;
	return is_ll ? quick_at + slot_address * 2 * COLLET_LL_BYTES :
		       quick_at + slots * 2 * COLLET_LL_BYTES + slot_address * window->slot_bytes;
}

/* Where a lane unpacks the k-th source of a quick move (the rank's own and one or two of each peer); k == 2 size: where
 * it makes the result. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_ll_buffer_offset(
	const struct collet_window *window, uint32_t channel, uint32_t k)
{
	return collet_window_slot_at(window, false, window->channels, 0, 0) +
		((uint64_t)channel * (2 * window->size + 1) + k) * COLLET_LL_BYTES;
}

/* Zeroed before the first launch. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_bytes(const struct collet_window *window)
{
	return collet_window_ll_buffer_offset(window, window->channels, 0);
}

#endif
