/* Events: how far a stream was when one was recorded, and when it got there. */
#include "stream.h"

#include <stdlib.h>
#include <time.h>

struct CUevent_st {
	struct fake_owned owned;
	cu_context context;
	unsigned int flags;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned users;              /* the program, until it destroys the event, and queued jobs */
	uint64_t recorded, reached;  /* counts */
	uint64_t capture;            /* the capture in which it was last recorded; 0: none */
	struct fake_tips tips;       /* its position there */
	int64_t reached_ns;
};

struct mark {
	struct fake_job job;
	cu_event event;
	uint64_t which;
};

/* Releases one use; takes the lock. The last one frees the event. */
static void release(cu_event event)
{
	const bool last = --event->users == 0;
	pthread_mutex_unlock(&event->lock);
	if (!last)
		return;
	pthread_cond_destroy(&event->changed);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

static cu_result reach(struct fake_job *job)
{
	const struct mark *mark = (const struct mark *)job;
	cu_event event = mark->event;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&event->lock);
	if (mark->which > event->reached) {
		event->reached = mark->which;
		event->reached_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	}
	pthread_cond_broadcast(&event->changed);
	release(event);
	return CU_OK;
}

static cu_result wait_for(struct fake_job *job)
{
	const struct mark *mark = (const struct mark *)job;
	cu_event event = mark->event;
	pthread_mutex_lock(&event->lock);
	while (event->reached < mark->which)
		pthread_cond_wait(&event->changed, &event->lock);
	release(event);
	return CU_OK;
}

/* Enqueues a job about the event, in its state now, or when the job runs. */
static cu_result append(cu_event event, cu_stream stream, cu_result (*run)(struct fake_job *job), bool recording)
{
	struct mark *mark = malloc(sizeof(*mark));
	if (!mark)
		return CU_OUT_OF_MEMORY;
	pthread_mutex_lock(&event->lock);
	event->recorded += recording;
	event->users++;
	*mark = (struct mark){ .job = { .run = run, .always = recording }, .event = event, .which = event->recorded };
	pthread_mutex_unlock(&event->lock);
	const cu_result result = fake_enqueue(stream, &mark->job);
	if (result != CU_OK) {
		pthread_mutex_lock(&event->lock);
		event->recorded -= recording;
		release(event);
	}
	return result;
}

/* In a capture, an event is a position and no job: whoever waits for it comes after that. *captured: it was so. */
static void note_place(cu_event event, cu_stream handle, bool *captured)
{
	struct fake_tips tips;
	const uint64_t id = fake_capture_place(fake_stream_find(handle), &tips);
	pthread_mutex_lock(&event->lock);
	event->capture = id;
	event->tips = tips;
	pthread_mutex_unlock(&event->lock);
	*captured = id != 0;
}

static uint64_t captured_in(cu_event event, struct fake_tips *tips)
{
	pthread_mutex_lock(&event->lock);
	const uint64_t id = event->capture;
	*tips = event->tips;
	pthread_mutex_unlock(&event->lock);
	return id;
}

static void let_go_of_owned(struct fake_owned *owned)
{
	cu_event event = (cu_event)(void *)owned;
	pthread_mutex_lock(&event->lock);
	release(event);
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuEventCreate(cu_event *created, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (flags & ~(unsigned int)(CU_BLOCKING_EVENT | CU_UNTIMED_EVENT))
		return CU_INVALID_VALUE;
	struct CUevent_st *event = calloc(1, sizeof(*event));
	if (!event)
		return CU_OUT_OF_MEMORY;
	event->context = context;
	event->flags = flags;
	event->users = 1;
	pthread_mutex_init(&event->lock, NULL);
	pthread_cond_init(&event->changed, NULL);
	fake_own(&event->owned, context, let_go_of_owned);
	*created = event;
	return CU_OK;
}

FAKE_API cu_result cuEventDestroy_v2(cu_event event)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuEventDestroy", &context);
	if (result != CU_OK)
		return result;
	if (!event)
		return CU_INVALID_HANDLE;
	fake_disown(&event->owned);
	let_go_of_owned(&event->owned);
	return CU_OK;
}

FAKE_API cu_result cuEventRecord(cu_event event, cu_stream stream)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!event || event->context != fake_stream_context(stream))
		return CU_INVALID_HANDLE;
	bool captured;
	note_place(event, stream, &captured);
	return captured ? CU_OK : append(event, stream, reach, true);
}

/* Streams of any device may wait. */
FAKE_API cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!event || !fake_stream_context(stream))
		return CU_INVALID_HANDLE;
	if (flags)
		return CU_INVALID_VALUE;
	struct fake_tips tips;
	const uint64_t capture = captured_in(event, &tips);
	if (!capture && !fake_capture_id(stream))
		return append(event, stream, wait_for, false);
	return fake_capture_follow(fake_stream_find(stream), capture, &tips);
}

FAKE_API cu_result cuEventQuery(cu_event event)
{
	cu_result result = fake_enter(__func__);
	if (result == CU_OK)
		result = fake_unsafe();
	if (result != CU_OK)
		return result;
	struct fake_tips tips;
	if (!event)
		return CU_INVALID_HANDLE;
	if (captured_in(event, &tips))
		return CU_CAPTURED_EVENT;
	if (fake_is_broken(event->context))
		return CU_ILLEGAL_ADDRESS;
	pthread_mutex_lock(&event->lock);
	const bool there = event->reached == event->recorded;
	pthread_mutex_unlock(&event->lock);
	return there ? CU_OK : CU_NOT_READY;
}

FAKE_API cu_result cuEventSynchronize(cu_event event)
{
	cu_context context;
	cu_result result = fake_enter_unsafe(__func__, &context);
	if (result != CU_OK)
		return result;
	struct fake_tips tips;
	if (!event)
		return CU_INVALID_HANDLE;
	if (captured_in(event, &tips))
		return CU_CAPTURED_EVENT;
	pthread_mutex_lock(&event->lock);
	const uint64_t which = event->recorded;
	while (event->reached < which)
		pthread_cond_wait(&event->changed, &event->lock);
	pthread_mutex_unlock(&event->lock);
	return CU_OK;
}

/* Reads an event's time; returns CU_OK, or why it has none. */
static cu_result read_time(cu_event event, int64_t *ns)
{
	pthread_mutex_lock(&event->lock);
	const cu_result result = !event->recorded || (event->flags & CU_UNTIMED_EVENT) ? CU_INVALID_HANDLE :
		event->reached < event->recorded					 ? CU_NOT_READY :
											   CU_OK;
	*ns = event->reached_ns;
	pthread_mutex_unlock(&event->lock);
	return result;
}

FAKE_API cu_result cuEventElapsedTime(float *ms, cu_event start, cu_event end)
{
	int64_t from, to;
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!start || !end || start->context != end->context)
		return CU_INVALID_HANDLE;
	result = read_time(start, &from);
	if (result == CU_OK)
		result = read_time(end, &to);
	if (result == CU_OK)
		*ms = (float)((double)(to - from) * 1e-6);
	return result;
}
