#include "cuda/staging/staging_bounced.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/driver/copy_queue.h"
#include "cuda/peer_gpus/ipc_get.h"
#include "engine/byte_range.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"

/* One buffer. */
struct bounced_buffer {
	struct collet_bounce_buffer bounce_buffer; /* first, so that one address is both */
	struct collet_context *context;
	struct collet_copy_stream *copy_stream;
	struct collet_copy_queue *queue; /* NULL if it has none now */
	char *gpu;
	bool is_send;
	uint32_t stale_marks;                            /* events of an earlier request, whose message was dropped */
	const char *what;                                /* for error sentences */
	struct collet_ipc_get_descriptor get_descriptor; /* of what is sent; empty in a receiver */
	struct collet_ipc_mapping *mapping;              /* of the sender's memory, while this rank reads it */
	bool is_pulling;
};

static_assert(
	sizeof(struct collet_ipc_get_descriptor) <= COLLET_BOUNCE_HANDLE_WORDS * sizeof(uint64_t), "an offer has room");

static const char pull_what[] = "copying a message from GPU to GPU";

static collet_status copy_next(struct bounced_buffer *bounced)
{
	const struct collet_cuda *cuda = &bounced->context->gpu->cuda;
	struct collet_bounce_buffer *bounce_buffer = &bounced->bounce_buffer;
	const struct collet_byte_range cell = collet_bounce_segment(bounce_buffer, bounce_buffer->started);
	char *host = (char *)(uintptr_t)cell.first,
	     *gpu = bounced->gpu + (size_t)bounce_buffer->started * COLLET_BOUNCE_CELL_BYTES;
	collet_status status = collet_copy_queue_enqueue(cuda, bounced->queue, bounced->is_send ? host : gpu,
		bounced->is_send ? gpu : host, cell.bytes, bounced->what);
	if (status == COLLET_OK)
		status = collet_copy_queue_record(cuda, bounced->queue, bounced->what);
	bounce_buffer->started += status == COLLET_OK;
	return status;
}

/* Polls copies and enqueues those for which there is room. The copy stream's context is current. */
static collet_status progress_copies(struct bounced_buffer *bounced, uint32_t *copied)
{
	struct collet_copy_queue *queue = bounced->queue;
	collet_status status = collet_copy_queue_poll(
		&bounced->context->gpu->cuda, queue, bounced->is_pulling ? pull_what : bounced->what, copied);
	const uint32_t stale = bounced->stale_marks < *copied ? bounced->stale_marks : *copied;
	bounced->stale_marks -= stale;
	*copied -= stale;
	while (status == COLLET_OK && collet_bounce_may_copy(&bounced->bounce_buffer) &&
		collet_copy_queue_has_room(queue))
		status = copy_next(bounced);
	/* A part of the cell may be pending, with no event behind it. */
	if (status != COLLET_OK)
		queue->failed = true;
	return status;
}

static bool is_under_way(const struct bounced_buffer *bounced)
{
	return bounced->queue && !collet_copy_queue_is_empty(bounced->queue);
}

static void end_pull(struct bounced_buffer *bounced)
{
	bounced->is_pulling = false;
	collet_ipc_cache_release(&bounced->context->gpu->device.ipc_cache, bounced->mapping);
	bounced->mapping = NULL;
	collet_bounce_pulled(&bounced->bounce_buffer);
}

static bool advance(struct collet_bounce_buffer *bounce_buffer)
{
	struct bounced_buffer *bounced = (struct bounced_buffer *)(void *)bounce_buffer;
	const struct collet_cuda *cuda = &bounced->context->gpu->cuda;
	uint32_t copied = 0;
	if (!is_under_way(bounced) && !collet_bounce_may_copy(bounce_buffer))
		return false;
	collet_status status = collet_copy_queue_acquire_current(
		&bounced->context->gpu->copy_streams, bounced->copy_stream, &bounced->queue);
	if (status == COLLET_OK) {
		status = progress_copies(bounced, &copied);
		collet_copy_queue_pop_context(cuda, bounced->queue);
	}
	bounce_buffer->needs_polling = is_under_way(bounced) || collet_bounce_may_copy(bounce_buffer);
	/* The peer is in the middle of the message, so the communicator ends. */
	if (status != COLLET_OK)
		collet_comm_state_end(bounce_buffer->request->state, status, true, collet_last_error());
	if (copied && bounced->is_pulling)
		end_pull(bounced);
	else if (copied)
		collet_bounce_copied(bounce_buffer, copied);
	return copied;
}

/* ---- From GPU to GPU ---- */

static bool export_buffer(struct collet_bounce_buffer *bounce_buffer, const struct collet_request *request)
{
	struct bounced_buffer *bounced = (struct bounced_buffer *)(void *)bounce_buffer;
	struct collet_context *context = bounced->context;
	const uint32_t to = collet_comm_state_world_rank(request->state, request->p2p.peer);
	if (!collet_ipc_get_export(&context->gpu->device, &context->engine, to, &bounced->get_descriptor))
		return false;
	memcpy(bounce_buffer->rts.handle, &bounced->get_descriptor, sizeof(bounced->get_descriptor));
	return true;
}

static void export_again(struct collet_bounce_buffer *bounce_buffer, const struct collet_request *request)
{
	const struct bounced_buffer *bounced = (struct bounced_buffer *)(void *)bounce_buffer;
	const uint32_t to = collet_comm_state_world_rank(request->state, request->p2p.peer);
	collet_ipc_get_reexport(&bounced->context->gpu->device, to, &bounced->get_descriptor);
}

/* Enqueues one copy with an event behind it. */
static collet_status begin_pull(struct bounced_buffer *bounced, const char *there, size_t bytes)
{
	const struct collet_cuda *cuda = &bounced->context->gpu->cuda;
	collet_status status = collet_copy_queue_acquire_current(
		&bounced->context->gpu->copy_streams, bounced->copy_stream, &bounced->queue);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_queue_enqueue(cuda, bounced->queue, bounced->gpu, there, bytes, pull_what);
	if (status == COLLET_OK)
		status = collet_copy_queue_record(cuda, bounced->queue, pull_what);
	collet_copy_queue_pop_context(cuda, bounced->queue);
	return status;
}

/* Gives up a copy from GPU to GPU of which nothing has arrived. True if the message may come through host memory
 * instead. If the copy may be pending all the same, nothing else may be written there, and what it reads stays mapped.
 */
static bool abandon_pull(struct bounced_buffer *bounced, collet_status status)
{
	struct collet_context *context = bounced->context;
	const struct collet_request *request = bounced->bounce_buffer.request;
	const bool waited = collet_copy_queue_release(&context->gpu->copy_streams, bounced->queue);
	bounced->queue = NULL;
	if (waited) {
		collet_log(&context->engine.log, COLLET_LOG_WARN,
			"cuda: a message of %llu bytes by way of the host: %s",
			(unsigned long long)request->p2p.message_bytes, collet_last_error());
		collet_ipc_cache_release(&context->gpu->device.ipc_cache, bounced->mapping);
	} else {
		context->gpu->device.is_leaked = true;
		collet_comm_state_end(request->state, status, true, collet_last_error());
	}
	bounced->mapping = NULL;
	return waited;
}

/* Returns false if the message must come through host memory. */
static bool pull(struct collet_bounce_buffer *bounce_buffer, const uint64_t *where, bool *must_resend)
{
	struct bounced_buffer *bounced = (struct bounced_buffer *)(void *)bounce_buffer;
	struct collet_context *context = bounced->context;
	const struct collet_request *request = bounce_buffer->request;
	const uint32_t from = collet_comm_state_world_rank(request->state, request->p2p.peer);
	struct collet_ipc_get_descriptor get_descriptor;
	memcpy(&get_descriptor, where, sizeof(get_descriptor));
	if (get_descriptor.buffer.bytes < request->p2p.message_bytes)
		return false;
	const char *there = collet_ipc_get_map(&context->gpu->device, &context->engine, from, bounced->copy_stream,
		&get_descriptor, &bounced->mapping, must_resend);
	if (!there)
		return false;
	const collet_status status = begin_pull(bounced, there, request->p2p.message_bytes);
	if (status != COLLET_OK)
		return !abandon_pull(bounced, status);
	bounced->is_pulling = bounce_buffer->needs_polling = true;
	return true;
}

/* ---- One buffer ---- */

static collet_status make_buffer(struct collet_context *context, const struct collet_gpu_staging_buffer *buffer,
	bool sends, bool pulled, struct bounced_buffer **made)
{
	struct bounced_buffer *bounced = calloc(1, sizeof(*bounced));
	if (!bounced)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message of a GPU's buffer");
	*bounced = (struct bounced_buffer){
		.bounce_buffer = { .progress = advance, .user_buffer = buffer->gpu, .cells = buffer->host },
		.context = context,
		.copy_stream = buffer->copy_stream,
		.gpu = buffer->gpu,
		.is_send = sends,
		.what = sends ? "copying a message from the GPU" : "copying a message to the GPU" };
	/* Now, when a failure undoes nothing that has begun. */
	const collet_status status =
		collet_copy_queue_acquire(&context->gpu->copy_streams, buffer->copy_stream, &bounced->queue);
	if (status != COLLET_OK) {
		free(bounced);
		return status;
	}
	if (pulled) {
		collet_ipc_get_describe(&context->gpu->device, &context->engine, buffer->copy_stream,
			buffer->allocation, buffer->gpu, buffer->bytes, &bounced->get_descriptor);
		bounced->bounce_buffer.export_buffer = export_buffer;
		bounced->bounce_buffer.export_again = export_again;
		bounced->bounce_buffer.pull = pull;
	}
	*made = bounced;
	return COLLET_OK;
}

static void quiesce_buffer(struct bounced_buffer *bounced)
{
	struct collet_copy_queue *queue = bounced->queue;
	collet_bounce_stop(&bounced->bounce_buffer);
	if (!queue)
		return;
	bounced->stale_marks = queue->recorded - queue->completed;
	if (!queue->failed && collet_copy_queue_is_empty(queue)) {
		(void)collet_copy_queue_release(&bounced->context->gpu->copy_streams, queue);
		bounced->queue = NULL;
	}
}

/* Waits for pending copies. Returns false if copies of the cells may still be pending, as collet_copy_queue_release()
 * does. */
static bool free_buffer(struct bounced_buffer *bounced)
{
	assert(!bounced->bounce_buffer.request);
	const bool waited = collet_copy_queue_release(&bounced->context->gpu->copy_streams, bounced->queue);
	/* It stays mapped if it may still be read. */
	if (waited)
		collet_ipc_cache_release(&bounced->context->gpu->device.ipc_cache, bounced->mapping);
	free(bounced);
	return waited;
}

/* ---- A call ---- */

struct bounced_message {
	struct collet_staging_handle handle;                 /* first, so that one address is both */
	struct bounced_buffer *buffers[COLLET_USER_BUFFERS]; /* NULL if it is short */
};

static struct bounced_message *bounced_message_of(struct collet_staging_handle *handle)
{
	return (struct bounced_message *)(void *)handle;
}

static bool is_long(const struct collet_gpu_staging_buffer *buffer)
{
	return buffer->copy_stream && buffer->bytes >= COLLET_BOUNCE_MIN_BYTES;
}

static bool supports(const struct collet_staging_transfer *transfer)
{
	return collet_staging_is_message(transfer) &&
	       (is_long(&transfer->buffers[COLLET_SEND_BUFFER]) || is_long(&transfer->buffers[COLLET_RECV_BUFFER]));
}

static size_t host_bytes(const struct collet_gpu_staging_buffer *buffer)
{
	return is_long(buffer) ? collet_bounce_cells_bytes(buffer->bytes) : buffer->bytes;
}

static void quiesce(struct collet_staging_handle *handle)
{
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		if (bounced_message_of(handle)->buffers[s])
			quiesce_buffer(bounced_message_of(handle)->buffers[s]);
}

static bool free_message(struct collet_staging_handle *handle)
{
	struct bounced_message *message = bounced_message_of(handle);
	bool waited = true;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		if (message->buffers[s])
			waited &= free_buffer(message->buffers[s]);
	free(message);
	return waited;
}

static collet_status make(const struct collet_staging_transfer *transfer, struct collet_staging_handle **handle)
{
	struct bounced_message *message = calloc(1, sizeof(*message));
	collet_status status = COLLET_OK;
	if (!message)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message of a GPU's buffer");
	for (int s = 0; s < COLLET_USER_BUFFERS && status == COLLET_OK; s++) {
		if (!is_long(&transfer->buffers[s]))
			continue;
		status = make_buffer(transfer->context, &transfer->buffers[s], s == COLLET_SEND_BUFFER,
			transfer->kind == COLLET_GPU_STAGING_PULLED_MESSAGE, &message->buffers[s]);
		if (status == COLLET_OK)
			message->handle.bounce_buffers[s] = &message->buffers[s]->bounce_buffer;
	}
	if (status == COLLET_OK)
		*handle = &message->handle;
	else
		(void)free_message(&message->handle);
	return status;
}

const struct collet_staging_method collet_bounced_staging = {
	.supports = supports, .host_bytes = host_bytes, .make = make, .quiesce = quiesce, .free = free_message
};
