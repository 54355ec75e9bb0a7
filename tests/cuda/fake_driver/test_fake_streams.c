/* The fake driver's streams behave as the driver's where collet's calls on streams need it: writing and waiting for
 * words, host functions, captures and graphs, and what is forbidden meanwhile. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "streams.h"

static struct program program;
static struct streams cuda;
static cu_stream stream;
static bool broken;              /* nothing can be freed any more */
static _Atomic uint32_t *words;  /* registered with the driver: the first 1024 */
static cu_pointer words_gpu;     /* their device address */

static int begin(void **state)
{
	words = aligned_alloc(4096, 8192);
	if (!words || !program_start(&program, 0) || !streams_find(&cuda, &program))
		return -1;
	memset((void *)words, 0, 8192);
	return cuda.cuMemHostRegister_v2((void *)words, 4096, 0) ||
	       cuda.cuMemHostGetDevicePointer_v2(&words_gpu, (void *)words, 0) ||
	       cuda.cuStreamCreate(&stream, CU_NON_BLOCKING_STREAM);
}

static int end(void **state)
{
	if (broken)
		return 0;
	const bool fine = cuda.cuStreamDestroy_v2(stream) == CU_OK &&
		cuda.cuMemHostUnregister((void *)words) == CU_OK && program_end(&program);
	free((void *)words);
	return !fine;
}

static cu_pointer word(int index)
{
	return words_gpu + (cu_pointer)index * sizeof(*words);
}

static void a_stream_waits_for_a_word(void **state)
{
	atomic_store(&words[0], 7);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), 8, CU_WAIT_VALUE_GEQ), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(1), 1, 0), CU_OK);
	assert_int_equal(cuda.cuStreamQuery(stream), CU_NOT_READY);
	assert_int_equal(atomic_load(&words[1]), 0);
	atomic_store(&words[0], 9);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	assert_int_equal(atomic_load(&words[1]), 1);
	/* Comparison is cyclic: 2^32 - 1 comes before 0. */
	atomic_store(&words[0], 2);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), UINT32_MAX, CU_WAIT_VALUE_GEQ), CU_OK);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), 2, CU_WAIT_VALUE_EQ), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	/* Words must be aligned, and known to the driver. */
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0) + 2, 0, 0), CU_INVALID_VALUE);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(1024), 0, 0), CU_INVALID_VALUE);
}

static void count_up(void *data)
{
	atomic_fetch_add((_Atomic uint32_t *)data, 1);
	/* A host function must not call the driver. */
	unsigned long long id;
	if (cuda.cuStreamGetId(stream, &id) != CU_NOT_PERMITTED)
		atomic_fetch_add((_Atomic uint32_t *)data, 1000);
}

static void a_graph_does_again_what_was_captured(void **state)
{
	cu_graph graph;
	cu_graph_exec exec;
	int status;
	uint64_t id;
	atomic_store(&words[2], 0);
	atomic_store(&words[3], 0);
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL), CU_OK);
	assert_int_equal(status, CU_CAPTURE_STATUS_ACTIVE);
	assert_int_not_equal(id, 0);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(3), 5, 0), CU_OK);
	assert_int_equal(cuda.cuLaunchHostFunc(stream, count_up, (void *)&words[2]), CU_OK);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_OK);
	assert_int_equal(cuda.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL), CU_OK);
	assert_int_equal(status, CU_CAPTURE_STATUS_NONE);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	assert_int_equal(atomic_load(&words[3]), 0);
	assert_int_equal(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0), CU_OK);
	assert_int_equal(cuda.cuGraphDestroy(graph), CU_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(cuda.cuGraphLaunch(exec, stream), CU_OK);
	assert_int_equal(cuda.cuGraphExecDestroy(exec), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	assert_int_equal(atomic_load(&words[2]), 3);
	assert_int_equal(atomic_load(&words[3]), 5);
}

static void forbidden_calls_invalidate_a_capture(void **state)
{
	cu_graph graph;
	cu_pointer memory;
	unsigned long long id;
	int mode = CU_CAPTURE_MODE_RELAXED;
	const cu_stream legacy = (cu_stream)(uintptr_t)CU_LEGACY_STREAM;
	assert_int_equal(cuda.cuStreamBeginCapture_v2(legacy, 0), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_ILLEGAL_STATE);
	/* A captured stream must not be waited for. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_RELAXED), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(3), 5, 0), CU_CAPTURE_INVALIDATED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	/* Nor does it have an id. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_RELAXED), CU_OK);
	assert_int_equal(cuda.cuStreamGetId(stream, &id), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	/* Memory must not be allocated, unless the thread has relaxed its capture mode. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_THREAD_LOCAL), CU_OK);
	assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
	assert_int_equal(program.cuMemAlloc_v2(&memory, 100), CU_OK);
	assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
	assert_int_equal(mode, CU_CAPTURE_MODE_RELAXED);
	assert_int_equal(program.cuMemFree_v2(memory), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
}

static cu_event mark(cu_stream marked)
{
	cu_event event = NULL;
	assert_int_equal(cuda.cuEventCreate(&event, CU_UNTIMED_EVENT), CU_OK);
	assert_int_equal(cuda.cuEventRecord(event, marked), CU_OK);
	return event;
}

/* Orders one stream behind the other's work so far. */
static void follow(cu_stream follower, cu_stream first)
{
	const cu_event event = mark(first);
	assert_int_equal(cuda.cuStreamWaitEvent(follower, event, 0), CU_OK);
	assert_int_equal(cuda.cuEventDestroy_v2(event), CU_OK);
}

static cu_stream second_stream(void)
{
	cu_stream made;
	assert_int_equal(cuda.cuStreamCreate(&made, CU_NON_BLOCKING_STREAM), CU_OK);
	return made;
}

enum { FIRST = 10, SECOND, BEFORE, AFTER }; /* words */

/* Each branch waits for the other's work: both run at the same time, and what joins them runs last. */
static void capture_branches(cu_stream other)
{
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuLaunchHostFunc(stream, count_up, (void *)&words[BEFORE]), CU_OK);
	follow(other, stream);
	for (int side = 0; side < 2; side++) {
		const cu_stream branch = side ? other : stream;
		assert_int_equal(cuda.cuStreamWriteValue32_v2(branch, word(FIRST + side), 1, 0), CU_OK);
		assert_int_equal(cuda.cuStreamWaitValue32_v2(branch, word(SECOND - side), 1, CU_WAIT_VALUE_EQ), CU_OK);
	}
	follow(stream, other);
	assert_int_equal(cuda.cuLaunchHostFunc(stream, count_up, (void *)&words[AFTER]), CU_OK);
}

static void branches_of_a_graph_are_parallel(void **state)
{
	const cu_stream other = second_stream();
	cu_graph graph;
	cu_graph_exec exec;
	capture_branches(other);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(BEFORE), 1, CU_WAIT_VALUE_GEQ), CU_OK);
	assert_int_equal(cuda.cuStreamEndCapture(other, &graph), CU_CAPTURE_UNMATCHED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	/* The same, ended where it was begun. */
	capture_branches(other);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_OK);
	assert_int_equal(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0), CU_OK);
	assert_int_equal(cuda.cuGraphDestroy(graph), CU_OK);
	for (uint32_t launch = 1; launch <= 3; launch++) {
		atomic_store(&words[FIRST], 0);
		atomic_store(&words[SECOND], 0);
		assert_int_equal(cuda.cuGraphLaunch(exec, stream), CU_OK);
		assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
		assert_int_equal(atomic_load(&words[BEFORE]), launch);
		assert_int_equal(atomic_load(&words[AFTER]), launch);
	}
	assert_int_equal(cuda.cuGraphExecDestroy(exec), CU_OK);
	/* The capture has ended. */
	assert_int_equal(cuda.cuStreamWriteValue32_v2(other, word(FIRST), 2, 0), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(other), CU_OK);
	assert_int_equal(atomic_load(&words[FIRST]), 2);
	assert_int_equal(cuda.cuStreamDestroy_v2(other), CU_OK);
}

static void captures_keep_to_themselves(void **state)
{
	const cu_stream other = second_stream();
	cu_event event;
	cu_graph graph;
	/* The other stream's work is not joined. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	follow(other, stream);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(other, word(5), 1, 0), CU_OK);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_UNJOINED);
	/* Two captures cannot be merged. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuStreamBeginCapture_v2(other, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	event = mark(stream);
	assert_int_equal(cuda.cuStreamWaitEvent(other, event, 0), CU_CAPTURE_MERGE);
	assert_int_equal(cuda.cuStreamEndCapture(other, &graph), CU_CAPTURE_INVALIDATED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_OK);
	assert_int_equal(cuda.cuGraphDestroy(graph), CU_OK);
	/* After the capture, or from outside it. */
	assert_int_equal(cuda.cuEventQuery(event), CU_CAPTURED_EVENT);
	assert_int_equal(cuda.cuStreamWaitEvent(other, event, 0), CU_CAPTURED_EVENT);
	assert_int_equal(cuda.cuEventRecord(event, other), CU_OK);
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuStreamWaitEvent(stream, event, 0), CU_CAPTURE_ISOLATION);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	assert_int_equal(cuda.cuEventDestroy_v2(event), CU_OK);
	assert_int_equal(cuda.cuStreamDestroy_v2(other), CU_OK);
}

/* The driver copies pageable host memory first, which takes the caller's time. */
static void copies_of_ordinary_memory_are_the_callers(void **state)
{
	uint32_t value = 0;
	cu_pointer memory;
	cu_graph graph;
	assert_int_equal(program.cuMemAlloc_v2(&memory, sizeof(value)), CU_OK);
	atomic_store(&words[6], 9);
	assert_int_equal(cuda.cuMemcpyAsync(memory, (uintptr_t)&words[6], sizeof(value), stream), CU_OK);
	assert_int_equal(cuda.cuMemcpyAsync((uintptr_t)&value, memory, sizeof(value), stream), CU_OK);
	assert_int_equal(value, 9);
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_MODE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuMemcpyAsync(memory, (uintptr_t)&value, sizeof(value), stream), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
}

/* Calls on a context that is not current, and on registered memory by its host address. */
static void calls_on_a_context_need_it_current(void **state)
{
	cu_context context;
	cu_event event = mark(stream);
	cu_pointer memory;
	assert_int_equal(program.cuMemAlloc_v2(&memory, 1), CU_OK);
	assert_int_equal(program.cuCtxPopCurrent_v2(&context), CU_OK);
	assert_int_equal(cuda.cuEventRecord(event, stream), CU_INVALID_CONTEXT);
	assert_int_equal(cuda.cuStreamWaitEvent(stream, event, 0), CU_INVALID_CONTEXT);
	assert_int_equal(cuda.cuEventDestroy_v2(event), CU_INVALID_CONTEXT);
	assert_int_equal(program.cuMemFree_v2(memory), CU_INVALID_CONTEXT);
	assert_int_equal(program.cuCtxPushCurrent_v2(context), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, (uintptr_t)&words[0], 1, 0), CU_INVALID_VALUE);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
	assert_int_equal(cuda.cuEventDestroy_v2(event), CU_OK);
}

/* A stream writes where no memory is any more. The context is unusable until it is created anew. */
static void a_fault_breaks_all_of_a_context(void **state)
{
	static cu_event event; /* never destroyed: keeps it reachable for a leak check */
	const cu_stream other = second_stream(), third = second_stream();
	cu_pointer memory, more;
	event = mark(third);
	assert_int_equal(cuda.cuStreamSynchronize(third), CU_OK);
	assert_int_equal(program.cuMemAlloc_v2(&memory, sizeof(uint32_t)), CU_OK);
	atomic_store(&words[7], 0);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(other, word(7), 1, CU_WAIT_VALUE_EQ), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(other, memory, 1, 0), CU_OK);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
	atomic_store(&words[7], 1);
	while (cuda.cuEventQuery(event) == CU_OK)
		sched_yield();
	assert_int_equal(cuda.cuEventQuery(event), CU_ILLEGAL_ADDRESS);
	assert_int_equal(cuda.cuStreamQuery(third), CU_ILLEGAL_ADDRESS);
	assert_int_equal(program.cuMemAlloc_v2(&more, 1), CU_ILLEGAL_ADDRESS);
	broken = true;
}

static void the_default_streams_are_streams(void **state)
{
	cu_context context;
	unsigned long long legacy, per_thread;
	for (uintptr_t number = CU_LEGACY_STREAM; number <= CU_PER_THREAD_STREAM; number++) {
		const cu_stream handle = (cu_stream)number;
		atomic_store(&words[4], 0);
		assert_int_equal(cuda.cuStreamGetCtx(handle, &context), CU_OK);
		assert_ptr_equal(context, program.context);
		assert_int_equal(cuda.cuStreamWriteValue32_v2(handle, word(4), 1, 0), CU_OK);
		assert_int_equal(cuda.cuStreamSynchronize(handle), CU_OK);
		assert_int_equal(atomic_load(&words[4]), 1);
	}
	assert_int_equal(cuda.cuStreamGetId((cu_stream)(uintptr_t)CU_LEGACY_STREAM, &legacy), CU_OK);
	assert_int_equal(cuda.cuStreamGetId((cu_stream)(uintptr_t)CU_PER_THREAD_STREAM, &per_thread), CU_OK);
	assert_int_not_equal(legacy, per_thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_waits_for_a_word),
		cmocka_unit_test(a_graph_does_again_what_was_captured),
		cmocka_unit_test(forbidden_calls_invalidate_a_capture),
		cmocka_unit_test(branches_of_a_graph_are_parallel),
		cmocka_unit_test(captures_keep_to_themselves),
		cmocka_unit_test(copies_of_ordinary_memory_are_the_callers),
		cmocka_unit_test(calls_on_a_context_need_it_current),
		cmocka_unit_test(the_default_streams_are_streams),
		cmocka_unit_test(a_fault_breaks_all_of_a_context),  /* must be the last in a process */
	};
	return cmocka_run_group_tests(tests, begin, end);
}
