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
enum { LL_REFRESH_INTERVAL = 1 << 20 };

DEVICE void ll_send(const unsigned char *from, unsigned char *slot_address, uint64_t bytes, uint64_t number)
{
	const uint64_t flag = (number & 0xffffffff) << 32;
	const uint64_t some = number % LL_REFRESH_INTERVAL <= COLLET_WINDOW_SLOTS ? COLLET_LL_BYTES : bytes;
	for (uint64_t at = thread_index() * 8; at < some; at += thread_count() * 8) {
		const uint64_t data = at < bytes ? *(const uint64_t *)(const void *)(from + at) : 0;
		line_store(slot_address + 2 * at, (data & 0xffffffff) | flag, data >> 32 | flag);
	}
}

DEVICE bool ll_receive(const struct plan_run *run, const unsigned char *slot_address, unsigned char *to, uint64_t bytes,
	uint64_t number, uint32_t peer)
{
	uint64_t spins = 0;
	for (uint64_t at = thread_index() * 8; at < bytes; at += thread_count() * 8) {
		uint64_t first, second;
		for (;;) {
			line_load(slot_address + 2 * at, &first, &second);
			if (first >> 32 == (number & 0xffffffff) && second >> 32 == (number & 0xffffffff))
				break;
			if (must_abort(run, &spins, peer))
				return false;
		}
		*(uint64_t *)(void *)(to + at) = (first & 0xffffffff) | second << 32;
	}
	return true;
}

/* ---- A move ---- */

/* How many of the ends before this one are of the same peer: their messages come first. */
DEVICE uint64_t earlier_from_peer(const struct collet_plan_range *ranges, uint32_t k)
{
	uint64_t same = 0;
	for (uint32_t i = 0; i < k; i++)
		same += ranges[i].buffer == COLLET_PLAN_PEER && ranges[i].peer == ranges[k].peer;
	return same;
}

DEVICE uint64_t local_address(
	const struct plan_run *run, const struct segment *segment, const struct collet_plan_range *range)
{
	return run->state->buffers[range->buffer] + (range->first + segment->offset) * run->plan->element_bytes;
}

DEVICE uint64_t slot_address(const struct plan_run *run, uint32_t window, uint32_t peer, uint64_t number)
{
	return run->state->windows[window] + collet_window_slot_at(
		&run->arguments->window, run->plan->is_ll, run->channel_index, peer, number);
}

/* Where the k-th source is, once it is there; of a quick message, where it will be unpacked. */
DEVICE bool find_source(const struct plan_run *run, const struct segment *segment, uint32_t k)
{
	const struct collet_plan_range *range = &segment->ranges[k];
	struct channel_state *state = run->state;
	const bool input = range->buffer == COLLET_PLAN_INPUT;
	state->scales[k] = input ? run->arguments->ranks[block_row()].scale : f64_bits(1.0);
	if (range->buffer != COLLET_PLAN_PEER) {
		state->source[k] = local_address(run, segment, range);
		return true;
	}
	const uint64_t number = state->received[range->peer] + earlier_from_peer(segment->ranges, k);
	state->source_message[k] = number;
	if (run->plan->is_ll) {
		state->source[k] = (uintptr_t)run->own_window +
				   collet_window_ll_buffer_offset(&run->arguments->window, run->channel_index, k);
		return true;
	}
	state->source[k] = slot_address(run, run->plan->rank, range->peer, number);
	return wait_for(
		run, window_word(run, COLLET_WINDOW_FULL, run->plan->rank, range->peer), number + 1, range->peer);
}

/* Where the k-th result goes, once there is room for it. */
DEVICE bool find_result(const struct plan_run *run, const struct segment *segment, uint32_t k)
{
	const struct collet_plan_range *ranges = segment->ranges + segment->move->source_count, *range = &ranges[k];
	struct channel_state *state = run->state;
	if (range->buffer != COLLET_PLAN_PEER) {
		state->destination[k] = local_address(run, segment, range);
		return true;
	}
	const uint64_t number = state->sent[range->peer] + earlier_from_peer(ranges, k);
	state->destination_message[k] = number;
	if (run->plan->is_ll)
		state->destination[k] = (uintptr_t)run->own_window + collet_window_ll_buffer_offset(
			&run->arguments->window, run->channel_index, 2 * run->plan->size);
	else
		state->destination[k] = slot_address(run, range->peer, run->plan->rank, number);
	return number < COLLET_WINDOW_SLOTS ||
	       wait_for(run, window_word(run, COLLET_WINDOW_FREE, run->plan->rank, range->peer),
		       number + 1 - COLLET_WINDOW_SLOTS, range->peer);
}

DEVICE bool find_ranges(const struct plan_run *run, const struct segment *segment)
{
	bool found = true;
	for (uint32_t k = thread_index(); k < segment->move->source_count; k += thread_count())
		found = find_source(run, segment, k) && found;
	for (uint32_t k = thread_index(); k < segment->move->result_count; k += thread_count())
		found = find_result(run, segment, k) && found;
	return block_all(found);
}

/* Where in a piece: before its ends are waited for, before they are read, and before each message is sent and told. */
enum {
	JITTER_BEFORE_WAIT,
	JITTER_BEFORE_REDUCE,
	JITTER_BEFORE_SEND,
	JITTER_BEFORE_SIGNAL = JITTER_BEFORE_SEND + COLLET_SPAN_MAX_OPERANDS,
	JITTER_POINTS = JITTER_BEFORE_SIGNAL + 2 * COLLET_SPAN_MAX_OPERANDS
};

DEVICE void jitter_before(const struct plan_run *run, const struct segment *segment, uint32_t what)
{
	add_jitter(run, (segment->offset + segment->move->first_range) * JITTER_POINTS + what);
}

DEVICE bool ll_unpack(const struct plan_run *run, const struct segment *segment)
{
	bool has_arrived = true;
	for (uint32_t k = 0; k < segment->move->source_count && has_arrived; k++) {
		const struct collet_plan_range *range = &segment->ranges[k];
		if (range->buffer != COLLET_PLAN_PEER)
			continue;
		const unsigned char *from = (const unsigned char *)(uintptr_t)slot_address(
			run, run->plan->rank, range->peer, run->state->source_message[k]);
		/* An empty message is its number alone. */
		const uint64_t bytes = segment->count ? segment->count * run->plan->element_bytes : 1;
		has_arrived = ll_receive(run, from, (unsigned char *)(uintptr_t)run->state->source[k], bytes,
			run->state->source_message[k] + 1, range->peer);
	}
	return block_all(has_arrived);
}

DEVICE void ll_pack(const struct plan_run *run, const struct segment *segment)
{
	const struct collet_plan_range *ranges = segment->ranges + segment->move->source_count;
	block_sync();
	for (uint32_t k = 0; k < segment->move->result_count; k++) {
		if (ranges[k].buffer != COLLET_PLAN_PEER)
			continue;
		const uint64_t number = run->state->destination_message[k];
		jitter_before(run, segment, JITTER_BEFORE_SEND + k);
		ll_send((const unsigned char *)(uintptr_t)run->state->destination[k],
			(unsigned char *)(uintptr_t)slot_address(run, ranges[k].peer, run->plan->rank, number),
			segment->count ? segment->count * run->plan->element_bytes : 1, number + 1);
	}
}

/* *fenced: all that the block has done is to be seen before any of these flags, so one fence does. */
DEVICE void signal_peer(
	const struct plan_run *run, enum collet_window_word which, uint32_t peer, uint64_t number, bool *fenced)
{
	if (!*fenced)
		fence_release();
	*fenced = true;
	flag_store_fenced(window_word(run, which, peer, run->plan->rank), number);
}

/* Messages sent and taken: told to the peers, and counted. One thread, in order, so that no number goes back. */
DEVICE void signal_peers(const struct plan_run *run, const struct segment *segment)
{
	struct channel_state *state = run->state;
	bool fenced = false;
	for (uint32_t k = 0; k < segment->move->source_count + segment->move->result_count; k++) {
		const struct collet_plan_range *range = &segment->ranges[k];
		if (range->buffer != COLLET_PLAN_PEER)
			continue;
		jitter_before(run, segment, JITTER_BEFORE_SIGNAL + k);
		if (k < segment->move->source_count)
			signal_peer(run, COLLET_WINDOW_FREE, range->peer, ++state->received[range->peer], &fenced);
		else if (run->plan->is_ll)
			state->sent[range->peer]++;
		else
			signal_peer(run, COLLET_WINDOW_FULL, range->peer, ++state->sent[range->peer], &fenced);
	}
}

DEVICE struct reduction reduction_of_segment(const struct plan_run *run, const struct segment *segment)
{
	struct reduction reduction;
	bool input = false;
	for (uint32_t k = 0; k < segment->move->source_count; k++)
		input = input || segment->ranges[k].buffer == COLLET_PLAN_INPUT;
	reduction.sources = run->state->source;
	reduction.results = run->state->destination;
	reduction.scales = run->arguments->is_scaled && input ? run->state->scales : NULL;
	reduction.source_count = segment->move->source_count;
	reduction.result_count = segment->move->result_count;
	reduction.count = segment->count;
	reduction.worker = thread_index();
	reduction.workers = thread_count();
	reduction.op = run->arguments->op;
	reduction.divisor = segment->move->is_final ? run->arguments->divisor : 1;
	reduction.inverse_f32 = reduction.divisor > 1 ? 1.0f / (float)reduction.divisor : 1.0f;
	reduction.inverse_f64 = reduction.divisor > 1 ? 1.0 / reduction.divisor : 1.0;
	return reduction;
}

/* ---- A lane ---- */

DEVICE void load_windows(const struct plan_run *run, const struct collet_plan_rank *rank_arguments)
{
	struct channel_state *state = run->state;
	const uint64_t *windows = (const uint64_t *)(const void *)device_pointer(
		rank_arguments->windows, run->plan->size * sizeof(uint64_t));
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count())
		state->windows[p] = (uintptr_t)device_pointer(windows[p], collet_window_bytes(&run->arguments->window));
	block_sync();
}

DEVICE void load_channel(const struct plan_run *run, const struct collet_plan_rank *rank_arguments)
{
	struct channel_state *state = run->state;
	for (uint32_t b = thread_index(); b < 3; b += thread_count())
		state->buffers[b] = (uintptr_t)device_pointer(rank_arguments->buffers[b], rank_arguments->bytes[b]);
	block_sync();
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count()) {
		state->sent[p] =
			*(const uint64_t *)(const void *)window_word(run, COLLET_WINDOW_SENT, run->plan->rank, p);
		state->received[p] =
			*(const uint64_t *)(const void *)window_word(run, COLLET_WINDOW_RECEIVED, run->plan->rank, p);
	}
	block_sync();
}

DEVICE void save_channel(const struct plan_run *run)
{
	block_sync();
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count()) {
		*(uint64_t *)(void *)window_word(run, COLLET_WINDOW_SENT, run->plan->rank, p) = run->state->sent[p];
		*(uint64_t *)(void *)window_word(run, COLLET_WINDOW_RECEIVED, run->plan->rank, p) =
			run->state->received[p];
	}
}

DEVICE void reduce_as(uint32_t dtype, const struct reduction *reduction)
{
	switch (dtype) {
	case COLLET_I8: reduce_called_i8(reduction); break;
	case COLLET_U8: reduce_called_u8(reduction); break;
	case COLLET_I32: reduce_called_i32(reduction); break;
	case COLLET_U32: reduce_called_u32(reduction); break;
	case COLLET_I64: reduce_called_i64(reduction); break;
	case COLLET_U64: reduce_called_u64(reduction); break;
	case COLLET_F16: reduce_called_f16(reduction); break;
	case COLLET_BF16: reduce_called_bf16(reduction); break;
	case COLLET_F32: reduce_called_f32(reduction); break;
	case COLLET_F64: reduce_called_f64(reduction); break;
	case COLLET_F8E4M3: reduce_called_f8e4m3(reduction); break;
	case COLLET_F8E5M2: reduce_called_f8e5m2(reduction); break;
	default: break;
	}
}

/* false: it was told to give up. */
DEVICE_NOINLINE bool run_segment(const struct plan_run *run, const struct segment *segment)
{
	jitter_before(run, segment, JITTER_BEFORE_WAIT);
	if (!find_ranges(run, segment) || (run->plan->is_ll && !ll_unpack(run, segment)))
		return false;
	jitter_before(run, segment, JITTER_BEFORE_REDUCE);
	struct reduction reduction = reduction_of_segment(run, segment);
	if (reduction.source_count == 1 && !reduction.scales && reduction.divisor <= 1) {
		reduction.count *= run->plan->element_bytes;
		copy(&reduction);
	} else {
		reduce_as(run->arguments->dtype, &reduction);
	}
	if (run->plan->is_ll)
		ll_pack(run, segment);
	block_sync();
	if (thread_index() == 0)
		signal_peers(run, segment);
	block_sync();
	return true;
}

/* What this rank was launched for, to all others: they find out, as they wait or in the end, if it was for another call
 * than they were. */
DEVICE void announce_launch(const struct plan_run *run)
{
	const uint64_t launch_id = collet_launch_id(run->launch, run->signature);
	if (!run->signature || run->channel_index)
		return;
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count())
		if (p != run->plan->rank)
			line_store((unsigned char *)(uintptr_t)run->state->windows[p] +
					collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCH_ID, 0,
						run->plan->rank) +
					run->launch % COLLET_LAUNCH_ID_SLOTS * 16,
				launch_id, launch_id);
}

/* What went well may have been a sum of what others took for a maximum. */
DEVICE void check_mismatch(const struct plan_run *run)
{
	if (run->channel_index)
		return;
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count())
		if (has_mismatch(run, p))
			abort_store(run->abort, COLLET_ABORT_MISMATCH | p);
}

/* The last lane to end counts the launch, and tells the host. */
DEVICE void signal_host(const struct plan_run *run, const struct collet_plan_rank *rank_arguments)
{
	block_sync();
	if (thread_index())
		return;
	unsigned char *left =
		run->own_window + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_ENDED_CHANNELS, 0, 0);
	if (flag_add(left, 1) + 1 < block_count())
		return;
	*(uint64_t *)(void *)left = 0;
	*(uint64_t *)(void *)(run->own_window +
		collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0)) = run->launch + 1;
	if (rank_arguments->done)
		flag_release(device_pointer(rank_arguments->done, sizeof(uint64_t)), rank_arguments->ticket);
}

/* Given up, the numbers in the window mean nothing any more: it is done with, and later launches leave at once. */
DEVICE void run_channel(const struct collet_plan_arguments *arguments)
{
	SHARED struct channel_state state;
	SHARED struct plan_run run;
	const struct collet_plan_rank *rank_arguments = &arguments->ranks[block_row()];
	struct plan_cursor cursor = { 0, 0, 0, 0, 0, 0, false, false };
	struct segment segment;
	run.plan = (const struct collet_kernel_plan *)(const void *)device_pointer(
		rank_arguments->plan, rank_arguments->plan_bytes);
	run.channel_index = block_index();
	run.part = run.channel_index / run.plan->channels_per_part;
	run.part_channel = run.channel_index % run.plan->channels_per_part;
	if (run.part >= run.plan->parts)
		return;
	run.arguments = arguments;
	run.abort = device_pointer(rank_arguments->abort, sizeof(uint32_t));
	run.left_ranks =
		rank_arguments->left_ranks ? device_pointer(rank_arguments->left_ranks, sizeof(uint64_t)) : NULL;
	run.deadline_ns = rank_arguments->timeout_ns ? clock_ns() + rank_arguments->timeout_ns : 0;
	run.state = &state;
	run.jitter = arguments->jitter;
	load_windows(&run, rank_arguments);
	run.own_window = (unsigned char *)(uintptr_t)state.windows[run.plan->rank];
	run.signature = rank_arguments->signature;
	run.launch = *(const uint64_t *)(const void *)(run.own_window +
		collet_window_word_at(&arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0));
	cursor.step = run.plan->first_step[run.part];
	cursor.end_step = run.plan->first_step[run.part + 1];
	bool ok = block_all(!abort_load(run.abort));
	if (ok) {
		announce_launch(&run);
		load_channel(&run, rank_arguments);
	}
	while (ok && next_segment(&run, &cursor, &segment))
		ok = run_segment(&run, &segment);
	if (ok && !cursor.failed) {
		save_channel(&run);
		check_mismatch(&run);
	}
	signal_host(&run, rank_arguments);
}

#endif
