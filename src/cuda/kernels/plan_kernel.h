/* The plan kernel: each block runs one channel of a rank's kernel plan. Messages go into slots of the receiver's
 * window. The sender waits for a free slot, writes it, and signals the receiver. The receiver reduces from the slot
 * into every destination, which may be slots of other peers, and frees the slot. Segments, passes and pairs follow the
 * order of collectives/step.h, so that both ends count alike.
 *
 * A channel executes one segment at a time; the slots provide the look-ahead that programs rely on.
 *
 * Message numbers only grow, and are kept in the window, so a launch continues where the last one ended. Each wait
 * compares with a number that no earlier launch, nor an earlier replay of this one, can have reached. */
#ifndef COLLET_CUDA_KERNELS_PLAN_KERNEL_H
#define COLLET_CUDA_KERNELS_PLAN_KERNEL_H

#include "cuda/kernels/device_copy.h"
#include "cuda/kernels/plan_channel.h"

/* ---- LL protocol: each 8-byte word holds 4 bytes of data and the message's number ---- */

/* Numbers repeat after 2^32 messages. A word that no message in between was long enough to write would then look new.
 * So once per interval, a message writes every word of its slot. */
enum { LL_REFRESH_INTERVAL = 1 << 20 };

DEVICE void ll_send(const unsigned char *from, unsigned char *slot, uint64_t bytes, uint64_t number)
{
	const uint64_t flag = (number & 0xffffffff) << 32;
	const uint64_t written = number % LL_REFRESH_INTERVAL <= COLLET_WINDOW_SLOTS ? COLLET_LL_BYTES : bytes;
	for (uint64_t at = thread_index() * 8; at < written; at += thread_count() * 8) {
		const uint64_t data = at < bytes ? *(const uint64_t *)(const void *)(from + at) : 0;
		line_store(slot + 2 * at, (data & 0xffffffff) | flag, data >> 32 | flag);
	}
}

DEVICE bool ll_receive(const struct plan_run *run, const unsigned char *slot, unsigned char *to, uint64_t bytes,
	uint64_t number, uint32_t peer)
{
	uint64_t spins = 0;
	for (uint64_t at = thread_index() * 8; at < bytes; at += thread_count() * 8) {
		uint64_t first, second;
		for (;;) {
			line_load(slot + 2 * at, &first, &second);
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

/* Counts the earlier ranges of the same peer: their messages come first. */
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

/* Finds the address of source k, and waits until its message has arrived. An LL message is unpacked later. */
DEVICE bool find_source(const struct plan_run *run, const struct segment *segment, uint32_t k)
{
	const struct collet_plan_range *range = &segment->ranges[k];
	struct channel_state *state = run->state;
	const bool is_input = range->buffer == COLLET_PLAN_INPUT;
	state->scales[k] = is_input ? run->arguments->ranks[block_row()].scale : f64_bits(1.0);
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

/* Finds the address of result k, and waits until its slot is free. */
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
	/* By other threads, so that both wait at once. */
	for (uint32_t k = thread_count() - 1 - thread_index(); k < segment->move->result_count; k += thread_count())
		found = find_result(run, segment, k) && found;
	return block_all(found);
}

/* Points of a segment where tests delay: before its waits, before its reduction, and before each message is sent and
 * signalled. */
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
		/* An empty message consists of its number alone. */
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

/* Sets one flag in the peer's window. *fenced: all work of the block must be visible before any of these flags, so one
 * fence is enough. */
DEVICE void signal_peer(
	const struct plan_run *run, enum collet_window_word which, uint32_t peer, uint64_t number, bool *fenced)
{
	if (!*fenced)
		fence_release();
	*fenced = true;
	flag_store_fenced(window_word(run, which, peer, run->plan->rank), number);
}

/* Counts messages sent and received, and signals the peers. One thread does it in order, so that no number goes
 * back. */
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
	bool has_input = false;
	for (uint32_t k = 0; k < segment->move->source_count; k++)
		has_input = has_input || segment->ranges[k].buffer == COLLET_PLAN_INPUT;
	reduction.sources = run->state->source;
	reduction.results = run->state->destination;
	reduction.scales = run->arguments->is_scaled && has_input ? run->state->scales : NULL;
	reduction.source_count = segment->move->source_count;
	reduction.result_count = segment->move->result_count;
	reduction.count = segment->count;
	reduction.worker = thread_index();
	reduction.workers = thread_count();
	reduction.op = run->arguments->op;
	reduction_set_divisor(&reduction, segment->move->is_final ? run->arguments->divisor : 1);
	return reduction;
}

/* ---- A channel ---- */

/* A kernel begins with what it reads of memory in few rounds: each takes the GPU over half a microsecond. */

/* Copies the kernel plan to memory that the block shares, if it fits there. */
DEVICE const struct collet_kernel_plan *load_plan(const struct collet_plan_rank *rank_arguments, uint64_t *copied)
{
	const uint64_t *plan = (const uint64_t *)(const void *)device_pointer(
		rank_arguments->plan, rank_arguments->plan_bytes);
	if (rank_arguments->plan_bytes > SHARED_PLAN_BYTES)
		return (const struct collet_kernel_plan *)(const void *)plan;
	for (uint32_t i = thread_index(); i < rank_arguments->plan_bytes / sizeof(*plan); i += thread_count())
		copied[i] = plan[i];
	return (const struct collet_kernel_plan *)(const void *)copied;
}

DEVICE void load_addresses(const struct plan_run *run, const struct collet_plan_rank *rank_arguments)
{
	const struct collet_window *window = &run->arguments->window;
	struct channel_state *state = run->state;
	const uint64_t *windows = (const uint64_t *)(const void *)device_pointer(
		rank_arguments->windows, window->size * sizeof(uint64_t));
	for (uint32_t p = thread_index(); p < window->size; p += thread_count())
		state->windows[p] = (uintptr_t)device_pointer(windows[p], collet_window_bytes(window));
	for (uint32_t b = thread_index(); b < 3; b += thread_count())
		state->buffers[b] = (uintptr_t)device_pointer(rank_arguments->buffers[b], rank_arguments->bytes[b]);
}

/* Continues the counts of the launch before. */
DEVICE void load_counts(struct plan_run *run)
{
	struct channel_state *state = run->state;
	run->launch = *(const uint64_t *)(const void *)(run->own_window +
		collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0));
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count()) {
		state->sent[p] =
			*(const uint64_t *)(const void *)window_word(run, COLLET_WINDOW_SENT, run->plan->rank, p);
		state->received[p] =
			*(const uint64_t *)(const void *)window_word(run, COLLET_WINDOW_RECEIVED, run->plan->rank, p);
	}
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
	case COLLET_I16: reduce_called_i16(reduction); break;
	case COLLET_U16: reduce_called_u16(reduction); break;
	case COLLET_BOOL: reduce_called_truth(reduction); break;
	default: break;
	}
}

/* Returns false on abort. */
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

/* Tells all peers what this rank was launched for. While they wait, or at their end, they detect if their call is
 * another one. */
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

/* A call may complete although ranks disagree: one may have summed what others maximised. */
DEVICE void check_mismatch(const struct plan_run *run)
{
	if (run->channel_index)
		return;
	for (uint32_t p = thread_index(); p < run->plan->size; p += thread_count())
		if (has_mismatch(run, p))
			abort_store(run->abort, COLLET_ABORT_MISMATCH | p);
}

/* The last channel to end counts the launch and signals the host. */
DEVICE void signal_host(const struct plan_run *run, const struct collet_plan_rank *rank_arguments)
{
	block_sync();
	if (thread_index())
		return;
	unsigned char *ended_channels =
		run->own_window + collet_window_word_at(&run->arguments->window, COLLET_WINDOW_ENDED_CHANNELS, 0, 0);
	if (block_count() > 1) {
		if (flag_add(ended_channels, 1) + 1 < block_count())
			return;
		*(uint64_t *)(void *)ended_channels = 0;
	}
	*(uint64_t *)(void *)(run->own_window +
		collet_window_word_at(&run->arguments->window, COLLET_WINDOW_LAUNCHES, 0, 0)) = run->launch + 1;
	if (rank_arguments->done)
		flag_release(device_pointer(rank_arguments->done, sizeof(uint64_t)), rank_arguments->ticket);
}

/* After an abort, the numbers in the window are meaningless. The window is not used again, and later launches end at
 * once. */
DEVICE void run_channel(const struct collet_plan_arguments *arguments)
{
	SHARED struct channel_state state;
	SHARED struct plan_run run;
	SHARED uint64_t plan[SHARED_PLAN_BYTES / sizeof(uint64_t)];
	const struct collet_plan_rank *rank_arguments = &arguments->ranks[block_row()];
	struct plan_cursor cursor = { 0, 0, 0, 0, 0, 0, false, false };
	struct segment segment;
	if (!rank_arguments->plan_bytes)
		return;
	unsigned char *abort = device_pointer(rank_arguments->abort, sizeof(uint32_t));
	/* The abort word is in host memory: 512 threads that read it take 17 us, one 1.5 us. */
	const uint32_t aborted = thread_index() == thread_count() - 1 ? abort_load(abort) : 0;
	run.plan = load_plan(rank_arguments, plan);
	run.channel_index = block_index();
	run.arguments = arguments;
	run.abort = abort;
	run.left_ranks =
		rank_arguments->left_ranks ? device_pointer(rank_arguments->left_ranks, sizeof(uint64_t)) : NULL;
	run.deadline_ns = rank_arguments->timeout_ns ? clock_ns() + rank_arguments->timeout_ns : 0;
	run.signature = rank_arguments->signature;
	run.state = &state;
	run.jitter = arguments->jitter;
	load_addresses(&run, rank_arguments);
	block_sync();
	run.part = run.channel_index / run.plan->channels_per_part;
	run.part_channel = run.channel_index % run.plan->channels_per_part;
	if (run.part >= run.plan->parts)
		return;
	run.own_window = (unsigned char *)(uintptr_t)state.windows[run.plan->rank];
	cursor.step = run.plan->first_step[run.part];
	cursor.end_step = run.plan->first_step[run.part + 1];
	load_counts(&run);
	bool ok = block_all(!aborted);
	if (ok)
		announce_launch(&run);
	while (ok && next_segment(&run, &cursor, &segment))
		ok = run_segment(&run, &segment);
	if (ok && !cursor.failed) {
		save_channel(&run);
		check_mismatch(&run);
	}
	signal_host(&run, rank_arguments);
}

#endif
