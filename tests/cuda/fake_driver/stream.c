/* Streams: a queue and a thread each. A job that fails spoils its stream, as on a GPU. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct copy {
	struct fake_job job;
	cu_pointer to, from;
	size_t bytes;
};

struct CUstream_st {
	cu_context context;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_job *first, **last;
	bool working, ending;
	cu_result result;    /* what it has come to; from then on nothing happens any more */
};

static cu_result copy_now(const struct copy *copy)
{
	char *to = fake_reach(copy->to, copy->bytes), *from = fake_reach(copy->from, copy->bytes);
	if (!to || !from)
		return CU_ILLEGAL_ADDRESS;
	memmove(to, from, copy->bytes);
	return CU_OK;
}

static cu_result run_copy(struct fake_job *job)
{
	return copy_now((const struct copy *)job);
}

static void *work(void *argument)
{
	struct CUstream_st *stream = argument;
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		while (!stream->first && !stream->ending)
			pthread_cond_wait(&stream->changed, &stream->lock);
		struct fake_job *job = stream->first;
		if (!job)
			break;
		stream->first = job->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->working = true;
		const bool fine = stream->result == CU_OK;
		pthread_mutex_unlock(&stream->lock);
		const cu_result result = fine ? job->run(job) : CU_OK;
		free(job);
		pthread_mutex_lock(&stream->lock);
		stream->working = false;
		if (result != CU_OK)
			stream->result = result;
		pthread_cond_broadcast(&stream->changed);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

cu_context fake_stream_context(cu_stream stream)
{
	return stream->context;
}

void fake_enqueue(cu_stream stream, struct fake_job *job)
{
	job->next = NULL;
	pthread_mutex_lock(&stream->lock);
	*stream->last = job;
	stream->last = &job->next;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
}

/* ---- The driver's functions ---- */

FAKE_API cu_result cuStreamCreate(cu_stream *created, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (flags & ~(unsigned int)CU_NON_BLOCKING_STREAM)
		return CU_INVALID_VALUE;
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return CU_OUT_OF_MEMORY;
	stream->context = context;
	stream->last = &stream->first;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
		free(stream);
		return CU_OUT_OF_MEMORY;
	}
	*created = stream;
	return CU_OK;
}

FAKE_API cu_result cuStreamDestroy_v2(cu_stream stream)
{
	const cu_result result = fake_enter("cuStreamDestroy");
	if (result != CU_OK)
		return result;
	if (!stream)
		return CU_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_destroy(&stream->lock);
	pthread_cond_destroy(&stream->changed);
	free(stream);
	return CU_OK;
}

FAKE_API cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!stream || stream->context != context)
		return CU_INVALID_HANDLE;
	if (!fake_reach(to, bytes) || !fake_reach(from, bytes))
		return CU_INVALID_VALUE;
	struct copy *copy = malloc(sizeof(*copy));
	if (!copy)
		return CU_OUT_OF_MEMORY;
	*copy = (struct copy){ .job.run = run_copy, .to = to, .from = from, .bytes = bytes };
	fake_enqueue(stream, &copy->job);
	return CU_OK;
}

struct fill {
	struct fake_job job;
	cu_pointer first;
	size_t bytes;
	unsigned char value;
};

static cu_result run_fill(struct fake_job *job)
{
	const struct fill *fill = (const struct fill *)job;
	char *first = fake_reach(fill->first, fill->bytes);
	if (!first)
		return CU_ILLEGAL_ADDRESS;
	memset(first, fill->value, fill->bytes);
	return CU_OK;
}

FAKE_API cu_result cuMemsetD8Async(cu_pointer first, unsigned char value, size_t bytes, cu_stream stream)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!stream || stream->context != context)
		return CU_INVALID_HANDLE;
	if (!fake_reach(first, bytes))
		return CU_INVALID_VALUE;
	struct fill *fill = malloc(sizeof(*fill));
	if (!fill)
		return CU_OUT_OF_MEMORY;
	*fill = (struct fill){ .job.run = run_fill, .first = first, .bytes = bytes, .value = value };
	fake_enqueue(stream, &fill->job);
	return CU_OK;
}

FAKE_API cu_result cuStreamSynchronize(cu_stream stream)
{
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!stream)
		return CU_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	while (stream->first || stream->working)
		pthread_cond_wait(&stream->changed, &stream->lock);
	result = stream->result;
	pthread_mutex_unlock(&stream->lock);
	return result;
}

FAKE_API cu_result cuStreamQuery(cu_stream stream)
{
	cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!stream)
		return CU_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	result = stream->result != CU_OK ? stream->result : stream->first || stream->working ? CU_NOT_READY : CU_OK;
	pthread_mutex_unlock(&stream->lock);
	return result;
}

/* The program's own way in and out: at once, on its own thread. */
static cu_result copy_at_once(const char *function, cu_pointer to, cu_pointer from, size_t bytes)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(function, &context);
	if (result != CU_OK)
		return result;
	const struct copy copy = { .to = to, .from = from, .bytes = bytes };
	return copy_now(&copy) == CU_OK ? CU_OK : CU_INVALID_VALUE;
}

FAKE_API cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes)
{
	return copy_at_once("cuMemcpyHtoD", to, (uintptr_t)from, bytes);
}

FAKE_API cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t bytes)
{
	return copy_at_once("cuMemcpyDtoH", (uintptr_t)to, from, bytes);
}
