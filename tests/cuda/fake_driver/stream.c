/* Streams: a queue and a thread each. A failed job stops its stream, and a fault its whole context, as on a GPU.
 *
 * The legacy default stream of a context and its blocking streams wait for each other. Blocking are all streams not
 * made with CU_STREAM_NON_BLOCKING, and the default streams of threads. A job of one side waits for all jobs that the
 * other side was given before it. No job waits for later ones, so all make progress. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

static struct CUstream_st *defaults;  /* of all contexts; under fake_lock */
static uint64_t last_id;              /* under fake_lock */

static struct {
	pthread_mutex_t lock;                /* taken within a stream's lock, or alone */
	pthread_cond_t changed;
	struct CUstream_st *live;            /* all streams */
	uint64_t last;
} turns = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

struct copy {
	struct fake_job job;
	cu_pointer to, from;
	size_t bytes;
	size_t ahead;                /* see overlap.c */
};

static cu_result copy_now(const struct copy *copy)
{
	char *to = fake_reach(copy->to, copy->bytes), *from = fake_reach(copy->from, copy->bytes);
	if (!to || !from)
		return CU_ILLEGAL_ADDRESS;
	if (copy->job.run)
		fake_delay();
	memmove(to, from, copy->bytes);
	return CU_OK;
}

static cu_result run_copy(struct fake_job *job)
{
	const struct copy *copy = (const struct copy *)job;
	fake_copy_waits(copy->to, copy->from, copy->bytes, copy->ahead);
	return copy_now(copy);
}

/* True if a job that was enqueued before this turn has not ended, on the legacy stream (legacy) or on a blocking one of
 * this context. Needs turns.lock. */
static bool is_earlier(cu_context context, bool legacy, uint64_t turn)
{
	for (const struct CUstream_st *stream = turns.live; stream; stream = stream->next_live)
		if (stream->context == context && (legacy ? stream->legacy : stream->blocking) &&
			stream->unfinished && stream->unfinished < turn)
			return true;
	return false;
}

static void wait_for_turn(const struct CUstream_st *stream, uint64_t turn)
{
	if (!stream->legacy && !stream->blocking)
		return;
	pthread_mutex_lock(&turns.lock);
	while (is_earlier(stream->context, stream->blocking, turn))
		pthread_cond_wait(&turns.changed, &turns.lock);
	pthread_mutex_unlock(&turns.lock);
	fake_land();
}

/* Waits for all jobs that the legacy stream has now, and so for those of the context's blocking streams. */
static void wait_for_legacy(cu_context context)
{
	pthread_mutex_lock(&turns.lock);
	const uint64_t next = turns.last + 1;
	while (is_earlier(context, true, next) || is_earlier(context, false, next))
		pthread_cond_wait(&turns.changed, &turns.lock);
	pthread_mutex_unlock(&turns.lock);
}

static bool is_legacy_idle(cu_context context)
{
	pthread_mutex_lock(&turns.lock);
	const bool idle = !is_earlier(context, true, UINT64_MAX) && !is_earlier(context, false, UINT64_MAX);
	pthread_mutex_unlock(&turns.lock);
	return idle;
}

/* Needs the stream's lock. */
static void take_turn(struct CUstream_st *stream, struct fake_job *job)
{
	pthread_mutex_lock(&turns.lock);
	job->turn = ++turns.last;
	if (!stream->unfinished)
		stream->unfinished = job->turn;
	pthread_mutex_unlock(&turns.lock);
}

static void end_turn(struct CUstream_st *stream)
{
	pthread_mutex_lock(&turns.lock);
	stream->unfinished = stream->first ? stream->first->turn : 0;
	pthread_cond_broadcast(&turns.changed);
	pthread_mutex_unlock(&turns.lock);
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
		pthread_mutex_unlock(&stream->lock);
		wait_for_turn(stream, job->turn);
		pthread_mutex_lock(&stream->lock);
		if (stream->result == CU_OK && fake_is_broken(stream->context))
			stream->result = CU_ILLEGAL_ADDRESS;
		const bool fine = stream->result == CU_OK;
		job->stream_failed = !fine;
		pthread_mutex_unlock(&stream->lock);
		fake_at_work(true);
		const cu_result result = fine || job->always ? job->run(job) : CU_OK;
		fake_at_work(false);
		free(job);
		pthread_mutex_lock(&stream->lock);
		stream->working = false;
		if (result != CU_OK)
			stream->result = result;
		if (result == CU_ILLEGAL_ADDRESS)
			fake_break(stream->context);
		end_turn(stream);
		pthread_cond_broadcast(&stream->changed);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

enum sort { OF_LEGACY, BLOCKING, NON_BLOCKING };

static struct CUstream_st *make(cu_context context, enum sort sort)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->context = context;
	stream->legacy = sort == OF_LEGACY;
	stream->blocking = sort == BLOCKING;
	stream->last = &stream->first;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
		free(stream);
		return NULL;
	}
	pthread_mutex_lock(&turns.lock);
	stream->next_live = turns.live;
	turns.live = stream;
	pthread_mutex_unlock(&turns.lock);
	return stream;
}

static void destroy(struct CUstream_st *stream)
{
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&turns.lock);
	struct CUstream_st **at = &turns.live;
	while (*at != stream)
		at = &(*at)->next_live;
	*at = stream->next_live;
	pthread_mutex_unlock(&turns.lock);
	pthread_mutex_destroy(&stream->lock);
	pthread_cond_destroy(&stream->changed);
	free(stream);
}

/* The stream may have gone with its context. */
static bool is_live(cu_stream handle)
{
	pthread_mutex_lock(&turns.lock);
	const struct CUstream_st *stream = turns.live;
	while (stream && stream != handle)
		stream = stream->next_live;
	pthread_mutex_unlock(&turns.lock);
	return stream != NULL;
}

struct CUstream_st *fake_stream_find(cu_stream handle)
{
	const uintptr_t number = (uintptr_t)handle;
	if (number > CU_PER_THREAD_STREAM)
		return is_live(handle) ? handle : NULL;
	/* The driver takes NULL for the legacy stream; here it must be named. */
	cu_context context = number ? fake_current() : NULL;
	if (!context)
		return NULL;
	const bool legacy = number == CU_LEGACY_STREAM;
	pthread_mutex_lock(&fake_lock);
	struct CUstream_st *found = defaults;
	while (found && (found->context != context || found->legacy != legacy ||
				(!legacy && !pthread_equal(found->owner, pthread_self()))))
		found = found->next_default;
	if (!found) {
		found = make(context, legacy ? OF_LEGACY : BLOCKING);
		if (found) {
			found->owner = pthread_self();
			found->id = ++last_id;
			found->next_default = defaults;
			defaults = found;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return found;
}

static struct CUstream_st *find_made(cu_context context)
{
	pthread_mutex_lock(&turns.lock);
	struct CUstream_st *stream = turns.live;
	while (stream && stream->context != context)
		stream = stream->next_live;
	pthread_mutex_unlock(&turns.lock);
	return stream;
}

void fake_streams_end(cu_context context, bool all)
{
	fake_land();
	for (;;) {
		pthread_mutex_lock(&fake_lock);
		struct CUstream_st **at = &defaults;
		while (*at && (*at)->context != context)
			at = &(*at)->next_default;
		struct CUstream_st *stream = *at;
		if (stream)
			*at = stream->next_default;
		pthread_mutex_unlock(&fake_lock);
		if (!stream)
			break;
		destroy(stream);
	}
	for (struct CUstream_st *made; all && (made = find_made(context));) {
		destroy(made);
		fake_alive(-1);
	}
}

cu_context fake_stream_context(cu_stream handle)
{
	const struct CUstream_st *stream = fake_stream_find(handle);
	return stream ? stream->context : NULL;
}

cu_result fake_enqueue(cu_stream handle, struct fake_job *job)
{
	struct CUstream_st *stream = fake_stream_find(handle);
	cu_result result = CU_OK;
	job->next = NULL;
	if (stream->legacy)
		result = fake_capture_forbids_legacy(stream->context);
	if (result != CU_OK) {
		free(job);
		return result;
	}
	pthread_mutex_lock(&stream->lock);
	if (stream->capture) {
		result = fake_capture_add(stream, job);
	} else {
		take_turn(stream, job);
		*stream->last = job;
		stream->last = &job->next;
		pthread_cond_broadcast(&stream->changed);
	}
	pthread_mutex_unlock(&stream->lock);
	return result;
}

/* ---- Driver functions ---- */

static cu_result create(const char *function, cu_stream *created, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(function, &context);
	if (result != CU_OK)
		return result;
	if (flags & ~(unsigned int)CU_NON_BLOCKING_STREAM)
		return CU_INVALID_VALUE;
	struct CUstream_st *stream = make(context, flags & CU_NON_BLOCKING_STREAM ? NON_BLOCKING : BLOCKING);
	if (!stream)
		return CU_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake_lock);
	stream->id = ++last_id;
	pthread_mutex_unlock(&fake_lock);
	fake_alive(1);
	*created = stream;
	return CU_OK;
}

FAKE_API cu_result cuStreamCreate(cu_stream *created, unsigned int flags)
{
	return create(__func__, created, flags);
}

/* Accepts priorities, and ignores them. */
FAKE_API cu_result cuStreamCreateWithPriority(cu_stream *created, unsigned int flags, int priority)
{
	(void)priority;
	return create(__func__, created, flags);
}

FAKE_API cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	*least = 0;
	*greatest = -5;
	return result;
}

FAKE_API cu_result cuStreamDestroy_v2(cu_stream stream)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuStreamDestroy", &context);
	if (result != CU_OK)
		return result;
	if ((uintptr_t)stream <= CU_PER_THREAD_STREAM || !is_live(stream))
		return CU_INVALID_HANDLE;
	(void)fake_capture_forbids(stream);
	destroy(stream);
	fake_alive(-1);
	return CU_OK;
}

static cu_result wait_until_idle(struct CUstream_st *stream)
{
	if (stream->legacy)
		wait_for_legacy(stream->context);
	pthread_mutex_lock(&stream->lock);
	while (stream->first || stream->working)
		pthread_cond_wait(&stream->changed, &stream->lock);
	const cu_result result = stream->result;
	pthread_mutex_unlock(&stream->lock);
	return result;
}

FAKE_API cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	const int device = fake_context_device(context);
	if (!fake_reach_to_copy(device, to, bytes) || !fake_reach_to_copy(device, from, bytes))
		return CU_INVALID_VALUE;
	const bool pageable = fake_is_pageable(to) || fake_is_pageable(from);
	if (pageable && fake_capture_id(stream)) {
		fake_capture_invalidate(stream);
		return CU_CAPTURE_UNSUPPORTED;
	}
	struct copy *copy = malloc(sizeof(*copy));
	if (!copy)
		return CU_OUT_OF_MEMORY;
	*copy = (struct copy){
		.job = { .run = run_copy, .bytes = sizeof(*copy) }, .to = to, .from = from, .bytes = bytes,
		.ahead = fake_copies_ahead() };
	const cu_result added = fake_enqueue(stream, &copy->job);
	/* The stream reports its result. */
	if (added == CU_OK && pageable)
		(void)wait_until_idle(fake_stream_find(stream));
	return added;
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
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	if (fake_is_pageable(first) || !fake_reach_to_copy(fake_context_device(context), first, bytes))
		return CU_INVALID_VALUE;
	struct fill *fill = malloc(sizeof(*fill));
	if (!fill)
		return CU_OUT_OF_MEMORY;
	*fill = (struct fill){
		.job = { .run = run_fill, .bytes = sizeof(*fill) }, .first = first, .bytes = bytes, .value = value};
	return fake_enqueue(stream, &fill->job);
}

/* For calls that wait for a stream, or poll it: returns the stream, or why there is none. */
static cu_result look_at(const char *function, cu_stream handle, struct CUstream_st **stream)
{
	cu_context context;
	cu_result result = fake_enter_in_context(function, &context);
	if (result != CU_OK)
		return result;
	*stream = fake_stream_find(handle);
	if (!*stream)
		return CU_INVALID_HANDLE;
	result = fake_capture_forbids(*stream);
	if (result == CU_OK && (*stream)->legacy)
		result = fake_capture_forbids_legacy((*stream)->context);
	return result == CU_OK ? fake_unsafe() : result;
}

/* A copy of cuMemcpyHtoD() from pageable memory that is not there yet: the driver has read it, and promises no more.
 * Here it arrives as late as possible: when the legacy stream is waited for, or the legacy or a blocking stream gets
 * more work. */
struct landing {
	struct landing *next;
	struct copy copy;
	unsigned char bytes[];
};
static struct landing *landings, **last_landing = &landings;
/* Also held while they are copied: whoever finds none may continue, so none may be in progress. Taken before
 * fake_lock. */
static pthread_mutex_t landing_lock = PTHREAD_MUTEX_INITIALIZER;

void fake_land(void)
{
	pthread_mutex_lock(&landing_lock);
	while (landings) {
		struct landing *landing = landings;
		landings = landing->next;
		(void)copy_now(&landing->copy);
		free(landing);
	}
	last_landing = &landings;
	pthread_mutex_unlock(&landing_lock);
}

static cu_result land_later(cu_pointer to, const void *from, size_t bytes)
{
	struct landing *landing = malloc(sizeof(*landing) + bytes);
	if (!landing)
		return CU_OUT_OF_MEMORY;
	landing->next = NULL;
	landing->copy = (struct copy){ .to = to, .from = (uintptr_t)landing->bytes, .bytes = bytes };
	memcpy(landing->bytes, from, bytes);
	pthread_mutex_lock(&landing_lock);
	*last_landing = landing;
	last_landing = &landing->next;
	pthread_mutex_unlock(&landing_lock);
	return CU_OK;
}

FAKE_API cu_result cuStreamSynchronize(cu_stream handle)
{
	struct CUstream_st *stream = NULL;
	const cu_result result = look_at(__func__, handle, &stream);
	if (result == CU_OK && stream->legacy)
		fake_land();
	if (result != CU_OK) {
		/* A caller that was told of a test's failure may assume that nothing runs any more. */
		stream = fakeFailed() ? fake_stream_find(handle) : NULL;
		if (stream && !stream->capture)
			(void)wait_until_idle(stream);
		return result;
	}
	return wait_until_idle(stream);
}

FAKE_API cu_result cuStreamQuery(cu_stream handle)
{
	struct CUstream_st *stream;
	cu_result result = look_at(__func__, handle, &stream);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&stream->lock);
	result = stream->result != CU_OK ? stream->result : stream->first || stream->working ? CU_NOT_READY : CU_OK;
	pthread_mutex_unlock(&stream->lock);
	if (result == CU_OK && stream->legacy && !is_legacy_idle(stream->context))
		result = CU_NOT_READY;
	return result;
}

FAKE_API cu_result cuStreamGetCtx(cu_stream stream, cu_context *context)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	*context = fake_stream_context(stream);
	return !*context ? CU_INVALID_CONTEXT : fake_capture_is_invalidated(stream) ? CU_CAPTURE_INVALIDATED : CU_OK;
}

/* Ids are never reused, whatever happens to handles. As on a real GPU, asking for a captured stream's invalidates the
 * capture. */
FAKE_API cu_result cuStreamGetId(cu_stream handle, unsigned long long *id)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	struct CUstream_st *stream = fake_stream_find(handle);
	*id = stream ? stream->id : 0;
	return stream ? fake_capture_forbids(stream) : CU_INVALID_CONTEXT;
}

/* Synchronous copies of the program: run on its own thread, when the legacy stream has reached them. */
static cu_result begin_copy(const char *function)
{
	cu_context context;
	cu_result result = fake_enter_in_context(function, &context);
	if (result == CU_OK)
		result = fake_unsafe();
	if (result == CU_OK)
		result = fake_capture_forbids_legacy(context);
	if (result != CU_OK)
		return result;
	wait_for_legacy(context);
	fake_land();
	return CU_OK;
}

FAKE_API cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes)
{
	const cu_result result = begin_copy("cuMemcpyHtoD");
	const cu_pointer source = (uintptr_t)from;
	if (result != CU_OK)
		return result;
	if (!fake_reach(to, bytes) || !fake_reach(source, bytes))
		return CU_INVALID_VALUE;
	if (fake_is_pageable(source))
		return land_later(to, from, bytes);
	const struct copy copy = { .to = to, .from = source, .bytes = bytes };
	return copy_now(&copy);
}

FAKE_API cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t bytes)
{
	const cu_result result = begin_copy("cuMemcpyDtoH");
	const struct copy copy = { .to = (uintptr_t)to, .from = from, .bytes = bytes };
	if (result != CU_OK)
		return result;
	return copy_now(&copy) == CU_OK ? CU_OK : CU_INVALID_VALUE;
}
