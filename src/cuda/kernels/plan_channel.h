/* A lane on its way through a tape: what it knows, how it waits, and which piece comes next. */
#ifndef COLLET_CUDA_KERNELS_PLAN_CHANNEL_H
#define COLLET_CUDA_KERNELS_PLAN_CHANNEL_H

#include "cuda/kernels/device_numbers.h"

/* Shared by a block's threads. */
struct channel_state {
	uint64_t windows[COLLET_PLAN_RANKS];
	uint64_t sent[COLLET_PLAN_RANKS], received[COLLET_PLAN_RANKS]; /* messages to, and from, each peer */
	uint64_t source[COLLET_SPAN_MAX_OPERANDS], destination[COLLET_SPAN_MAX_OPERANDS],
		scales[COLLET_SPAN_MAX_OPERANDS];
	uint64_t source_message[COLLET_SPAN_MAX_OPERANDS], destination_message[COLLET_SPAN_MAX_OPERANDS];
	uint64_t buffers[3];
};

/* The same on all of a block's threads, and shared by them, so that it takes no registers. */
struct plan_run {
	const struct collet_plan_arguments *arguments;
	const struct collet_kernel_plan *plan;
	unsigned char *abort;
	unsigned char *left_ranks;   /* NULL: nobody looks */
	uint64_t deadline_ns;        /* in ns; 0: no end */
	uint64_t signature;          /* 0: nobody looks */
	uint64_t launch;             /* its number */
	unsigned char *own_window;   /* window */
	struct channel_state *state;
	uint32_t channel_index;      /* of the lane */
	uint32_t part, part_channel;
	uint32_t jitter;
};

/* ---- Coming late ---- */

/* Threads that a GPU moves on together. */
enum { WARP_THREADS = 32, JITTER_BITS = 14 };

/* Some warps rest at some times, so that those of a block come apart, and the blocks too. Called: no calls but a test's
 * come here. */
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

/* when: tells the times of a launch apart. Outside of tests one comparison, alike for all of a block. */
DEVICE void add_jitter(const struct plan_run *run, uint64_t seed)
{
	if (run->jitter)
		jitter_sleep(run, seed);
}

/* ---- Waiting ---- */

/* Was the peer, as its launch of this number, launched for another call? As far as is known. */
DEVICE bool has_mismatch(const struct plan_run *run, uint32_t peer)
{
	const uint64_t own = collet_launch_id(run->launch, run->signature);
	uint64_t launch_id, repeated;
	if (!run->signature || peer == run->plan->rank)
		return false;
	line_load(run->own_window + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCH_ID, 0, peer) +
			run->launch % COLLET_LAUNCH_ID_SLOTS * 16,
		&launch_id, &repeated);
	return launch_id >> COLLET_LAUNCH_SIGNATURE_BITS == own >> COLLET_LAUNCH_SIGNATURE_BITS && launch_id != own;
}

/* In a count of turns: the peer had left before the flag was looked at again. */
#define SPINS_PEER_LEFT (UINT64_C(1) << 63)

/* Who has left had sent all that it ever will: that is there once its leaving is seen. */
DEVICE bool peer_has_left(const struct plan_run *run, uint64_t *spins, uint32_t peer)
{
	if (!run->left_ranks || !(flag_acquire(run->left_ranks) >> peer & 1))
		return false;
	const bool seen = *spins & SPINS_PEER_LEFT;
	*spins |= SPINS_PEER_LEFT;
	return seen;
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

/* For the peer. false: it was told to give up. */
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

/* The channels of this part wait for each other. Counted apart for each number of channels, so that a call may have
 * another than the one before. */
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
	/* Nobody reads what others wrote before find_ranges() has gathered the threads again; but whether to go on at
	 * all they must know alike: else some would come to that barrier and others to the last one. */
	return block_all(ok);
}

/* Of a move. */
struct segment {
	const struct collet_plan_move *move;
	const struct collet_plan_range *ranges;
	uint64_t offset, count;      /* elements */
};

/* ---- The order of pieces ---- */

/* Has this channel a turn-th piece of so many elements, and which? The first piece of all exists even if it is empty,
 * so that empty messages travel too. */
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

/* What the lane does next. */
struct plan_cursor {
	uint64_t pass, segment;      /* turn: this pass's piece */
	uint32_t step, end_step;     /* step: the one, or the first of two */
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

/* To the next turn of the step, or of the pair; or past it. */
DEVICE void advance_segment(const struct plan_run *run, struct plan_cursor *cursor)
{
	const struct collet_plan_step *step = step_at(run, cursor->step);
	const bool pair = step->is_paired && cursor->step + 1 < cursor->end_step;
	cursor->segment++;
	const bool more = has_segment(run, cursor, step) || (pair && has_segment(run, cursor, step + 1));
	if (more && cursor->segment < run->plan->segments_per_pass)
		return;
	cursor->has_more = cursor->has_more || more;
	cursor->segment = 0;
	cursor->step += 1 + pair;
	if (cursor->step < cursor->end_step || !cursor->has_more)
		return;
	cursor->step = run->plan->first_step[run->part];
	cursor->has_more = false;
	cursor->pass++;
}

/* The next move's piece; false: that was all. Called, as what runs it is: registers that one of them needs are not kept
 * while the other runs, nor while elements are folded. */
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
