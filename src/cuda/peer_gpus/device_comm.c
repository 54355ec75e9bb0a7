/* Launching, the order of launches, and what becomes of them in the end. */
#include "cuda/peer_gpus/device_comm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/lock.h"

static const int64_t PATIENCE_NS = INT64_C(10) * 1000 * 1000 * 1000, LEAVING_NS = INT64_C(1) * 1000 * 1000 * 1000;
enum {
	LOOK_NS = 200 * 1000,
	QUICK_CALL_BYTES = 8 << 10, /* calls of so many bytes go with flags between the bytes, others */
	LEAST_PIECE_BYTES = 4 << 10 /* in pieces that are no shorter than this */
};

/* ---- How calls are cut ---- */

static uint64_t at_least(uint64_t value, uint64_t least)
{
	return value < least ? least : value;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value > most ? most : value;
}

/* A rank's messages are a share of the call's bytes where there are many ranks; several of them should be under way in
 * each channel. */
struct collet_taping collet_executor_cut(const struct collet_executor *executor, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, uint64_t bytes, uint32_t piece_bytes, uint32_t channels)
{
	const uint32_t parts = collet_program_part_count(program, shape);
	/* Of a v-form it is not known, or not to all. */
	const bool known = bytes || (shape->input.kind != COLLET_PARTITION_VECTOR &&
					    shape->result.kind != COLLET_PARTITION_VECTOR);
	const bool quick = known && bytes <= QUICK_CALL_BYTES && !piece_bytes && !channels;
	const uint64_t most = parts * executor->channels <= executor->window.lanes
				      ? executor->channels
				      : at_least(executor->window.lanes / parts, 1);
	uint64_t wanted = channels ? channels : bytes ? bytes / executor->lanes.bytes : most;
	wanted = quick ? 1 : at_most(at_least(wanted, 1), most);
	uint64_t piece = bytes ? bytes / (shape->size * wanted * 2) : executor->piece_bytes;
	piece = piece_bytes ? piece_bytes : at_least(piece, LEAST_PIECE_BYTES);
	piece = quick ? COLLET_QUICK_BYTES : at_most(piece, executor->piece_bytes);
	return (struct collet_taping){ .element_bytes = (uint32_t)element_bytes,
		.channels = (uint32_t)wanted,
		.piece_bytes = at_least(piece / 16 * 16, 16),
		.quick = quick };
}

/* ---- Launching ---- */

static collet_status check(const struct collet_executor *executor, cu_result result, const char *what)
{
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(executor->cuda, result, what);
}

/* Of one capture, or of those that are in none: after the launch before, if that was on another stream. */
static collet_status await_last(
	struct collet_executor *executor, const struct collet_executor_place *place, unsigned long long id)
{
	static const char what[] = "having a stream wait for a communicator's last launch";
	if (place->capture && executor->last_capture == place->capture && executor->last_captured_stream != id)
		return check(
			executor, executor->cuda->cuStreamWaitEvent(place->stream, executor->captured_order, 0), what);
	if (!place->capture && executor->launches && executor->last_stream != id)
		return check(executor, executor->cuda->cuStreamWaitEvent(place->stream, executor->order, 0), what);
	return COLLET_OK;
}

static void note_last(struct collet_executor *executor, const struct collet_executor_place *place,
	struct collet_executor_tape *tape, unsigned long long id)
{
	if (place->capture) {
		executor->last_capture = place->capture;
		executor->last_captured_stream = id;
		executor->kept -= !tape->captured;
		tape->captured = true;
		return;
	}
	executor->last_stream = id;
	tape->used = ++executor->launches;
}

static struct collet_program_arguments arguments_of(const struct collet_executor *executor,
	const struct collet_executor_call *call, const struct collet_executor_tape *tape)
{
	const bool combines = call->op != COLLET_OP_COUNT;
	const uint64_t scratch = collet_program_scratch(call->program, &call->shape) * call->taping.element_bytes;
	struct collet_program_arguments arguments = { .op = combines ? call->op : COLLET_SUM,
		.divisor = call->op == COLLET_AVERAGE ? call->shape.size : 1,
		.scaled = call->op == COLLET_PREMUL_SUM,
		.dtype = call->dtype,
		.window = executor->window };
	struct collet_program_row *row = &arguments.rows[0];
	*row = (struct collet_program_row){
		.tape = tape->at,
		.tape_bytes = tape->bytes,
		.windows = executor_windows(executor),
		.abort = executor->words_gpu + offsetof(struct executor_words, abort),
		.left = executor->words_gpu + offsetof(struct executor_words, left),
		.signature = call->signature,
		.timeout_ns = call->timeout_ns > 0 ? (uint64_t)call->timeout_ns : 0,
		.done = call->ticket ? executor->words_gpu + offsetof(struct executor_words, done) : 0,
		.ticket = call->ticket,
		.buffers = { call->input, call->result, executor->scratch },
		.bytes = { call->input_bytes, call->result_bytes, scratch },
	};
	memcpy(&row->scale, &call->scale, sizeof(row->scale));
	return arguments;
}

collet_status collet_executor_launch(struct collet_executor *executor, const struct collet_executor_call *call,
	struct collet_executor_tape *tape, const struct collet_executor_place *place)
{
	const struct collet_program_arguments arguments = arguments_of(executor, call, tape);
	const cu_event order = place->capture ? executor->captured_order : executor->order;
	unsigned long long id = 0;
	collet_status status =
		check(executor, executor->cuda->cuStreamGetId(place->stream, &id), "asking for a stream");
	if (status == COLLET_OK)
		status = await_last(executor, place, id);
	if (status == COLLET_OK)
		status = collet_kernel_launch(
			executor->kernels, COLLET_GPU_program, tape->lanes, 1, &arguments, place->stream);
	if (status != COLLET_OK)
		return status;
	note_last(executor, place, tape, id);
	status =
		check(executor, executor->cuda->cuEventRecord(order, place->stream), "marking a communicator's launch");
	/* It is on its way, and nothing could wait for it. */
	if (status != COLLET_OK && !executor->exchange)
		collet_comm_state_end(executor->group, status, true, collet_last_error());
	return status;
}

struct collet_together *collet_executor_together(const struct collet_executor *executor)
{
	return executor->together;
}

const struct collet_copier *collet_executor_copier(const struct collet_executor *executor)
{
	return executor->copier;
}

cu_stream collet_executor_stream(const struct collet_executor *executor)
{
	return executor->stream;
}

uint64_t collet_executor_done(const struct collet_executor *executor)
{
	/* Pairs with the last lane's release: what all of them have written is there. */
	return atomic_load_explicit(&executor->words->done, memory_order_acquire);
}

/* That they have not been reached is all that keeps them: where a fault has broken the context, or the program has
 * destroyed it, nothing runs any more either. */
bool collet_executor_is_idle(struct collet_executor *executor)
{
	return !executor->launches || executor->cuda->cuEventQuery(executor->order) != CU_NOT_READY;
}

collet_status collet_executor_find_fault(struct collet_executor *executor)
{
	const int mode = collet_cuda_relax(executor->cuda);
	const cu_result result = executor->launches ? executor->cuda->cuEventQuery(executor->order) : CU_OK;
	collet_cuda_relax_no_more(executor->cuda, mode);
	return result == CU_NOT_READY ? COLLET_OK :
		check(executor, result, "a collective of GPUs that reach each other");
}

enum collet_executor_complaint collet_executor_complains(const struct collet_executor *executor, uint32_t *rank)
{
	const uint32_t word = atomic_load_explicit(&executor->words->abort, memory_order_relaxed);
	*rank = word & ~(COLLET_LATE | COLLET_DISAGREES | COLLET_GONE);
	return word & COLLET_LATE ? COLLET_EXECUTOR_LATE :
		word & COLLET_DISAGREES ? COLLET_EXECUTOR_DISAGREES :
		word & COLLET_GONE ? COLLET_EXECUTOR_GONE : COLLET_EXECUTOR_FINE;
}

/* ---- Beginning and end ---- */

static const struct collet_peer_info *card_of(const struct collet_comm_state *group, uint32_t rank)
{
	return &group->engine->peer_infos[collet_comm_state_world_rank(group, rank)];
}

bool collet_executor_share(const struct collet_comm_state *group, uint32_t rank, uint32_t other)
{
	const struct collet_peer_info *a = card_of(group, rank), *b = card_of(group, other);
	return memcmp(a->gpu, b->gpu, sizeof(a->gpu)) == 0;
}

bool collet_executor_fits(const struct collet_comm_state *group)
{
	static const uint8_t none[sizeof(((struct collet_peer_info *)0)->gpu)];
	const struct collet_peer_info *first = card_of(group, 0);
	if (group->size < 2 || group->size > COLLET_TAPE_RANKS)
		return false;
	for (uint32_t r = 0; r < group->size; r++) {
		const struct collet_peer_info *card = card_of(group, r);
		if (card->host_id != first->host_id || !card->handle_exchange[1] ||
			memcmp(card->gpu, none, sizeof(none)) == 0)
			return false;
		/* Kernels of two processes take turns on a GPU. */
		for (uint32_t other = 0; other < r; other++)
			if (collet_executor_share(group, r, other) &&
				card_of(group, other)->process_id != card->process_id)
				return false;
	}
	return true;
}

static uint32_t most_on_a_gpu(const struct collet_comm_state *group)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < group->size; r++) {
		uint32_t count = 0;
		for (uint32_t other = 0; other < group->size; other++)
			count += collet_executor_share(group, r, other);
		most = count > most ? count : most;
	}
	return most;
}

collet_status collet_executor_make(struct collet_executor **made, struct collet_device *device,
	struct collet_comm_state *group, bool led, struct collet_executor_lanes lanes,
	const struct collet_executor_exchange *exchange)
{
	bool fine = false;
	*made = NULL;
	struct collet_executor *executor = calloc(1, sizeof(*executor));
	struct collet_opened **opened = calloc(group->size, sizeof(struct collet_opened *));
	if (!executor || !opened) {
		free(executor);
		free(opened);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	}
	executor->device = device;
	executor->cuda = device->cuda;
	executor->group = group;
	executor->exchange = exchange;
	executor->led = led;
	executor->lanes = lanes;
	executor->neighbours = most_on_a_gpu(group);
	executor->opened = opened;
	const collet_status status = collet_executor_connect(executor, &fine);
	executor->exchange = NULL;
	if (status == COLLET_OK && fine)
		*made = executor;
	else
		(void)collet_executor_free(executor);
	return status;
}

void collet_executor_stop(struct collet_executor *executor)
{
	uint32_t nothing = 0;
	if (executor && executor->words)
		(void)atomic_compare_exchange_strong_explicit(
			&executor->words->abort, &nothing, 1, memory_order_relaxed, memory_order_relaxed);
}

static bool wait_until_idle(struct collet_executor *executor, int64_t patience_ns)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	const int64_t deadline = collet_clock_ns() + patience_ns;
	while (executor->order && !collet_executor_is_idle(executor)) {
		if (collet_clock_ns() >= deadline)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

void collet_executor_leave(struct collet_executor *executor)
{
	const int mode = collet_cuda_relax(executor->cuda);
	(void)wait_until_idle(executor, LEAVING_NS);
	collet_cuda_relax_no_more(executor->cuda, mode);
	collet_together_leave(executor->together, executor->group->rank);
	executor->together = NULL;
	collet_connections_notify_left(executor->group);
}

/* In its context. */
static void free_on_gpu(struct collet_executor *executor)
{
	const struct collet_cuda *cuda = executor->cuda;
	if (executor->stream)
		(void)cuda->cuStreamSynchronize(executor->stream);
	collet_executor_free_tapes(executor);
	if (executor->order)
		(void)cuda->cuEventDestroy(executor->order);
	if (executor->captured_order)
		(void)cuda->cuEventDestroy(executor->captured_order);
	if (executor->stream)
		(void)cuda->cuStreamDestroy(executor->stream);
}

static void forget(struct collet_executor *executor)
{
	for (struct collet_executor_tape *tape = executor->tapes, *next; tape; tape = next) {
		next = tape->next;
		free(tape);
	}
	for (struct executor_block *block = executor->blocks, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	if (executor->words)
		(void)munmap(executor->words, sizeof(*executor->words));
	free(executor->opened);
	free(executor);
}

/* The program may have destroyed the context: then all that was there has gone with it. false: it has not, but works no
 * more. */
static bool free_in_context(struct collet_executor *executor)
{
	const struct collet_cuda *cuda = executor->cuda;
	if (!executor->copier)
		return true;
	const cu_result result = cuda->cuCtxPushCurrent(executor->copier->context);
	if (result != CU_OK)
		return collet_cuda_is_gone(result);
	const bool works = !executor->launches || cuda->cuEventQuery(executor->order) == CU_OK;
	if (works)
		free_on_gpu(executor);
	(void)cuda->cuCtxPopCurrent(NULL);
	if (works && executor->words_gpu &&
		!collet_cuda_unlock(cuda, executor->copier->context, executor->words))
		executor->words = NULL;
	return works;
}

static void keep(struct collet_executor *executor)
{
	struct collet_device *device = executor->device;
	collet_engine_lock(executor->group->engine);
	device->kept = true;
	executor->next_kept = device->executors;
	device->executors = executor;
	collet_engine_unlock(executor->group->engine);
}

bool collet_executor_free(struct collet_executor *executor)
{
	if (!executor)
		return true;
	pthread_mutex_lock(&executor->group->engine->end_lock);
	executor->group->abort_word = NULL;
	executor->group->departed_word = NULL;
	pthread_mutex_unlock(&executor->group->engine->end_lock);
	collet_executor_stop(executor);
	/* What other threads of the program capture meanwhile is none of this. */
	const struct collet_cuda *cuda = executor->cuda;
	const int mode = collet_cuda_relax(cuda);
	const bool idle = wait_until_idle(executor, PATIENCE_NS) && free_in_context(executor);
	collet_together_leave(executor->together, executor->group->rank);
	executor->together = NULL;
	if (idle) {
		for (uint32_t r = 0; r < executor->group->size; r++)
			collet_ipc_close(&executor->device->ipc, executor->opened[r]);
		collet_mapped_free(cuda, &executor->own);
		collet_together_give(executor->device->ordinal, executor->taken);
		forget(executor);
	} else {
		keep(executor);
	}
	collet_cuda_relax_no_more(cuda, mode);
	return idle;
}

void collet_executor_forget(struct collet_executor *executor)
{
	if (executor)
		forget(executor);
}
