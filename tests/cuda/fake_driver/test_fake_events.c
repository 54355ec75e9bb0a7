/* The fake driver's events behave as the driver's. A stream waits for what was recorded when it was told to, times are
 * available once recorded, and mistakes give the driver's errors. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_driver/functions.h"
#include "program.h"

/* Driver functions, named by their symbols. */
static struct {
	cu_result (*cuStreamCreate)(cu_stream *created, unsigned int flags);
	cu_result (*cuStreamDestroy_v2)(cu_stream stream);
	cu_result (*cuStreamSynchronize)(cu_stream stream);
	cu_result (*cuMemcpyAsync)(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream);
	cu_result (*cuMemsetD8Async)(cu_pointer first, unsigned char value, size_t bytes, cu_stream stream);
	cu_result (*cuEventCreate)(cu_event *created, unsigned int flags);
	cu_result (*cuEventDestroy_v2)(cu_event event);
	cu_result (*cuEventRecord)(cu_event event, cu_stream stream);
	cu_result (*cuStreamWaitEvent)(cu_stream stream, cu_event event, unsigned int flags);
	cu_result (*cuEventQuery)(cu_event event);
	cu_result (*cuEventSynchronize)(cu_event event);
	cu_result (*cuEventElapsedTime)(float *ms, cu_event start, cu_event end);
} cuda;

static struct program program;

static int begin(void **state)
{
	if (!program_start(&program, 0))
		return -1;
#define FIND(name)                                                                                                     \
	do {                                                                                                           \
		void *address = dlsym(program.driver, #name);                                                          \
		if (!address)                                                                                          \
			return -1;                                                                                     \
		memcpy(&cuda.name, &address, sizeof(address));                                                         \
	} while (0)
	FIND(cuStreamCreate);
	FIND(cuStreamDestroy_v2);
	FIND(cuStreamSynchronize);
	FIND(cuMemcpyAsync);
	FIND(cuMemsetD8Async);
	FIND(cuEventCreate);
	FIND(cuEventDestroy_v2);
	FIND(cuEventRecord);
	FIND(cuStreamWaitEvent);
	FIND(cuEventQuery);
	FIND(cuEventSynchronize);
	FIND(cuEventElapsedTime);
#undef FIND
	return 0;
}

static int end(void **state)
{
	return program_end(&program) ? 0 : -1;
}

/* Two streams fill one buffer in turns, each after the other's event, on threads of their own. The last value must
 * remain. */
static void streams_wait_for_events(void **state)
{
	enum { BYTES = 1 << 16, TURNS = 100 };
	cu_stream streams[2];
	cu_event events[2];
	struct buffer buffer;
	unsigned char *got = malloc(BYTES + 1);
	assert_true(buffer_make(&buffer, &program, true, BYTES));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cuda.cuStreamCreate(&streams[i], CU_NON_BLOCKING_STREAM), CU_OK);
		assert_int_equal(cuda.cuEventCreate(&events[i], CU_UNTIMED_EVENT), CU_OK);
	}
	for (int turn = 0; turn < TURNS; turn++) {
		const int i = turn % 2;
		/* Before anything is recorded there is nothing to wait for. */
		assert_int_equal(cuda.cuStreamWaitEvent(streams[i], events[1 - i], 0), CU_OK);
		assert_int_equal(cuda.cuMemsetD8Async((uintptr_t)buffer.first, (unsigned char)turn, BYTES, streams[i]),
			CU_OK);
		assert_int_equal(cuda.cuEventRecord(events[i], streams[i]), CU_OK);
	}
	assert_int_equal(cuda.cuEventSynchronize(events[(TURNS - 1) % 2]), CU_OK);
	assert_int_equal(cuda.cuEventQuery(events[(TURNS - 1) % 2]), CU_OK);
	assert_true(buffer_read(&buffer, got));
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(got[i], TURNS - 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cuda.cuEventDestroy_v2(events[i]), CU_OK);
		assert_int_equal(cuda.cuStreamDestroy_v2(streams[i]), CU_OK);
	}
	buffer_free(&buffer);
	free(got);
}

static void times_are_told_when_they_are_there(void **state)
{
	cu_stream stream;
	cu_event first, second, untimed;
	float ms = -1;
	assert_int_equal(cuda.cuStreamCreate(&stream, CU_NON_BLOCKING_STREAM), CU_OK);
	assert_int_equal(cuda.cuEventCreate(&first, 0), CU_OK);
	assert_int_equal(cuda.cuEventCreate(&second, CU_BLOCKING_EVENT), CU_OK);
	assert_int_equal(cuda.cuEventCreate(&untimed, CU_UNTIMED_EVENT), CU_OK);
	assert_int_equal(cuda.cuEventElapsedTime(&ms, first, second), CU_INVALID_HANDLE);
	assert_int_equal(cuda.cuEventRecord(first, stream), CU_OK);
	assert_int_equal(cuda.cuEventRecord(untimed, stream), CU_OK);
	assert_int_equal(cuda.cuEventRecord(second, stream), CU_OK);
	assert_int_equal(cuda.cuStreamSynchronize(stream), CU_OK);
	assert_int_equal(cuda.cuEventElapsedTime(&ms, first, second), CU_OK);
	assert_true(ms >= 0);
	assert_int_equal(cuda.cuEventElapsedTime(&ms, first, untimed), CU_INVALID_HANDLE);
	assert_int_equal(cuda.cuEventDestroy_v2(first), CU_OK);
	assert_int_equal(cuda.cuEventDestroy_v2(second), CU_OK);
	assert_int_equal(cuda.cuEventDestroy_v2(untimed), CU_OK);
	assert_int_equal(cuda.cuStreamDestroy_v2(stream), CU_OK);
}

static void mistakes_have_the_drivers_codes(void **state)
{
	cu_event event;
	assert_int_equal(cuda.cuEventCreate(&event, 64), CU_INVALID_VALUE);
	assert_int_equal(cuda.cuEventCreate(&event, 0), CU_OK);
	assert_int_equal(cuda.cuEventRecord(event, NULL), CU_INVALID_HANDLE);
	assert_int_equal(cuda.cuEventQuery(event), CU_OK);
	assert_int_equal(cuda.cuEventDestroy_v2(NULL), CU_INVALID_HANDLE);
	assert_int_equal(cuda.cuEventDestroy_v2(event), CU_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_wait_for_events),
		cmocka_unit_test(times_are_told_when_they_are_there),
		cmocka_unit_test(mistakes_have_the_drivers_codes),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
