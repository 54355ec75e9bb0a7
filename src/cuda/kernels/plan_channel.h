/* One channel's walk through a kernel plan: its state, its waits, and the order of segments. */
#ifndef COLLET_CUDA_KERNELS_PLAN_CHANNEL_H
#define COLLET_CUDA_KERNELS_PLAN_CHANNEL_H

#include "cuda/kernels/device_numbers.h"

/* Longest kernel plan that a block copies to the memory that its threads share. */
enum { SHARED_PLAN_BYTES = 4096 };

/* Shared by the threads of a block. */
struct channel_state {
	uint64_t windows[COLLET_PLAN_RANKS];
	uint64_t sent[COLLET_PLAN_RANKS], received[COLLET_PLAN_RANKS]; /* numbers of messages to and from each peer */
	uint64_t source[COLLET_SPAN_MAX_OPERANDS], destination[COLLET_SPAN_MAX_OPERANDS],
		scales[COLLET_SPAN_MAX_OPERANDS];
	uint64_t source_message[COLLET_SPAN_MAX_OPERANDS], destination_message[COLLET_SPAN_MAX_OPERANDS];
	uint64_t buffers[3];
};

/* Equal on all threads of a block, and in shared memory to save registers. */
struct plan_run {
	const struct collet_plan_arguments *arguments;
	const struct collet_kernel_plan *plan;
	unsigned char *abort;
	unsigned char *left_ranks;   /* NULL: not checked */
	uint64_t deadline_ns;        /* 0: no deadline */
	uint64_t signature;          /* 0: not checked */
	uint64_t launch;             /* number of this launch */
	unsigned char *own_window;
	struct channel_state *state;
	uint32_t channel_index;
	uint32_t part, part_channel;
	uint32_t jitter;
};

/* ---- Delays for tests ---- */

/* Threads of a warp, which a GPU executes together. */
enum { WARP_THREADS = 32, JITTER_BITS = 14 };

/* Delays some warps at some points, so that the warps of a block, and the blocks, get out of step. Not inlined: only
 * tests call it. */
DEVICE_NOINLINE void jitter_sleep(const struct plan_run *run, uint64_t seed)
{
	/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
	uint64_t x = seed * 0x9e3779b97f4a7c15 +
		     (((uint64_t)run->jitter << 32) ^ (run->launch << 12) ^ ((uint64_t)run->channel_index << 6) ^
			     ((uint64_t)run->plan->rank << 24) ^ (thread_index() / WARP_THREADS));
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	x ^= x >> 31;
	if (x % 4 == 0)
		sleep_ns((uint32_t)(x >> (64 - JITTER_BITS)));
}

/* seed distinguishes the points of a launch. Outside tests this is one comparison, equal for all threads of a block. */
DEVICE void add_jitter(const struct plan_run *run, uint64_t seed)
{
	if (run->jitter)
		jitter_sleep(run, seed);
}

/* ---- Waiting ---- */

/* True if the peer's launch of this number is known to be for another call. */
DEVICE bool has_mismatch(const struct plan_run *run, uint32_t peer)
{
	const uint64_t own = collet_launch_id(run->launch, run->signature);
	uint64_t launch_id, duplicate;
	if (!run->signature || peer == run->plan->rank)
		return false;
	line_load(run->own_window + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCH_ID, 0, peer) +
			run->launch % COLLET_LAUNCH_ID_SLOTS * 16,
		&launch_id, &duplicate);
	return launch_id >> COLLET_LAUNCH_SIGNATURE_BITS == own >> COLLET_LAUNCH_SIGNATURE_BITS && launch_id != own;
}

/* Set in a spin count: the peer had left before the flag was last read. */
#define SPINS_PEER_LEFT (UINT64_C(1) << 63)

/* Everything that a peer sent before it left is visible once its bit is. So the flag is read once more after the bit
 * was seen. */
DEVICE bool peer_has_left(const struct plan_run *run, uint64_t *spins, uint32_t peer)
{
	if (!run->left_ranks || !(flag_acquire(run->left_ranks) >> peer & 1))
		return false;
	const bool was_seen = *spins & SPINS_PEER_LEFT;
	*spins |= SPINS_PEER_LEFT;
	return was_seen;
}

DEVICE_NOINLINE bool check_abort(const struct plan_run *run, uint64_t *spins, uint32_t peer)
{
	if (abort_load(run->abort))
		return true;
	if (peer_has_left(run, spins, peer)) {
		abort_store(run->abort, COLLET_ABORT_PEER_LEFT | peer);
		return true;
	}
	if (*spins % MISMATCH_CHECK_INTERVAL == 0 && has_mismatch(run, peer)) {
		abort_store(run->abort, COLLET_ABORT_MISMATCH | peer);
		return true;
	}
	if (!run->deadline_ns || clock_ns() < run->deadline_ns)
		return false;
	abort_store(run->abort, COLLET_ABORT_TIMEOUT | peer);
	return true;
}

DEVICE bool must_abort(const struct plan_run *run, uint64_t *spins, uint32_t peer)
{
	return ++*spins % ABORT_CHECK_INTERVAL == 0 && check_abort(run, spins, peer);
}

/* Waits until the peer raises the flag to at least `least`. Returns false on abort. */
DEVICE bool wait_for(const struct plan_run *run, const unsigned char *flag, uint64_t least, uint32_t peer)
{
	uint64_t spins = 0;
	while (flag_acquire(flag) < least)
		if (must_abort(run, &spins, peer))
			return false;
	return true;
}

DEVICE unsigned char *window_word(
	const struct plan_run *run, enum collet_window_word which, uint32_t window, uint32_t peer)
{
	return (unsigned char *)(uintptr_t)run->state->windows[window] +
		collet_window_word_at(&run->arguments->window, which, run->channel_index, peer);
}

/* Waits for all channels of this part. There is one counter for each number of channels, since the next call may use
 * another number. */
DEVICE bool channel_barrier(const struct plan_run *run)
{
	const uint64_t channels = run->plan->channels_per_part;
	bool ok = true;
	block_sync();
	if (thread_index() == 0 && channels > 1) {
		add_jitter(run, channels);
		unsigned char *count =
			run->own_window + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_BARRIER,
						  run->plan->channels_per_part - 1, run->part);
		const uint64_t before = flag_add(count, 1);
		ok = wait_for(run, count, (before / channels + 1) * channels, run->plan->rank);
	}
	/* No thread reads what others wrote before find_ranges() synchronises again. But all must agree here whether to
	 * continue: otherwise some would wait at that barrier and others at the last one. */
	return block_all(ok);
}

/* A segment of a move. */
struct segment {
	const struct collet_plan_move *move;
	const struct collet_plan_range *ranges;
	uint64_t offset, count;      /* in elements */
};

/* ---- The order of segments ---- */

/* Finds this channel's segment number `index` of a move with `count` elements. Returns false if there is none. The very
 * first segment exists even if it is empty, so that empty messages are sent too. */
DEVICE bool segment_at(const struct plan_run *run, uint64_t index, uint64_t count, struct segment *segment)
{
	const struct collet_kernel_plan *plan = run->plan;
	segment->offset = (index * plan->channels_per_part + run->part_channel) * plan->segment_elements;
	if (segment->offset >= count) {
		segment->count = 0;
		return segment->offset == 0;
	}
	segment->count =
		count - segment->offset < plan->segment_elements ? count - segment->offset : plan->segment_elements;
	return true;
}

DEVICE const struct collet_plan_step *step_at(const struct plan_run *run, uint32_t number)
{
	return (const struct collet_plan_step *)(const void *)((const char *)run->plan + run->plan->steps_offset) +
	       number;
}

DEVICE const struct collet_plan_move *move_at(const struct plan_run *run, uint32_t number)
{
	return (const struct collet_plan_move *)(const void *)((const char *)run->plan + run->plan->moves_offset) +
	       number;
}

DEVICE const struct collet_plan_range *range_at(const struct plan_run *run, uint32_t number)
{
	return (const struct collet_plan_range *)(const void *)((const char *)run->plan + run->plan->ranges_offset) +
	       number;
}

/* The channel's position in the plan. */
struct plan_cursor {
	uint64_t pass, segment;      /* segment: number within this pass */
	uint32_t step, end_step;     /* step: the current one, or the first of a pair */
	uint32_t pair_index, move;
	bool has_more, failed;
};

DEVICE bool has_segment(
	const struct plan_run *run, const struct plan_cursor *cursor, const struct collet_plan_step *step)
{
	struct segment segment;
	return segment_at(
		run, cursor->pass * run->plan->segments_per_pass + cursor->segment, step->longest_move, &segment);
}

/* Moves to the next segment of the step or pair, or past it. */
DEVICE void advance_segment(const struct plan_run *run, struct plan_cursor *cursor)
{
	const struct collet_plan_step *step = step_at(run, cursor->step);
	const bool pair = step->is_paired && cursor->step + 1 < cursor->end_step;
	cursor->segment++;
	const bool has_more = has_segment(run, cursor, step) || (pair && has_segment(run, cursor, step + 1));
	if (has_more && cursor->segment < run->plan->segments_per_pass)
		return;
	cursor->has_more = cursor->has_more || has_more;
	cursor->segment = 0;
	cursor->step += 1 + pair;
	if (cursor->step < cursor->end_step || !cursor->has_more)
		return;
	cursor->step = run->plan->first_step[run->part];
	cursor->has_more = false;
	cursor->pass++;
}

/* Finds the next move's segment; returns false at the end. Not inlined, like run_segment(): neither keeps the other's
 * registers alive. */
DEVICE_NOINLINE bool next_segment(const struct plan_run *run, struct plan_cursor *cursor, struct segment *segment)
{
	while (cursor->step < cursor->end_step) {
		const struct collet_plan_step *step = step_at(run, cursor->step + cursor->pair_index);
		const bool pair = step_at(run, cursor->step)->is_paired && cursor->step + 1 < cursor->end_step;
		if (step->has_barrier && !cursor->segment && !cursor->move && !channel_barrier(run)) {
			cursor->failed = true;
			return false;
		}
		while (cursor->move < step->move_count) {
			segment->move = move_at(run, step->first_move + cursor->move++);
			segment->ranges = range_at(run, segment->move->first_range);
			if (segment_at(run, cursor->pass * run->plan->segments_per_pass + cursor->segment,
				    segment->move->count, segment))
				return true;
		}
		cursor->move = 0;
		if (pair && !cursor->pair_index) {
			cursor->pair_index = 1;
			continue;
		}
		cursor->pair_index = 0;
		advance_segment(run, cursor);
	}
	return false;
}

#endif
