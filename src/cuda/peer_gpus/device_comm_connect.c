/* Windows: each rank makes one, shows it to all, and opens theirs; then all of them run collectives through the windows
 * whose results each checks. On some machines a GPU's writes to another go astray without any error; then, or where
 * there are no kernels or no such memory, all go other ways. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/lock.h"

enum {
	WINDOW_BYTES = 64 << 20,    /* about what all slots of a window take, */
	LED_WINDOW_BYTES = 8 << 20, /* where large calls have no use for it, */
	LEAST_SLOT_BYTES = 8 << 10, /* in slots of at least and at most so many bytes */
	MOST_SLOT_BYTES = 128 << 10,
	SENT_AT_ONCE = 8, /* descriptors that a desk has room for, whatever the system's limits */
	LOOK_NS = 50 * 1000 /* between looks whether a test has ended */
};
static const int64_t SENT_NS = INT64_C(10) * 1000 * 1000 * 1000;

/* One rank's part of it. */
struct connecting {
	struct collet_executor *executor;
	bool fine;
	bool busy;                   /* its kernel runs */
	char why[COLLET_ERROR_BYTES];
	struct hello {
		uint32_t fine;
		uint32_t busy;
		uint32_t resident; /* blocks of the kernel on its GPU at a time */
		uint64_t context;  /* as its process knows it */
	} * hellos;                /* by rank */
	struct executor_test test;
};

static void complain(struct connecting *connecting)
{
	if (connecting->fine)
		strncpy(connecting->why, collet_last_error(), sizeof(connecting->why) - 1);
	connecting->fine = false;
}

/* Are all ranks fine so far? They are as far as this one when this returns. */
static collet_status agree(struct connecting *connecting, bool *all)
{
	struct collet_executor *executor = connecting->executor;
	const struct hello own = { .fine = connecting->fine,
		.busy = connecting->busy,
		.resident = executor->kernels ? executor->kernels->resident[COLLET_GPU_program] : 0,
		.context = executor->copier ? (uintptr_t)executor->copier->context : 0 };
	const collet_status status =
		executor->exchange->run(executor->exchange->context, &own, connecting->hellos, sizeof(own));
	*all = status == COLLET_OK;
	for (uint32_t r = 0; r < executor->group->size && status == COLLET_OK; r++)
		*all = *all && connecting->hellos[r].fine;
	return status;
}

/* ---- What a rank has without the others ---- */

static collet_status make_words(struct collet_executor *executor)
{
	/* Shared, so that after a fork the page is still the one that the GPU knows. */
	void *memory =
		mmap(NULL, sizeof(struct executor_words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	executor->words = memory;
	cu_result result = executor->cuda->cuMemHostRegister(
		memory, sizeof(struct executor_words), CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_MAPPED);
	if (result != CU_OK)
		return collet_cuda_fail(executor->cuda, result, "page-locking what a kernel tells the host by");
	result = executor->cuda->cuMemHostGetDevicePointer(&executor->words_gpu, memory, 0);
	if (result == CU_OK) {
		struct collet_comm_state *group = executor->group;
		pthread_mutex_lock(&group->engine->end_lock);
		group->abort_word = &executor->words->abort;
		group->departed_word = &executor->words->left;
		if (atomic_load_explicit(&group->end_status, memory_order_relaxed) != COLLET_OK)
			atomic_store_explicit(group->abort_word, 1, memory_order_relaxed);
		pthread_mutex_unlock(&group->engine->end_lock);
		return COLLET_OK;
	}
	if (!collet_cuda_unlock(executor->cuda, executor->copier->context, memory))
		executor->words = NULL;
	executor->words_gpu = 0;
	return collet_cuda_fail(executor->cuda, result, "finding where the GPU has page-locked memory");
}

static collet_status make_streams(struct collet_executor *executor)
{
	static const char what[] = "making a stream for a communicator";
	const struct collet_cuda *cuda = executor->cuda;
	cu_result result = collet_cuda_make_stream(cuda, &executor->stream);
	if (result != CU_OK) {
		executor->stream = NULL;
		return collet_cuda_fail(cuda, result, what);
	}
	cu_event *const events[] = { &executor->order, &executor->captured_order };
	for (size_t e = 0; e < sizeof(events) / sizeof(events[0]); e++) {
		result = cuda->cuEventCreate(events[e], CU_UNTIMED_EVENT);
		if (result != CU_OK) {
			*events[e] = NULL;
			return collet_cuda_fail(cuda, result, what);
		}
	}
	return COLLET_OK;
}

/* Do kernels of this rank and of those that share its GPU run at the same time, as far as can be known? */
static collet_status join_neighbours(struct collet_executor *executor)
{
	const char *doubt = executor->device->leader_only ? "COLLET_CUDA_LEADER is set"
							  : collet_together_doubt(executor->neighbours);
	if (doubt)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "cuda: %s", doubt);
	executor->together =
		collet_together_join(executor->group->id, executor->group->rank, executor->group->size);
	return executor->together
		       ? COLLET_OK
		       : collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks that share a GPU");
}

static collet_status prepare(struct collet_executor *executor)
{
	const struct collet_residence own = {
		.device = true, .ordinal = executor->device->ordinal, .context = executor->device->context };
	struct collet_copier *copier;
	collet_status status = executor->neighbours > 1 ? join_neighbours(executor) : COLLET_OK;
	if (status == COLLET_OK)
		status = collet_copier_find(executor->device->copiers, &own, &copier);
	if (status != COLLET_OK)
		return status;
	executor->copier = copier;
	status = collet_kernel_set_find(&executor->device->kernels, copier, &executor->kernels);
	if (status == COLLET_OK)
		status = collet_copier_begin(executor->cuda, copier);
	if (status != COLLET_OK)
		return status;
	status = make_words(executor);
	if (status == COLLET_OK)
		status = make_streams(executor);
	if (status == COLLET_OK && executor->together)
		status = collet_executor_allocate_ahead(executor);
	collet_copier_end(executor->cuda);
	return status;
}

/* ---- Windows ---- */

/* The same on all ranks, of what all have told. */
static collet_status lay_out(struct connecting *connecting)
{
	struct collet_executor *executor = connecting->executor;
	const uint32_t size = executor->group->size, parts = size < COLLET_TAPE_PARTS ? size : COLLET_TAPE_PARTS;
	uint32_t resident = UINT32_MAX;
	for (uint32_t r = 0; r < size; r++)
		resident = connecting->hellos[r].resident < resident ? connecting->hellos[r].resident : resident;
	/* A share, so that several communicators' launches fit a GPU together: in whatever order they begin on each. */
	const uint32_t fit = resident / (parts * executor->neighbours), share = fit / EXECUTOR_SHARES;
	const uint32_t most =
		executor->led && COLLET_EXECUTOR_LED_MOST_BYTES / executor->lanes.bytes < executor->lanes.most ?
			(uint32_t)(COLLET_EXECUTOR_LED_MOST_BYTES / executor->lanes.bytes) : executor->lanes.most;
	executor->channels = share > most ? most : share ? share : fit < 2 ? fit : 2;
	if (!executor->channels)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: of the blocks that a collective has, %u run at a time on a GPU, and it needs %u",
			resident, parts * executor->neighbours);
	const uint32_t bytes = executor->led ? LED_WINDOW_BYTES : WINDOW_BYTES;
	uint32_t slot = bytes / (executor->channels * parts * size * COLLET_TAPE_SLOTS);
	slot = slot < LEAST_SLOT_BYTES ? LEAST_SLOT_BYTES : slot > MOST_SLOT_BYTES ? MOST_SLOT_BYTES : slot;
	executor->piece_bytes = slot / COLLET_LINE_BYTES * COLLET_LINE_BYTES;
	executor->window = collet_window_for(size, executor->channels, executor->piece_bytes);
	return COLLET_OK;
}

/* Of this rank's blocks; and kernels of two contexts take turns on a GPU, as those of two processes do. */
static collet_status take_room(struct connecting *connecting)
{
	struct collet_executor *executor = connecting->executor;
	const uint32_t rank = executor->group->rank, blocks = executor->window.lanes,
		       resident = executor->kernels->resident[COLLET_GPU_program];
	for (uint32_t r = 0; r < executor->group->size; r++)
		if (collet_executor_share(executor->group, r, rank) &&
			connecting->hellos[r].context != connecting->hellos[rank].context)
			return collet_fail(COLLET_ERR_UNSUPPORTED,
				"cuda: rank %u has another CUDA context than this one, on the same GPU", r);
	if (!collet_together_take(executor->device->ordinal, blocks, resident, !executor->together))
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: of the %u blocks that run at a time on the GPU, communicators of this process leave "
			"less than %u",
			resident, blocks);
	executor->taken = blocks;
	return COLLET_OK;
}

/* Numbers, and flags between bytes, begin with nothing. In the executor's context. */
static collet_status make_window(struct collet_executor *executor)
{
	static const char what[] = "clearing a window for peers";
	const struct collet_cuda *cuda = executor->cuda;
	const size_t bytes = collet_window_bytes(&executor->window);
	const uint64_t cleared = collet_window_slot_at(&executor->window, false, 0, 0, 0);
	const collet_status status = collet_mapped_make(
		cuda, executor->copier->ordinal, bytes + executor->group->size * sizeof(uint64_t), &executor->own);
	if (status != COLLET_OK)
		return status;
	const cu_result result = cuda->cuMemsetD8Async(executor->own.first, 0, cleared, executor->copier->stream);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	return collet_copier_wait(cuda, executor->copier, what);
}

static struct collet_shared shared_of(const struct collet_executor *executor, uint32_t rank)
{
	return (struct collet_shared){ .process = executor->group->id,
		.allocation = rank + 1,
		.first = (uint64_t)(rank + 1) << 48,
		.bytes = executor->own.bytes,
		.kind = COLLET_SHARED_DESCRIPTOR };
}

static collet_status send_one(struct collet_executor *executor, uint32_t to, int file)
{
	struct collet_engine *engine = executor->group->engine;
	const struct collet_peer_info *card = &engine->peer_infos[collet_comm_state_world_rank(executor->group, to)];
	const struct collet_shared own = shared_of(executor, executor->group->rank);
	const struct collet_desk_note note = { own.process, own.allocation };
	const int64_t deadline = collet_clock_ns() + SENT_NS;
	for (;;) {
		const collet_status status =
			collet_desk_send(&executor->device->desk, card->handle_exchange, &note, file);
		if (status != COLLET_PENDING)
			return status;
		if (collet_clock_ns() >= deadline)
			return collet_fail(COLLET_ERR_SYSTEM, "rank %u takes no descriptors of GPU memory", to);
		sched_yield();
	}
}

static collet_status open_one(struct collet_executor *executor, uint32_t from)
{
	const struct collet_shared shared = shared_of(executor, from);
	collet_engine_lock(executor->group->engine);
	const collet_status status =
		collet_device_open(executor->device, executor->copier, &shared, &executor->opened[from]);
	collet_engine_unlock(executor->group->engine);
	return status;
}

/* To those after this rank, and from those before it, some at a time. */
static collet_status show_windows(struct connecting *connecting, bool *all)
{
	struct collet_executor *executor = connecting->executor;
	const uint32_t size = executor->group->size, rank = executor->group->rank;
	const struct collet_shared own = { .first = executor->own.first };
	int file = -1;
	if (connecting->fine && collet_ipc_export(executor->cuda, &own, &file) != COLLET_OK) {
		file = -1;
		complain(connecting);
	}
	collet_status status = COLLET_OK;
	for (uint32_t first = 1; first < size && status == COLLET_OK; first += SENT_AT_ONCE) {
		const uint32_t end = first + SENT_AT_ONCE < size ? first + SENT_AT_ONCE : size;
		for (uint32_t i = first; i < end && connecting->fine; i++)
			if (send_one(executor, (rank + i) % size, file) != COLLET_OK)
				complain(connecting);
		status = agree(connecting, all);
		for (uint32_t i = first; i < end && status == COLLET_OK && *all && connecting->fine; i++)
			if (open_one(executor, (rank + size - i) % size) != COLLET_OK)
				complain(connecting);
	}
	if (file >= 0)
		close(file);
	return status;
}

/* In the executor's context. */
static collet_status write_addresses(struct collet_executor *executor)
{
	static const char what[] = "telling a GPU where windows are";
	uint64_t addresses[COLLET_TAPE_RANKS];
	for (uint32_t r = 0; r < executor->group->size; r++)
		addresses[r] = r == executor->group->rank ? executor->own.first : executor->opened[r]->mapped;
	const collet_status status =
		collet_copier_add(executor->cuda, executor->copier, (void *)(uintptr_t)executor_windows(executor),
			addresses, executor->group->size * sizeof(uint64_t), what);
	const collet_status waited = collet_copier_wait(executor->cuda, executor->copier, what);
	return status == COLLET_OK ? waited : status;
}

/* ---- The test ---- */

static bool some_are_busy(const struct connecting *connecting)
{
	for (uint32_t r = 0; r < connecting->executor->group->size; r++)
		if (connecting->hellos[r].busy)
			return true;
	return false;
}

/* All have prepared it. They go on telling each other while kernels run, since a kernel that waits for one which has
 * not been launched, or has met a fault, finds out only when its time is over. */
static collet_status launch_test(struct connecting *connecting, bool *all)
{
	static const struct timespec pause = { .tv_nsec = LOOK_NS };
	struct collet_executor *executor = connecting->executor;
	collet_status status;
	if (collet_executor_launch_test(executor, &connecting->test) != COLLET_OK)
		complain(connecting);
	for (;;) {
		connecting->busy = !collet_executor_is_idle(executor);
		if (!connecting->busy && connecting->fine && collet_executor_find_fault(executor) != COLLET_OK)
			complain(connecting);
		status = agree(connecting, all);
		if (status != COLLET_OK || !*all)
			break;
		if (!some_are_busy(connecting))
			return COLLET_OK;
		nanosleep(&pause, NULL);
	}
	connecting->busy = false;
	collet_executor_stop_test(executor);
	return status;
}

/* Each rank goes as far as the others before any launches what others wait for. */
static collet_status test_windows(struct connecting *connecting, bool *all)
{
	struct collet_executor *executor = connecting->executor;
	struct executor_test *test = &connecting->test;
	if (collet_executor_check_lines(executor) != COLLET_OK ||
		collet_executor_make_test(executor, test) != COLLET_OK)
		complain(connecting);
	for (uint32_t round = 0; round < 2; round++) {
		const bool quick = round == 0;
		if (connecting->fine && collet_executor_prepare_test(executor, test, quick) != COLLET_OK)
			complain(connecting);
		collet_status status = agree(connecting, all);
		if (status == COLLET_OK && *all)
			status = launch_test(connecting, all);
		if (status != COLLET_OK || !*all)
			return status;
		if (collet_executor_check_test(executor, test) != COLLET_OK)
			complain(connecting);
	}
	return agree(connecting, all);
}

/* ---- All of it ---- */

/* Whatever one rank finds wrong, it goes along with the others to the next exchange. */
static collet_status connect_all(struct connecting *connecting, bool *all)
{
	struct collet_executor *executor = connecting->executor;
	if (prepare(executor) != COLLET_OK)
		complain(connecting);
	collet_status status = agree(connecting, all);
	if (status != COLLET_OK || !*all)
		return status;
	if (lay_out(connecting) != COLLET_OK || take_room(connecting) != COLLET_OK ||
		collet_copier_begin(executor->cuda, executor->copier) != COLLET_OK) {
		complain(connecting);
		return agree(connecting, all);
	}
	if (make_window(executor) != COLLET_OK)
		complain(connecting);
	status = show_windows(connecting, all);
	if (status == COLLET_OK && *all) {
		if (connecting->fine &&
			(write_addresses(executor) != COLLET_OK || collet_executor_warm_up(executor) != COLLET_OK ||
				collet_executor_write_lines(executor) != COLLET_OK))
			complain(connecting);
		status = agree(connecting, all);
	}
	if (status == COLLET_OK && *all)
		status = test_windows(connecting, all);
	collet_executor_free_test(executor, &connecting->test);
	collet_copier_end(executor->cuda);
	return status;
}

collet_status collet_executor_connect(struct collet_executor *executor, bool *fine)
{
	struct connecting connecting = {
		.executor = executor, .fine = true, .hellos = calloc(executor->group->size, sizeof(struct hello)) };
	if (!connecting.hellos)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	const collet_status status = connect_all(&connecting, fine);
	if (!connecting.fine)
		collet_log(executor->device->log, executor->led ? COLLET_LOG_INFO : COLLET_LOG_WARN,
			executor->led ? "all collectives of ranks that share a GPU are done by rank 0: %s"
				      : "collectives of ranks with GPUs go by way of the host: %s",
			connecting.why);
	free(connecting.hellos);
	return status;
}
