/* GPU memory from collet_mem_alloc_device(). The leader is told of it when it is allocated and freed, not at calls. It
 * is not freed while in use. Whatever the driver refuses leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/cuda.h>
#include "api/comm.h"
#include "cuda/shared_gpu/internal.h"
#include "cuda/gpu_context.h"
#include "gpu.h"

enum { COUNT = 3000, BYTES = COUNT * sizeof(uint32_t), MANY = 40 };

static bool start(struct rank *rank, struct gpu *gpu)
{
	return gpu_start(gpu, rank) && rank_create(rank);
}

/* A buffer in the library's memory, full of ones. */
static bool make(struct gpu *gpu, struct buffer *buffer)
{
	uint32_t ones[COUNT];
	void *memory = NULL;
	for (int i = 0; i < COUNT; i++)
		ones[i] = 1;
	if (!rank_ok(gpu->rank, collet_mem_alloc_device(gpu->rank->comm, &memory, BYTES), "allocating"))
		return false;
	*buffer = (struct buffer){ .program = &gpu->program, .gpu = true, .first = memory, .bytes = BYTES };
	return rank_check(gpu->rank, buffer_write(buffer, ones), "writing");
}

static bool drop(struct gpu *gpu, const struct buffer *buffer)
{
	return rank_ok(gpu->rank, collet_mem_free(gpu->rank->comm, buffer->first), "freeing");
}

/* With an algorithm that counts only if the host executes it. */
static collet_status sum(struct rank *rank, const struct buffer *buffer, cu_stream stream, collet_request **request)
{
	const collet_how how = { .stream = stream, .request = request, .algorithm = "two_shot" };
	return collet_allreduce(
		rank->comm, buffer->first, buffer->first, COUNT, COLLET_U32, COLLET_SUM, &how);
}

static uint32_t notes(const struct rank *rank)
{
	return rank->comm->gpu->shared_gpu->exported.notes_sent;
}

/* ---- Notes to the leader ---- */

static void tell(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffers[3];
	collet_stat stats[128];
	size_t count = 0;
	if (!start(rank, &gpu))
		return;
	const struct collet_ipc_cache *opened = &rank->comm->context->gpu->device.ipc_cache;
	const uint32_t others = rank->options->mode == RANKS_PROCESSES ? rank->size - 1 : 0;
	const uint32_t before = notes(rank);
	for (int i = 0; i < 3; i++)
		make(&gpu, &buffers[i]);
	rank_check(rank, notes(rank) == before + (others && rank->rank ? 3 : 0), "the leader was not told");
	for (int i = 0; i < 3; i++) {
		const uint32_t told = notes(rank);
		rank_ok(rank, sum(rank, &buffers[i], NULL, NULL), "a sum");
		gpu_holds(&gpu, &buffers[i], rank->size, "the sum");
		rank_check(rank, notes(rank) == told, "a call has told the leader again");
	}
	rank_check(rank, rank->rank || opened->count == 3 * others, "%u are open", opened->count);
	/* The leader learns of it at the next call. */
	drop(&gpu, &buffers[0]);
	drop(&gpu, &buffers[1]);
	rank_ok(rank, sum(rank, &buffers[2], NULL, NULL), "another sum");
	gpu_holds(&gpu, &buffers[2], rank->size * rank->size, "the second sum");
	rank_check(rank, rank->rank || opened->count == others, "%u are open yet", opened->count);
	rank_ok(rank, collet_comm_stats(rank->comm, stats, 128, &count), "statistics");
	for (size_t i = 0; i < count; i++)
		rank_check(rank, stats[i].kind != COLLET_STAT_ALGORITHM || !strstr(stats[i].name, "two_shot"),
			"%llu by way of the host", (unsigned long long)stats[i].calls);
	/* The rest is freed with the context. */
	gpu_end(&gpu);
}

static void the_leader_is_told_once_of_memory_and_of_its_freeing(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 2, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], tell);
}

/* More notes than fit the leader's socket before it reads them; and as many frees. */
static void tell_much(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffers[MANY];
	if (!start(rank, &gpu))
		return;
	const struct collet_ipc_cache *opened = &rank->comm->context->gpu->device.ipc_cache;
	for (int i = 0; i < MANY; i++)
		make(&gpu, &buffers[i]);
	for (int i = 0; i < MANY && !rank->report->failed; i++) {
		rank_ok(rank, sum(rank, &buffers[i], NULL, NULL), "a sum");
		gpu_holds(&gpu, &buffers[i], rank->size, "the sum");
	}
	rank_check(rank, rank->rank || opened->count >= MANY / 2, "%u are open", opened->count);
	for (int i = 0; i < MANY - 1; i++)
		drop(&gpu, &buffers[i]);
	/* Each call sends a few of the notes that found no room. */
	for (int i = 0; i < 10; i++)
		rank_ok(rank, sum(rank, &buffers[MANY - 1], NULL, NULL), "the last one's");
	rank_check(rank, rank->rank || opened->count == rank->size - 1, "%u are open yet", opened->count);
	drop(&gpu, &buffers[MANY - 1]);
	gpu_end(&gpu);
}

static void a_full_socket_delays_nothing(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, tell_much);
}

/* ---- Not freed while in use ---- */

static void refuse_free(struct gpu *gpu, const struct buffer *buffer, const char *words)
{
	rank_status(gpu->rank, collet_mem_free(gpu->rank->comm, buffer->first), COLLET_ERR_ARGUMENT, words);
	rank_check(gpu->rank, strstr(collet_last_error(), words) != NULL, "%s", collet_last_error());
}

static void use(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer, captured;
	cu_graph graph = NULL;
	collet_request *request = NULL;
	collet_comm *part = NULL, *whole;
	if (!start(rank, &gpu) || !make(&gpu, &buffer))
		return;
	whole = rank->comm;
	/* No other rank's call has begun. */
	rank_ok(rank, sum(rank, &buffer, NULL, &request), "a request");
	if (rank->rank == 0)
		refuse_free(&gpu, &buffer, "a pending request");
	rank_post(rank, 0);
	rank_await(rank, 0, 1);
	rank_ok(rank, collet_request_wait(&request), "waiting");
	gpu_hold(&gpu, 0, 0);
	rank_ok(rank, sum(rank, &buffer, gpu.stream[0], NULL), "on a stream");
	refuse_free(&gpu, &buffer, "a call on a stream");
	gpu_open(&gpu, 0);
	gpu_synchronize(&gpu, 0);
	/* Used by a graph, for as long as its communicator exists; also allocated during the capture. */
	rank_ok(rank, collet_comm_split(whole, 0, rank->rank, &part), "split");
	rank->comm = part;
	rank_check(rank, gpu.cuda.cuStreamBeginCapture_v2(gpu.stream[0], CU_CAPTURE_MODE_GLOBAL) == CU_OK, "a capture");
	void *memory = NULL;
	rank_ok(rank, collet_mem_alloc_device(part, &memory, BYTES), "allocating in a capture");
	captured = (struct buffer){ .program = &gpu.program, .gpu = true, .first = memory, .bytes = BYTES };
	rank_ok(rank, sum(rank, &captured, gpu.stream[0], NULL), "captured");
	rank_check(rank, gpu.cuda.cuStreamEndCapture(gpu.stream[0], &graph) == CU_OK, "the capture's end");
	(void)gpu.cuda.cuGraphDestroy(graph);
	refuse_free(&gpu, &captured, "or a graph");
	drop(&gpu, &buffer);
	rank->comm = whole;
	rank_ok(rank, collet_comm_destroy(&part), "destroying a part");
	drop(&gpu, &captured);
	gpu_end(&gpu);
}

static void memory_in_use_is_not_freed(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, use);
}

/* ---- Refusals ---- */

struct refusal {
	const char *variable, *value;
	collet_status status;
	const char *words;
};

static void be_refused(struct rank *rank)
{
	const struct refusal *refusal = rank->options->context;
	struct gpu gpu;
	struct buffer buffer;
	void *memory = &buffer;
	if (!start(rank, &gpu))
		return;
	setenv(refusal->variable, refusal->value, 1);
	rank_status(rank, collet_mem_alloc_device(rank->comm, &memory, BYTES), refusal->status, refusal->value);
	rank_check(rank, memory == &buffer && strstr(collet_last_error(), refusal->words), "%s", collet_last_error());
	unsetenv(refusal->variable);
	rank_status(rank, collet_mem_alloc_device(rank->comm, NULL, 1), COLLET_ERR_ARGUMENT, "nowhere to");
	rank_status(rank, collet_mem_alloc_device(rank->comm, &memory, SIZE_MAX), COLLET_ERR_MEMORY, "too much");
	if (make(&gpu, &buffer)) {
		rank_ok(rank, sum(rank, &buffer, NULL, NULL), "afterwards");
		gpu_holds(&gpu, &buffer, rank->size, "afterwards");
		drop(&gpu, &buffer);
	}
	gpu_end(&gpu);
}

static void what_the_driver_refuses_leaves_nothing_behind(void **state)
{
	static const struct refusal refusals[] = {
		{ "FAKE_CUDA_WITHOUT", "exportable memory", COLLET_ERR_UNSUPPORTED,
			"collet_mem_alloc_device: cuda: GPU 0 has no memory that can be exported" },
		{ "FAKE_CUDA_FAIL", "cuMemGetAllocationGranularity:0:1", COLLET_ERR_SYSTEM, "INVALID_VALUE" },
		{ "FAKE_CUDA_FAIL", "cuMemCreate:0:2", COLLET_ERR_MEMORY, "OUT_OF_MEMORY" },
		{ "FAKE_CUDA_FAIL", "cuMemAddressReserve:0:2", COLLET_ERR_MEMORY, "OUT_OF_MEMORY" },
		{ "FAKE_CUDA_FAIL", "cuMemMap:0:1", COLLET_ERR_SYSTEM, "INVALID_VALUE" },
		{ "FAKE_CUDA_FAIL", "cuMemSetAccess:0:1", COLLET_ERR_SYSTEM, "INVALID_VALUE" },
		{ "FAKE_CUDA_FAIL", "cuPointerGetAttributes:0:999", COLLET_ERR_SYSTEM, "asking where" },
	};
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &refusals[i] };
		ranks_must_pass(&options, be_refused);
	}
}

static void go_without(struct rank *rank)
{
	void *memory = NULL;
	setenv("COLLET_CUDA", "0", 1);
	if (!rank_create(rank))
		return;
	rank_status(rank, collet_mem_alloc_device(rank->comm, &memory, 1), COLLET_ERR_UNSUPPORTED, "no driver");
	rank_check(rank, strstr(collet_last_error(), "collet_mem_alloc_device: COLLET_CUDA says") != NULL, "%s",
		collet_last_error());
	rank_destroy(rank);
}

static void without_a_driver_there_is_none(void **state)
{
	const struct ranks_options options = { .size = 1, .bare = true };
	ranks_must_pass(&options, go_without);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_driver_refuses_leaves_nothing_behind),
		cmocka_unit_test(without_a_driver_there_is_none),
		cmocka_unit_test(a_full_socket_delays_nothing),
		cmocka_unit_test(memory_in_use_is_not_freed),
		cmocka_unit_test(the_leader_is_told_once_of_memory_and_of_its_freeing),
	};
	/* Otherwise threads of one process would launch kernels of their own. */
	setenv("COLLET_CUDA_LEADER", "1", 1);
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
