#include "cuda/shared_gpu/gpu_hierarchical_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/step_builder.h"
#include "cuda/shared_gpu/gpu_hierarchical.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/comm_state.h"
#include "engine/cursor.h"
#include "engine/pipeline.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/task.h"

enum { CHILDREN_MAX = 8 };

_Static_assert(COLLET_SHARED_GPU_RANKS <= 1 << CHILDREN_MAX, "a node of the tree has no more children");

static bool has_root(const struct gpu_hierarchical *hierarchical)
{
	return hierarchical->root < hierarchical->size;
}

collet_status gpu_hierarchical_copy(const struct gpu_hierarchical *hierarchical, cu_stream stream,
	const struct collet_gpu_span *spans, uint32_t count)
{
	const struct collet_gpu_reduction copy = { .dtype = COLLET_U8, .op = COLLET_SUM, .average_of = 1 };
	return count ? collet_gpu_spans_launch(hierarchical->kernels, &copy, spans, count, stream) : COLLET_OK;
}

/* Copies from one address to others, none of which is equal to it. */
static collet_status copy_to(const struct gpu_hierarchical *hierarchical, cu_stream stream, const void *source,
	void *const *others, uint32_t count, size_t bytes)
{
	const struct collet_gpu_span span = {
		.sources = &source, .results = others, .source_count = 1, .result_count = count, .count = bytes};
	return gpu_hierarchical_copy(hierarchical, stream, &span, count != 0);
}

/* Copies to the leader's result, and from there to the other members'. */
static collet_status copy_out_all(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	char *own = hierarchical->ranks[0].recv + offset;
	void *others[COLLET_SHARED_GPU_RANKS];
	for (uint32_t r = 1; r < hierarchical->size; r++)
		others[r - 1] = hierarchical->ranks[r].recv + offset;
	const collet_status status = collet_copy_queue_enqueue(
		&hierarchical->context->gpu->cuda, queue, own, host, bytes, "copying a result to the GPU");
	return status == COLLET_OK ? copy_to(hierarchical, queue->stream, own, others, hierarchical->size - 1, bytes)
				   : status;
}

/* ---- Within the host: all-reduce ---- */

/* A node of the host's binomial tree: its own elements, and the sums of its children. */
struct node {
	const void *sources[1 + CHILDREN_MAX];
	double scales[1 + CHILDREN_MAX];
	void *result;
};

/* A leaf's value is its input. Any other node keeps its sum in its result, as the program does between hosts. */
static void add_operand(const struct gpu_hierarchical *hierarchical, struct node *node, struct collet_gpu_span *span,
	uint32_t rank, bool own, size_t offset)
{
	const struct collet_span_plan_rank *local = &hierarchical->ranks[rank];
	const bool is_input = own || collet_binomial_children(rank, hierarchical->size) == 0;
	node->sources[span->source_count] = (is_input ? local->send : local->recv) + offset;
	node->scales[span->source_count] = is_input ? local->scale : 1;
	span->source_count++;
}

static void fill_node(const struct gpu_hierarchical *hierarchical, uint32_t rank, size_t offset, size_t bytes,
	struct node *node, struct collet_gpu_span *span)
{
	const struct collet_peers children =
		collet_binomial_peers(rank, collet_binomial_children(rank, hierarchical->size));
	*span = (struct collet_gpu_span){ .sources = node->sources,
		.results = &node->result,
		.result_count = 1,
		.scales = hierarchical->scales ? node->scales : NULL,
		.count = bytes / hierarchical->element_bytes };
	node->result = hierarchical->ranks[rank].recv + offset;
	add_operand(hierarchical, node, span, rank, true, offset);
	for (uint32_t c = 0; c < children.count; c++)
		add_operand(hierarchical, node, span, collet_peers_at(&children, c, hierarchical->size), false, offset);
}

/* Reduces all nodes with this number of children. Their children have fewer, and so are complete. */
static collet_status reduce_level(
	struct gpu_hierarchical *hierarchical, cu_stream stream, uint32_t children, size_t offset, size_t bytes)
{
	struct node nodes[COLLET_SHARED_GPU_RANKS / 2];
	struct collet_gpu_span spans[COLLET_SHARED_GPU_RANKS / 2];
	uint32_t count = 0;
	for (uint32_t rank = 0; rank < hierarchical->size; rank++) {
		if (collet_binomial_children(rank, hierarchical->size) != children)
			continue;
		fill_node(hierarchical, rank, offset, bytes, &nodes[count], &spans[count]);
		count++;
	}
	return collet_gpu_spans_launch(hierarchical->kernels, &hierarchical->reduction, spans, count, stream);
}

static collet_status copy_in_tree(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	const uint32_t most = collet_binomial_children(0, hierarchical->size);
	collet_status status = COLLET_OK;
	for (uint32_t children = 1; children <= most && status == COLLET_OK; children++)
		status = reduce_level(hierarchical, queue->stream, children, offset, bytes);
	return status == COLLET_OK
		       ? collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue, host,
				 hierarchical->ranks[0].recv + offset, bytes, "copying a host's sum from the GPU")
		       : status;
}

/* ---- Within the host: reduce, and reduce-scatter ---- */

/* At most the root has a GPU buffer for the sum, so the kernel writes to host memory directly. */
static collet_status copy_in_sum(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	const void *sources[COLLET_SHARED_GPU_RANKS];
	double scales[COLLET_SHARED_GPU_RANKS];
	void *result = (void *)(uintptr_t)(hierarchical->device_address + offset);
	const struct collet_gpu_span span = { .sources = sources,
		.results = &result,
		.source_count = hierarchical->size,
		.result_count = 1,
		.scales = hierarchical->scales ? scales : NULL,
		.count = bytes / hierarchical->element_bytes };
	(void)host;
	for (uint32_t r = 0; r < hierarchical->size; r++) {
		sources[r] = hierarchical->ranks[r].send + offset;
		scales[r] = hierarchical->ranks[r].scale;
	}
	return collet_gpu_spans_launch(hierarchical->kernels, &hierarchical->reduction, &span, 1, queue->stream);
}

/* ---- Within the host: averages of narrow floats ---- */

/* All of these collectives add along the tree. */
static collet_status copy_in_wide(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	const void *sources[COLLET_SHARED_GPU_RANKS];
	void *result = (void *)(uintptr_t)(hierarchical->device_address + offset);
	const struct collet_gpu_span span = { .sources = sources,
		.results = &result,
		.source_count = hierarchical->size,
		.result_count = 1,
		.count = bytes / sizeof(float) };
	(void)host;
	for (uint32_t r = 0; r < hierarchical->size; r++)
		sources[r] = hierarchical->ranks[r].send + offset / sizeof(float) * hierarchical->element_bytes;
	return collet_gpu_wide_sums_launch(hierarchical->kernels, hierarchical->reduction.dtype,
		hierarchical->shape.size, &span, queue->stream);
}

/* Rounds the results beside the block: other hosts may still get these sums. */
static collet_status copy_out_wide(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	const uint64_t first = offset / sizeof(float), count = bytes / sizeof(float);
	char *narrow = hierarchical->narrow_host + first * hierarchical->element_bytes;
	collet_wide_sums_narrow(&hierarchical->request->wide, narrow, (const float *)(const void *)host, count);
	hierarchical->request->state->roundings += count;
	return hierarchical->copy_out_narrow(context, queue, narrow, first * hierarchical->element_bytes,
		count * hierarchical->element_bytes);
}

static collet_status copy_out_root(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	return collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue,
		hierarchical->ranks[hierarchical->root].recv + offset, host, bytes, "copying a result to the GPU");
}

/* ---- Within the host: broadcast ---- */

/* The root's host receives nothing back, so its ranks are served here. */
static collet_status copy_in_root(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	const char *source = hierarchical->ranks[hierarchical->root].send + offset;
	void *others[COLLET_SHARED_GPU_RANKS];
	uint32_t count = 0;
	for (uint32_t r = 0; r < hierarchical->size; r++)
		if (hierarchical->ranks[r].recv + offset != source)
			others[count++] = hierarchical->ranks[r].recv + offset;
	const collet_status status = collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue, host, source,
		bytes, "copying the root's buffer from the GPU");
	return status == COLLET_OK ? copy_to(hierarchical, queue->stream, source, others, count, bytes) : status;
}

/* ---- Lifetime ---- */

static void complete(void *context)
{
	struct gpu_hierarchical *hierarchical = context;
	if (hierarchical->shared_call)
		collet_shared_gpu_host_complete(hierarchical->shared_call);
	hierarchical->shared_call = NULL;
}

static void stop(void *context)
{
	struct gpu_hierarchical *hierarchical = context;
	if (!hierarchical->request)
		return;
	hierarchical->request->program = hierarchical->planned_program;
	hierarchical->request->prescales = hierarchical->prescales;
	hierarchical->request->wide.is_used = hierarchical->is_wide;
	hierarchical->request = NULL;
}

static void free_hierarchical(void *context)
{
	free(context);
}

/* From here on the request works on host memory, and runs the part of its program that is between hosts. Its tasks have
 * not started any work item yet. */
static void redirect_request(struct gpu_hierarchical *hierarchical, struct collet_request *request, char *host)
{
	struct collet_comm_state *state = request->state;
	hierarchical->request = request;
	hierarchical->planned_program = request->program;
	hierarchical->prescales = request->prescales;
	request->program = collet_program_inter_host((enum collet_collective)request->call.collective);
	request->prescales = false;
	request->wide.is_used = false; /* the hooks widen and round */
	request->input = request->result = host;
	for (uint32_t i = 0; i < request->task_count; i++)
		if (state->tasks[i]->first_request == request)
			collet_cursor_begin(state->tasks[i]);
}

static struct collet_comm *comm_of(const struct collet_request *request)
{
	return (struct collet_comm *)(void *)((char *)request->state - offsetof(struct collet_comm, state));
}

/* Returns NULL if out of memory. */
static struct gpu_hierarchical *create(const struct collet_request *request, const struct collet_local_ranks *local)
{
	struct gpu_hierarchical *hierarchical =
		calloc(1, sizeof(*hierarchical) + local->size * sizeof(hierarchical->ranks[0]));
	if (!hierarchical)
		return NULL;
	*hierarchical = (struct gpu_hierarchical){ .context = comm_of(request)->context,
		.shared_call = local->call,
		.kernels = local->kernels,
		.reduction = { .dtype = (collet_dtype)request->call.dtype,
			.op = (collet_op)request->call.op,
			.average_of = 1 },
		.element_bytes = collet_dtype_bytes((collet_dtype)request->call.dtype),
		.is_wide = request->wide.is_used,
		.scales = request->prescales,
		.shape = request->shape,
		.size = local->size,
		.root = local->root };
	memcpy(hierarchical->members, local->members, local->size * sizeof(hierarchical->members[0]));
	memcpy(hierarchical->ranks, local->ranks, local->size * sizeof(hierarchical->ranks[0]));
	return hierarchical;
}

static struct collet_copy_hooks hooks_of(struct gpu_hierarchical *hierarchical, enum collet_collective collective)
{
	struct collet_copy_hooks hooks = {hierarchical, .complete = complete, .stop = stop, .free = free_hierarchical};
	switch (collective) {
	case COLLET_REDUCE:
		hooks.has_input = true;
		hooks.has_output = has_root(hierarchical);
		hooks.copy_in = copy_in_sum;
		hooks.copy_out = copy_out_root;
		return hooks;
	case COLLET_BROADCAST:
		hooks.has_input = has_root(hierarchical);
		hooks.has_output = !hooks.has_input;
		hooks.copy_in = copy_in_root;
		hooks.copy_out = copy_out_all;
		return hooks;
	case COLLET_ALLGATHER:
		hooks.has_input = hooks.has_output = true;
		hooks.copy_in = gpu_hierarchical_copy_in_blocks;
		hooks.copy_out = gpu_hierarchical_copy_out_blocks;
		return hooks;
	case COLLET_REDUCE_SCATTER:
		hooks.has_input = hooks.has_output = true;
		hooks.copy_in = copy_in_sum;
		hooks.copy_out = gpu_hierarchical_copy_out_own;
		return hooks;
	default:
		assert(collective == COLLET_ALLREDUCE);
		hooks.has_input = hooks.has_output = true;
		hooks.copy_in = copy_in_tree;
		hooks.copy_out = copy_out_all;
		return hooks;
	}
}

/* The sums of an average of narrow floats pass through the block as f32. */
static struct collet_copy_hooks wide_hooks_of(
	struct gpu_hierarchical *hierarchical, enum collet_collective collective, size_t bytes)
{
	struct collet_copy_hooks hooks = hooks_of(hierarchical, collective);
	if (!hierarchical->is_wide)
		return hooks;
	hierarchical->copy_out_narrow = hooks.copy_out;
	hooks.copy_in = copy_in_wide;
	hooks.copy_out = copy_out_wide;
	hooks.spare_bytes = bytes;
	return hooks;
}

/* Finds the address of the staging memory for kernels that write to it. */
static collet_status find_device_address(struct gpu_hierarchical *hierarchical,
	const struct collet_copy_stream *copy_stream, const struct collet_gpu_staging *staging)
{
	collet_status status = collet_copy_stream_push_context(&hierarchical->context->gpu->cuda, copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_gpu_staging_device_address(staging, &hierarchical->device_address);
	collet_copy_stream_pop_context(&hierarchical->context->gpu->cuda);
	return status;
}

collet_status collet_gpu_hierarchical_start(struct collet_request *request, const struct collet_local_ranks *local)
{
	const enum collet_collective collective = (enum collet_collective)request->call.collective;
	const struct collet_span_plan_rank *own = &local->ranks[0];
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS] = { { own->send, own->send_bytes },
		{ own->recv, own->recv_bytes } };
	struct collet_gpu_staging *staging;
	struct gpu_hierarchical *hierarchical = create(request, local);
	char *host;
	if (!hierarchical)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a hierarchical collective with GPUs");
	const char *why = gpu_hierarchical_blocks_differ(hierarchical);
	if (why) {
		free(hierarchical);
		return collet_fail(COLLET_ERR_ARGUMENT, "%s", why);
	}
	/* The larger of the two buffers has room for all data between hosts. */
	const size_t most = own->send_bytes > own->recv_bytes ? own->send_bytes : own->recv_bytes;
	const size_t bytes = hierarchical->is_wide ? most / hierarchical->element_bytes * sizeof(float) : most;
	const struct collet_copy_hooks hooks = wide_hooks_of(hierarchical, collective, most);
	collet_status status = collet_gpu_staging_begin_hooks(
		hierarchical->context, local->copy_stream, buffers, bytes, &hooks, &host, &staging);
	if (status != COLLET_OK)
		return status;
	hierarchical->narrow_host = host + bytes;
	if (hooks.copy_in == copy_in_sum || hooks.copy_in == copy_in_wide)
		status = find_device_address(hierarchical, local->copy_stream, staging);
	if (status != COLLET_OK) {
		collet_gpu_staging_free(staging);
		return status;
	}
	redirect_request(hierarchical, request, host);
	request->staging = staging;
	collet_pipeline_start(collet_gpu_staging_pipeline(staging), request);
	collet_comm_count_call(comm_of(request), request);
	return COLLET_OK;
}
