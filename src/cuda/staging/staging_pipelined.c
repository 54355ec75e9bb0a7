#include "cuda/staging/staging_pipelined.h"

#include <stdlib.h>

#include "cuda/gpu_cost.h"
#include "engine/byte_range.h"
#include "engine/comm_state.h"
#include "engine/pipeline.h"
#include "engine/request.h"

/* One direction of copies. */
struct direction {
	struct collet_copy_stream *copy_stream; /* NULL if nothing is copied in this direction */
	struct collet_copy_queue *queue;        /* NULL if it has none now */
	char *gpu;
	uint32_t issued_count; /* cells whose copies have been enqueued */
	const char *what;      /* for error sentences */
};

struct collet_staging_pipelined {
	struct collet_staging_handle handle; /* first, so that one address is both */
	struct collet_pipeline pipeline;
	struct collet_context *context;
	struct direction in, out;
	const struct collet_buffer_part *parts; /* NULL if all of it is written */
	size_t part_count;
	struct collet_copy_hooks hooks; /* context is NULL if there are two buffers */
};

static struct collet_staging_pipelined *pipelined_of(struct collet_staging_handle *handle)
{
	return (struct collet_staging_pipelined *)(void *)handle;
}

/* ---- One round ---- */

static collet_status copy_in_cell(struct collet_staging_pipelined *pipelined, uint32_t cell)
{
	const struct collet_byte_range range =
		collet_pipeline_cell(&pipelined->pipeline, &pipelined->pipeline.in, cell);
	char *host = (char *)(uintptr_t)range.first;
	if (pipelined->hooks.context)
		return pipelined->hooks.copy_in(pipelined->hooks.context, pipelined->in.queue, host,
			(size_t)(range.first - pipelined->pipeline.in.first), range.bytes);
	return collet_copy_queue_enqueue(&pipelined->context->gpu->cuda, pipelined->in.queue, host,
		pipelined->in.gpu + (range.first - pipelined->pipeline.in.first), range.bytes, pipelined->in.what);
}

static collet_status copy_out(struct collet_staging_pipelined *pipelined, size_t first, size_t end)
{
	return collet_copy_queue_enqueue(&pipelined->context->gpu->cuda, pipelined->out.queue,
		pipelined->out.gpu + first, pipelined->pipeline.out.first + first, end - first, pipelined->out.what);
}

/* Enqueues the copy of a cell, as far as the parts cover it. */
static collet_status copy_out_cell(struct collet_staging_pipelined *pipelined, uint32_t cell)
{
	const struct collet_byte_range range =
		collet_pipeline_cell(&pipelined->pipeline, &pipelined->pipeline.out, cell);
	const size_t first = (size_t)(range.first - pipelined->pipeline.out.first), end = first + range.bytes;
	collet_status status = COLLET_OK;
	if (pipelined->hooks.context)
		return pipelined->hooks.copy_out(
			pipelined->hooks.context, pipelined->out.queue, range.first, first, range.bytes);
	if (!pipelined->parts)
		return copy_out(pipelined, first, end);
	for (size_t i = 0; i < pipelined->part_count && status == COLLET_OK; i++) {
		const size_t part = pipelined->parts[i].offset, part_end = part + pipelined->parts[i].bytes;
		const size_t from = part > first ? part : first, to = part_end < end ? part_end : end;
		if (from < to)
			status = copy_out(pipelined, from, to);
	}
	return status;
}

/* True if copies are pending or can be enqueued. */
static bool is_busy(const struct direction *direction, uint32_t count)
{
	return direction->copy_stream && (direction->issued_count != count ||
						 (direction->queue && !collet_copy_queue_is_empty(direction->queue)));
}

/* Polls copies and enqueues cells while there is room. */
static collet_status progress_direction(struct collet_staging_pipelined *pipelined, struct direction *direction,
	const uint32_t *cells, uint32_t count, uint32_t *completed)
{
	const struct collet_cuda *cuda = &pipelined->context->gpu->cuda;
	*completed = 0;
	if (!is_busy(direction, count))
		return COLLET_OK;
	collet_status status = collet_copy_queue_acquire_current(
		&pipelined->context->gpu->copy_streams, direction->copy_stream, &direction->queue);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_queue_poll(cuda, direction->queue, direction->what, completed);
	while (status == COLLET_OK && direction->issued_count < count && collet_copy_queue_has_room(direction->queue)) {
		const uint32_t cell = cells[direction->issued_count];
		status = direction == &pipelined->in ? copy_in_cell(pipelined, cell) : copy_out_cell(pipelined, cell);
		if (status == COLLET_OK)
			status = collet_copy_queue_record(cuda, direction->queue, direction->what);
		direction->issued_count += status == COLLET_OK;
	}
	/* A part of the cell may be pending, with no event behind it. */
	if (status != COLLET_OK)
		direction->queue->failed = true;
	collet_copy_queue_pop_context(cuda, direction->queue);
	return status;
}

static bool advance(struct collet_pipeline *pipeline)
{
	struct collet_staging_pipelined *pipelined = (struct collet_staging_pipelined *)(void *)((char *)pipeline -
		offsetof(struct collet_staging_pipelined, pipeline));
	uint32_t copied_in, copied_out = 0;
	if (!pipeline->copied_in_count && !pipeline->copied_out_count && !pipeline->needs_polling)
		pipelined->in.issued_count = pipelined->out.issued_count = 0; /* it has been started, perhaps not for
		                                                                 the first time */
	collet_status status = progress_direction(
		pipelined, &pipelined->in, pipeline->copy_in_order, pipeline->copy_in_count, &copied_in);
	if (status == COLLET_OK)
		status = progress_direction(
			pipelined, &pipelined->out, pipeline->copy_out_order, pipeline->copy_out_ready, &copied_out);
	pipeline->needs_polling =
		is_busy(&pipelined->in, pipeline->copy_in_count) || is_busy(&pipelined->out, pipeline->copy_out_ready);
	for (uint32_t i = 0; i < copied_in; i++)
		collet_pipeline_copied_in(pipeline);
	for (uint32_t i = 0; i < copied_out; i++)
		collet_pipeline_copied_out(pipeline);
	if (pipelined->hooks.context && (copied_in || copied_out) && collet_pipeline_is_complete(pipeline))
		pipelined->hooks.complete(pipelined->hooks.context);
	/* Other ranks are in the middle of the call, so the communicator ends. */
	if (status != COLLET_OK)
		collet_comm_state_end(pipeline->request->state, status, true, collet_last_error());
	return copied_in || copied_out;
}

/* ---- Making and freeing ---- */

static collet_status open_direction(struct collet_staging_pipelined *pipelined, struct direction *direction,
	const struct collet_gpu_staging_buffer *buffer)
{
	direction->copy_stream = buffer->copy_stream;
	direction->gpu = buffer->gpu;
	return buffer->copy_stream ? collet_copy_queue_acquire(&pipelined->context->gpu->copy_streams,
					     buffer->copy_stream, &direction->queue)
				   : COLLET_OK;
}

/* Returns false if copies may still be pending, as collet_copy_queue_release() does. */
static bool close_direction(struct collet_staging_pipelined *pipelined, struct direction *direction)
{
	const bool waited = collet_copy_queue_release(&pipelined->context->gpu->copy_streams, direction->queue);
	direction->queue = NULL;
	return waited;
}

static void set_parts(struct collet_staging_handle *handle, const struct collet_buffer_part *parts, size_t count)
{
	struct collet_staging_pipelined *pipelined = pipelined_of(handle);
	pipelined->parts = parts;
	pipelined->part_count = count;
}

static void quiesce(struct collet_staging_handle *handle)
{
	struct collet_staging_pipelined *pipelined = pipelined_of(handle);
	if (pipelined->hooks.context)
		pipelined->hooks.stop(pipelined->hooks.context);
	for (int w = 0; w < 2; w++) {
		struct direction *direction = w ? &pipelined->out : &pipelined->in;
		if (direction->queue && !direction->queue->failed && collet_copy_queue_is_empty(direction->queue))
			(void)close_direction(pipelined, direction);
	}
}

static bool free_pipelined(struct collet_staging_handle *handle)
{
	struct collet_staging_pipelined *pipelined = pipelined_of(handle);
	assert(!pipelined->pipeline.request);
	const bool copied_in = close_direction(pipelined, &pipelined->in),
		   copied_out = close_direction(pipelined, &pipelined->out);
	if (pipelined->hooks.context)
		pipelined->hooks.free(pipelined->hooks.context);
	collet_pipeline_deinit(&pipelined->pipeline);
	free(pipelined);
	return copied_in && copied_out;
}

static collet_status make_of(struct collet_context *context, const struct collet_gpu_staging_buffer *in,
	const struct collet_gpu_staging_buffer *out, const struct collet_copy_hooks *hooks,
	struct collet_staging_handle **handle)
{
	const struct collet_byte_range from = {in->host, in->copy_stream ? in->bytes : 0};
	const struct collet_byte_range to = {out->host, out->copy_stream ? out->bytes : 0};
	struct collet_staging_pipelined *pipelined = calloc(1, sizeof(*pipelined));
	if (!pipelined) {
		if (hooks)
			hooks->free(hooks->context);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	}
	const struct collet_gpu_link link = collet_gpu_copy_link(context);
	const size_t most = from.bytes > to.bytes ? from.bytes : to.bytes;
	pipelined->context = context;
	if (hooks)
		pipelined->hooks = *hooks;
	collet_status status = collet_pipeline_init(&pipelined->pipeline, from, to, collet_gpu_cell_bytes(&link, most));
	pipelined->pipeline.progress = advance;
	pipelined->handle.pipeline = &pipelined->pipeline;
	pipelined->in.what = "copying a buffer from the GPU";
	pipelined->out.what = "copying a result to the GPU";
	if (status == COLLET_OK)
		status = open_direction(pipelined, &pipelined->in, in);
	if (status == COLLET_OK)
		status = open_direction(pipelined, &pipelined->out, out);
	if (status == COLLET_OK)
		*handle = &pipelined->handle;
	else
		(void)free_pipelined(&pipelined->handle);
	return status;
}

static collet_status make(const struct collet_staging_transfer *transfer, struct collet_staging_handle **handle)
{
	return make_of(transfer->context, &transfer->buffers[COLLET_SEND_BUFFER],
		&transfer->buffers[COLLET_RECV_BUFFER], NULL, handle);
}

collet_status collet_pipelined_make_hooks(struct collet_context *context, const struct collet_gpu_staging_buffer *both,
	const struct collet_copy_hooks *hooks, struct collet_staging_handle **handle)
{
	static const struct collet_gpu_staging_buffer none;
	return make_of(context, hooks->has_input ? both : &none, hooks->has_output ? both : &none, hooks, handle);
}

/* ---- Which calls ---- */

bool collet_staging_is_large(const struct collet_staging_transfer *transfer)
{
	const struct collet_gpu_link link = collet_gpu_copy_link(transfer->context);
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		if (transfer->buffers[s].copy_stream && transfer->buffers[s].bytes >= collet_gpu_pipelined_min(&link))
			return true;
	return false;
}

static bool supports(const struct collet_staging_transfer *transfer)
{
	return !collet_staging_is_message(transfer) && transfer->kind != COLLET_GPU_STAGING_AVERAGE &&
	       collet_staging_is_large(transfer);
}

const struct collet_staging_method collet_pipelined_staging = {
	.supports = supports, .make = make, .set_parts = set_parts, .quiesce = quiesce, .free = free_pipelined
};
