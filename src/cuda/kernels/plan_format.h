/* The formats that host and plan kernel share: the kernel plan and the window.
 *
 * A kernel plan says what one rank does in one collective. It lists the steps of a step program for one rank and shape,
 * with resolved peers and elements. Buffers are not fixed, so one plan serves every call of that shape. It is
 * position-independent: the header gives the offsets of its arrays.
 *
 * A window is the GPU memory of a rank that its peers write to. */
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
	COLLET_WINDOW_SLOTS = 4,     /* messages in flight between two ranks, per channel */
	/* segments of a step in one pass of a pipelined program; less than the number of slots */
	COLLET_PLAN_SEGMENTS_PER_PASS = 3,
	COLLET_LL_BYTES = 2048,      /* longest segment sent with the LL protocol: each word carries data and a flag */
	COLLET_FLAG_STRIDE_BYTES = 64
};

enum collet_plan_buffer { COLLET_PLAN_INPUT, COLLET_PLAN_RESULT, COLLET_PLAN_SCRATCH, COLLET_PLAN_PEER };

struct collet_plan_range {
	uint64_t first;              /* first element in the buffer; unused for a peer */
	uint32_t buffer;
	uint32_t peer;
};

/* Reduces the sources, in their order, into every result. From ranges[first_range] on: sources, then results. */
struct collet_plan_move {
	uint64_t count;
	uint32_t first_range;
	uint16_t source_count, result_count;
	uint8_t is_final;            /* this is the elements' last touch */
	uint8_t unused[7];
};

struct collet_plan_step {
	uint32_t first_move, move_count;
	uint64_t longest_move;       /* in elements */
	uint8_t is_paired;           /* its segments alternate with those of the next step */
	uint8_t has_barrier;         /* The part's channels wait for each other first: one reads what another wrote. */
	uint8_t unused[6];
};

struct collet_kernel_plan {
	uint32_t bytes;              /* of the whole plan */
	uint32_t rank, size;
	uint32_t parts, channels_per_part; /* a kernel channel is one channel of one part, run by one block */
	uint32_t segments_per_pass;  /* segments of a step in a pass; UINT32_MAX if there is one pass */
	uint32_t element_bytes;
	uint32_t is_ll;              /* segments use the LL protocol: flags between the data */
	uint64_t segment_elements;
	/* part p has the steps from first_step[p] up to first_step[p + 1] */
	uint32_t first_step[COLLET_PLAN_PARTS + 1];
	uint32_t steps_offset, moves_offset, ranges_offset; /* in bytes, from the plan's start */
};

/* The layout of a window, equal for all ranks of a communicator. */
struct collet_window {
	uint32_t size, channels;
	uint32_t slot_bytes;         /* a multiple of 64 */
};

/* Words of a window, one per channel and peer, each on a cache line of its own. The peer writes FULL and FREE: how many
 * messages it has sent to this rank, and how many of this rank's messages it has received. The rank itself keeps SENT
 * and RECEIVED from one launch to the next, so a replayed launch continues the count. */
enum collet_window_word {
	COLLET_WINDOW_FULL,
	COLLET_WINDOW_FREE,
	COLLET_WINDOW_SENT,
	COLLET_WINDOW_RECEIVED,
	COLLET_WINDOW_BARRIER,       /* indexed by number of channels and part: how many times a channel has arrived */
	COLLET_WINDOW_ENDED_CHANNELS, /* at index 0: how many channels of this launch have ended */
	COLLET_WINDOW_LAUNCHES,      /* at index 0: number of launches so far */
	COLLET_WINDOW_LAUNCH_ID,     /* in channel 0: what the peer was launched for, see collet_launch_id() */
	COLLET_WINDOW_WORDS
};

COLLET_HOST_DEVICE static inline uint64_t collet_window_word_at(
	const struct collet_window *window, enum collet_window_word window_word, uint32_t channel, uint32_t peer)
{
	return (((uint64_t)window_word * window->channels + channel) * window->size + peer) * COLLET_FLAG_STRIDE_BYTES;
}

/* Packs into one word which launch this is, and for which call. A rank writes it to its peers, which keep the last
 * four, one in every 16 bytes of a line. */
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

/* Offset of the slot for a peer's message `number`. LL slots come first, with two bytes for each byte of data. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_slot_at(
	const struct collet_window *window, bool is_ll, uint32_t channel, uint32_t peer, uint64_t number)
{
	const uint64_t slot =
		((uint64_t)channel * window->size + peer) * COLLET_WINDOW_SLOTS + number % COLLET_WINDOW_SLOTS;
	const uint64_t ll_slots = collet_window_words(window);
	const uint64_t slots = (uint64_t)window->channels * window->size * COLLET_WINDOW_SLOTS;
	return is_ll ? ll_slots + slot * 2 * COLLET_LL_BYTES :
		       ll_slots + slots * 2 * COLLET_LL_BYTES + slot * window->slot_bytes;
}

/* Offset of the buffer where a channel unpacks source k of an LL move: the rank's own source, and one or two per peer.
 * k == 2 * size is the buffer for the result. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_ll_buffer_offset(
	const struct collet_window *window, uint32_t channel, uint32_t k)
{
	return collet_window_slot_at(window, false, window->channels, 0, 0) +
		((uint64_t)channel * (2 * window->size + 1) + k) * COLLET_LL_BYTES;
}

/* The window must be zeroed before the first launch. */
COLLET_HOST_DEVICE static inline uint64_t collet_window_bytes(const struct collet_window *window)
{
	return collet_window_ll_buffer_offset(window, window->channels, 0);
}

#endif
