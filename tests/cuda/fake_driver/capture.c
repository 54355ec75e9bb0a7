/* Stream capture: operations become nodes of a graph. Each depends on what came before in its stream, or was waited for
 * by an event, which lets other streams join. Forbidden calls fail and invalidate the capture, as in the driver. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* Its nodes, members and tips are under fake_lock. */
struct fake_capture {
	struct fake_capture *next;
	uint64_t id;
	int mode;
	pthread_t thread;
	bool invalidated;
	struct fake_nodes nodes;
	struct CUstream_st *members[FAKE_TIPS];      /* the first one began it */
	uint32_t member_count;
};

static struct fake_capture *captures;
static uint64_t last_id;
static _Thread_local int thread_mode = CU_CAPTURE_MODE_GLOBAL;

static void invalidate(struct fake_capture *capture)
{
	pthread_mutex_lock(&fake_lock);
	capture->invalidated = true;
	pthread_mutex_unlock(&fake_lock);
}

static bool is_invalidated(const struct fake_capture *capture)
{
	pthread_mutex_lock(&fake_lock);
	const bool invalidated = capture->invalidated;
	pthread_mutex_unlock(&fake_lock);
	return invalidated;
}

/* Needs fake_lock. */
static void add_node(struct fake_nodes *nodes, struct fake_job *job, const struct fake_tips *after)
{
	if (nodes->count == nodes->capacity) {
		nodes->capacity = nodes->capacity ? 2 * nodes->capacity : 16;
		nodes->first = realloc(nodes->first, nodes->capacity * sizeof(*nodes->first));
		if (!nodes->first)
			abort();
	}
	nodes->first[nodes->count++] = (struct fake_node){ job, *after };
}

cu_result fake_capture_add(struct CUstream_st *stream, struct fake_job *job)
{
	struct fake_capture *capture = stream->capture;
	if (!job->bytes)
		invalidate(capture);
	if (is_invalidated(capture)) {
		const bool fits = job->bytes != 0;
		free(job);
		return fits ? CU_CAPTURE_INVALIDATED : CU_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_lock(&fake_lock);
	add_node(&capture->nodes, job, &stream->tips);
	stream->tips = (struct fake_tips){ 1, { capture->nodes.count - 1 } };
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

cu_result fake_capture_forbids(struct CUstream_st *stream)
{
	pthread_mutex_lock(&stream->lock);
	if (stream->capture)
		invalidate(stream->capture);
	const bool captured = stream->capture != NULL;
	pthread_mutex_unlock(&stream->lock);
	return captured ? CU_CAPTURE_UNSUPPORTED : CU_OK;
}

cu_result fake_capture_forbids_legacy(cu_context context)
{
	cu_result result = CU_OK;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_capture *capture = captures; capture; capture = capture->next) {
		for (uint32_t m = 0; m < capture->member_count; m++) {
			if (!capture->members[m]->blocking || capture->members[m]->context != context)
				continue;
			capture->invalidated = true;
			result = CU_CAPTURE_IMPLICIT;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

uint64_t fake_capture_place(struct CUstream_st *stream, struct fake_tips *tips)
{
	pthread_mutex_lock(&stream->lock);
	const uint64_t id = stream->capture ? stream->capture->id : 0;
	*tips = stream->tips;
	pthread_mutex_unlock(&stream->lock);
	return id;
}

uint64_t fake_capture_id(cu_stream handle)
{
	struct fake_tips tips;
	return fake_capture_place(fake_stream_find(handle), &tips);
}

bool fake_capture_is_invalidated(cu_stream handle)
{
	struct CUstream_st *stream = fake_stream_find(handle);
	pthread_mutex_lock(&stream->lock);
	const bool invalidated = stream->capture && is_invalidated(stream->capture);
	pthread_mutex_unlock(&stream->lock);
	return invalidated;
}

void fake_capture_invalidate(cu_stream handle)
{
	(void)fake_capture_forbids(fake_stream_find(handle));
}

static bool has_tip(const struct fake_tips *tips, uint32_t node)
{
	for (uint32_t t = 0; t < tips->count; t++)
		if (tips->nodes[t] == node)
			return true;
	return false;
}

static void add_tips(struct fake_tips *tips, const struct fake_tips *more)
{
	for (uint32_t t = 0; t < more->count; t++) {
		if (has_tip(tips, more->nodes[t]))
			continue;
		if (tips->count == FAKE_TIPS)
			abort();
		tips->nodes[tips->count++] = more->nodes[t];
	}
}

/* Needs the lock of the stream, which is in no capture. */
static cu_result join_capture(struct CUstream_st *stream, uint64_t id)
{
	cu_result result = CU_CAPTURED_EVENT;
	pthread_mutex_lock(&fake_lock);
	struct fake_capture *capture = captures;
	while (capture && capture->id != id)
		capture = capture->next;
	if (capture && stream->legacy) {
		result = CU_CAPTURE_UNSUPPORTED;
		capture->invalidated = true;
	} else if (capture && capture->member_count < FAKE_TIPS) {
		capture->members[capture->member_count++] = stream;
		stream->capture = capture;
		stream->tips.count = 0;
		result = CU_OK;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

cu_result fake_capture_follow(struct CUstream_st *stream, uint64_t id, const struct fake_tips *tips)
{
	cu_result result = CU_OK;
	pthread_mutex_lock(&stream->lock);
	if (!stream->capture)
		result = join_capture(stream, id);
	else if (stream->capture->id != id)
		result = id ? CU_CAPTURE_MERGE : CU_CAPTURE_ISOLATION;
	if (result == CU_OK)
		add_tips(&stream->tips, tips);
	else if (stream->capture)
		invalidate(stream->capture);
	pthread_mutex_unlock(&stream->lock);
	return result;
}

/* True if this thread may do what could depend on captured work. */
cu_result fake_unsafe(void)
{
	bool forbidden = false;
	if (thread_mode == CU_CAPTURE_MODE_RELAXED)
		return CU_OK;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_capture *capture = captures; capture; capture = capture->next) {
		const bool own = pthread_equal(capture->thread, pthread_self());
		if ((own && capture->mode != CU_CAPTURE_MODE_RELAXED) ||
			(!own && capture->mode == CU_CAPTURE_MODE_GLOBAL && thread_mode == CU_CAPTURE_MODE_GLOBAL))
			forbidden = capture->invalidated = true;
	}
	pthread_mutex_unlock(&fake_lock);
	return forbidden ? CU_CAPTURE_UNSUPPORTED : CU_OK;
}

cu_result fake_enter_unsafe(const char *function, cu_context *context)
{
	const cu_result result = fake_enter_in_context(function, context);
	return result == CU_OK ? fake_unsafe() : result;
}

/* ---- Driver functions ---- */

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
	if (mode < CU_CAPTURE_MODE_GLOBAL || mode > CU_CAPTURE_MODE_RELAXED)
		return CU_INVALID_VALUE;
	struct fake_capture *capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CU_OUT_OF_MEMORY;
	capture->mode = mode;
	capture->thread = pthread_self();
	capture->members[0] = stream;
	capture->member_count = 1;
	pthread_mutex_lock(&stream->lock);
	const bool already = stream->capture != NULL;
	if (!already) {
		stream->capture = capture;
		stream->tips.count = 0;
		pthread_mutex_lock(&fake_lock);
		capture->id = ++last_id;
		capture->next = captures;
		captures = capture;
		pthread_mutex_unlock(&fake_lock);
	}
	pthread_mutex_unlock(&stream->lock);
	if (already)
		free(capture);
	return already ? CU_ILLEGAL_STATE : CU_OK;
}

/* Marks all nodes that these depend on, directly or not. */
static void mark_before(const struct fake_nodes *nodes, const struct fake_tips *tips, bool *before)
{
	for (uint32_t t = 0; t < tips->count; t++)
		before[tips->nodes[t]] = true;
	for (uint32_t n = nodes->count; n--;)
		for (uint32_t t = 0; before[n] && t < nodes->first[n].after.count; t++)
			before[nodes->first[n].after.nodes[t]] = true;
}

/* True if all work of the members precedes the position of the first one. The capture is off the list. */
static bool is_joined(const struct fake_capture *capture)
{
	bool *before = calloc(capture->nodes.count + 1, sizeof(*before)), joined = true;
	if (!before)
		abort();
	mark_before(&capture->nodes, &capture->members[0]->tips, before);
	for (uint32_t m = 1; m < capture->member_count; m++)
		for (uint32_t t = 0; t < capture->members[m]->tips.count; t++)
			joined = joined && before[capture->members[m]->tips.nodes[t]];
	free(before);
	return joined;
}

static void take_off_list(struct fake_capture *capture)
{
	pthread_mutex_lock(&fake_lock);
	struct fake_capture **at = &captures;
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	pthread_mutex_unlock(&fake_lock);
}

/* Ends a capture that this thread may end. */
static cu_result end_capture(struct fake_capture *capture, cu_graph *graph)
{
	take_off_list(capture);
	const bool joined = is_joined(capture);
	for (uint32_t m = 0; m < capture->member_count; m++) {
		struct CUstream_st *member = capture->members[m];
		pthread_mutex_lock(&member->lock);
		member->capture = NULL;
		pthread_mutex_unlock(&member->lock);
	}
	capture->nodes.width = capture->member_count;
	const bool fine = joined && !capture->invalidated;
	if (fine)
		*graph = fake_graph_of(&capture->nodes);
	else
		fake_nodes_free(&capture->nodes);
	const cu_result why = capture->invalidated ? CU_CAPTURE_INVALIDATED : CU_CAPTURE_UNJOINED;
	free(capture);
	return !fine ? why : *graph ? CU_OK : CU_OUT_OF_MEMORY;
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
	const bool other = capture && capture->mode != CU_CAPTURE_MODE_RELAXED &&
		!pthread_equal(capture->thread, pthread_self());
	const bool others = capture && capture->members[0] != stream;
	pthread_mutex_unlock(&stream->lock);
	*graph = NULL;
	if (!capture)
		return CU_ILLEGAL_STATE;
	if (other)
		return CU_CAPTURE_WRONG_THREAD;
	if (others) {
		invalidate(capture);
		return CU_CAPTURE_UNMATCHED;
	}
	return end_capture(capture, graph);
}

/* Does not return the nodes themselves. */
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
	*status = !capture		  ? CU_CAPTURE_STATUS_NONE :
		is_invalidated(capture)	  ? CU_CAPTURE_STATUS_INVALIDATED :
					    CU_CAPTURE_STATUS_ACTIVE;
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
	if (*mode < CU_CAPTURE_MODE_GLOBAL || *mode > CU_CAPTURE_MODE_RELAXED)
		return CU_INVALID_VALUE;
	const int before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CU_OK;
}
