#include "cuda/staging/staging_gpudirect.h"

#include <stdlib.h>

#include "cuda/staging/staging_pipelined.h"
#include "engine/byte_range.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/gdr.h"
#include "engine/pipeline.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

/* Copies from the GPU, and those to it or inside it. */
enum { TO_HOST, TO_GPU, DIRECTIONS };

static const char *const what[DIRECTIONS] = { "copying a piece from the GPU", "copying a piece to the GPU" };

/* Items with copies in one direction, in order. Those before next are pending, each with an event behind it. */
struct direction {
	struct collet_copy_queue *queue; /* NULL if it has none now */
	struct collet_work_item *first, *next, *last;
};

struct collet_staging_gpudirect {
	struct collet_staging_handle handle; /* first, so that one address is both */
	struct collet_pipeline pipeline;
	struct collet_gdr gdr;
	struct collet_context *context;
	struct collet_copy_stream *copy_stream;
	struct collet_pinned_block *cells; /* NULL until the request has been planned */
	struct direction directions[DIRECTIONS];
};

static struct collet_staging_gpudirect *gpudirect_of(struct collet_staging_handle *handle)
{
	return (struct collet_staging_gpudirect *)(void *)handle;
}

/* ---- Which calls ---- */

bool collet_gpudirect_reaches_all(const struct collet_comm_state *state)
{
	const struct collet_engine *engine = state->engine;
	for (uint32_t rank = 0; rank < state->size; rank++) {
		const struct collet_peer_info *peer = &engine->peer_infos[collet_comm_state_world_rank(state, rank)];
		if (rank != state->rank &&
			!collet_transports_accept_gpu(engine->transports, &engine->peer_infos[engine->rank], peer))
			return false;
	}
	return state->size > 1;
}

/* True if the buffers are on one GPU and registered with a transport. */
static bool supports(const struct collet_staging_transfer *transfer)
{
	const struct collet_copy_stream *read = transfer->buffers[COLLET_SEND_BUFFER].copy_stream,
		*written = transfer->buffers[COLLET_RECV_BUFFER].copy_stream;
	if (transfer->kind != COLLET_GPU_STAGING_GPUDIRECT || !collet_staging_is_large(transfer))
		return false;
	if (read && written && read != written)
		return false;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		const struct collet_gpu_staging_buffer *buffer = &transfer->buffers[s];
		if (buffer->copy_stream &&
			!collet_transports_gpu_registered(&transfer->context->transports, buffer->gpu, buffer->bytes))
			return false;
	}
	return true;
}

/* ---- One round ---- */

/* Finds whether an item's first copy goes to the host. Then all of them do, or there are few. */
static collet_status note_direction(void *context, void *to, const void *from, size_t bytes)
{
	const struct collet_work_item *item = context;
	(void)from;
	(void)bytes;
	return collet_gdr_flags(item->request, to, 1) ? COLLET_OK : COLLET_PENDING;
}

static void queue_copies(struct collet_gdr *reach, struct collet_work_item *item)
{
	struct collet_staging_gpudirect *gpudirect = (struct collet_staging_gpudirect *)(void *)((char *)reach -
		offsetof(struct collet_staging_gpudirect, gdr));
	const bool down = collet_gdr_visit_copies(item, note_direction, item) != COLLET_OK;
	struct direction *direction = &gpudirect->directions[down ? TO_HOST : TO_GPU];
	item->next_copy = NULL;
	if (direction->first)
		direction->last->next_copy = item;
	else
		direction->first = item;
	direction->last = item;
	if (!direction->next)
		direction->next = item;
	gpudirect->pipeline.needs_polling = true;
}

/* The context of add_copy(). */
struct copy_visit {
	struct collet_staging_gpudirect *gpudirect;
	struct direction *direction;
};

static collet_status add_copy(void *context, void *to, const void *from, size_t bytes)
{
	const struct copy_visit *visit = context;
	return collet_copy_queue_enqueue(&visit->gpudirect->context->gpu->cuda, visit->direction->queue, to, from,
		bytes, what[visit->direction - visit->gpudirect->directions]);
}

/* Enqueues copies while there is room. The queue's context is current. */
static collet_status issue(struct collet_staging_gpudirect *gpudirect, struct direction *direction)
{
	const struct collet_cuda *cuda = &gpudirect->context->gpu->cuda;
	struct copy_visit visit = { gpudirect, direction };
	collet_status status = COLLET_OK;
	while (direction->next && collet_copy_queue_has_room(direction->queue) && status == COLLET_OK) {
		status = collet_gdr_visit_copies(direction->next, add_copy, &visit);
		if (status == COLLET_OK)
			status = collet_copy_queue_record(
				cuda, direction->queue, what[direction - gpudirect->directions]);
		if (status == COLLET_OK)
			direction->next = direction->next->next_copy;
	}
	/* A part of the item may be pending, with no event behind it. */
	if (status != COLLET_OK)
		direction->queue->failed = true;
	return status;
}

/* Polls and enqueues copies of one direction. *passed is the number of items whose copies have completed. */
static collet_status progress_direction(
	struct collet_staging_gpudirect *gpudirect, struct direction *direction, uint32_t *completed)
{
	const struct collet_cuda *cuda = &gpudirect->context->gpu->cuda;
	*completed = 0;
	collet_status status = collet_copy_queue_acquire_current(
		&gpudirect->context->gpu->copy_streams, gpudirect->copy_stream, &direction->queue);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_queue_poll(cuda, direction->queue, what[direction - gpudirect->directions], completed);
	if (status == COLLET_OK)
		status = issue(gpudirect, direction);
	collet_copy_queue_pop_context(cuda, direction->queue);
	return status;
}

static bool advance(struct collet_pipeline *pipeline)
{
	struct collet_staging_gpudirect *gpudirect = (struct collet_staging_gpudirect *)(void *)((char *)pipeline -
		offsetof(struct collet_staging_gpudirect, pipeline));
	bool some = collet_gdr_poll(&gpudirect->gdr, pipeline->request->state);
	collet_status status = COLLET_OK;
	for (int w = 0; w < DIRECTIONS && status == COLLET_OK; w++) {
		struct direction *direction = &gpudirect->directions[w];
		uint32_t completed = 0;
		if (direction->first)
			status = progress_direction(gpudirect, direction, &completed);
		for (; completed > 0; completed--) {
			struct collet_work_item *item = direction->first;
			direction->first = item->next_copy;
			collet_gdr_copied(item);
			some = true;
		}
	}
	pipeline->needs_polling = gpudirect->directions[TO_HOST].first || gpudirect->directions[TO_GPU].first;
	/* Other ranks are in the middle of the call, so the communicator ends. */
	if (status != COLLET_OK)
		collet_comm_state_end(pipeline->request->state, status, true, collet_last_error());
	return some;
}

/* ---- Making and freeing ---- */

static void quiesce(struct collet_staging_handle *handle)
{
	struct collet_staging_gpudirect *gpudirect = gpudirect_of(handle);
	for (int w = 0; w < DIRECTIONS; w++) {
		struct direction *direction = &gpudirect->directions[w];
		if (!direction->queue || direction->queue->failed || !collet_copy_queue_is_empty(direction->queue))
			continue;
		(void)collet_copy_queue_release(&gpudirect->context->gpu->copy_streams, direction->queue);
		direction->queue = NULL;
	}
}

/* Cells whose copies cannot be waited for are leaked. There is no other host memory. */
static bool free_gpudirect(struct collet_staging_handle *handle)
{
	struct collet_staging_gpudirect *gpudirect = gpudirect_of(handle);
	assert(!gpudirect->pipeline.request);
	bool waited = true;
	for (int w = 0; w < DIRECTIONS; w++)
		waited &= collet_copy_queue_release(
			&gpudirect->context->gpu->copy_streams, gpudirect->directions[w].queue);
	if (waited)
		collet_pinned_release(&gpudirect->context->gpu->pinned, gpudirect->cells);
	else
		collet_pinned_leak(&gpudirect->context->gpu->pinned, gpudirect->cells);
	collet_pipeline_deinit(&gpudirect->pipeline);
	free(gpudirect);
	return true;
}

static collet_status make(const struct collet_staging_transfer *transfer, struct collet_staging_handle **handle)
{
	static const struct collet_byte_range none;
	const struct collet_gpu_staging_buffer *read = &transfer->buffers[COLLET_SEND_BUFFER],
					       *written = &transfer->buffers[COLLET_RECV_BUFFER];
	struct collet_staging_gpudirect *gpudirect = calloc(1, sizeof(*gpudirect));
	if (!gpudirect)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	gpudirect->context = transfer->context;
	gpudirect->copy_stream = read->copy_stream ? read->copy_stream : written->copy_stream;
	collet_status status = collet_pipeline_init(&gpudirect->pipeline, none, none, 1);
	gpudirect->pipeline.progress = advance;
	gpudirect->pipeline.gdr = &gpudirect->gdr;
	gpudirect->handle.pipeline = &gpudirect->pipeline;
	gpudirect->gdr = (struct collet_gdr){ .start_copies = queue_copies,
		.gpu_ranges = { { read->gpu, read->copy_stream ? read->bytes : 0 },
			{ written->gpu, written->copy_stream ? written->bytes : 0 } } };
	/* Now, when a failure undoes nothing that has begun. */
	for (int w = 0; w < DIRECTIONS && status == COLLET_OK; w++)
		status = collet_copy_queue_acquire(
			&transfer->context->gpu->copy_streams, gpudirect->copy_stream, &gpudirect->directions[w].queue);
	if (status == COLLET_OK)
		*handle = &gpudirect->handle;
	else
		(void)free_gpudirect(&gpudirect->handle);
	return status;
}

/* Declines calls with many peers at a time: cells would be as large as staged buffers. */
static collet_status plan(struct collet_staging_handle *handle, const struct collet_request *request, bool *declined)
{
	struct collet_staging_gpudirect *gpudirect = gpudirect_of(handle);
	const size_t cell = collet_gdr_cell_bytes(request), cells = cell * TASK_WINDOW * request->task_count;
	const size_t read = gpudirect->gdr.gpu_ranges[0].bytes, written = gpudirect->gdr.gpu_ranges[1].bytes;
	const size_t larger = read > written ? read : written;
	*declined = cells > (size_t)COLLET_STAGING_BYTES * request->task_count && cells > larger / 2;
	if (*declined)
		return COLLET_OK;
	const collet_status status = collet_pinned_acquire(
		&gpudirect->context->gpu->pinned, gpudirect->copy_stream, cells, &gpudirect->cells);
	if (status == COLLET_OK) {
		gpudirect->gdr.cells = gpudirect->cells->memory;
		gpudirect->gdr.cell_bytes = cell;
	}
	return status;
}

const struct collet_staging_method collet_gpudirect_staging = { .supports = supports,
	.is_zero_copy = true,
	.make = make,
	.plan = plan,
	.quiesce = quiesce,
	.free = free_gpudirect };
