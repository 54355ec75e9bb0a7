/* Stream operations on words of memory, and host functions. */
#include "stream.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 200, NAP_NS = 20 * 1000 };

struct word_job {
	struct fake_job job;
	cu_pointer word;
	uint32_t value;
	unsigned int how;
	cu_context context;
};

struct batch_job {
	struct fake_job job;
	unsigned int count;
	cu_mem_op writes[];
};

struct call_job {
	struct fake_job job;
	cu_host_function *function;
	void *data;
};

static _Atomic uint32_t *reach_word(cu_pointer word)
{
	return fake_is_known(word, sizeof(uint32_t)) ?
		(_Atomic uint32_t *)(void *)fake_reach(word, sizeof(uint32_t)) : NULL;
}

/* As on a GPU: whoever sees the word also sees the effects of earlier work in the stream. */
static cu_result run_write(struct fake_job *job)
{
	const struct word_job *write = (const struct word_job *)job;
	_Atomic uint32_t *word = reach_word(write->word);
	if (!word)
		return CU_ILLEGAL_ADDRESS;
	fake_delay();
	atomic_store_explicit(word, write->value, memory_order_release);
	return CU_OK;
}

static cu_result run_batch(struct fake_job *job)
{
	const struct batch_job *batch = (const struct batch_job *)job;
	for (unsigned int i = 0; i < batch->count; i++) {
		_Atomic uint32_t *word = reach_word(batch->writes[i].write.word);
		if (!word)
			return CU_ILLEGAL_ADDRESS;
		fake_delay();
		atomic_store_explicit(word, (uint32_t)batch->writes[i].write.value, memory_order_release);
	}
	return CU_OK;
}

static bool has_come(const struct word_job *wait, uint32_t value)
{
	return wait->how == CU_WAIT_VALUE_EQ ? value == wait->value : (int32_t)(value - wait->value) >= 0;
}

/* Returns false if the word was freed. That may happen while a stream waits for it, and is then a fault of the GPU. */
static bool load_word(cu_pointer word, uint32_t *value)
{
	pthread_mutex_lock(&fake_unmapping);
	const _Atomic uint32_t *address = reach_word(word);
	if (address)
		*value = atomic_load_explicit(address, memory_order_acquire);
	pthread_mutex_unlock(&fake_unmapping);
	return address;
}

static cu_result run_wait(struct fake_job *job)
{
	const struct word_job *wait = (const struct word_job *)job;
	const struct timespec nap = { .tv_nsec = NAP_NS };
	for (int round = 0;; round++) {
		uint32_t value;
		if (!round)
			fake_delay();
		if (!load_word(wait->word, &value))
			return CU_ILLEGAL_ADDRESS;
		if (fake_is_broken(wait->context))
			return CU_ILLEGAL_ADDRESS;
		if (has_come(wait, value))
			return CU_OK;
		if (round < PATIENCE)
			sched_yield();
		else
			nanosleep(&nap, NULL);
	}
}

static cu_result run_call(struct fake_job *job)
{
	const struct call_job *call = (const struct call_job *)job;
	fake_delay();
	fake_forbid_driver(true);
	call->function(call->data);
	fake_forbid_driver(false);
	return CU_OK;
}

static cu_result add_word(const char *function, cu_stream stream, cu_pointer word, uint32_t value, unsigned int how,
	cu_result (*run)(struct fake_job *job))
{
	cu_context context;
	const cu_result result = fake_enter_in_context(function, &context);
	if (result != CU_OK)
		return result;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	if (how > CU_WAIT_VALUE_EQ || word % sizeof(value) || !fake_is_known(word, sizeof(value)))
		return CU_INVALID_VALUE;
	struct word_job *job = malloc(sizeof(*job));
	if (!job)
		return CU_OUT_OF_MEMORY;
	*job = (struct word_job){ { .run = run, .bytes = sizeof(*job) }, word, value, how,
		context };
	return fake_enqueue(stream, &job->job);
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuStreamWaitValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags)
{
	return add_word("cuStreamWaitValue32", stream, word, value, flags, run_wait);
}

FAKE_API cu_result cuStreamWriteValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags)
{
	return flags ? CU_INVALID_VALUE : add_word("cuStreamWriteValue32", stream, word, value, 0, run_write);
}

/* Supports only the operations that are used. */
FAKE_API cu_result cuStreamBatchMemOp_v2(
	cu_stream stream, unsigned int count, cu_mem_op *operations, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuStreamBatchMemOp", &context);
	if (result != CU_OK)
		return result;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	if (flags || !operations || !count || count > CU_MEM_OPS_MAX)
		return CU_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if (operations[i].write.operation != CU_MEM_OP_WRITE_32 || operations[i].write.flags ||
			operations[i].write.word % sizeof(uint32_t) ||
			!fake_is_known(operations[i].write.word, sizeof(uint32_t)))
			return CU_INVALID_VALUE;
	const size_t bytes = sizeof(struct batch_job) + count * sizeof(*operations);
	struct batch_job *job = malloc(bytes);
	if (!job)
		return CU_OUT_OF_MEMORY;
	*job = (struct batch_job){ { .run = run_batch, .bytes = bytes }, count };
	memcpy(job->writes, operations, count * sizeof(*operations));
	return fake_enqueue(stream, &job->job);
}

FAKE_API cu_result cuLaunchHostFunc(cu_stream stream, cu_host_function *function, void *data)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	if (!function)
		return CU_INVALID_VALUE;
	struct call_job *job = malloc(sizeof(*job));
	if (!job)
		return CU_OUT_OF_MEMORY;
	*job = (struct call_job){ { .run = run_call, .bytes = sizeof(*job) }, function, data };
	return fake_enqueue(stream, &job->job);
}

/* A GPU accesses host memory only if it is registered, at another address. */
FAKE_API cu_result cuMemHostGetDevicePointer_v2(cu_pointer *pointer, void *memory, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuMemHostGetDevicePointer", &context);
	if (result != CU_OK)
		return result;
	if (flags || !fake_is_known((uintptr_t)memory | FAKE_PINNED_AT, 1))
		return CU_INVALID_VALUE;
	*pointer = (uintptr_t)memory | FAKE_PINNED_AT;
	return CU_OK;
}
