#include "cuda/staging/gpu_staging.h"

#include <stdlib.h>

#include "cuda/staging/staging_bounced.h"
#include "cuda/staging/staging_gpudirect.h"
#include "cuda/staging/staging_pipelined.h"

/* The first that takes a call has it. */
static const struct collet_carrier *const carriers[] = {
	&collet_reached_carrier, &collet_piped_carrier, &collet_bounced_carrier
};

struct collet_staged {
	struct collet_load load;
	struct collet_pinned *blocks[COLLET_SIDES];
	const struct collet_carrier *carrier; /* NULL: it is copied whole, before and after */
	struct collet_carried *carried;       /* NULL: likewise; or it has not been made yet */
	struct collet_part whole, *parts;     /* of what is written; parts NULL: whole */
	size_t part_count;
	const collet_received *received;
	collet_received own_received;
	size_t element_bytes;
};

bool collet_staged_uses(const struct collet_staged *staged, const char *first, size_t bytes)
{
	for (int s = 0; s < COLLET_SIDES; s++) {
		const struct collet_staged_side *side = &staged->load.sides[s];
		if (side->copier && side->gpu < first + bytes && first < side->gpu + side->bytes)
			return true;
	}
	return false;
}

void collet_staged_drop(struct collet_staged *staged)
{
	if (!staged)
		return;
	struct collet_pinned_pool *pool = &staged->load.context->pinned;
	const bool waited = !staged->carried || staged->carrier->free(staged->carried);
	for (int s = 0; s < COLLET_SIDES; s++) {
		if (waited)
			collet_pinned_give(pool, staged->blocks[s]);
		else
			collet_pinned_lose(pool, staged->blocks[s]);
	}
	free(staged->parts);
	free(staged);
}

static bool overlap(const struct collet_staged_side *a, const struct collet_staged_side *b)
{
	return a->copier && b->copier && a->gpu < b->gpu + b->bytes && b->gpu < a->gpu + a->bytes;
}

/* NULL: none. declined: those behind this one are asked; NULL: all are. */
static const struct collet_carrier *find_carrier(
	const struct collet_load *load, const struct collet_carrier *declined)
{
	bool asks = !declined;
	for (size_t c = 0; c < sizeof(carriers) / sizeof(carriers[0]); c++) {
		if (asks && carriers[c]->takes(load))
			return carriers[c];
		asks = asks || carriers[c] == declined;
	}
	return NULL;
}

static size_t host_bytes(const struct collet_staged *staged, const struct collet_staged_side *side)
{
	return staged->carrier && staged->carrier->host_bytes ? staged->carrier->host_bytes(side) : side->bytes;
}

/* Host memory for the sides; what overlaps on the GPU overlaps there, but for messages. */
static collet_status take_host(struct collet_staged *staged)
{
	struct collet_pinned_pool *pool = &staged->load.context->pinned;
	struct collet_staged_side *read = &staged->load.sides[COLLET_READ],
		*written = &staged->load.sides[COLLET_WRITTEN];
	if (staged->carrier && staged->carrier->leaves) {
		read->host = read->gpu;
		written->host = written->gpu;
		return COLLET_OK;
	}
	if (!collet_load_is_message(&staged->load) && overlap(read, written)) {
		char *first = read->gpu < written->gpu ? read->gpu : written->gpu;
		char *read_end = read->gpu + read->bytes, *written_end = written->gpu + written->bytes;
		char *end = read_end > written_end ? read_end : written_end;
		const collet_status status =
			collet_pinned_take(pool, read->copier, (size_t)(end - first), &staged->blocks[0]);
		if (status != COLLET_OK)
			return status;
		read->host = staged->blocks[0]->memory + (read->gpu - first);
		written->host = staged->blocks[0]->memory + (written->gpu - first);
		return COLLET_OK;
	}
	for (int s = 0; s < COLLET_SIDES; s++) {
		struct collet_staged_side *side = &staged->load.sides[s];
		if (!side->copier)
			continue;
		const collet_status status =
			collet_pinned_take(pool, side->copier, host_bytes(staged, side), &staged->blocks[s]);
		if (status != COLLET_OK)
			return status;
		side->host = staged->blocks[s]->memory;
	}
	return COLLET_OK;
}

static collet_status copy_in(const struct collet_cuda *cuda, const struct collet_staged_side *side)
{
	static const char what[] = "copying a buffer from the GPU";
	collet_status status = collet_copier_begin(cuda, side->copier);
	if (status != COLLET_OK)
		return status;
	status = collet_copier_add(cuda, side->copier, side->host, side->gpu, side->bytes, what);
	if (status == COLLET_OK)
		status = collet_copier_wait(cuda, side->copier, what);
	collet_copier_end(cuda);
	return status;
}

static collet_status copy_out(const struct collet_cuda *cuda, const struct collet_staged_side *side,
	const struct collet_part *parts, size_t count)
{
	static const char what[] = "copying a result to the GPU";
	collet_status status = collet_copier_begin(cuda, side->copier);
	if (status != COLLET_OK)
		return status;
	for (size_t i = 0; i < count && status == COLLET_OK; i++)
		if (parts[i].bytes)
			status = collet_copier_add(cuda, side->copier, side->gpu + parts[i].offset,
				side->host + parts[i].offset, parts[i].bytes, what);
	/* What was added must have ended in any case: its memory goes to the next call. */
	const collet_status waited = collet_copier_wait(cuda, side->copier, what);
	collet_copier_end(cuda);
	return status == COLLET_OK ? waited : status;
}

/* Where the sides are; *any: one is a GPU's. */
static collet_status find_sides(struct collet_context *context, const char *function,
	const struct collet_side sides[COLLET_SIDES], struct collet_staged_side found[COLLET_SIDES], bool *any)
{
	static const char *const names[COLLET_SIDES] = { "the buffer that is read", "the buffer that is written" };
	*any = false;
	for (int s = 0; s < COLLET_SIDES; s++) {
		struct collet_residence residence;
		uint64_t offset;
		found[s] = (struct collet_staged_side){ 0 };
		if (!sides[s].bytes || collet_arena_contains(&context->arena, sides[s].first, sides[s].bytes, &offset))
			continue;
		collet_status status =
			collet_residence_find(&context->cuda, names[s], sides[s].first, sides[s].bytes, &residence);
		if (status == COLLET_OK && residence.device)
			status = collet_copier_find(&context->copiers, &residence, &found[s].copier);
		if (status != COLLET_OK) {
			collet_error_prefix("%s", function);
			return status;
		}
		found[s].gpu = (char *)(uintptr_t)sides[s].first;
		found[s].bytes = sides[s].bytes;
		found[s].allocation = residence.allocation;
		*any = *any || residence.device;
	}
	return COLLET_OK;
}

/* Everything but the copies; sides are the host's then, or stay where they are. */
static collet_status prepare(struct collet_context *context, const char *function,
	struct collet_side sides[COLLET_SIDES], enum collet_staging staging, struct collet_staged **staged)
{
	struct collet_staged_side found[COLLET_SIDES];
	bool any;
	*staged = NULL;
	collet_status status = find_sides(context, function, sides, found, &any);
	if (status != COLLET_OK || !any)
		return status;
	struct collet_staged *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call on a GPU's buffer", function);
	made->load = (struct collet_load){ context, staging, { found[COLLET_READ], found[COLLET_WRITTEN] } };
	made->whole.bytes = sides[COLLET_WRITTEN].bytes;
	made->carrier = find_carrier(&made->load, NULL);
	status = take_host(made);
	if (status != COLLET_OK) {
		collet_staged_drop(made);
		collet_error_prefix("%s", function);
		return status;
	}
	for (int s = 0; s < COLLET_SIDES; s++)
		if (found[s].copier)
			sides[s].first = made->load.sides[s].host;
	*staged = made;
	return COLLET_OK;
}

static collet_status make_carried(struct collet_staged *staged)
{
	return staged->carrier ? staged->carrier->make(&staged->load, &staged->carried) : COLLET_OK;
}

/* Is the side copied before and after? */
static bool is_copied_whole(const struct collet_staged *staged, int side)
{
	const struct collet_carried *carried = staged->carried;
	return staged->load.sides[side].copier && !(carried && (carried->flow || carried->bounces[side]));
}

static collet_status give_up(struct collet_staged **staged, const char *function, collet_status status)
{
	collet_staged_drop(*staged);
	*staged = NULL;
	collet_error_prefix("%s", function);
	return status;
}

collet_status collet_staged_begin(struct collet_context *context, const char *function,
	struct collet_side sides[COLLET_SIDES], enum collet_staging staging, struct collet_staged **staged)
{
	collet_status status = prepare(context, function, sides, staging, staged);
	if (status != COLLET_OK || !*staged)
		return status;
	status = make_carried(*staged);
	if (status == COLLET_OK && is_copied_whole(*staged, COLLET_READ))
		status = copy_in(&context->cuda, &(*staged)->load.sides[COLLET_READ]);
	return status == COLLET_OK ? COLLET_OK : give_up(staged, function, status);
}

collet_status collet_staged_of(struct collet_context *context, struct collet_copier *copier,
	const struct collet_side sides[COLLET_SIDES], size_t bytes, const struct collet_piped_cargo *cargo,
	char **host, struct collet_staged **staged)
{
	struct collet_staged *made = calloc(1, sizeof(*made));
	collet_status status = made ? collet_pinned_take(&context->pinned, copier, bytes, &made->blocks[0]) :
                                      collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	if (status != COLLET_OK) {
		free(made);
		cargo->free(cargo->owner);
		return status;
	}
	const struct collet_staged_side both = { .copier = copier, .host = made->blocks[0]->memory, .bytes = bytes };
	made->load.context = context;
	made->carrier = &collet_piped_carrier;
	for (int s = 0; s < COLLET_SIDES; s++)  /* they are in use */
		if (sides[s].bytes)
			made->load.sides[s] = (struct collet_staged_side){ .copier = copier,
				.gpu = (char *)(uintptr_t)sides[s].first, .bytes = sides[s].bytes };
	status = collet_piped_make_of(context, &both, cargo, &made->carried);
	if (status == COLLET_OK) {
		*host = both.host;
		*staged = made;
	} else {
		collet_staged_drop(made);
	}
	return status;
}

collet_status collet_staged_find_block(const struct collet_staged *staged, cu_pointer *gpu)
{
	struct collet_context *context = staged->load.context;
	if (!staged->blocks[0]->copier)
		return collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, by which a kernel reaches memory that is not its GPU's; "
			"raise the limit of locked memory (ulimit -l)",
			staged->blocks[0]->bytes);
	const cu_result result = context->cuda.cuMemHostGetDevicePointer(gpu, staged->blocks[0]->memory, 0);
	return result == CU_OK
		       ? COLLET_OK
		       : collet_cuda_fail(&context->cuda, result, "finding where the GPU has page-locked memory");
}

struct collet_pipeline *collet_staged_flow(const struct collet_staged *staged)
{
	return staged && staged->carried ? staged->carried->flow : NULL;
}

static void tell_parts(const struct collet_staged *staged)
{
	if (staged->parts && staged->carried && staged->carrier->take_parts)
		staged->carrier->take_parts(staged->carried, staged->parts, staged->part_count);
}

/* By a carrier behind the one that has it. */
static collet_status carry_otherwise(struct collet_staged *staged, struct collet_request *request)
{
	const struct collet_staged_side *read = &staged->load.sides[COLLET_READ],
		*written = &staged->load.sides[COLLET_WRITTEN];
	(void)staged->carrier->free(staged->carried); /* which has copied nothing */
	staged->carried = NULL;
	staged->carrier = find_carrier(&staged->load, staged->carrier);
	assert(staged->carrier); /* it is too late to copy it whole */
	collet_status status = take_host(staged);
	if (status == COLLET_OK)
		status = make_carried(staged);
	if (status != COLLET_OK)
		return status;
	tell_parts(staged);
	if (read->copier)
		request->input = read->host;
	if (written->copier)
		request->result = written->host;
	return COLLET_OK;
}

collet_status collet_staged_plan(struct collet_staged *staged, struct collet_request *request)
{
	bool declines = false;
	collet_status status = COLLET_OK;
	if (staged->carried && staged->carrier->plan)
		status = staged->carrier->plan(staged->carried, request, &declines);
	return declines ? carry_otherwise(staged, request) : status;
}

struct collet_bounce_buffer *collet_staged_bounce(const struct collet_staged *staged, int side)
{
	return staged && staged->carried ? staged->carried->bounces[side] : NULL;
}

void collet_staged_stop(const struct collet_staged *staged)
{
	struct collet_pipeline *flow = collet_staged_flow(staged);
	if (flow)
		collet_pipeline_stop(flow);
	if (staged->carried)
		staged->carrier->rest(staged->carried);
}

collet_status collet_staged_lay_out(struct collet_context *context, const char *function,
	struct collet_side sides[COLLET_SIDES], enum collet_staging staging, struct collet_staged **staged)
{
	collet_status status = prepare(context, function, sides, staging, staged);
	if (status != COLLET_OK || !*staged)
		return status;
	for (int s = 0; s < COLLET_SIDES; s++) {
		struct collet_pinned *block = (*staged)->blocks[s];
		const struct collet_copier *read = (*staged)->load.sides[COLLET_READ].copier;
		const struct collet_copier *copier = read ? read : (*staged)->load.sides[COLLET_WRITTEN].copier;
		if (!block || collet_pinned_lock(&context->pinned, copier, block))
			continue;
		status = collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, which a call on a stream needs; raise the limit of "
			"locked memory (ulimit -l), or call without how.stream",
			block->bytes);
		return give_up(staged, function, status);
	}
	status = make_carried(*staged);
	if (status != COLLET_OK)
		return give_up(staged, function, status);
	collet_staged_stop(*staged);
	return COLLET_OK;
}

static collet_status enqueue(const struct collet_staged *staged, cu_stream stream, void *to, const void *from,
	size_t bytes, const char *what)
{
	const struct collet_cuda *cuda = &staged->load.context->cuda;
	const cu_result result = cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

collet_status collet_staged_enqueue_in(const struct collet_staged *staged, cu_stream stream, bool whole)
{
	collet_status status = COLLET_OK;
	for (int s = 0; s < (whole ? COLLET_SIDES : COLLET_READ + 1) && status == COLLET_OK; s++) {
		const struct collet_staged_side *side = &staged->load.sides[s];
		if (is_copied_whole(staged, s))
			status = enqueue(staged, stream, side->host, side->gpu, side->bytes,
				"copying a buffer from the GPU");
	}
	return status;
}

collet_status collet_staged_enqueue_out(const struct collet_staged *staged, cu_stream stream)
{
	const struct collet_staged_side *side = &staged->load.sides[COLLET_WRITTEN];
	const struct collet_part *parts = staged->parts ? staged->parts : &staged->whole;
	const size_t count = !is_copied_whole(staged, COLLET_WRITTEN) ? 0 : staged->parts ? staged->part_count : 1;
	collet_status status = COLLET_OK;
	for (size_t i = 0; i < count && status == COLLET_OK; i++)
		if (parts[i].bytes)
			status = enqueue(staged, stream, side->gpu + parts[i].offset, side->host + parts[i].offset,
				parts[i].bytes, "copying a result to the GPU");
	return status;
}

collet_status collet_staged_blocks(struct collet_staged *staged, size_t element_bytes, uint32_t size,
	const uint64_t *counts, const uint64_t *displacements)
{
	staged->parts = calloc(size, sizeof(*staged->parts));
	if (!staged->parts)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the blocks of %u ranks", size);
	staged->part_count = size;
	for (uint32_t r = 0; r < size; r++)
		staged->parts[r] = (struct collet_part){ displacements[r] * element_bytes, counts[r] * element_bytes };
	tell_parts(staged);
	return COLLET_OK;
}

collet_received *collet_staged_received(struct collet_staged *staged, collet_received *received, size_t element_bytes)
{
	received = received ? received : &staged->own_received;
	staged->received = received;
	staged->element_bytes = element_bytes;
	return received;
}

collet_status collet_staged_end(struct collet_staged *staged, collet_status status)
{
	if (!staged)
		return status;
	const struct collet_staged_side *written = &staged->load.sides[COLLET_WRITTEN];
	if (status == COLLET_OK && is_copied_whole(staged, COLLET_WRITTEN)) {
		if (staged->received)
			staged->whole.bytes = staged->received->count * staged->element_bytes;
		status = copy_out(&staged->load.context->cuda, written, staged->parts ? staged->parts : &staged->whole,
			staged->parts ? staged->part_count : 1);
	}
	collet_staged_drop(staged);
	return status;
}
