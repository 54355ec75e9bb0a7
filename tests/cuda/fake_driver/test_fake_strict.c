/* What the fake driver refuses, as drivers do: a library that did it would be found out here. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loaded_kernels.h"
#include "ranks.h"

enum { BYTES = 4096 };

static const struct collet_log no_log;

/* ---- Within one process ---- */

struct bench {
	struct collet_cuda cuda;
	struct program program;
	cu_stream stream;
};

static void bench_start(struct bench *bench)
{
	assert_int_equal(collet_cuda_open(&bench->cuda, &no_log), COLLET_OK);
	assert_true(program_start(&bench->program, 0));
	assert_int_equal(collet_cuda_create_stream(&bench->cuda, &bench->stream), CU_OK);
}

static void bench_end(struct bench *bench)
{
	assert_int_equal(bench->cuda.cuStreamDestroy(bench->stream), CU_OK);
	assert_true(program_end(&bench->program));
	collet_cuda_close(&bench->cuda);
}

/* In every call that takes a GPU address, for either end of the range. */
static void must_be_nobodys(const struct bench *bench, cu_pointer pointer)
{
	const struct program *program = &bench->program;
	char bytes[8] = { 0 };
	struct buffer other;
	assert_true(buffer_make(&other, program, true, sizeof(bytes)));
	const cu_pointer there = (uintptr_t)other.first;
	assert_int_equal(program->cuMemcpyHtoD_v2(pointer, bytes, sizeof(bytes)), CU_INVALID_VALUE);
	assert_int_equal(program->cuMemcpyDtoH_v2(bytes, pointer, sizeof(bytes)), CU_INVALID_VALUE);
	assert_int_equal(
		bench->cuda.cuMemcpyAsync(pointer, there, sizeof(bytes), bench->stream), CU_INVALID_VALUE);
	assert_int_equal(
		bench->cuda.cuMemcpyAsync(there, pointer, sizeof(bytes), bench->stream), CU_INVALID_VALUE);
	assert_int_equal(bench->cuda.cuMemsetD8Async(pointer, 1, sizeof(bytes), bench->stream), CU_INVALID_VALUE);
	assert_int_equal(bench->cuda.cuStreamSynchronize(bench->stream), CU_OK);
	buffer_free(&other);
}

static void freed_memory_is_inaccessible(void **state)
{
	struct bench bench;
	cu_pointer first, again;
	bench_start(&bench);
	assert_int_equal(bench.program.cuMemAlloc_v2(&first, 3 * BYTES), CU_OK);
	assert_int_equal(bench.cuda.cuMemsetD8Async(first, 1, 3 * BYTES, bench.stream), CU_OK);
	assert_int_equal(bench.cuda.cuStreamSynchronize(bench.stream), CU_OK);
	assert_int_equal(bench.program.cuMemFree_v2(first), CU_OK);
	must_be_nobodys(&bench, first);
	must_be_nobodys(&bench, first + 3 * BYTES - 8);
	assert_int_equal(bench.program.cuMemFree_v2(first), CU_INVALID_VALUE);
	/* Addresses are reused. */
	assert_int_equal(bench.program.cuMemAlloc_v2(&again, 3 * BYTES), CU_OK);
	assert_true(again == first);
	assert_int_equal(bench.cuda.cuMemsetD8Async(again, 1, 3 * BYTES, bench.stream), CU_OK);
	assert_int_equal(bench.cuda.cuStreamSynchronize(bench.stream), CU_OK);
	assert_int_equal(bench.program.cuMemFree_v2(again), CU_OK);
	bench_end(&bench);
}

/* Streams that do not wait for the legacy one may run before the data of cuMemcpyHtoD() has arrived. */
static void copies_to_the_gpu_may_arrive_late(void **state)
{
	const uint32_t before = 1, after = 2;
	struct bench bench;
	struct buffer buffer;
	uint32_t seen = 0;
	bench_start(&bench);
	assert_true(buffer_make(&buffer, &bench.program, true, sizeof(before)) && buffer_write(&buffer, &before));
	const cu_pointer there = (uintptr_t)buffer.first;
	assert_int_equal(bench.program.cuMemcpyHtoD_v2(there, &after, sizeof(after)), CU_OK);
	for (uint32_t turn = 0; turn < 2; turn++) {
		assert_int_equal(
			bench.cuda.cuMemcpyAsync((uintptr_t)&seen, there, sizeof(seen), bench.stream), CU_OK);
		assert_int_equal(bench.cuda.cuStreamSynchronize(bench.stream), CU_OK);
		assert_int_equal(seen, turn ? after : before);
		assert_int_equal(bench.cuda.cuStreamSynchronize((cu_stream)CU_LEGACY_STREAM), CU_OK);
	}
	/* Later work on the legacy stream finds it there. */
	assert_int_equal(bench.program.cuMemcpyHtoD_v2(there, &before, sizeof(before)), CU_OK);
	assert_true(buffer_read(&buffer, &seen));
	assert_int_equal(seen, before);
	buffer_free(&buffer);
	bench_end(&bench);
}

/* A stream notices the fault when it reaches the work that it was given before. */
static void what_is_freed_before_a_stream_comes_to_it_is_a_fault(struct rank *rank)
{
	struct bench bench;
	cu_pointer memory = 0, word = 0;
	const uint32_t zero = 0;
	cu_stream other;
	bench_start(&bench);
	const struct collet_cuda *cuda = &bench.cuda;
	rank_check(rank, bench.program.cuMemAlloc_v2(&memory, BYTES) == CU_OK &&
			bench.program.cuMemAlloc_v2(&word, sizeof(zero)) == CU_OK &&
			program_put(&bench.program, word, &zero, sizeof(zero)) == CU_OK, "memory");
	rank_check(rank, cuda->cuStreamWaitValue32(bench.stream, word, 1, CU_WAIT_VALUE_GEQ) == CU_OK &&
			cuda->cuMemsetD8Async(memory, 1, BYTES, bench.stream) == CU_OK, "on a stream");
	rank_check(rank, bench.program.cuMemFree_v2(memory) == CU_OK &&
			collet_cuda_create_stream(cuda, &other) == CU_OK &&
			cuda->cuStreamWriteValue32(other, word, 1, 0) == CU_OK, "freeing it");
	rank_check(rank, cuda->cuStreamSynchronize(bench.stream) == CU_ILLEGAL_ADDRESS, "the stream went on");
	rank->leaks = true; /* the context frees nothing any more */
}

static void freeing_too_early_is_a_fault(void **state)
{
	const struct ranks_options options = { .size = 1, .mode = RANKS_PROCESSES, .bare = true };
	ranks_must_pass(&options, what_is_freed_before_a_stream_comes_to_it_is_a_fault);
}

static void reserved_addresses_are_inaccessible(void **state)
{
	enum { ROOM = 2 << 20 };
	struct bench bench;
	cu_pointer first;
	bench_start(&bench);
	assert_int_equal(bench.cuda.cuMemAddressReserve(&first, ROOM, 0, 0, 0), CU_OK);
	must_be_nobodys(&bench, first);
	assert_int_equal(bench.cuda.cuMemAddressFree(first, ROOM), CU_OK);
	must_be_nobodys(&bench, first);
	assert_int_equal(bench.cuda.cuMemAddressFree(first, ROOM), CU_INVALID_VALUE);
	bench_end(&bench);
}

static void touch(char *memory, bool writes)
{
	const struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	volatile char *at = memory;
	if (writes)
		*at = 1;
	else
		(void)*at;
	_exit(0);
}

static void the_host_cannot_touch_it(void **state)
{
	struct program program;
	struct buffer buffer;
	assert_true(program_start(&program, 0));
	assert_true(buffer_make(&buffer, &program, true, BYTES));
	for (int writes = 0; writes < 2; writes++) {
		int status;
		const pid_t child = fork();
		assert_true(child >= 0);
		if (!child)
			touch(buffer.first + BYTES - 1, writes);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	buffer_free(&buffer);
	assert_true(program_end(&program));
}

static void a_gpu_that_is_not_there_is_refused(void **state)
{
	static const int ordinals[] = { -1, 2, 1000 };
	struct bench bench;
	bench_start(&bench);
	for (size_t i = 0; i < sizeof(ordinals) / sizeof(ordinals[0]); i++) {
		const int ordinal = ordinals[i];
		cu_device device;
		cu_context context;
		cu_uuid uuid;
		int value;
		assert_int_equal(bench.cuda.cuDeviceGet(&device, ordinal), CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDevicePrimaryCtxRetain(&context, ordinal), CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDevicePrimaryCtxRelease(ordinal), CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDeviceGetUuid(&uuid, ordinal), CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDeviceGetAttribute(&value, CU_DEVICE_MULTIPROCESSORS, ordinal),
			CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDeviceCanAccessPeer(&value, 0, ordinal), CU_INVALID_DEVICE);
		assert_int_equal(bench.cuda.cuDeviceCanAccessPeer(&value, ordinal, 0), CU_INVALID_DEVICE);
	}
	bench_end(&bench);
}

/* ---- Which GPU's kernels can access memory ---- */

/* A GPU with the library's kernels, and memory that they write to. */
struct gpu {
	struct loaded loaded;
	struct buffer result;
};

static bool gpu_start_as(struct gpu *gpu, struct rank *rank, int ordinal, bool beside)
{
	return rank_check(rank, (beside ? loaded_start_beside : loaded_start)(&gpu->loaded, ordinal), "no GPU") &&
		rank_ok(rank, loaded_load(&gpu->loaded), "kernels") &&
		rank_check(rank, buffer_make(&gpu->result, &gpu->loaded.program, true, BYTES), "memory");
}

static bool gpu_start(struct gpu *gpu, struct rank *rank, int ordinal)
{
	return gpu_start_as(gpu, rank, ordinal, false);
}

/* Reads through a kernel. */
static collet_status read_by(struct gpu *gpu, const char *from)
{
	const void *sources[] = { from };
	void *results[] = { gpu->result.first };
	const struct collet_gpu_reduction reduction = { COLLET_U8, COLLET_SUM, 1 };
	const struct collet_gpu_span span = { sources, results, 1, 1, NULL, BYTES };
	return loaded_reduce(&gpu->loaded, &reduction, &span, 1);
}

static void must_not_reach(struct rank *rank, struct gpu *gpu, const char *from)
{
	rank_status(rank, read_by(gpu, from), COLLET_ERR_SYSTEM, "a kernel that has no access");
	rank_check(rank, strstr(collet_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL, "%s", collet_last_error());
	rank->leaks = true; /* the context frees nothing any more */
}

/* Access from the second GPU to the first does not imply the opposite. */
static void reach_a_peer(struct rank *rank)
{
	static struct gpu gpus[2];
	for (int g = 0; g < 2; g++)
		if (!gpu_start(&gpus[g], rank, g))
			return;
	const cu_result enabled = gpus[1].loaded.cuda.cuCtxEnablePeerAccess(gpus[0].loaded.program.context, 0);
	if (!rank_check(rank, enabled == CU_OK, "no access"))
		return;
	rank_ok(rank, read_by(&gpus[1], gpus[0].result.first), "with access");
	must_not_reach(rank, &gpus[0], gpus[1].result.first);
}

static void a_kernel_needs_access_to_a_peers_memory(void **state)
{
	const struct ranks_options options = { .size = 1, .mode = RANKS_PROCESSES, .bare = true };
	ranks_must_pass(&options, reach_a_peer);
}

/* Rank 0 has memory on the first GPU, which rank 1 opens on the second. */
static void reach_what_was_opened(struct rank *rank)
{
	enum { SHOWN, TAKEN };
	static struct gpu first, second;
	cu_ipc_handle *handle = rank->shared;
	if (!gpu_start(&first, rank, 0))
		return;
	if (rank->rank == 0) {
		rank_check(rank,
			first.loaded.cuda.cuIpcGetMemHandle(handle, (uintptr_t)first.result.first) == CU_OK, "shown");
		rank_post(rank, SHOWN);
		rank_await(rank, TAKEN, 1);
		rank->leaks = true; /* as the other's */
		return;
	}
	cu_pointer opened = 0;
	rank_await(rank, SHOWN, 1);
	if (!gpu_start(&second, rank, 1))
		return;
	rank_check(rank,
		second.loaded.cuda.cuIpcOpenMemHandle(&opened, *handle, CU_IPC_LAZY_PEER_ACCESS) == CU_OK, "opened");
	rank_ok(rank, read_by(&second, (const char *)(uintptr_t)opened), "where it was opened");
	must_not_reach(rank, &first, (const char *)(uintptr_t)opened);
	rank_post(rank, TAKEN);
}

static void opened_memory_is_for_the_gpu_that_opened_it(void **state)
{
	const struct ranks_options options = { .size = 2, .mode = RANKS_PROCESSES, .bare = true,
		.shared_bytes = sizeof(cu_ipc_handle) };
	ranks_must_pass(&options, reach_what_was_opened);
}

/* ---- Contexts beside a GPU's primary one ---- */

/* A context's streams, events and kernels cannot be used in another one; nor can kernels there access its memory. */
static void what_is_one_contexts(struct rank *rank)
{
	enum { PRIMARY, BESIDE, CONTEXTS };
	static struct gpu gpus[CONTEXTS];
	cu_event event = NULL;
	for (int g = 0; g < CONTEXTS; g++)
		if (!gpu_start_as(&gpus[g], rank, 0, g == BESIDE))
			return;
	/* The later one is current. */
	const struct loaded *primary = &gpus[PRIMARY].loaded, *beside = &gpus[BESIDE].loaded;
	const struct collet_cuda *cuda = &beside->cuda;
	const cu_stream own = beside->copy_stream->stream, other = primary->copy_stream->stream;
	const cu_pointer memory = (uintptr_t)gpus[BESIDE].result.first;
	rank_check(rank, primary->program.context != beside->program.context, "one context");
	rank_check(rank, cuda->cuMemsetD8Async(memory, 1, 1, other) == CU_INVALID_HANDLE, "another's stream");
	rank_check(rank, cuda->cuStreamWriteValue32(other, memory, 1, 0) == CU_INVALID_HANDLE, "another's stream");
	rank_check(rank, cuda->cuEventCreate(&event, CU_UNTIMED_EVENT) == CU_OK &&
			cuda->cuEventRecord(event, other) == CU_INVALID_HANDLE &&
			cuda->cuEventRecord(event, own) == CU_OK && cuda->cuEventDestroy(event) == CU_OK,
		"events are for streams of their context");
	rank_check(rank, cuda->cuMemcpyAsync(memory, (uintptr_t)gpus[PRIMARY].result.first, 1, own) == CU_OK &&
			cuda->cuStreamSynchronize(own) == CU_OK, "copies go from one to the other");
	rank_check(rank, cuda->cuCtxEnablePeerAccess(primary->program.context, 0) == CU_PEER_ACCESS_UNSUPPORTED &&
			cuda->cuCtxEnablePeerAccess(beside->program.context, 0) == CU_INVALID_CONTEXT,
		"a GPU is no peer of its own");
	for (int g = 0; g < CONTEXTS; g++)
		rank_ok(rank, read_by(&gpus[g], gpus[g].result.first), "its own memory");
	must_not_reach(rank, &gpus[BESIDE], gpus[PRIMARY].result.first);
	rank_check(rank, beside->program.cuCtxPopCurrent_v2(NULL) == CU_OK, "leaving it");
	rank_ok(rank, read_by(&gpus[PRIMARY], gpus[PRIMARY].result.first), "after a fault of another context");
}

static void contexts_of_a_gpu_are_kept_apart(void **state)
{
	const struct ranks_options options = { .size = 1, .mode = RANKS_PROCESSES, .bare = true };
	ranks_must_pass(&options, what_is_one_contexts);
}

static void a_context_goes_with_all_that_is_in_it(void **state)
{
	struct bench bench;
	struct program beside;
	cu_context current;
	cu_pointer memory, more;
	cu_stream stream;
	bench_start(&bench);
	assert_true(program_start_beside(&beside, 0));
	assert_int_equal(beside.cuMemAlloc_v2(&memory, 3 * BYTES), CU_OK);
	assert_int_equal(collet_cuda_create_stream(&bench.cuda, &stream), CU_OK);
	assert_int_equal(bench.cuda.cuMemsetD8Async(memory, 1, BYTES, stream), CU_OK);
	/* If it is current more than once, it stays current although it is destroyed. */
	assert_int_equal(beside.cuCtxPushCurrent_v2(beside.context), CU_OK);
	assert_int_equal(beside.cuCtxDestroy_v2(beside.context), CU_OK);
	assert_int_equal(beside.cuMemAlloc_v2(&more, 1), CU_CONTEXT_IS_DESTROYED);
	assert_int_equal(beside.cuCtxPopCurrent_v2(&current), CU_OK);
	assert_ptr_equal(current, beside.context);
	assert_int_equal(beside.cuCtxPushCurrent_v2(beside.context), CU_CONTEXT_IS_DESTROYED);
	assert_int_equal(beside.cuCtxDestroy_v2(beside.context), CU_CONTEXT_IS_DESTROYED);
	assert_int_equal(beside.cuCtxDestroy_v2(bench.program.context), CU_INVALID_CONTEXT);
	assert_int_equal(bench.cuda.cuStreamQuery(stream), CU_INVALID_HANDLE);
	assert_int_equal(bench.cuda.cuStreamDestroy(stream), CU_INVALID_HANDLE);
	must_be_nobodys(&bench, memory);
	dlclose(beside.driver);
	bench_end(&bench);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freed_memory_is_inaccessible),
		cmocka_unit_test(copies_to_the_gpu_may_arrive_late),
		cmocka_unit_test(freeing_too_early_is_a_fault),
		cmocka_unit_test(reserved_addresses_are_inaccessible),
		cmocka_unit_test(the_host_cannot_touch_it),
		cmocka_unit_test(a_gpu_that_is_not_there_is_refused),
		cmocka_unit_test(a_kernel_needs_access_to_a_peers_memory),
		cmocka_unit_test(opened_memory_is_for_the_gpu_that_opened_it),
		cmocka_unit_test(contexts_of_a_gpu_are_kept_apart),
		cmocka_unit_test(a_context_goes_with_all_that_is_in_it),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
