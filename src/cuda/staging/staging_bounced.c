#include "cuda/staging/staging_bounced.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/driver/copy_queue.h"
#include "cuda/peer_gpus/ipc_get.h"
#include "engine/p2p/bounce_buffer.h"

/* One side. */
struct bounced {
	struct collet_bounce_buffer bounce; /* first: it is found by it */
	struct collet_context *context;
	struct collet_copier *copier;
	struct collet_pipe *pipe;    /* NULL: it has none now */
	char *gpu;
	bool sends;
	uint32_t stale;              /* marks in the pipe of a request before, whose message nobody wanted */
	const char *what;            /* for sentences */
	struct collet_pull_offer offer; /* of what is sent; the receiver's says nothing */
	struct collet_opened *opened;   /* the sender's, while it is pulled from */
	bool pulling;
};

static_assert(sizeof(struct collet_pull_offer) <= COLLET_BOUNCE_HANDLE_WORDS * sizeof(uint64_t), "an offer has room");

static const char pulling_what[] = "copying a message from GPU to GPU";

static collet_status copy_next(struct bounced *bounced)
{
	const struct collet_cuda *cuda = &bounced->context->cuda;
	struct collet_bounce_buffer *bounce = &bounced->bounce;
	const struct collet_range cell = collet_bounce_segment(bounce, bounce->started);
	char *host = (char *)(uintptr_t)cell.first,
	     *gpu = bounced->gpu + (size_t)bounce->started * COLLET_BOUNCE_CELL_BYTES;
	collet_status status = collet_pipe_add(cuda, bounced->pipe, bounced->sends ? host : gpu,
		bounced->sends ? gpu : host, cell.bytes, bounced->what);
	if (status == COLLET_OK)
		status = collet_pipe_mark(cuda, bounced->pipe, bounced->what);
	bounce->started += status == COLLET_OK;
	return status;
}

/* Looks what has been copied, and begins what there is room for. Between enter and leave. */
static collet_status push_on(struct bounced *bounced, uint32_t *copied)
{
	struct collet_pipe *pipe = bounced->pipe;
	collet_status status = collet_pipe_look(
		&bounced->context->cuda, pipe, bounced->pulling ? pulling_what : bounced->what, copied);
	const uint32_t stale = bounced->stale < *copied ? bounced->stale : *copied;
	bounced->stale -= stale;
	*copied -= stale;
	while (status == COLLET_OK && collet_bounce_may_copy(&bounced->bounce) && collet_pipe_has_room(pipe))
		status = copy_next(bounced);
	/* Something of the piece may be under way, with no mark behind it. */
	if (status != COLLET_OK)
		pipe->failed = true;
	return status;
}

static bool is_under_way(const struct bounced *bounced)
{
	return bounced->pipe && !collet_pipe_is_empty(bounced->pipe);
}

static void end_pull(struct bounced *bounced)
{
	bounced->pulling = false;
	collet_ipc_put(&bounced->context->device.ipc, bounced->opened);
	bounced->opened = NULL;
	collet_bounce_pulled(&bounced->bounce);
}

static bool advance(struct collet_bounce_buffer *bounce)
{
	struct bounced *bounced = (struct bounced *)(void *)bounce;
	const struct collet_cuda *cuda = &bounced->context->cuda;
	uint32_t copied = 0;
	if (!is_under_way(bounced) && !collet_bounce_may_copy(bounce))
		return false;
	collet_status status =
		collet_pipe_take_and_enter(&bounced->context->copiers, bounced->copier, &bounced->pipe);
	if (status == COLLET_OK) {
		status = push_on(bounced, &copied);
		collet_pipe_leave(cuda, bounced->pipe);
	}
	bounce->needs_polling = is_under_way(bounced) || collet_bounce_may_copy(bounce);
	/* The peer is in the middle of the message. */
	if (status != COLLET_OK)
		collet_comm_state_end(bounce->request->state, status, true, collet_last_error());
	if (copied && bounced->pulling)
		end_pull(bounced);
	else if (copied)
		collet_bounce_copied(bounce, copied);
	return copied;
}

/* ---- From GPU to GPU ---- */

static bool show(struct collet_bounce_buffer *bounce, const struct collet_request *request)
{
	struct bounced *bounced = (struct bounced *)(void *)bounce;
	struct collet_context *context = bounced->context;
	const uint32_t to = collet_comm_state_world_rank(request->state, request->p2p.peer);
	if (!collet_pull_show(&context->device, &context->engine, to, &bounced->offer))
		return false;
	memcpy(bounce->rts.handle, &bounced->offer, sizeof(bounced->offer));
	return true;
}

static void show_again(struct collet_bounce_buffer *bounce, const struct collet_request *request)
{
	const struct bounced *bounced = (struct bounced *)(void *)bounce;
	const uint32_t to = collet_comm_state_world_rank(request->state, request->p2p.peer);
	collet_pull_show_again(&bounced->context->device, to, &bounced->offer);
}

/* One copy, with a mark behind it. */
static collet_status begin_pull(struct bounced *bounced, const char *there, size_t bytes)
{
	const struct collet_cuda *cuda = &bounced->context->cuda;
	collet_status status =
		collet_pipe_take_and_enter(&bounced->context->copiers, bounced->copier, &bounced->pipe);
	if (status != COLLET_OK)
		return status;
	status = collet_pipe_add(cuda, bounced->pipe, bounced->gpu, there, bytes, pulling_what);
	if (status == COLLET_OK)
		status = collet_pipe_mark(cuda, bounced->pipe, pulling_what);
	collet_pipe_leave(cuda, bounced->pipe);
	return status;
}

/* Nothing has come, so the message may come by way of the host. But where nobody knows whether the copy is under way
 * all the same, nothing else may be brought to its place, and what it reads stays open. true: it may. */
static bool give_up_pull(struct bounced *bounced, collet_status status)
{
	struct collet_context *context = bounced->context;
	const struct collet_request *request = bounced->bounce.request;
	const bool waited = collet_pipe_give(&context->copiers, bounced->pipe);
	bounced->pipe = NULL;
	if (waited) {
		collet_log(&context->engine.log, COLLET_LOG_WARN,
			"cuda: a message of %llu bytes by way of the host: %s",
			(unsigned long long)request->p2p.message_bytes, collet_last_error());
		collet_ipc_put(&context->device.ipc, bounced->opened);
	} else {
		context->device.kept = true;
		collet_comm_state_end(request->state, status, true, collet_last_error());
	}
	bounced->opened = NULL;
	return waited;
}

/* false: it may come by way of the host. */
static bool pull(struct collet_bounce_buffer *bounce, const uint64_t *where, bool *again)
{
	struct bounced *bounced = (struct bounced *)(void *)bounce;
	struct collet_context *context = bounced->context;
	const struct collet_request *request = bounce->request;
	const uint32_t from = collet_comm_state_world_rank(request->state, request->p2p.peer);
	struct collet_pull_offer offer;
	memcpy(&offer, where, sizeof(offer));
	if (offer.side.bytes < request->p2p.message_bytes)
		return false;
	const char *there = collet_pull_reach(
		&context->device, &context->engine, from, bounced->copier, &offer, &bounced->opened, again);
	if (!there)
		return false;
	const collet_status status = begin_pull(bounced, there, request->p2p.message_bytes);
	if (status != COLLET_OK)
		return !give_up_pull(bounced, status);
	bounced->pulling = bounce->needs_polling = true;
	return true;
}

/* ---- A side's life ---- */

static collet_status make_side(struct collet_context *context, const struct collet_staged_side *side, bool sends,
	bool pulled, struct bounced **made)
{
	struct bounced *bounced = calloc(1, sizeof(*bounced));
	if (!bounced)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message of a GPU's buffer");
	*bounced = (struct bounced){ .bounce = { .progress = advance, .user_buffer = side->gpu, .cells = side->host },
		.context = context,
		.copier = side->copier,
		.gpu = side->gpu,
		.sends = sends,
		.what = sends ? "copying a message from the GPU" : "copying a message to the GPU" };
	/* Now, when nothing has been begun that a failure would spoil. */
	const collet_status status = collet_pipe_take(&context->copiers, side->copier, &bounced->pipe);
	if (status != COLLET_OK) {
		free(bounced);
		return status;
	}
	if (pulled) {
		collet_pull_describe(&context->device, &context->engine, side->copier, side->allocation, side->gpu,
			side->bytes, &bounced->offer);
		bounced->bounce.export_buffer = show;
		bounced->bounce.export_again = show_again;
		bounced->bounce.pull = pull;
	}
	*made = bounced;
	return COLLET_OK;
}

static void rest_side(struct bounced *bounced)
{
	struct collet_pipe *pipe = bounced->pipe;
	collet_bounce_stop(&bounced->bounce);
	if (!pipe)
		return;
	bounced->stale = pipe->marked - pipe->passed;
	if (!pipe->failed && collet_pipe_is_empty(pipe)) {
		(void)collet_pipe_give(&bounced->context->copiers, pipe);
		bounced->pipe = NULL;
	}
}

/* Waits for copies that are under way. false: as of collet_pipe_give(), of the cells. */
static bool free_side(struct bounced *bounced)
{
	assert(!bounced->bounce.request);
	const bool waited = collet_pipe_give(&bounced->context->copiers, bounced->pipe);
	/* Where nobody knows whether it is read yet, it stays open. */
	if (waited)
		collet_ipc_put(&bounced->context->device.ipc, bounced->opened);
	free(bounced);
	return waited;
}

/* ---- A call's ---- */

struct message {
	struct collet_carried carried; /* first: it is found by it */
	struct bounced *sides[COLLET_SIDES]; /* NULL: it is short */
};

static struct message *message_of(struct collet_carried *carried)
{
	return (struct message *)(void *)carried;
}

static bool is_long(const struct collet_staged_side *side)
{
	return side->copier && side->bytes >= COLLET_BOUNCE_MIN_BYTES;
}

static bool takes(const struct collet_load *load)
{
	return collet_load_is_message(load) &&
	       (is_long(&load->sides[COLLET_READ]) || is_long(&load->sides[COLLET_WRITTEN]));
}

static size_t host_bytes(const struct collet_staged_side *side)
{
	return is_long(side) ? collet_bounce_cells_bytes(side->bytes) : side->bytes;
}

static void rest(struct collet_carried *carried)
{
	for (int s = 0; s < COLLET_SIDES; s++)
		if (message_of(carried)->sides[s])
			rest_side(message_of(carried)->sides[s]);
}

static bool free_message(struct collet_carried *carried)
{
	struct message *message = message_of(carried);
	bool waited = true;
	for (int s = 0; s < COLLET_SIDES; s++)
		if (message->sides[s])
			waited &= free_side(message->sides[s]);
	free(message);
	return waited;
}

static collet_status make(const struct collet_load *load, struct collet_carried **carried)
{
	struct message *message = calloc(1, sizeof(*message));
	collet_status status = COLLET_OK;
	if (!message)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message of a GPU's buffer");
	for (int s = 0; s < COLLET_SIDES && status == COLLET_OK; s++) {
		if (!is_long(&load->sides[s]))
			continue;
		status = make_side(load->context, &load->sides[s], s == COLLET_READ,
			load->staging == COLLET_STAGED_PULLED, &message->sides[s]);
		if (status == COLLET_OK)
			message->carried.bounces[s] = &message->sides[s]->bounce;
	}
	if (status == COLLET_OK)
		*carried = &message->carried;
	else
		(void)free_message(&message->carried);
	return status;
}

const struct collet_carrier collet_bounced_carrier = {
	.takes = takes, .host_bytes = host_bytes, .make = make, .rest = rest, .free = free_message
};
