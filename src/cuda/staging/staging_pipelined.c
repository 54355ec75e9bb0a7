#include "cuda/staging/staging_pipelined.h"

#include <stdlib.h>

#include "cuda/gpu_cost.h"

/* One direction. */
struct way {
	struct collet_copier *copier; /* NULL: nothing goes there */
	struct collet_pipe *pipe;     /* NULL: it has none now */
	char *gpu;
	uint32_t issued;  /* cells */
	const char *what; /* for sentences */
};

struct collet_piped {
	struct collet_carried carried; /* first: it is found by it */
	struct collet_pipeline flow;
	struct collet_context *context;
	struct way in, out;
	const struct collet_part *parts; /* NULL: all */
	size_t part_count;
	struct collet_piped_cargo cargo; /* owner NULL: there are two buffers */
};

static struct collet_piped *piped_of(struct collet_carried *carried)
{
	return (struct collet_piped *)(void *)carried;
}

/* ---- One round ---- */

static collet_status bring_cell(struct collet_piped *piped, uint32_t cell)
{
	const struct collet_range range = collet_pipeline_cell(&piped->flow, &piped->flow.in, cell);
	char *host = (char *)(uintptr_t)range.first;
	if (piped->cargo.owner)
		return piped->cargo.bring(piped->cargo.owner, piped->in.pipe, host,
			(size_t)(range.first - piped->flow.in.first), range.bytes);
	return collet_pipe_add(&piped->context->cuda, piped->in.pipe, host,
		piped->in.gpu + (range.first - piped->flow.in.first), range.bytes, piped->in.what);
}

static collet_status take(struct collet_piped *piped, size_t first, size_t end)
{
	return collet_pipe_add(&piped->context->cuda, piped->out.pipe, piped->out.gpu + first,
		piped->flow.out.first + first, end - first, piped->out.what);
}

/* Of the cell, what is in the parts. */
static collet_status take_cell(struct collet_piped *piped, uint32_t cell)
{
	const struct collet_range range = collet_pipeline_cell(&piped->flow, &piped->flow.out, cell);
	const size_t first = (size_t)(range.first - piped->flow.out.first), end = first + range.bytes;
	collet_status status = COLLET_OK;
	if (piped->cargo.owner)
		return piped->cargo.take(piped->cargo.owner, piped->out.pipe, range.first, first, range.bytes);
	if (!piped->parts)
		return take(piped, first, end);
	for (size_t i = 0; i < piped->part_count && status == COLLET_OK; i++) {
		const size_t part = piped->parts[i].offset, part_end = part + piped->parts[i].bytes;
		const size_t from = part > first ? part : first, to = part_end < end ? part_end : end;
		if (from < to)
			status = take(piped, from, to);
	}
	return status;
}

/* Is something under way, or to be put there? */
static bool is_busy(const struct way *way, uint32_t count)
{
	return way->copier && (way->issued != count || (way->pipe && !collet_pipe_is_empty(way->pipe)));
}

/* Looks what has been passed, and adds cells while there is room. */
static collet_status push_on(
	struct collet_piped *piped, struct way *way, const uint32_t *cells, uint32_t count, uint32_t *passed)
{
	const struct collet_cuda *cuda = &piped->context->cuda;
	*passed = 0;
	if (!is_busy(way, count))
		return COLLET_OK;
	collet_status status = collet_pipe_take_and_enter(&piped->context->copiers, way->copier, &way->pipe);
	if (status != COLLET_OK)
		return status;
	status = collet_pipe_look(cuda, way->pipe, way->what, passed);
	while (status == COLLET_OK && way->issued < count && collet_pipe_has_room(way->pipe)) {
		const uint32_t cell = cells[way->issued];
		status = way == &piped->in ? bring_cell(piped, cell) : take_cell(piped, cell);
		if (status == COLLET_OK)
			status = collet_pipe_mark(cuda, way->pipe, way->what);
		way->issued += status == COLLET_OK;
	}
	/* Something of the cell may be under way, with no mark behind it. */
	if (status != COLLET_OK)
		way->pipe->failed = true;
	collet_pipe_leave(cuda, way->pipe);
	return status;
}

static bool advance(struct collet_pipeline *flow)
{
	struct collet_piped *piped = (struct collet_piped *)(void *)((char *)flow -
		offsetof(struct collet_piped, flow));
	uint32_t arrived, taken = 0;
	if (!flow->copied_in_count && !flow->copied_out_count && !flow->needs_polling)
		piped->in.issued = piped->out.issued = 0; /* it has been started, perhaps not for the first time */
	collet_status status = push_on(piped, &piped->in, flow->copy_in_order, flow->copy_in_count, &arrived);
	if (status == COLLET_OK)
		status = push_on(piped, &piped->out, flow->copy_out_order, flow->copy_out_ready, &taken);
	flow->needs_polling = is_busy(&piped->in, flow->copy_in_count) || is_busy(&piped->out, flow->copy_out_ready);
	for (uint32_t i = 0; i < arrived; i++)
		collet_pipeline_copied_in(flow);
	for (uint32_t i = 0; i < taken; i++)
		collet_pipeline_copied_out(flow);
	if (piped->cargo.owner && (arrived || taken) && collet_pipeline_is_complete(flow))
		piped->cargo.over(piped->cargo.owner);
	/* Others are in the middle of the call. */
	if (status != COLLET_OK)
		collet_comm_state_end(flow->request->state, status, true, collet_last_error());
	return arrived || taken;
}

/* ---- Its life ---- */

static collet_status open_way(struct collet_piped *piped, struct way *way, const struct collet_staged_side *side)
{
	way->copier = side->copier;
	way->gpu = side->gpu;
	return side->copier ? collet_pipe_take(&piped->context->copiers, side->copier, &way->pipe) : COLLET_OK;
}

/* false: as of collet_pipe_give(). */
static bool close_way(struct collet_piped *piped, struct way *way)
{
	const bool waited = collet_pipe_give(&piped->context->copiers, way->pipe);
	way->pipe = NULL;
	return waited;
}

static void take_parts(struct collet_carried *carried, const struct collet_part *parts, size_t count)
{
	struct collet_piped *piped = piped_of(carried);
	piped->parts = parts;
	piped->part_count = count;
}

static void rest(struct collet_carried *carried)
{
	struct collet_piped *piped = piped_of(carried);
	if (piped->cargo.owner)
		piped->cargo.stop(piped->cargo.owner);
	for (int w = 0; w < 2; w++) {
		struct way *way = w ? &piped->out : &piped->in;
		if (way->pipe && !way->pipe->failed && collet_pipe_is_empty(way->pipe))
			(void)close_way(piped, way);
	}
}

static bool free_piped(struct collet_carried *carried)
{
	struct collet_piped *piped = piped_of(carried);
	assert(!piped->flow.request);
	const bool brought = close_way(piped, &piped->in), taken = close_way(piped, &piped->out);
	if (piped->cargo.owner)
		piped->cargo.free(piped->cargo.owner);
	collet_pipeline_deinit(&piped->flow);
	free(piped);
	return brought && taken;
}

static collet_status make_of(struct collet_context *context, const struct collet_staged_side *in,
	const struct collet_staged_side *out, const struct collet_piped_cargo *cargo, struct collet_carried **carried)
{
	const struct collet_range from = {in->host, in->copier ? in->bytes : 0};
	const struct collet_range to = {out->host, out->copier ? out->bytes : 0};
	struct collet_piped *piped = calloc(1, sizeof(*piped));
	if (!piped) {
		if (cargo)
			cargo->free(cargo->owner);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	}
	const struct collet_gpu_link link = collet_gpu_link_of(context);
	const size_t most = from.bytes > to.bytes ? from.bytes : to.bytes;
	piped->context = context;
	if (cargo)
		piped->cargo = *cargo;
	collet_status status = collet_pipeline_init(&piped->flow, from, to, collet_gpu_cell_bytes(&link, most));
	piped->flow.progress = advance;
	piped->carried.flow = &piped->flow;
	piped->in.what = "copying a buffer from the GPU";
	piped->out.what = "copying a result to the GPU";
	if (status == COLLET_OK)
		status = open_way(piped, &piped->in, in);
	if (status == COLLET_OK)
		status = open_way(piped, &piped->out, out);
	if (status == COLLET_OK)
		*carried = &piped->carried;
	else
		(void)free_piped(&piped->carried);
	return status;
}

static collet_status make(const struct collet_load *load, struct collet_carried **carried)
{
	return make_of(load->context, &load->sides[COLLET_READ], &load->sides[COLLET_WRITTEN], NULL, carried);
}

collet_status collet_piped_make_of(struct collet_context *context, const struct collet_staged_side *both,
	const struct collet_piped_cargo *cargo, struct collet_carried **carried)
{
	static const struct collet_staged_side none;
	return make_of(context, cargo->brings ? both : &none, cargo->takes ? both : &none, cargo, carried);
}

/* ---- Which calls ---- */

bool collet_load_is_large(const struct collet_load *load)
{
	const struct collet_gpu_link link = collet_gpu_link_of(load->context);
	for (int s = 0; s < COLLET_SIDES; s++)
		if (load->sides[s].copier && load->sides[s].bytes >= collet_gpu_piped_least(&link))
			return true;
	return false;
}

static bool takes(const struct collet_load *load)
{
	return !collet_load_is_message(load) && collet_load_is_large(load);
}

const struct collet_carrier collet_piped_carrier = {
	.takes = takes, .make = make, .take_parts = take_parts, .rest = rest, .free = free_piped
};
