/* A lane on its way through a tape: what it knows, how it waits, and which piece comes next. */
#ifndef COLLET_CUDA_KERNELS_PLAN_CHANNEL_H
#define COLLET_CUDA_KERNELS_PLAN_CHANNEL_H

#include "cuda/kernels/device_numbers.h"

/* Shared by a block's threads. */
struct lane {
	uint64_t windows[COLLET_TAPE_RANKS];
	uint64_t sent[COLLET_TAPE_RANKS], taken[COLLET_TAPE_RANKS];    /* messages to, and from, each peer */
	uint64_t from[COLLET_FOLD_MOST], to[COLLET_FOLD_MOST], scales[COLLET_FOLD_MOST];
	uint64_t from_number[COLLET_FOLD_MOST], to_number[COLLET_FOLD_MOST];
	uint64_t buffers[3];
};

/* The same on all of a block's threads, and shared by them, so that it takes no registers. */
struct run {
	const struct collet_program_arguments *arguments;
	const struct collet_tape *tape;
	unsigned char *abort;
	unsigned char *left;         /* NULL: nobody looks */
	uint64_t until;              /* in ns; 0: no end */
	uint64_t signature;          /* 0: nobody looks */
	uint64_t launch;             /* its number */
	unsigned char *own;          /* window */
	struct lane *lane;
	uint32_t number;             /* of the lane */
	uint32_t part, channel;
	uint32_t jitter;
};

/* ---- Coming late ---- */

/* Threads that a GPU moves on together. */
enum { WARP_THREADS = 32, REST_BITS = 14 };

/* Some warps rest at some times, so that those of a block come apart, and the blocks too. Called: no calls but a test's
 * come here. */
CALLED void dawdle(const struct run *run, uint64_t when)
{
	/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
	uint64_t x = when * 0x9e3779b97f4a7c15 + (((uint64_t)run->jitter << 32) ^ (run->launch << 12) ^
		((uint64_t)run->number << 6) ^ ((uint64_t)run->tape->rank << 24) ^ (thread_index() / WARP_THREADS));
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	x ^= x >> 31;
	if (x % 4 == 0)
		rest((uint32_t)(x >> (64 - REST_BITS)));
}

/* when: tells the times of a launch apart. Outside of tests one comparison, alike for all of a block. */
DEVICE void come_late(const struct run *run, uint64_t when)
{
	if (run->jitter)
		dawdle(run, when);
}

/* ---- Waiting ---- */

/* Was the peer, as its launch of this number, launched for another call? As far as is known. */
DEVICE bool disagrees(const struct run *run, uint32_t peer)
{
	const uint64_t own = collet_called(run->launch, run->signature);
	uint64_t called, again;
	if (!run->signature || peer == run->tape->rank)
		return false;
	line_load(run->own + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_CALLED, 0, peer) +
			run->launch % COLLET_CALLED_SLOTS * 16,
		&called, &again);
	return called >> COLLET_CALLED_SIGNATURE_BITS == own >> COLLET_CALLED_SIGNATURE_BITS && called != own;
}

/* In a count of turns: the peer had left before the flag was looked at again. */
#define TURNS_LEFT (UINT64_C(1) << 63)

/* Who has left had sent all that it ever will: that is there once its leaving is seen. */
DEVICE bool is_lost(const struct run *run, uint64_t *turns, uint32_t peer)
{
	if (!run->left || !(flag_acquire(run->left) >> peer & 1))
		return false;
	const bool seen = *turns & TURNS_LEFT;
	*turns |= TURNS_LEFT;
	return seen;
}

CALLED bool find_reason(const struct run *run, uint64_t *turns, uint32_t peer)
{
	if (abort_load(run->abort))
		return true;
	if (is_lost(run, turns, peer)) {
		abort_store(run->abort, COLLET_GONE | peer);
		return true;
	}
	if (*turns % CALLED_EVERY == 0 && disagrees(run, peer)) {
		abort_store(run->abort, COLLET_DISAGREES | peer);
		return true;
	}
	if (!run->until || clock_ns() < run->until)
		return false;
	abort_store(run->abort, COLLET_LATE | peer);
	return true;
}

DEVICE bool given_up(const struct run *run, uint64_t *turns, uint32_t peer)
{
	return ++*turns % ABORT_EVERY == 0 && find_reason(run, turns, peer);
}

/* For the peer. false: it was told to give up. */
DEVICE bool wait_for(const struct run *run, const unsigned char *flag, uint64_t least, uint32_t peer)
{
	uint64_t turns = 0;
	while (flag_acquire(flag) < least)
		if (given_up(run, &turns, peer))
			return false;
	return true;
}

DEVICE unsigned char *word(const struct run *run, enum collet_window_word which, uint32_t window, uint32_t peer)
{
	return (unsigned char *)(uintptr_t)run->lane->windows[window] +
		collet_window_word_at(&run->arguments->window, which, run->number, peer);
}

/* The channels of this part wait for each other. Counted apart for each number of channels, so that a call may have
 * another than the one before. */
DEVICE bool meet(const struct run *run)
{
	const uint64_t channels = run->tape->channels;
	bool met = true;
	block_sync();
	if (thread_index() == 0 && channels > 1) {
		come_late(run, channels);
		unsigned char *count = run->own +
			collet_window_word_at(&run->arguments->window, COLLET_WINDOW_MET, run->tape->channels - 1,
				run->part);
		const uint64_t before = flag_add(count, 1);
		met = wait_for(run, count, (before / channels + 1) * channels, run->tape->rank);
	}
	/* Nobody reads what others wrote before find_ends() has gathered the threads again; but whether to go on at all
	 * they must know alike: else some would come to that barrier and others to the last one. */
	return block_all(met);
}

/* Of a move. */
struct piece {
	const struct collet_tape_move *move;
	const struct collet_tape_end *ends;
	uint64_t offset, count;      /* elements */
};

/* ---- The order of pieces ---- */

/* Has this channel a turn-th piece of so many elements, and which? The first piece of all exists even if it is empty,
 * so that empty messages travel too. */
DEVICE bool piece_at(const struct run *run, uint64_t turn, uint64_t count, struct piece *piece)
{
	const struct collet_tape *tape = run->tape;
	piece->offset = (turn * tape->channels + run->channel) * tape->piece;
	if (piece->offset >= count) {
		piece->count = 0;
		return piece->offset == 0;
	}
	piece->count = count - piece->offset < tape->piece ? count - piece->offset : tape->piece;
	return true;
}

DEVICE const struct collet_tape_step *step_at(const struct run *run, uint32_t number)
{
	return (const struct collet_tape_step *)(const void *)((const char *)run->tape + run->tape->step_at) + number;
}

DEVICE const struct collet_tape_move *move_at(const struct run *run, uint32_t number)
{
	return (const struct collet_tape_move *)(const void *)((const char *)run->tape + run->tape->move_at) + number;
}

DEVICE const struct collet_tape_end *end_at(const struct run *run, uint32_t number)
{
	return (const struct collet_tape_end *)(const void *)((const char *)run->tape + run->tape->end_at) + number;
}

/* What the lane does next. */
struct cursor {
	uint64_t pass, turn;         /* turn: this pass's piece */
	uint32_t step, end;          /* step: the one, or the first of two */
	uint32_t second, move;
	bool more, failed;
};

DEVICE bool has_turn(const struct run *run, const struct cursor *cursor, const struct collet_tape_step *step)
{
	struct piece piece;
	return piece_at(run, cursor->pass * run->tape->few + cursor->turn, step->longest, &piece);
}

/* To the next turn of the step, or of the pair; or past it. */
DEVICE void next_turn(const struct run *run, struct cursor *cursor)
{
	const struct collet_tape_step *step = step_at(run, cursor->step);
	const bool pair = step->paired && cursor->step + 1 < cursor->end;
	cursor->turn++;
	const bool more = has_turn(run, cursor, step) || (pair && has_turn(run, cursor, step + 1));
	if (more && cursor->turn < run->tape->few)
		return;
	cursor->more = cursor->more || more;
	cursor->turn = 0;
	cursor->step += 1 + pair;
	if (cursor->step < cursor->end || !cursor->more)
		return;
	cursor->step = run->tape->steps[run->part];
	cursor->more = false;
	cursor->pass++;
}

/* The next move's piece; false: that was all. Called, as what runs it is: registers that one of them needs are not kept
 * while the other runs, nor while elements are folded. */
CALLED bool next_piece(const struct run *run, struct cursor *cursor, struct piece *piece)
{
	while (cursor->step < cursor->end) {
		const struct collet_tape_step *step = step_at(run, cursor->step + cursor->second);
		const bool pair = step_at(run, cursor->step)->paired && cursor->step + 1 < cursor->end;
		if (step->meets && !cursor->turn && !cursor->move && !meet(run)) {
			cursor->failed = true;
			return false;
		}
		while (cursor->move < step->moves) {
			piece->move = move_at(run, step->move + cursor->move++);
			piece->ends = end_at(run, piece->move->end);
			if (piece_at(run, cursor->pass * run->tape->few + cursor->turn, piece->move->count, piece))
				return true;
		}
		cursor->move = 0;
		if (pair && !cursor->second) {
			cursor->second = 1;
			continue;
		}
		cursor->second = 0;
		next_turn(run, cursor);
	}
	return false;
}

#endif
