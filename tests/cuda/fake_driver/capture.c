/* Capturing streams, and graphs: the jobs of one stream, to be done again and again. Calls that may not be made
 * meanwhile fail, and spoil the capture, as the driver has it. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

struct fake_capture {
	struct fake_capture *next;
	uint64_t id;
	int mode;
	pthread_t thread;
	bool spoilt;
	struct fake_job *first, **last;
};

struct CUgraph_st {
	struct fake_job *first;
};

/* One launch at a time, as the driver has it: those of one graph follow each other, whatever streams they are on. */
struct CUgraphExec_st {
	struct fake_job *first;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t launched, ended;
	unsigned users;              /* the program, until it destroys it, and launches under way */
};

static struct fake_capture *captures;
static uint64_t last_id;
static _Thread_local int thread_mode = CU_CAPTURE_GLOBAL;

static void free_jobs(struct fake_job *first)
{
	for (struct fake_job *job = first, *next; job; job = next) {
		next = job->next;
		free(job);
	}
}

static struct fake_job *copy_job(const struct fake_job *job)
{
	struct fake_job *copy = malloc(job->bytes);
	if (!copy)
		abort();
	memcpy(copy, job, job->bytes);
	copy->next = NULL;
	return copy;
}

static struct fake_job *copy_jobs(const struct fake_job *first)
{
	struct fake_job *copies = NULL, **last = &copies;
	for (const struct fake_job *job = first; job; job = job->next) {
		*last = copy_job(job);
		last = &(*last)->next;
	}
	return copies;
}

static void spoil(struct fake_capture *capture)
{
	pthread_mutex_lock(&fake_lock);
	capture->spoilt = true;
	pthread_mutex_unlock(&fake_lock);
}

static bool is_spoilt(const struct fake_capture *capture)
{
	pthread_mutex_lock(&fake_lock);
	const bool spoilt = capture->spoilt;
	pthread_mutex_unlock(&fake_lock);
	return spoilt;
}

cu_result fake_capture_add(struct fake_capture *capture, struct fake_job *job)
{
	if (!job->bytes)
		spoil(capture);
	if (is_spoilt(capture)) {
		const bool fits = job->bytes != 0;
		free(job);
		return fits ? CU_CAPTURE_INVALIDATED : CU_CAPTURE_UNSUPPORTED;
	}
	job->next = NULL;
	*capture->last = job;
	capture->last = &job->next;
	return CU_OK;
}

cu_result fake_capture_forbids(struct CUstream_st *stream)
{
	pthread_mutex_lock(&stream->lock);
	if (stream->capture)
		spoil(stream->capture);
	const bool captured = stream->capture != NULL;
	pthread_mutex_unlock(&stream->lock);
	return captured ? CU_CAPTURE_UNSUPPORTED : CU_OK;
}

uint64_t fake_capture_id(cu_stream handle)
{
	struct CUstream_st *stream = fake_stream_find(handle);
	pthread_mutex_lock(&stream->lock);
	const uint64_t id = stream->capture ? stream->capture->id : 0;
	pthread_mutex_unlock(&stream->lock);
	return id;
}

void fake_capture_spoil(cu_stream handle)
{
	(void)fake_capture_forbids(fake_stream_find(handle));
}

/* May this thread do what could depend on work that is captured and not done? */
cu_result fake_unsafe(void)
{
	bool forbidden = false;
	if (thread_mode == CU_CAPTURE_RELAXED)
		return CU_OK;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_capture *capture = captures; capture; capture = capture->next) {
		const bool own = pthread_equal(capture->thread, pthread_self());
		if ((own && capture->mode != CU_CAPTURE_RELAXED) ||
			(!own && capture->mode == CU_CAPTURE_GLOBAL && thread_mode == CU_CAPTURE_GLOBAL))
			forbidden = capture->spoilt = true;
	}
	pthread_mutex_unlock(&fake_lock);
	return forbidden ? CU_CAPTURE_UNSUPPORTED : CU_OK;
}

/* ---- Launches ---- */

struct edge {
	struct fake_job job;
	struct CUgraphExec_st *exec;
	uint64_t launch;
};

static void let_go(struct CUgraphExec_st *exec)
{
	const bool last = --exec->users == 0;
	pthread_mutex_unlock(&exec->lock);
	if (!last)
		return;
	free_jobs(exec->first);
	pthread_cond_destroy(&exec->changed);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

static cu_result begin_launch(struct fake_job *job)
{
	const struct edge *edge = (const struct edge *)job;
	pthread_mutex_lock(&edge->exec->lock);
	while (edge->exec->ended < edge->launch)
		pthread_cond_wait(&edge->exec->changed, &edge->exec->lock);
	pthread_mutex_unlock(&edge->exec->lock);
	return CU_OK;
}

static cu_result end_launch(struct fake_job *job)
{
	const struct edge *edge = (const struct edge *)job;
	pthread_mutex_lock(&edge->exec->lock);
	edge->exec->ended++;
	pthread_cond_broadcast(&edge->exec->changed);
	let_go(edge->exec);
	return CU_OK;
}

static void add_edge(struct CUgraphExec_st *exec, uint64_t launch, cu_stream stream,
	cu_result (*run)(struct fake_job *job))
{
	struct edge *edge = malloc(sizeof(*edge));
	if (!edge)
		abort();
	*edge = (struct edge){ { .run = run }, exec, launch };
	(void)fake_enqueue(stream, &edge->job);
}

/* ---- The driver's functions ---- */

FAKE_API cu_result cuStreamBeginCapture_v2(cu_stream handle, int mode)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuStreamBeginCapture", &context);
	if (result != CU_OK)
		return result;
	struct CUstream_st *stream = fake_stream_find(handle);
	if (!stream || stream->context != context)
		return CU_INVALID_HANDLE;
	if (stream->legacy)
		return CU_CAPTURE_UNSUPPORTED;
	if (mode < CU_CAPTURE_GLOBAL || mode > CU_CAPTURE_RELAXED)
		return CU_INVALID_VALUE;
	struct fake_capture *capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CU_OUT_OF_MEMORY;
	capture->mode = mode;
	capture->thread = pthread_self();
	capture->last = &capture->first;
	pthread_mutex_lock(&stream->lock);
	const bool already = stream->capture != NULL;
	if (!already)
		stream->capture = capture;
	pthread_mutex_unlock(&stream->lock);
	if (already) {
		free(capture);
		return CU_ILLEGAL_STATE;
	}
	pthread_mutex_lock(&fake_lock);
	capture->id = ++last_id;
	capture->next = captures;
	captures = capture;
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

FAKE_API cu_result cuStreamEndCapture(cu_stream handle, cu_graph *graph)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	struct CUstream_st *stream = fake_stream_find(handle);
	if (!stream)
		return CU_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	struct fake_capture *capture = stream->capture;
	const bool elsewhere = capture && capture->mode != CU_CAPTURE_RELAXED &&
		!pthread_equal(capture->thread, pthread_self());
	if (!elsewhere)
		stream->capture = NULL;
	pthread_mutex_unlock(&stream->lock);
	*graph = NULL;
	if (!capture)
		return CU_ILLEGAL_STATE;
	if (elsewhere)
		return CU_CAPTURE_WRONG_THREAD;
	pthread_mutex_lock(&fake_lock);
	struct fake_capture **at = &captures;
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	const bool spoilt = capture->spoilt;
	pthread_mutex_unlock(&fake_lock);
	struct CUgraph_st *made = spoilt ? NULL : calloc(1, sizeof(*made));
	if (made)
		made->first = capture->first;
	else
		free_jobs(capture->first);
	free(capture);
	fake_alive(made != NULL);
	*graph = made;
	return spoilt ? CU_CAPTURE_INVALIDATED : made ? CU_OK : CU_OUT_OF_MEMORY;
}

/* What the nodes are is not told. */
FAKE_API cu_result cuStreamGetCaptureInfo_v2(cu_stream handle, int *status, uint64_t *id, cu_graph *graph,
	const cu_graph_node **nodes, size_t *count)
{
	const cu_result result = fake_enter("cuStreamGetCaptureInfo");
	if (result != CU_OK)
		return result;
	struct CUstream_st *stream = fake_stream_find(handle);
	if (!stream)
		return CU_INVALID_HANDLE;
	if (graph || nodes || count)
		return CU_INVALID_VALUE;
	pthread_mutex_lock(&stream->lock);
	const struct fake_capture *capture = stream->capture;
	*status = !capture		  ? CU_NOT_CAPTURED :
		is_spoilt(capture)	  ? CU_CAPTURE_SPOILT :
					    CU_BEING_CAPTURED;
	if (id)
		*id = capture ? capture->id : 0;
	pthread_mutex_unlock(&stream->lock);
	return CU_OK;
}

FAKE_API cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (*mode < CU_CAPTURE_GLOBAL || *mode > CU_CAPTURE_RELAXED)
		return CU_INVALID_VALUE;
	const int before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CU_OK;
}

FAKE_API cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags)
{
	cu_context context;
	const cu_result result = fake_enter_in_context("cuGraphInstantiate", &context);
	if (result != CU_OK)
		return result;
	if (!graph || flags)
		return CU_INVALID_VALUE;
	struct CUgraphExec_st *made = calloc(1, sizeof(*made));
	if (!made)
		return CU_OUT_OF_MEMORY;
	made->users = 1;
	made->first = copy_jobs(graph->first);
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->changed, NULL);
	fake_alive(1);
	*exec = made;
	return CU_OK;
}

FAKE_API cu_result cuGraphDestroy(cu_graph graph)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!graph)
		return CU_INVALID_VALUE;
	free_jobs(graph->first);
	free(graph);
	fake_alive(-1);
	return CU_OK;
}

FAKE_API cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
	cu_context context;
	cu_result result = fake_enter_in_context(__func__, &context);
	if (result != CU_OK)
		return result;
	if (!exec)
		return CU_INVALID_VALUE;
	if (fake_stream_context(stream) != context)
		return CU_INVALID_HANDLE;
	result = fake_capture_forbids(fake_stream_find(stream));
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&exec->lock);
	const uint64_t launch = exec->launched++;
	exec->users++;
	pthread_mutex_unlock(&exec->lock);
	add_edge(exec, launch, stream, begin_launch);
	for (const struct fake_job *job = exec->first; job; job = job->next)
		(void)fake_enqueue(stream, copy_job(job));
	add_edge(exec, launch, stream, end_launch);
	return CU_OK;
}

FAKE_API cu_result cuGraphExecDestroy(cu_graph_exec exec)
{
	const cu_result result = fake_enter(__func__);
	if (result != CU_OK)
		return result;
	if (!exec)
		return CU_INVALID_VALUE;
	fake_alive(-1);
	pthread_mutex_lock(&exec->lock);
	let_go(exec);
	return CU_OK;
}
