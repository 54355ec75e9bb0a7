/* Tests the ranks' GPU memory before they rely on it. The leader's launch combines a pattern of each rank into memory
 * of each rank, and all must find what they expect. On some machines a mapping accesses the wrong memory, without any
 * error. Then, or if kernels, memory or handles are missing, all calls are staged through the host. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/wait.h"

enum {
	WORDS = 1024,                /* length of the pattern */
	TEST_BYTES = 2 << 20         /* large enough for an allocation of its own; only its ends are used */
};

/* One rank's test memory: its start is read, its end is written. */
struct connect_test {
	struct collet_shared_gpu *shared_gpu;
	struct shared_call *call;
	cu_pointer memory;
	bool is_ok;
	char why[COLLET_ERROR_BYTES];
};

static uint32_t pattern(uint32_t rank, uint32_t word)
{
	const uint32_t mixed = (rank + 1) * 2654435761u ^ (word + 1) * 2246822519u;
	return mixed ^ mixed >> 15;
}

static void record_failure(struct connect_test *test)
{
	if (test->is_ok)
		strncpy(test->why, collet_last_error(), sizeof(test->why) - 1);
	test->is_ok = false;
}

static uint32_t *result_of(const struct connect_test *test)
{
	return (uint32_t *)(uintptr_t)(test->memory + TEST_BYTES - WORDS * sizeof(uint32_t));
}

/* Needs the copy stream's context. */
static collet_status copy(const struct connect_test *test, void *to, const void *from)
{
	static const char what[] = "testing a GPU's memory";
	const struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	const collet_status status = collet_copy_stream_enqueue(
		shared_gpu->device->cuda, shared_gpu->copy_stream, to, from, WORDS * sizeof(uint32_t), what);
	const collet_status waited =
		collet_copy_stream_synchronize(shared_gpu->device->cuda, shared_gpu->copy_stream, what);
	return status == COLLET_OK ? waited : status;
}

static collet_status allocate_and_fill(struct connect_test *test)
{
	const struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	uint32_t words[WORDS];
	const cu_result result = shared_gpu->device->cuda->cuMemAlloc(&test->memory, TEST_BYTES);
	if (result != CU_OK) {
		test->memory = 0;
		return collet_cuda_fail(shared_gpu->device->cuda, result, "allocating memory to test");
	}
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = pattern(shared_gpu->member, i);
	collet_status status = copy(test, (void *)(uintptr_t)test->memory, words);
	memset(words, 0, sizeof(words));
	if (status == COLLET_OK)
		status = copy(test, result_of(test), words);
	return status;
}

static collet_status prepare_leader(struct collet_shared_gpu *shared_gpu)
{
	collet_status status = collet_span_plan_init(&shared_gpu->plan, shared_gpu->size);
	if (status != COLLET_OK)
		return status;
	shared_gpu->ranks = calloc(shared_gpu->size, sizeof(*shared_gpu->ranks));
	shared_gpu->notes_seen = calloc(shared_gpu->size, sizeof(*shared_gpu->notes_seen));
	if (!shared_gpu->ranks || !shared_gpu->notes_seen)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to lead %u ranks that share a GPU",
			shared_gpu->size);
	const struct collet_kernel_set *kernels = NULL;
	struct collet_kernel_set *found;
	status = collet_kernel_set_get(&shared_gpu->device->kernels, shared_gpu->copy_stream, &found);
	if (status != COLLET_OK)
		return status;
	kernels = found;
	status = collet_copy_stream_push_context(shared_gpu->device->cuda, shared_gpu->copy_stream);
	if (status != COLLET_OK)
		return status;
	const cu_result result = collet_cuda_create_stream(shared_gpu->device->cuda, &shared_gpu->stream);
	collet_copy_stream_pop_context(shared_gpu->device->cuda);
	if (result != CU_OK) {
		shared_gpu->stream = NULL;
		return collet_cuda_fail(
			shared_gpu->device->cuda, result, "creating a stream for ranks that share a GPU");
	}
	shared_gpu->kernels = kernels;
	return COLLET_OK;
}

static collet_status prepare(struct connect_test *test)
{
	struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	const struct collet_pointer_attributes own = {
		.is_device = true, .ordinal = shared_gpu->device->ordinal, .context = shared_gpu->device->context };
	collet_status status = collet_copy_stream_get(shared_gpu->device->copy_streams, &own, &shared_gpu->copy_stream);
	if (status == COLLET_OK && is_leader(shared_gpu))
		status = prepare_leader(shared_gpu);
	if (status == COLLET_OK)
		status = collet_copy_stream_push_context(shared_gpu->device->cuda, shared_gpu->copy_stream);
	if (status == COLLET_OK) {
		status = allocate_and_fill(test);
		collet_copy_stream_pop_context(shared_gpu->device->cuda);
	}
	return status;
}

static void check(struct connect_test *test)
{
	const struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	uint32_t words[WORDS], wrong = 0;
	collet_status status = collet_copy_stream_push_context(shared_gpu->device->cuda, shared_gpu->copy_stream);
	if (status == COLLET_OK) {
		status = copy(test, words, result_of(test));
		collet_copy_stream_pop_context(shared_gpu->device->cuda);
	}
	for (uint32_t i = 0; i < WORDS && status == COLLET_OK; i++) {
		uint32_t expected = 0;
		for (uint32_t r = 0; r < shared_gpu->size; r++)
			expected ^= pattern(r, i);
		wrong += words[i] != expected;
	}
	if (wrong)
		status = collet_fail(COLLET_ERR_SYSTEM,
			"cuda: of %d words that the leader wrote to this rank's memory %u are wrong; is an IOMMU in "
			"the way?",
			WORDS, wrong);
	if (status != COLLET_OK)
		record_failure(test);
}

/* ---- Test rounds ---- */

static bool round_is_complete(void *context)
{
	const struct connect_test *test = context;
	return test->call->state == CALL_COMPLETE ||
	       atomic_load_explicit(&test->shared_gpu->state->end_status, memory_order_acquire) != COLLET_OK ||
	       atomic_load_explicit(&test->shared_gpu->internal_comm.end_status, memory_order_acquire) != COLLET_OK;
}

static collet_status ended_status(const struct collet_shared_gpu *shared_gpu)
{
	const struct collet_comm_state *state = shared_gpu->state;
	int status = atomic_load_explicit(&state->end_status, memory_order_acquire);
	if (status == COLLET_OK) {
		state = &shared_gpu->internal_comm;
		status = atomic_load_explicit(&state->end_status, memory_order_acquire);
	}
	return status == COLLET_OK ? COLLET_OK : collet_fail_copy((enum collet_status)status, state->error_text);
}

/* Runs one call. *passed: no rank found an error and, with buffers, the leader has done its launch. */
static collet_status run_round(
	struct connect_test *test, uint64_t number, const struct collet_buffer_info *buffers, bool *passed)
{
	struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	struct collet_engine *engine = shared_gpu->state->engine;
	struct shared_call *call;
	*passed = false;
	collet_engine_lock(engine);
	test->call = call = collet_shared_call_get(shared_gpu);
	if (!call) {
		collet_engine_unlock(engine);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that share a GPU");
	}
	call->request = NULL;
	call->fell_back = true;
	call->buffers.function = shared_gpu->has_one_gpu ? "collectives of ranks that share a GPU go"
					       : "collectives of this host's ranks, on several GPUs, go";
	call->summary = (struct call_summary){ .collective = COLLET_ALLREDUCE, .may_reorder = true, .dtype = COLLET_U32,
		.op = COLLET_XOR, .count = buffers ? WORDS : 0, .sequence = (uint64_t)-2 + number };
	struct call_descriptor *descriptor = descriptor_of(shared_gpu, call, 0);
	*descriptor = (struct call_descriptor){ .sequence = call->summary.sequence, .is_ok = test->is_ok };
	if (buffers)
		memcpy(descriptor->buffer, buffers, sizeof(descriptor->buffer));
	collet_status status = collet_shared_call_post(shared_gpu, call, sizeof(*descriptor));
	collet_engine_unlock(engine);
	if (status == COLLET_OK)
		collet_engine_wait(engine, round_is_complete, test);
	collet_engine_lock(engine);
	if (status == COLLET_OK && call->state == CALL_COMPLETE)
		*passed = !call->decision.is_staged;
	else if (status == COLLET_OK)
		status = ended_status(shared_gpu);
	if (call->state == CALL_COMPLETE)
		collet_shared_call_put(shared_gpu, call);
	collet_engine_unlock(engine);
	return status;
}

static void locate_buffers(struct connect_test *test, struct collet_buffer_info buffers[2])
{
	struct collet_call_buffers located = { .function = "testing", .buffer = {
		{ .first = (void *)(uintptr_t)test->memory, .bytes = WORDS * sizeof(uint32_t) },
		{ .first = result_of(test), .bytes = WORDS * sizeof(uint32_t) } } };
	if (collet_shared_gpu_locate(test->shared_gpu, &located) != COLLET_OK)
		record_failure(test);
	memcpy(buffers, located.buffer, sizeof(located.buffer));
}

static void release(struct connect_test *test)
{
	const struct collet_shared_gpu *shared_gpu = test->shared_gpu;
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	if (test->memory && collet_cuda_push_context(cuda, shared_gpu->copy_stream->context) == CU_OK) {
		(void)cuda->cuMemFree(test->memory);
		collet_cuda_pop_context(cuda);
	}
}

collet_status collet_shared_gpu_connect(struct collet_shared_gpu *shared_gpu, bool *ok)
{
	struct connect_test test = { .shared_gpu = shared_gpu, .is_ok = true };
	struct collet_buffer_info buffers[2] = { { .first = NULL }, { .first = NULL } };
	shared_gpu->is_connecting = true;
	if (prepare(&test) != COLLET_OK)
		record_failure(&test);
	if (test.is_ok)
		locate_buffers(&test, buffers);
	collet_status status = run_round(&test, 0, buffers, ok);
	if (status == COLLET_OK && *ok) {
		check(&test);
		if (is_leader(shared_gpu))
			collet_completion_flags_create(shared_gpu);
		status = run_round(&test, 1, NULL, ok);
	}
	if (status == COLLET_OK && *ok && !is_leader(shared_gpu))
		collet_completion_flags_attach(shared_gpu);
	if (!test.is_ok)
		collet_log(shared_gpu->device->log, COLLET_LOG_WARN, "%s", test.why);
	release(&test);
	shared_gpu->is_connecting = false;
	return status;
}
