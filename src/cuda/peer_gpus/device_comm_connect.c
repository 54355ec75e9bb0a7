/* Connects windows: each rank allocates one, exports it to all peers, and maps theirs. Then all ranks run test
 * collectives through the windows and check the results. On some machines a GPU's writes to another are lost, or hit
 * other memory, without any error. Then, or without kernels or such memory, calls take other paths. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/lock.h"

enum {
	WINDOW_BYTES = 64 << 20,    /* approximate size of all slots of a window */
	SMALL_WINDOW_BYTES = 8 << 20, /* the same, if a leader does large calls */
	MIN_SLOT_BYTES = 8 << 10,   /* bounds of the size of a slot */
	MAX_SLOT_BYTES = 128 << 10,
	FDS_PER_ROUND = 8, /* descriptors that fit a peer's socket with any system settings */
	TEST_POLL_NS = 50 * 1000 /* interval of polling a test */
};
static const int64_t SEND_TIMEOUT_NS = INT64_C(10) * 1000 * 1000 * 1000;

/* One rank's state of the setup. */
struct connect_state {
	struct collet_device_comm *device_comm;
	bool is_ok;
	bool is_busy;                /* its kernel runs */
	char why[COLLET_ERROR_BYTES];
	struct hello {
		uint32_t is_ok;
		uint32_t is_busy;
		uint32_t resident_blocks; /* blocks of the kernel that run at a time on its GPU */
		uint64_t context;  /* a value of its process */
	} *hellos; /* by rank */
	struct device_comm_test test;
};

static void record_failure(struct connect_state *setup)
{
	if (setup->is_ok)
		strncpy(setup->why, collet_last_error(), sizeof(setup->why) - 1);
	setup->is_ok = false;
}

/* Exchanges hellos; *all_ok: no rank has failed so far. When this returns, all ranks have reached this point. */
static collet_status agree(struct connect_state *setup, bool *all_ok)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	const struct hello own = { .is_ok = setup->is_ok,
		.is_busy = setup->is_busy,
		.resident_blocks = device_comm->kernels ? device_comm->kernels->resident_blocks[COLLET_GPU_plan] : 0,
		.context = device_comm->copy_stream ? (uintptr_t)device_comm->copy_stream->context : 0 };
	const collet_status status =
		device_comm->exchange->run(device_comm->exchange->context, &own, setup->hellos, sizeof(own));
	*all_ok = status == COLLET_OK;
	for (uint32_t r = 0; r < device_comm->state->size && status == COLLET_OK; r++)
		*all_ok = *all_ok && setup->hellos[r].is_ok;
	return status;
}

/* ---- Local setup ---- */

static collet_status create_host_flags(struct collet_device_comm *device_comm)
{
	/* Shared, so that after a fork the page is still the one that the GPU uses. */
	void *memory =
		mmap(NULL, sizeof(struct host_flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	device_comm->host_flags = memory;
	cu_result result = device_comm->cuda->cuMemHostRegister(
		memory, sizeof(struct host_flags), CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_MAPPED);
	if (result != CU_OK)
		return collet_cuda_fail(device_comm->cuda, result, "page-locking flags between kernels and host");
	result = device_comm->cuda->cuMemHostGetDevicePointer(&device_comm->host_flags_gpu, memory, 0);
	if (result == CU_OK) {
		struct collet_comm_state *state = device_comm->state;
		pthread_mutex_lock(&state->engine->end_lock);
		state->abort_flag = &device_comm->host_flags->abort;
		state->left_ranks = &device_comm->host_flags->left_ranks;
		if (atomic_load_explicit(&state->end_status, memory_order_relaxed) != COLLET_OK)
			atomic_store_explicit(state->abort_flag, 1, memory_order_relaxed);
		pthread_mutex_unlock(&state->engine->end_lock);
		return COLLET_OK;
	}
	if (!collet_cuda_unregister_host(device_comm->cuda, device_comm->copy_stream->context, memory))
		device_comm->host_flags = NULL;
	device_comm->host_flags_gpu = 0;
	return collet_cuda_fail(device_comm->cuda, result, "getting the device address of page-locked memory");
}

static collet_status create_streams(struct collet_device_comm *device_comm)
{
	static const char what[] = "creating a stream for a communicator";
	const struct collet_cuda *cuda = device_comm->cuda;
	cu_result result = collet_cuda_create_stream(cuda, &device_comm->stream);
	if (result != CU_OK) {
		device_comm->stream = NULL;
		return collet_cuda_fail(cuda, result, what);
	}
	cu_event *const events[] = { &device_comm->last_launch_event, &device_comm->last_captured_event };
	for (size_t e = 0; e < sizeof(events) / sizeof(events[0]); e++) {
		result = cuda->cuEventCreate(events[e], CU_UNTIMED_EVENT);
		if (result != CU_OK) {
			*events[e] = NULL;
			return collet_cuda_fail(cuda, result, what);
		}
	}
	return COLLET_OK;
}

/* Checks, as far as possible, that kernels of ranks on this rank's GPU run at the same time. */
static collet_status join_co_resident(struct collet_device_comm *device_comm)
{
	const char *obstacle = device_comm->device->is_leader_only ? "COLLET_CUDA_LEADER is set"
							  : collet_co_resident_obstacle(device_comm->ranks_per_gpu);
	if (obstacle)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "cuda: %s", obstacle);
	device_comm->co_resident =
		collet_co_resident_join(device_comm->state->id, device_comm->state->rank, device_comm->state->size);
	return device_comm->co_resident
		       ? COLLET_OK
		       : collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks that share a GPU");
}

static collet_status prepare(struct collet_device_comm *device_comm)
{
	const struct collet_pointer_attributes own = {
		.is_device = true, .ordinal = device_comm->device->ordinal, .context = device_comm->device->context };
	struct collet_copy_stream *copy_stream;
	collet_status status = device_comm->ranks_per_gpu > 1 ? join_co_resident(device_comm) : COLLET_OK;
	if (status == COLLET_OK)
		status = collet_copy_stream_get(device_comm->device->copy_streams, &own, &copy_stream);
	if (status != COLLET_OK)
		return status;
	device_comm->copy_stream = copy_stream;
	status = collet_kernel_set_get(&device_comm->device->kernels, copy_stream, &device_comm->kernels);
	if (status == COLLET_OK)
		status = collet_copy_stream_push_context(device_comm->cuda, copy_stream);
	if (status != COLLET_OK)
		return status;
	status = create_host_flags(device_comm);
	if (status == COLLET_OK)
		status = create_streams(device_comm);
	if (status == COLLET_OK && device_comm->co_resident)
		status = collet_device_comm_preallocate(device_comm);
	collet_copy_stream_pop_context(device_comm->cuda);
	return status;
}

/* ---- Windows ---- */

/* Computes the window's layout from all ranks' hellos; the same on all ranks. */
static collet_status compute_layout(struct connect_state *setup)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	const uint32_t size = device_comm->state->size, parts = size < COLLET_PLAN_PARTS ? size : COLLET_PLAN_PARTS;
	uint32_t resident = UINT32_MAX;
	for (uint32_t r = 0; r < size; r++)
		resident = setup->hellos[r].resident_blocks < resident ? setup->hellos[r].resident_blocks : resident;
	/* A share of the GPU, so that launches of several communicators fit, in whatever order they start on each
	 * GPU. */
	const uint32_t fit = resident / (parts * device_comm->ranks_per_gpu), share = fit / COMMS_PER_GPU;
	const uint32_t most = device_comm->has_leader ? (uint32_t)(COLLET_DEVCOLL_MAX_BYTES / COLLET_LL_BYTES)
						      : device_comm->channel_limits.max_per_part;
	device_comm->channels_per_part = share > most ? most : share ? share : fit < 2 ? fit : 2;
	if (!device_comm->channels_per_part)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: a GPU runs %u blocks of a collective at a time, and it needs %u",
			resident, parts * device_comm->ranks_per_gpu);
	const uint32_t bytes = device_comm->has_leader ? SMALL_WINDOW_BYTES : WINDOW_BYTES;
	uint32_t slot = bytes / (device_comm->channels_per_part * parts * size * COLLET_WINDOW_SLOTS);
	slot = slot < MIN_SLOT_BYTES ? MIN_SLOT_BYTES : slot > MAX_SLOT_BYTES ? MAX_SLOT_BYTES : slot;
	device_comm->segment_bytes = slot / COLLET_FLAG_STRIDE_BYTES * COLLET_FLAG_STRIDE_BYTES;
	device_comm->window = collet_window_for(size, device_comm->channels_per_part, device_comm->segment_bytes);
	return COLLET_OK;
}

/* Reserves this rank's blocks. Also refuses ranks with different contexts on one GPU: it runs their kernels one after
 * the other, as for two processes. */
static collet_status reserve_blocks(struct connect_state *setup)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	const uint32_t rank = device_comm->state->rank, blocks = device_comm->window.channels,
		       resident = device_comm->kernels->resident_blocks[COLLET_GPU_plan];
	for (uint32_t r = 0; r < device_comm->state->size; r++)
		if (collet_device_comm_same_gpu(device_comm->state, r, rank) &&
			setup->hellos[r].context != setup->hellos[rank].context)
			return collet_fail(COLLET_ERR_UNSUPPORTED,
				"cuda: rank %u has another CUDA context than this one, on the same GPU", r);
	if (!collet_co_resident_reserve_blocks(
		    device_comm->device->ordinal, blocks, resident, !device_comm->co_resident))
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: of the %u blocks that run at a time on the GPU, communicators of this process leave "
			"less than %u",
			resident, blocks);
	device_comm->reserved_blocks = blocks;
	return COLLET_OK;
}

/* Zeroes the window's words, and the flags in its LL slots. Needs the copy stream's context. */
static collet_status create_window(struct collet_device_comm *device_comm)
{
	static const char what[] = "clearing a window for peers";
	const struct collet_cuda *cuda = device_comm->cuda;
	const size_t bytes = collet_window_bytes(&device_comm->window);
	const uint64_t cleared = collet_window_slot_at(&device_comm->window, false, 0, 0, 0);
	const collet_status status = collet_vmm_alloc(cuda, device_comm->copy_stream->ordinal,
		bytes + device_comm->state->size * sizeof(uint64_t), &device_comm->window_memory);
	if (status != COLLET_OK)
		return status;
	const cu_result result =
		cuda->cuMemsetD8Async(device_comm->window_memory.address, 0, cleared, device_comm->copy_stream->stream);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	return collet_copy_stream_synchronize(cuda, device_comm->copy_stream, what);
}

static struct collet_ipc_handle window_handle(const struct collet_device_comm *device_comm, uint32_t rank)
{
	return (struct collet_ipc_handle){ .process = device_comm->state->id,
		.allocation = rank + 1,
		.address = (uint64_t)(rank + 1) << 48,
		.bytes = device_comm->window_memory.bytes,
		.kind = COLLET_IPC_FD };
}

static collet_status send_one(struct collet_device_comm *device_comm, uint32_t to, int fd)
{
	struct collet_engine *engine = device_comm->state->engine;
	const struct collet_peer_info *peer_info =
		&engine->peer_infos[collet_comm_state_world_rank(device_comm->state, to)];
	const struct collet_ipc_handle own = window_handle(device_comm, device_comm->state->rank);
	const struct collet_handle_note note = { own.process, own.allocation };
	const int64_t deadline = collet_clock_ns() + SEND_TIMEOUT_NS;
	for (;;) {
		const collet_status status = collet_handle_exchange_send(
			&device_comm->device->handle_exchange, peer_info->handle_exchange, &note, fd);
		if (status != COLLET_PENDING)
			return status;
		if (collet_clock_ns() >= deadline)
			return collet_fail(COLLET_ERR_SYSTEM, "rank %u receives no descriptors of GPU memory", to);
		sched_yield();
	}
}

static collet_status open_one(struct collet_device_comm *device_comm, uint32_t from)
{
	const struct collet_ipc_handle handle = window_handle(device_comm, from);
	collet_engine_lock(device_comm->state->engine);
	const collet_status status = collet_device_open_handle(
		device_comm->device, device_comm->copy_stream, &handle, &device_comm->peer_windows[from]);
	collet_engine_unlock(device_comm->state->engine);
	return status;
}

/* Sends to the ranks after this one, and receives from those before it, some at a time. */
static collet_status exchange_windows(struct connect_state *setup, bool *all_ok)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	const uint32_t size = device_comm->state->size, rank = device_comm->state->rank;
	const struct collet_ipc_handle own = { .address = device_comm->window_memory.address };
	int fd = -1;
	if (setup->is_ok && collet_ipc_handle_export_fd(device_comm->cuda, &own, &fd) != COLLET_OK) {
		fd = -1;
		record_failure(setup);
	}
	collet_status status = COLLET_OK;
	for (uint32_t first = 1; first < size && status == COLLET_OK; first += FDS_PER_ROUND) {
		const uint32_t end = first + FDS_PER_ROUND < size ? first + FDS_PER_ROUND : size;
		for (uint32_t i = first; i < end && setup->is_ok; i++)
			if (send_one(device_comm, (rank + i) % size, fd) != COLLET_OK)
				record_failure(setup);
		status = agree(setup, all_ok);
		for (uint32_t i = first; i < end && status == COLLET_OK && *all_ok && setup->is_ok; i++)
			if (open_one(device_comm, (rank + size - i) % size) != COLLET_OK)
				record_failure(setup);
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/* Needs the copy stream's context. */
static collet_status write_addresses(struct collet_device_comm *device_comm)
{
	static const char what[] = "copying window addresses to a GPU";
	uint64_t addresses[COLLET_PLAN_RANKS];
	for (uint32_t r = 0; r < device_comm->state->size; r++)
		addresses[r] = r == device_comm->state->rank ? device_comm->window_memory.address
							     : device_comm->peer_windows[r]->address;
	const collet_status status = collet_copy_stream_enqueue(device_comm->cuda, device_comm->copy_stream,
		(void *)(uintptr_t)window_addresses(device_comm), addresses,
		device_comm->state->size * sizeof(uint64_t), what);
	const collet_status waited = collet_copy_stream_synchronize(device_comm->cuda, device_comm->copy_stream, what);
	return status == COLLET_OK ? waited : status;
}

/* ---- Test ---- */

static bool any_is_busy(const struct connect_state *setup)
{
	for (uint32_t r = 0; r < setup->device_comm->state->size; r++)
		if (setup->hellos[r].is_busy)
			return true;
	return false;
}

/* All ranks have prepared the test. They keep exchanging hellos while kernels run: a kernel that waits for one that was
 * not launched, has met a fault or has waited in vain, would notice only at its deadline, and blame another rank. */
static collet_status launch_test(struct connect_state *setup, bool *all_ok)
{
	static const struct timespec pause = { .tv_nsec = TEST_POLL_NS };
	struct collet_device_comm *device_comm = setup->device_comm;
	collet_status status;
	if (collet_device_comm_launch_test(device_comm, &setup->test) != COLLET_OK)
		record_failure(setup);
	for (;;) {
		setup->is_busy = !collet_device_comm_is_idle(device_comm);
		if (!setup->is_busy && setup->is_ok && collet_device_comm_check_test_end(device_comm) != COLLET_OK)
			record_failure(setup);
		status = agree(setup, all_ok);
		if (status != COLLET_OK || !*all_ok)
			break;
		if (!any_is_busy(setup))
			return COLLET_OK;
		nanosleep(&pause, NULL);
	}
	setup->is_busy = false;
	collet_device_comm_abort_test(device_comm);
	return status;
}

/* No rank launches a kernel before all have finished what could delay theirs. */
static collet_status test_windows(struct connect_state *setup, bool *all_ok)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	struct device_comm_test *test = &setup->test;
	if (collet_device_comm_check_probes(device_comm) != COLLET_OK ||
		collet_device_comm_create_test(device_comm, test) != COLLET_OK)
		record_failure(setup);
	for (uint32_t round = 0; round < 2; round++) {
		const bool is_ll = round == 0;
		if (setup->is_ok && collet_device_comm_prepare_test(device_comm, test, is_ll) != COLLET_OK)
			record_failure(setup);
		collet_status status = agree(setup, all_ok);
		if (status == COLLET_OK && *all_ok)
			status = launch_test(setup, all_ok);
		if (status != COLLET_OK || !*all_ok)
			return status;
		if (collet_device_comm_check_test(device_comm, test) != COLLET_OK)
			record_failure(setup);
	}
	return agree(setup, all_ok);
}

/* ---- The whole setup ---- */

/* A rank that fails still takes part in the next exchange. */
static collet_status connect_all(struct connect_state *setup, bool *all_ok)
{
	struct collet_device_comm *device_comm = setup->device_comm;
	if (prepare(device_comm) != COLLET_OK)
		record_failure(setup);
	collet_status status = agree(setup, all_ok);
	if (status != COLLET_OK || !*all_ok)
		return status;
	if (compute_layout(setup) != COLLET_OK || reserve_blocks(setup) != COLLET_OK ||
		collet_copy_stream_push_context(device_comm->cuda, device_comm->copy_stream) != COLLET_OK) {
		record_failure(setup);
		return agree(setup, all_ok);
	}
	if (create_window(device_comm) != COLLET_OK)
		record_failure(setup);
	status = exchange_windows(setup, all_ok);
	if (status == COLLET_OK && *all_ok) {
		if (setup->is_ok && (write_addresses(device_comm) != COLLET_OK ||
					    collet_device_comm_warm_up(device_comm) != COLLET_OK ||
					    collet_device_comm_write_probes(device_comm) != COLLET_OK))
			record_failure(setup);
		status = agree(setup, all_ok);
	}
	if (status == COLLET_OK && *all_ok)
		status = test_windows(setup, all_ok);
	collet_device_comm_destroy_test(device_comm, &setup->test);
	collet_copy_stream_pop_context(device_comm->cuda);
	return status;
}

collet_status collet_device_comm_connect(struct collet_device_comm *device_comm, bool *ok)
{
	struct connect_state setup = { .device_comm = device_comm,
		.is_ok = true,
		.hellos = calloc(device_comm->state->size, sizeof(struct hello)) };
	if (!setup.hellos)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	const collet_status status = connect_all(&setup, ok);
	if (!setup.is_ok)
		collet_log(device_comm->device->log, device_comm->has_leader ? COLLET_LOG_INFO : COLLET_LOG_WARN,
			device_comm->has_leader ? "all collectives of ranks that share a GPU are done by rank 0: %s"
				      : "collectives of ranks with GPUs go by way of the host: %s",
			setup.why);
	free(setup.hellos);
	return status;
}
