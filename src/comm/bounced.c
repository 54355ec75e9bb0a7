#include "comm/bounced.h"

#include <stdlib.h>

struct collet_bounced {
	struct collet_bounce bounce; /* first: it is found by it */
	struct collet_context *context;
	struct collet_copier *copier;
	struct collet_pipe *pipe;    /* NULL: it has none now */
	char *gpu;
	bool sends;
	uint32_t stale;              /* marks in the pipe of a request before, whose message nobody wanted */
	const char *what;            /* for sentences */
};

struct collet_bounce *collet_bounced_bounce(struct collet_bounced *bounced)
{
	return &bounced->bounce;
}

static collet_status copy_next(struct collet_bounced *bounced)
{
	const struct collet_cuda *cuda = &bounced->context->cuda;
	struct collet_bounce *bounce = &bounced->bounce;
	const struct collet_range cell = collet_bounce_piece(bounce, bounce->begun);
	char *host = (char *)(uintptr_t)cell.first, *gpu = bounced->gpu + (size_t)bounce->begun * COLLET_BOUNCE_CELL;
	collet_status status = collet_pipe_add(cuda, bounced->pipe, bounced->sends ? host : gpu,
		bounced->sends ? gpu : host, cell.bytes, bounced->what);
	if (status == COLLET_OK)
		status = collet_pipe_mark(cuda, bounced->pipe, bounced->what);
	bounce->begun += status == COLLET_OK;
	return status;
}

/* Looks what has been copied, and begins what there is room for. Between enter and leave. */
static collet_status push_on(struct collet_bounced *bounced, uint32_t *copied)
{
	struct collet_pipe *pipe = bounced->pipe;
	collet_status status = collet_pipe_look(&bounced->context->cuda, pipe, bounced->what, copied);
	const uint32_t stale = bounced->stale < *copied ? bounced->stale : *copied;
	bounced->stale -= stale;
	*copied -= stale;
	while (status == COLLET_OK && collet_bounce_is_due(&bounced->bounce) && collet_pipe_has_room(pipe))
		status = copy_next(bounced);
	/* Something of the piece may be under way, with no mark behind it. */
	if (status != COLLET_OK)
		pipe->failed = true;
	return status;
}

static bool is_under_way(const struct collet_bounced *bounced)
{
	return bounced->pipe && !collet_pipe_is_empty(bounced->pipe);
}

static bool advance(struct collet_bounce *bounce)
{
	struct collet_bounced *bounced = (struct collet_bounced *)(void *)bounce;
	const struct collet_cuda *cuda = &bounced->context->cuda;
	collet_status status = COLLET_OK;
	uint32_t copied = 0;
	if (!is_under_way(bounced) && !collet_bounce_is_due(bounce))
		return false;
	if (!bounced->pipe)
		status = collet_pipe_take(&bounced->context->copiers, bounced->copier, &bounced->pipe);
	if (status == COLLET_OK)
		status = collet_pipe_enter(cuda, bounced->pipe);
	if (status == COLLET_OK) {
		status = push_on(bounced, &copied);
		collet_pipe_leave(cuda, bounced->pipe);
	}
	bounce->busy = is_under_way(bounced) || collet_bounce_is_due(bounce);
	/* The peer is in the middle of the message. */
	if (status != COLLET_OK)
		collet_group_end(bounce->request->group, status, true, collet_last_error());
	if (copied)
		collet_bounce_copied(bounce, copied);
	return copied;
}

collet_status collet_bounced_make(struct collet_bounced **made, struct collet_context *context,
	const struct collet_piped_side *side, bool sends)
{
	struct collet_bounced *bounced = calloc(1, sizeof(*bounced));
	if (!bounced)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message of a GPU's buffer");
	*bounced = (struct collet_bounced){ .bounce = { .advance = advance, .buffer = side->gpu, .cells = side->host },
		.context = context,
		.copier = side->copier,
		.gpu = side->gpu,
		.sends = sends,
		.what = sends ? "copying a message from the GPU" : "copying a message to the GPU" };
	/* Now, when nothing has been begun that a failure would spoil. */
	const collet_status status = collet_pipe_take(&context->copiers, side->copier, &bounced->pipe);
	if (status == COLLET_OK)
		*made = bounced;
	else
		free(bounced);
	return status;
}

void collet_bounced_rest(struct collet_bounced *bounced)
{
	struct collet_pipe *pipe = bounced->pipe;
	collet_bounce_stop(&bounced->bounce);
	if (!pipe)
		return;
	bounced->stale = pipe->marked - pipe->passed;
	if (!pipe->failed && collet_pipe_is_empty(pipe)) {
		collet_pipe_give(&bounced->context->copiers, pipe);
		bounced->pipe = NULL;
	}
}

void collet_bounced_free(struct collet_bounced *bounced)
{
	if (!bounced)
		return;
	assert(!bounced->bounce.request);
	collet_pipe_give(&bounced->context->copiers, bounced->pipe);
	free(bounced);
}
