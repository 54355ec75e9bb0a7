/* The fake driver's legacy default stream and blocking streams wait for each other, as the driver's do. Streams made
 * with CU_STREAM_NON_BLOCKING do not. So a library with blocking streams would be found out. */
#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "streams.h"

enum { GO, WRITTEN, SEEN, WORDS, LOOKS = 200, BYTES = 1 << 20 };

static struct program program;
static struct streams cuda;
static _Atomic uint32_t *words;  /* registered with the driver */
static cu_pointer words_gpu;     /* their device address */

enum kind { LEGACY, OF_THREAD, BLOCKING, OTHER_BLOCKING, NON_BLOCKING, KINDS };
static cu_stream streams[KINDS];

static int begin(void **state)
{
	words = aligned_alloc(4096, 4096);
	if (!words || !program_start(&program, 0) || !streams_find(&cuda, &program))
		return -1;
	memset((void *)words, 0, 4096);
	streams[LEGACY] = (cu_stream)(uintptr_t)CU_LEGACY_STREAM;
	streams[OF_THREAD] = (cu_stream)(uintptr_t)CU_PER_THREAD_STREAM;
	return cuda.cuMemHostRegister_v2((void *)words, 4096, 0) ||
		cuda.cuMemHostGetDevicePointer_v2(&words_gpu, (void *)words, 0) ||
		cuda.cuStreamCreate(&streams[BLOCKING], 0) || cuda.cuStreamCreate(&streams[OTHER_BLOCKING], 0) ||
		cuda.cuStreamCreate(&streams[NON_BLOCKING], CU_NON_BLOCKING_STREAM);
}

static int end(void **state)
{
	bool fine = true;
	for (int s = BLOCKING; s < KINDS; s++)
		fine = cuda.cuStreamDestroy_v2(streams[s]) == CU_OK && fine;
	fine = cuda.cuMemHostUnregister((void *)words) == CU_OK && program_end(&program) && fine;
	free((void *)words);
	return !fine;
}

static cu_pointer word(int index)
{
	return words_gpu + (cu_pointer)index * sizeof(*words);
}

static void see(void *data)
{
	atomic_store(&words[SEEN], 1 + atomic_load(&words[WRITTEN]));
}

/* The first waits until it is released, and then writes; the second checks whether it has. */
static void give_both(cu_stream first, cu_stream second)
{
	for (int w = 0; w < WORDS; w++)
		atomic_store(&words[w], 0);
	assert_int_equal(cuda.cuStreamWaitValue32_v2(first, word(GO), 1, CU_WAIT_VALUE_GEQ), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(first, word(WRITTEN), 1, 0), CU_OK);
	assert_int_equal(cuda.cuLaunchHostFunc(second, see, NULL), CU_OK);
}

static void let_go(cu_stream first, cu_stream second)
{
	atomic_store(&words[GO], 1);
	assert_int_equal(cuda.cuStreamSynchronize(first), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(second), CU_OK);
}

static void the_legacy_stream_and_blocking_ones_wait_for_each_other(void **state)
{
	static const struct {
		enum kind first, second;
	} rows[] = { { LEGACY, BLOCKING }, { BLOCKING, LEGACY }, { LEGACY, OF_THREAD }, { OF_THREAD, LEGACY } };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const cu_stream first = streams[rows[r].first], second = streams[rows[r].second];
		give_both(first, second);
		for (int look = 0; look < LOOKS; look++) {
			assert_int_equal(cuda.cuStreamQuery(second), CU_NOT_READY);
			assert_int_equal(atomic_load(&words[SEEN]), 0);
			sched_yield();
		}
		let_go(first, second);
		assert_int_equal(atomic_load(&words[SEEN]), 2);
	}
}

static void others_wait_for_nobody(void **state)
{
	static const struct {
		enum kind first, second;
	} rows[] = { { LEGACY, NON_BLOCKING }, { NON_BLOCKING, LEGACY }, { BLOCKING, OTHER_BLOCKING },
		{ OF_THREAD, BLOCKING }, { NON_BLOCKING, BLOCKING }, { BLOCKING, NON_BLOCKING } };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const cu_stream first = streams[rows[r].first], second = streams[rows[r].second];
		give_both(first, second);
		assert_int_equal(cuda.cuStreamSynchronize(second), CU_OK);
		assert_int_equal(atomic_load(&words[SEEN]), 1);
		assert_int_equal(cuda.cuStreamQuery(first), CU_NOT_READY);
		let_go(first, second);
	}
}

/* A blocking stream continues when the legacy stream has done what came before, whatever it was given since. */
static void nobody_waits_for_what_was_given_later(void **state)
{
	give_both(streams[LEGACY], streams[BLOCKING]);
	assert_int_equal(cuda.cuLaunchHostFunc(streams[LEGACY], see, NULL), CU_OK);
	assert_int_equal(cuda.cuStreamWriteValue32_v2(streams[BLOCKING], word(WRITTEN), 5, 0), CU_OK);
	let_go(streams[BLOCKING], streams[LEGACY]);
	assert_int_equal(atomic_load(&words[SEEN]), 2);
	assert_int_equal(atomic_load(&words[WRITTEN]), 5);
}

/* Copies without a stream are done when the legacy stream reaches them. */
static void copies_at_once_come_after_blocking_streams(void **state)
{
	static unsigned char bytes[BYTES];
	cu_pointer memory;
	assert_int_equal(program.cuMemAlloc_v2(&memory, BYTES), CU_OK);
	__typeof__(cuMemsetD8Async) *fill = NULL;
	void *address = dlsym(program.driver, "cuMemsetD8Async");
	memcpy(&fill, &address, sizeof(address));
	for (int round = 1; round <= 50; round++) {
		assert_int_equal(fill(memory, 0, BYTES, streams[BLOCKING]), CU_OK);
		assert_int_equal(fill(memory, (unsigned char)round, BYTES, streams[BLOCKING]), CU_OK);
		assert_int_equal(program.cuMemcpyDtoH_v2(bytes, memory, BYTES), CU_OK);
		assert_int_equal(bytes[0], round);
		assert_int_equal(bytes[BYTES - 1], round);
	}
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
}

/* Any use of the legacy stream would wait for captured work, unless the captured stream is non-blocking. */
static void the_legacy_stream_is_not_to_be_used_in_a_capture(void **state)
{
	char bytes[8] = { 0 };
	cu_pointer memory;
	cu_graph graph;
	assert_int_equal(program.cuMemAlloc_v2(&memory, sizeof(bytes)), CU_OK);
	for (int use = 0; use < 4; use++) {
		for (enum kind kind = BLOCKING; kind <= NON_BLOCKING; kind++) {
			const cu_result expected = kind == NON_BLOCKING ? CU_OK : CU_CAPTURE_IMPLICIT;
			int mode = CU_CAPTURE_MODE_RELAXED;
			assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
			assert_int_equal(cuda.cuStreamBeginCapture_v2(streams[kind], CU_CAPTURE_MODE_RELAXED), CU_OK);
			const cu_result result =
				use == 0 ? cuda.cuStreamWriteValue32_v2(streams[LEGACY], word(WRITTEN), 1, 0) :
				use == 1 ? cuda.cuStreamSynchronize(streams[LEGACY]) :
				use == 2 ? cuda.cuStreamQuery(streams[LEGACY]) :
					   program.cuMemcpyHtoD_v2(memory, bytes, sizeof(bytes));
			assert_true(result == expected || (use == 2 && expected == CU_OK && result == CU_NOT_READY));
			assert_int_equal(cuda.cuStreamEndCapture(streams[kind], &graph),
				expected == CU_OK ? CU_OK : CU_CAPTURE_INVALIDATED);
			if (expected == CU_OK)
				assert_int_equal(cuda.cuGraphDestroy(graph), CU_OK);
			assert_int_equal(cuda.cuThreadExchangeStreamCaptureMode(&mode), CU_OK);
		}
	}
	assert_int_equal(cuda.cuStreamSynchronize(streams[LEGACY]), CU_OK);
	assert_int_equal(program.cuMemFree_v2(memory), CU_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_legacy_stream_and_blocking_ones_wait_for_each_other),
		cmocka_unit_test(others_wait_for_nobody),
		cmocka_unit_test(nobody_waits_for_what_was_given_later),
		cmocka_unit_test(copies_at_once_come_after_blocking_streams),
		cmocka_unit_test(the_legacy_stream_is_not_to_be_used_in_a_capture),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
