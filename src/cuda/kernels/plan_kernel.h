/* The executor: a block runs one lane of a rank's tape. Messages go into slots of the receiver's window; the sender
 * waits for a slot, writes, and says so; the receiver folds from the slot to wherever the value goes, slots of others
 * included, and gives the slot back. Pieces, passes and pairs are taken in the order that collectives/step.h says, so
 * that both ends count alike.
 *
 * A lane does one thing after the other: the look-ahead that programs count on is what slots hold.
 *
 * Numbers of messages only grow. They are kept in the window, so that a launch goes on where the last one ended: what
 * waits compares with a number that no earlier launch, nor an earlier replay of this one, can have reached. */
#ifndef COLLET_CUDA_KERNELS_PLAN_KERNEL_H
#define COLLET_CUDA_KERNELS_PLAN_KERNEL_H

#include "cuda/kernels/device_copy.h"
#include "cuda/kernels/plan_channel.h"

/* ---- Pieces with flags between their bytes: each word of 8 bytes is four of them and the message's number ---- */

/* Numbers repeat after 2^32 messages, and a word that none of those was long enough to reach would be taken for new: so
 * once in a while a message has all words there are. */
enum { QUICK_WHOLE = 1 << 20 };

DEVICE void quick_send(const unsigned char *from, unsigned char *slot, uint64_t bytes, uint64_t number)
{
	const uint64_t flag = (number & 0xffffffff) << 32;
	const uint64_t some = number % QUICK_WHOLE <= COLLET_TAPE_SLOTS ? COLLET_QUICK_BYTES : bytes;
	for (uint64_t at = thread_index() * 8; at < some; at += thread_count() * 8) {
		const uint64_t data = at < bytes ? *(const uint64_t *)(const void *)(from + at) : 0;
		line_store(slot + 2 * at, (data & 0xffffffff) | flag, data >> 32 | flag);
	}
}

DEVICE bool quick_receive(
	const struct run *run, const unsigned char *slot, unsigned char *to, uint64_t bytes, uint64_t number,
	uint32_t peer)
{
	uint64_t turns = 0;
	for (uint64_t at = thread_index() * 8; at < bytes; at += thread_count() * 8) {
		uint64_t first, second;
		for (;;) {
			line_load(slot + 2 * at, &first, &second);
			if (first >> 32 == (number & 0xffffffff) && second >> 32 == (number & 0xffffffff))
				break;
			if (given_up(run, &turns, peer))
				return false;
		}
		*(uint64_t *)(void *)(to + at) = (first & 0xffffffff) | second << 32;
	}
	return true;
}

/* ---- A move ---- */

/* How many of the ends before this one are of the same peer: their messages come first. */
DEVICE uint64_t earlier(const struct collet_tape_end *ends, uint32_t k)
{
	uint64_t same = 0;
	for (uint32_t i = 0; i < k; i++)
		same += ends[i].place == COLLET_TAPE_PEER && ends[i].peer == ends[k].peer;
	return same;
}

DEVICE uint64_t local(const struct run *run, const struct piece *piece, const struct collet_tape_end *end)
{
	return run->lane->buffers[end->place] + (end->first + piece->offset) * run->tape->element_bytes;
}

DEVICE uint64_t slot(const struct run *run, uint32_t window, uint32_t peer, uint64_t number)
{
	return run->lane->windows[window] + collet_window_slot_at(
		&run->arguments->window, run->tape->quick, run->number, peer, number);
}

/* Where the k-th source is, once it is there; of a quick message, where it will be unpacked. */
DEVICE bool find_source(const struct run *run, const struct piece *piece, uint32_t k)
{
	const struct collet_tape_end *end = &piece->ends[k];
	struct lane *lane = run->lane;
	const bool input = end->place == COLLET_TAPE_INPUT;
	lane->scales[k] = input ? run->arguments->rows[block_row()].scale : f64_bits(1.0);
	if (end->place != COLLET_TAPE_PEER) {
		lane->from[k] = local(run, piece, end);
		return true;
	}
	const uint64_t number = lane->taken[end->peer] + earlier(piece->ends, k);
	lane->from_number[k] = number;
	if (run->tape->quick) {
		lane->from[k] = (uintptr_t)run->own + collet_window_stage_at(&run->arguments->window, run->number, k);
		return true;
	}
	lane->from[k] = slot(run, run->tape->rank, end->peer, number);
	return wait_for(run, word(run, COLLET_WINDOW_FULL, run->tape->rank, end->peer), number + 1, end->peer);
}

/* Where the k-th result goes, once there is room for it. */
DEVICE bool find_result(const struct run *run, const struct piece *piece, uint32_t k)
{
	const struct collet_tape_end *ends = piece->ends + piece->move->sources, *end = &ends[k];
	struct lane *lane = run->lane;
	if (end->place != COLLET_TAPE_PEER) {
		lane->to[k] = local(run, piece, end);
		return true;
	}
	const uint64_t number = lane->sent[end->peer] + earlier(ends, k);
	lane->to_number[k] = number;
	if (run->tape->quick)
		lane->to[k] = (uintptr_t)run->own + collet_window_stage_at(
			&run->arguments->window, run->number, 2 * run->tape->size);
	else
		lane->to[k] = slot(run, end->peer, run->tape->rank, number);
	return number < COLLET_TAPE_SLOTS || wait_for(run, word(run, COLLET_WINDOW_FREE, run->tape->rank, end->peer),
						     number + 1 - COLLET_TAPE_SLOTS, end->peer);
}

DEVICE bool find_ends(const struct run *run, const struct piece *piece)
{
	bool found = true;
	for (uint32_t k = thread_index(); k < piece->move->sources; k += thread_count())
		found = find_source(run, piece, k) && found;
	for (uint32_t k = thread_index(); k < piece->move->results; k += thread_count())
		found = find_result(run, piece, k) && found;
	return block_all(found);
}

/* Where in a piece: before its ends are waited for, before they are read, and before each message is sent and told. */
enum { LATE_TO_WAIT, LATE_TO_FOLD, LATE_TO_SEND, LATE_TO_TELL = LATE_TO_SEND + COLLET_FOLD_MOST,
	LATE_TIMES = LATE_TO_TELL + 2 * COLLET_FOLD_MOST };

DEVICE void late_to(const struct run *run, const struct piece *piece, uint32_t what)
{
	come_late(run, (piece->offset + piece->move->end) * LATE_TIMES + what);
}

DEVICE bool unpack(const struct run *run, const struct piece *piece)
{
	bool there = true;
	for (uint32_t k = 0; k < piece->move->sources && there; k++) {
		const struct collet_tape_end *end = &piece->ends[k];
		if (end->place != COLLET_TAPE_PEER)
			continue;
		const unsigned char *from = (const unsigned char *)(uintptr_t)slot(
			run, run->tape->rank, end->peer, run->lane->from_number[k]);
		/* An empty message is its number alone. */
		const uint64_t bytes = piece->count ? piece->count * run->tape->element_bytes : 1;
		there = quick_receive(run, from, (unsigned char *)(uintptr_t)run->lane->from[k], bytes,
			run->lane->from_number[k] + 1, end->peer);
	}
	return block_all(there);
}

DEVICE void pack(const struct run *run, const struct piece *piece)
{
	const struct collet_tape_end *ends = piece->ends + piece->move->sources;
	block_sync();
	for (uint32_t k = 0; k < piece->move->results; k++) {
		if (ends[k].place != COLLET_TAPE_PEER)
			continue;
		const uint64_t number = run->lane->to_number[k];
		late_to(run, piece, LATE_TO_SEND + k);
		quick_send((const unsigned char *)(uintptr_t)run->lane->to[k],
			(unsigned char *)(uintptr_t)slot(run, ends[k].peer, run->tape->rank, number),
			piece->count ? piece->count * run->tape->element_bytes : 1, number + 1);
	}
}

/* *fenced: all that the block has done is to be seen before any of these flags, so one fence does. */
DEVICE void tell_peer(
	const struct run *run, enum collet_window_word which, uint32_t peer, uint64_t number, bool *fenced)
{
	if (!*fenced)
		fence_release();
	*fenced = true;
	flag_store_fenced(word(run, which, peer, run->tape->rank), number);
}

/* Messages sent and taken: told to the peers, and counted. One thread, in order, so that no number goes back. */
DEVICE void settle(const struct run *run, const struct piece *piece)
{
	struct lane *lane = run->lane;
	bool fenced = false;
	for (uint32_t k = 0; k < piece->move->sources + piece->move->results; k++) {
		const struct collet_tape_end *end = &piece->ends[k];
		if (end->place != COLLET_TAPE_PEER)
			continue;
		late_to(run, piece, LATE_TO_TELL + k);
		if (k < piece->move->sources)
			tell_peer(run, COLLET_WINDOW_FREE, end->peer, ++lane->taken[end->peer], &fenced);
		else if (run->tape->quick)
			lane->sent[end->peer]++;
		else
			tell_peer(run, COLLET_WINDOW_FULL, end->peer, ++lane->sent[end->peer], &fenced);
	}
}

DEVICE struct fold fold_of_piece(const struct run *run, const struct piece *piece)
{
	struct fold fold;
	bool input = false;
	for (uint32_t k = 0; k < piece->move->sources; k++)
		input = input || piece->ends[k].place == COLLET_TAPE_INPUT;
	fold.sources = run->lane->from;
	fold.results = run->lane->to;
	fold.scales = run->arguments->scaled && input ? run->lane->scales : NULL;
	fold.source_count = piece->move->sources;
	fold.result_count = piece->move->results;
	fold.count = piece->count;
	fold.worker = thread_index();
	fold.workers = thread_count();
	fold.op = run->arguments->op;
	fold.divisor = piece->move->finish ? run->arguments->divisor : 1;
	fold.inverse_f32 = fold.divisor > 1 ? 1.0f / (float)fold.divisor : 1.0f;
	fold.inverse_f64 = fold.divisor > 1 ? 1.0 / fold.divisor : 1.0;
	return fold;
}

/* ---- A lane ---- */

DEVICE void load_windows(const struct run *run, const struct collet_program_row *row)
{
	struct lane *lane = run->lane;
	const uint64_t *windows =
		(const uint64_t *)(const void *)reach(row->windows, run->tape->size * sizeof(uint64_t));
	for (uint32_t p = thread_index(); p < run->tape->size; p += thread_count())
		lane->windows[p] = (uintptr_t)reach(windows[p], collet_window_bytes(&run->arguments->window));
	block_sync();
}

DEVICE void load_lane(const struct run *run, const struct collet_program_row *row)
{
	struct lane *lane = run->lane;
	for (uint32_t b = thread_index(); b < 3; b += thread_count())
		lane->buffers[b] = (uintptr_t)reach(row->buffers[b], row->bytes[b]);
	block_sync();
	for (uint32_t p = thread_index(); p < run->tape->size; p += thread_count()) {
		lane->sent[p] = *(const uint64_t *)(const void *)word(run, COLLET_WINDOW_SENT, run->tape->rank, p);
		lane->taken[p] = *(const uint64_t *)(const void *)word(run, COLLET_WINDOW_TAKEN, run->tape->rank, p);
	}
	block_sync();
}

DEVICE void save_lane(const struct run *run)
{
	block_sync();
	for (uint32_t p = thread_index(); p < run->tape->size; p += thread_count()) {
		*(uint64_t *)(void *)word(run, COLLET_WINDOW_SENT, run->tape->rank, p) = run->lane->sent[p];
		*(uint64_t *)(void *)word(run, COLLET_WINDOW_TAKEN, run->tape->rank, p) = run->lane->taken[p];
	}
}

DEVICE void fold_as(uint32_t dtype, const struct fold *fold)
{
	switch (dtype) {
	case COLLET_I8: fold_called_i8(fold); break;
	case COLLET_U8: fold_called_u8(fold); break;
	case COLLET_I32: fold_called_i32(fold); break;
	case COLLET_U32: fold_called_u32(fold); break;
	case COLLET_I64: fold_called_i64(fold); break;
	case COLLET_U64: fold_called_u64(fold); break;
	case COLLET_F16: fold_called_f16(fold); break;
	case COLLET_BF16: fold_called_bf16(fold); break;
	case COLLET_F32: fold_called_f32(fold); break;
	case COLLET_F64: fold_called_f64(fold); break;
	case COLLET_F8E4M3: fold_called_f8e4m3(fold); break;
	case COLLET_F8E5M2: fold_called_f8e5m2(fold); break;
	default: break;
	}
}

/* false: it was told to give up. */
CALLED bool run_piece(const struct run *run, const struct piece *piece)
{
	late_to(run, piece, LATE_TO_WAIT);
	if (!find_ends(run, piece) || (run->tape->quick && !unpack(run, piece)))
		return false;
	late_to(run, piece, LATE_TO_FOLD);
	struct fold fold = fold_of_piece(run, piece);
	if (fold.source_count == 1 && !fold.scales && fold.divisor <= 1) {
		fold.count *= run->tape->element_bytes;
		copy(&fold);
	} else {
		fold_as(run->arguments->dtype, &fold);
	}
	if (run->tape->quick)
		pack(run, piece);
	block_sync();
	if (thread_index() == 0)
		settle(run, piece);
	block_sync();
	return true;
}

/* What this rank was launched for, to all others: they find out, as they wait or in the end, if it was for another call
 * than they were. */
DEVICE void announce(const struct run *run)
{
	const uint64_t called = collet_called(run->launch, run->signature);
	if (!run->signature || run->number)
		return;
	for (uint32_t p = thread_index(); p < run->tape->size; p += thread_count())
		if (p != run->tape->rank)
			line_store((unsigned char *)(uintptr_t)run->lane->windows[p] +
					collet_window_word_at(&run->arguments->window, COLLET_WINDOW_CALLED, 0,
						run->tape->rank) +
					run->launch % COLLET_CALLED_SLOTS * 16,
				called, called);
}

/* What went well may have been a sum of what others took for a maximum. */
DEVICE void compare_calls(const struct run *run)
{
	if (run->number)
		return;
	for (uint32_t p = thread_index(); p < run->tape->size; p += thread_count())
		if (disagrees(run, p))
			abort_store(run->abort, COLLET_DISAGREES | p);
}

/* The last lane to end counts the launch, and tells the host. */
DEVICE void tell(const struct run *run, const struct collet_program_row *row)
{
	block_sync();
	if (thread_index())
		return;
	unsigned char *left = run->own + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LEFT, 0, 0);
	if (flag_add(left, 1) + 1 < block_count())
		return;
	*(uint64_t *)(void *)left = 0;
	*(uint64_t *)(void *)(run->own +
		collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0)) = run->launch + 1;
	if (row->done)
		flag_release(reach(row->done, sizeof(uint64_t)), row->ticket);
}

/* Given up, the numbers in the window mean nothing any more: it is done with, and later launches leave at once. */
DEVICE void run_lane(const struct collet_program_arguments *arguments)
{
	SHARED struct lane lane;
	SHARED struct run run;
	const struct collet_program_row *row = &arguments->rows[block_row()];
	struct cursor cursor = { 0, 0, 0, 0, 0, 0, false, false };
	struct piece piece;
	run.tape = (const struct collet_tape *)(const void *)reach(row->tape, row->tape_bytes);
	run.number = block_index();
	run.part = run.number / run.tape->channels;
	run.channel = run.number % run.tape->channels;
	if (run.part >= run.tape->parts)
		return;
	run.arguments = arguments;
	run.abort = reach(row->abort, sizeof(uint32_t));
	run.left = row->left ? reach(row->left, sizeof(uint64_t)) : NULL;
	run.until = row->timeout_ns ? clock_ns() + row->timeout_ns : 0;
	run.lane = &lane;
	run.jitter = arguments->jitter;
	load_windows(&run, row);
	run.own = (unsigned char *)(uintptr_t)lane.windows[run.tape->rank];
	run.signature = row->signature;
	run.launch = *(const uint64_t *)(const void *)(run.own +
		collet_window_word_at(&arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0));
	cursor.step = run.tape->steps[run.part];
	cursor.end = run.tape->steps[run.part + 1];
	bool fine = block_all(!abort_load(run.abort));
	if (fine) {
		announce(&run);
		load_lane(&run, row);
	}
	while (fine && next_piece(&run, &cursor, &piece))
		fine = run_piece(&run, &piece);
	if (fine && !cursor.failed) {
		save_lane(&run);
		compare_calls(&run);
	}
	tell(&run, row);
}

#endif
