/* The stand-in's streams behave as the driver's where collet's calls on streams need it: words that they write and wait
 * for, functions that they call, captures and graphs, and what may not be done meanwhile. */
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
static _Atomic uint32_t *words;  /* registered: the first 1024 */

static int begin(void **state)
{
	words = aligned_alloc(4096, 8192);
	if (!words || !program_start(&program, 0) || !streams_find(&cuda, &program))
		return -1;
	memset((void *)words, 0, 8192);
	return cuda.cuMemHostRegister_v2((void *)words, 4096, 0) ||
	       cuda.cuStreamCreate(&stream, CU_NON_BLOCKING_STREAM);
}

static int end(void **state)
{
	const bool fine = cuda.cuStreamDestroy_v2(stream) == CU_OK &&
		cuda.cuMemHostUnregister((void *)words) == CU_OK && program_end(&program);
	free((void *)words);
	return !fine;
}

static cu_pointer word(int index)
{
	return (uintptr_t)&words[index];
}

static void a_stream_waits_for_a_word(void **state)
{
	atomic_store(&words[0], 7);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), 8, CU_WAIT_AT_LEAST), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(1), 1, 0), CU_OK);
	assert_int_equal(cuda.cuStreamQuery(stream), CU_NOT_READY);
	assert_int_equal(atomic_load(&words[1]), 0);
	atomic_store(&words[0], 9);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	assert_int_equal(atomic_load(&words[1]), 1);
	/* Cyclic: 2^32 - 1 comes before 0. */
	atomic_store(&words[0], 2);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), UINT32_MAX, CU_WAIT_AT_LEAST), CU_OK);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0), 2, CU_WAIT_EQUAL), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	/* Aligned, and known to the driver. */
	assert_int_equal(cuda.cuStreamWaitValue32_v2(stream, word(0) + 2, 0, 0), CU_INVALID_VALUE);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(1024), 0, 0), CU_INVALID_VALUE);
}

static void count_up(void *data)
{
	atomic_fetch_add((_Atomic uint32_t *)data, 1);
	/* Nothing of the driver from there. */
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
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_GLOBAL), CU_OK);
	assert_int_equal(cuda.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL), CU_OK);
	assert_int_equal(status, CU_BEING_CAPTURED);
	assert_int_not_equal(id, 0);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(3), 5, 0), CU_OK);
	assert_int_equal(cuda.cuLaunchHostFunc(stream, count_up, (void *)&words[2]), CU_OK);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_OK);
	assert_int_equal(cuda.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL), CU_OK);
	assert_int_equal(status, CU_NOT_CAPTURED);
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

static void what_may_not_be_done_meanwhile_spoils_a_capture(void **state)
{
	cu_graph graph;
	cu_pointer memory;
	int mode = CU_CAPTURE_RELAXED;
	const cu_stream legacy = (cu_stream)(uintptr_t)CU_LEGACY_STREAM;
	assert_int_equal(cuda.cuStreamBeginCapture_v2(legacy, 0), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_ILLEGAL_STATE);
	/* Waiting for it. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_RELAXED), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(stream, word(3), 5, 0), CU_CAPTURE_INVALIDATED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	/* Memory, unless the thread has said that it knows what it does. */
	assert_int_equal(cuda.cuStreamBeginCapture_v2(stream, CU_CAPTURE_OF_THREAD), CU_OK);
	assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
	assert_int_equal(program.cuMemAlloc_v2(&memory, 100), CU_OK);
	assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
	assert_int_equal(mode, CU_CAPTURE_RELAXED);
	assert_int_equal(program.cuMemFree_v2(memory), CU_CAPTURE_UNSUPPORTED);
	assert_int_equal(cuda.cuStreamEndCapture(stream, &graph), CU_CAPTURE_INVALIDATED);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
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
		cmocka_unit_test(what_may_not_be_done_meanwhile_spoils_a_capture),
		cmocka_unit_test(the_default_streams_are_streams),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
