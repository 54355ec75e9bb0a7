/* What streams do to single words of memory, and functions of the host that they call. */
#include "stream.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE = 200, NAP_NS = 20 * 1000 };

struct word_job {
	struct fake_job job;
	cu_pointer word;
	uint32_t value;
	unsigned int how;
	int device;
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

/* As on a GPU: what came before in the stream is seen by whoever sees the word. */
static cu_result run_write(struct fake_job *job)
{
	const struct word_job *write = (const struct word_job *)job;
	_Atomic uint32_t *word = reach_word(write->word);
	if (!word)
		return CU_ILLEGAL_ADDRESS;
	atomic_store_explicit(word, write->value, memory_order_release);
	return CU_OK;
}

static bool reached(const struct word_job *wait, uint32_t value)
{
	return wait->how == CU_WAIT_EQUAL ? value == wait->value : (int32_t)(value - wait->value) >= 0;
}

static cu_result run_wait(struct fake_job *job)
{
	const struct word_job *wait = (const struct word_job *)job;
	const struct timespec nap = { .tv_nsec = NAP_NS };
	for (int round = 0;; round++) {
		const _Atomic uint32_t *word = reach_word(wait->word);
		if (!word)
			return CU_ILLEGAL_ADDRESS;
		if (fake_is_broken(wait->device))
			return CU_ILLEGAL_ADDRESS;
		if (reached(wait, atomic_load_explicit(word, memory_order_acquire)))
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
	if (how > CU_WAIT_EQUAL || word % sizeof(value) || !fake_is_known(word, sizeof(value)))
		return CU_INVALID_VALUE;
	struct word_job *job = malloc(sizeof(*job));
	if (!job)
		return CU_OUT_OF_MEMORY;
	*job = (struct word_job){ { .run = run, .bytes = sizeof(*job) }, word, value, how,
		fake_context_device(context) };
	return fake_enqueue(stream, &job->job);
}

/* ---- The driver's functions ---- */

FAKE_API cu_result cuStreamWaitValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags)
{
	return add_word("cuStreamWaitValue32", stream, word, value, flags, run_wait);
}

FAKE_API cu_result cuStreamWriteValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags)
{
	return flags ? CU_INVALID_VALUE : add_word("cuStreamWriteValue32", stream, word, value, 0, run_write);
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

/* The GPU sees the host's memory if it was registered, elsewhere. */
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
