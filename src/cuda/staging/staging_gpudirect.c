#include "cuda/staging/staging_gpudirect.h"

#include <stdlib.h>

#include "cuda/staging/staging_pipelined.h"
#include "engine/gdr.h"

/* Copies from the GPU, and those to it and inside it. */
enum { DOWN, UP, WAYS };

static const char *const what[WAYS] = { "copying a piece from the GPU", "copying a piece to the GPU" };

/* Items whose copies are to be made, in order: up to next they are under way, a mark in the pipe behind each. */
struct way {
	struct collet_pipe *pipe;    /* NULL: it has none now */
	struct collet_work_item *first, *next, *last;
};

struct collet_reached {
	struct collet_carried carried; /* first: it is found by it */
	struct collet_pipeline flow;
	struct collet_gdr reach;
	struct collet_context *context;
	struct collet_copier *copier;
	struct collet_pinned *cells; /* NULL: the request has not been planned yet */
	struct way ways[WAYS];
};

static struct collet_reached *reached_of(struct collet_carried *carried)
{
	return (struct collet_reached *)(void *)carried;
}

/* ---- Which calls ---- */

bool collet_reached_all(const struct collet_comm_state *group)
{
	const struct collet_engine *engine = group->engine;
	for (uint32_t rank = 0; rank < group->size; rank++) {
		const struct collet_peer_info *peer = &engine->peer_infos[collet_comm_state_world_rank(group, rank)];
		if (rank != group->rank &&
			!collet_transports_accept_gpu(engine->transports, &engine->peer_infos[engine->rank], peer))
			return false;
	}
	return group->size > 1;
}

/* On one GPU, and known to a transport there. */
static bool takes(const struct collet_load *load)
{
	const struct collet_copier *read = load->sides[COLLET_READ].copier,
		*written = load->sides[COLLET_WRITTEN].copier;
	if (load->staging != COLLET_STAGED_REACHED || !collet_load_is_large(load))
		return false;
	if (read && written && read != written)
		return false;
	for (int s = 0; s < COLLET_SIDES; s++) {
		const struct collet_staged_side *side = &load->sides[s];
		if (side->copier &&
			!collet_transports_gpu_registered(&load->context->transports, side->gpu, side->bytes))
			return false;
	}
	return true;
}

/* ---- One round ---- */

/* Is the first of an item's copies one to the host? They all are then, or are few. */
static collet_status note_way(void *context, void *to, const void *from, size_t bytes)
{
	const struct collet_work_item *item = context;
	(void)from;
	(void)bytes;
	return collet_gdr_flags(item->request, to, 1) ? COLLET_OK : COLLET_PENDING;
}

static void copy(struct collet_gdr *reach, struct collet_work_item *item)
{
	struct collet_reached *reached = (struct collet_reached *)(void *)((char *)reach -
		offsetof(struct collet_reached, reach));
	const bool down = collet_gdr_visit_copies(item, note_way, item) != COLLET_OK;
	struct way *way = &reached->ways[down ? DOWN : UP];
	item->next_copy = NULL;
	if (way->first)
		way->last->next_copy = item;
	else
		way->first = item;
	way->last = item;
	if (!way->next)
		way->next = item;
	reached->flow.needs_polling = true;
}

/* For collet_gdr_visit_copies(). */
struct adding {
	struct collet_reached *reached;
	struct way *way;
};

static collet_status add(void *context, void *to, const void *from, size_t bytes)
{
	const struct adding *adding = context;
	return collet_pipe_add(&adding->reached->context->cuda, adding->way->pipe, to, from, bytes,
		what[adding->way - adding->reached->ways]);
}

/* Between enter and leave. */
static collet_status issue(struct collet_reached *reached, struct way *way)
{
	const struct collet_cuda *cuda = &reached->context->cuda;
	struct adding adding = { reached, way };
	collet_status status = COLLET_OK;
	while (way->next && collet_pipe_has_room(way->pipe) && status == COLLET_OK) {
		status = collet_gdr_visit_copies(way->next, add, &adding);
		if (status == COLLET_OK)
			status = collet_pipe_mark(cuda, way->pipe, what[way - reached->ways]);
		if (status == COLLET_OK)
			way->next = way->next->next_copy;
	}
	/* Something of the item may be under way, with no mark behind it. */
	if (status != COLLET_OK)
		way->pipe->failed = true;
	return status;
}

/* *passed copies more have been made. */
static collet_status push_on(struct collet_reached *reached, struct way *way, uint32_t *passed)
{
	const struct collet_cuda *cuda = &reached->context->cuda;
	*passed = 0;
	collet_status status = collet_pipe_take_and_enter(&reached->context->copiers, reached->copier, &way->pipe);
	if (status != COLLET_OK)
		return status;
	status = collet_pipe_look(cuda, way->pipe, what[way - reached->ways], passed);
	if (status == COLLET_OK)
		status = issue(reached, way);
	collet_pipe_leave(cuda, way->pipe);
	return status;
}

static bool advance(struct collet_pipeline *flow)
{
	struct collet_reached *reached = (struct collet_reached *)(void *)((char *)flow -
		offsetof(struct collet_reached, flow));
	bool some = collet_gdr_poll(&reached->reach, flow->request->state);
	collet_status status = COLLET_OK;
	for (int w = 0; w < WAYS && status == COLLET_OK; w++) {
		struct way *way = &reached->ways[w];
		uint32_t passed = 0;
		if (way->first)
			status = push_on(reached, way, &passed);
		for (; passed > 0; passed--) {
			struct collet_work_item *item = way->first;
			way->first = item->next_copy;
			collet_gdr_copied(item);
			some = true;
		}
	}
	flow->needs_polling = reached->ways[DOWN].first || reached->ways[UP].first;
	/* Others are in the middle of the call. */
	if (status != COLLET_OK)
		collet_comm_state_end(flow->request->state, status, true, collet_last_error());
	return some;
}

/* ---- Its life ---- */

static void rest(struct collet_carried *carried)
{
	struct collet_reached *reached = reached_of(carried);
	for (int w = 0; w < WAYS; w++) {
		struct way *way = &reached->ways[w];
		if (!way->pipe || way->pipe->failed || !collet_pipe_is_empty(way->pipe))
			continue;
		(void)collet_pipe_give(&reached->context->copiers, way->pipe);
		way->pipe = NULL;
	}
}

/* Memory of its own that cannot be waited for is lost; other there is none. */
static bool free_reached(struct collet_carried *carried)
{
	struct collet_reached *reached = reached_of(carried);
	assert(!reached->flow.request);
	bool waited = true;
	for (int w = 0; w < WAYS; w++)
		waited &= collet_pipe_give(&reached->context->copiers, reached->ways[w].pipe);
	if (waited)
		collet_pinned_give(&reached->context->pinned, reached->cells);
	else
		collet_pinned_lose(&reached->context->pinned, reached->cells);
	collet_pipeline_deinit(&reached->flow);
	free(reached);
	return true;
}

static collet_status make(const struct collet_load *load, struct collet_carried **carried)
{
	static const struct collet_range none;
	const struct collet_staged_side *read = &load->sides[COLLET_READ], *written = &load->sides[COLLET_WRITTEN];
	struct collet_reached *reached = calloc(1, sizeof(*reached));
	if (!reached)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	reached->context = load->context;
	reached->copier = read->copier ? read->copier : written->copier;
	collet_status status = collet_pipeline_init(&reached->flow, none, none, 1);
	reached->flow.progress = advance;
	reached->flow.gdr = &reached->reach;
	reached->carried.flow = &reached->flow;
	reached->reach = (struct collet_gdr){ .start_copies = copy,
		.gpu_ranges = { { read->gpu, read->copier ? read->bytes : 0 },
			{ written->gpu, written->copier ? written->bytes : 0 } } };
	/* Now, when nothing has been begun that a failure would spoil. */
	for (int w = 0; w < WAYS && status == COLLET_OK; w++)
		status = collet_pipe_take(&load->context->copiers, reached->copier, &reached->ways[w].pipe);
	if (status == COLLET_OK)
		*carried = &reached->carried;
	else
		(void)free_reached(&reached->carried);
	return status;
}

/* It declines what is of too many peers at once: its cells would be no less than what stands for the buffers. */
static collet_status plan(struct collet_carried *carried, const struct collet_request *request, bool *declines)
{
	struct collet_reached *reached = reached_of(carried);
	const size_t cell = collet_gdr_cell_bytes(request), cells = cell * TASK_WINDOW * request->task_count;
	const size_t read = reached->reach.gpu_ranges[0].bytes, written = reached->reach.gpu_ranges[1].bytes;
	const size_t larger = read > written ? read : written;
	*declines = cells > (size_t)COLLET_STAGING_BYTES * request->task_count && cells > larger / 2;
	if (*declines)
		return COLLET_OK;
	const collet_status status =
		collet_pinned_take(&reached->context->pinned, reached->copier, cells, &reached->cells);
	if (status == COLLET_OK) {
		reached->reach.cells = reached->cells->memory;
		reached->reach.cell_bytes = cell;
	}
	return status;
}

const struct collet_carrier collet_reached_carrier = {
	.takes = takes, .leaves = true, .make = make, .plan = plan, .rest = rest, .free = free_reached
};
