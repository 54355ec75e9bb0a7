/* Buffers that a kernel does not reach, and the page-locked memory that stands for them. */
#include <stdlib.h>
#include <string.h>

#include "cuda/peer_gpus/device_collective_internal.h"

static struct collet_context *context_of(const struct executed *executed)
{
	return executed->executions->context;
}

static collet_status find(struct executed *executed, int s, const struct collet_side *given)
{
	static const char *const names[COLLET_SIDES] = { "the buffer that is read", "the buffer that is written" };
	struct collet_context *context = context_of(executed);
	const struct collet_copier *own = collet_executor_copier(executed->executions->executor);
	struct executed_side *side = &executed->sides[s];
	struct collet_residence residence = { .ordinal = -1 };
	uint64_t offset;
	*side = (struct executed_side){
		.first = (char *)(uintptr_t)given->first, .bytes = given->bytes, .gpu = (uintptr_t)given->first };
	if (!side->bytes)
		return COLLET_OK;
	if (!collet_arena_contains(&context->arena, side->first, side->bytes, &offset)) {
		const collet_status status =
			collet_residence_find(&context->cuda, names[s], side->first, side->bytes, &residence);
		if (status != COLLET_OK)
			return status;
	}
	if (residence.device && residence.ordinal == own->ordinal &&
		(!residence.context || residence.context == own->context))
		return COLLET_OK;
	side->away = true;
	if (!residence.device)
		return COLLET_OK;
	struct collet_copier *copier;
	const collet_status status = collet_copier_find(&context->copiers, &residence, &copier);
	side->copier = copier;
	return status;
}

static collet_status take_block(struct executed *executed, int b, size_t bytes, cu_pointer *gpu)
{
	struct collet_context *context = context_of(executed);
	const struct collet_copier *copier = collet_executor_copier(executed->executions->executor);
	collet_status status = collet_pinned_take(&context->pinned, copier, bytes, &executed->blocks[b]);
	if (status != COLLET_OK)
		return status;
	if (!collet_pinned_lock(&context->pinned, copier, executed->blocks[b]))
		return collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, by which a kernel reaches memory that is not its GPU's; "
			"raise the limit of locked memory (ulimit -l)",
			executed->blocks[b]->bytes);
	const cu_result result = context->cuda.cuMemHostGetDevicePointer(gpu, executed->blocks[b]->memory, 0);
	return result == CU_OK
		       ? COLLET_OK
		       : collet_cuda_fail(&context->cuda, result, "finding where the GPU has page-locked memory");
}

static bool overlap(const struct executed_side *a, const struct executed_side *b)
{
	return a->away && b->away && a->first < b->first + b->bytes && b->first < a->first + a->bytes;
}

/* What overlaps does so there too. */
static collet_status take_memory(struct executed *executed)
{
	struct executed_side *read = &executed->sides[COLLET_READ], *written = &executed->sides[COLLET_WRITTEN];
	const bool together = overlap(read, written);
	char *first = read->first < written->first ? read->first : written->first;
	const char *read_end = read->first + read->bytes, *written_end = written->first + written->bytes;
	for (int s = 0; s < (together ? 1 : COLLET_SIDES); s++) {
		struct executed_side *side = &executed->sides[s];
		if (!side->away)
			continue;
		const size_t bytes =
			together ? (size_t)((read_end > written_end ? read_end : written_end) - first) : side->bytes;
		const collet_status status = take_block(executed, s, bytes, &side->gpu);
		if (status != COLLET_OK)
			return status;
		side->pinned = executed->blocks[s]->memory;
	}
	if (!together)
		return COLLET_OK;
	const cu_pointer gpu = read->gpu;
	for (int s = 0; s < COLLET_SIDES; s++) {
		struct executed_side *side = &executed->sides[s];
		side->pinned = executed->blocks[0]->memory + (side->first - first);
		side->gpu = gpu + (cu_pointer)(side->first - first);
	}
	return COLLET_OK;
}

collet_status executed_find(
	struct executed *executed, const char *function, const struct collet_side sides[COLLET_SIDES])
{
	collet_status status = COLLET_OK;
	for (int s = 0; s < COLLET_SIDES && status == COLLET_OK; s++)
		status = find(executed, s, &sides[s]);
	if (status == COLLET_OK)
		status = take_memory(executed);
	if (status != COLLET_OK)
		collet_error_prefix("%s", function);
	return status;
}

collet_status executed_list(
	struct executed *executed, size_t element_bytes, uint32_t size, const struct collet_partition *cut)
{
	if (!executed->sides[COLLET_WRITTEN].away || !cut->counts)
		return COLLET_OK;
	executed->parts = calloc(size, sizeof(*executed->parts));
	if (!executed->parts)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the blocks of %u ranks", size);
	executed->part_count = size;
	for (uint32_t r = 0; r < size; r++)
		executed->parts[r] =
			(struct executed_part){ cut->displacements[r] * element_bytes, cut->counts[r] * element_bytes };
	return COLLET_OK;
}

bool executed_is_away(const struct executed *executed)
{
	return executed->sides[COLLET_READ].away || executed->sides[COLLET_WRITTEN].away;
}

/* ---- Copies ---- */

static struct executed_part part_of(const struct executed *executed, uint32_t p)
{
	if (executed->parts)
		return executed->parts[p];
	return (struct executed_part){ 0, executed->sides[COLLET_WRITTEN].bytes };
}

static uint32_t parts_of(const struct executed *executed)
{
	return executed->parts ? executed->part_count : executed->sides[COLLET_WRITTEN].away;
}

static collet_status copy(
	const struct executed *executed, const struct executed_side *side, char *to, const char *from, size_t bytes)
{
	static const char what[] = "copying a buffer of another GPU";
	const struct collet_cuda *cuda = &context_of(executed)->cuda;
	if (!side->copier) {
		memcpy(to, from, bytes);
		return COLLET_OK;
	}
	collet_status status = collet_copier_begin(cuda, side->copier);
	if (status != COLLET_OK)
		return status;
	status = collet_copier_add(cuda, side->copier, to, from, bytes, what);
	const collet_status waited = collet_copier_wait(cuda, side->copier, what);
	collet_copier_end(cuda);
	return status == COLLET_OK ? waited : status;
}

collet_status executed_copy_in(const struct executed *executed)
{
	const struct executed_side *side = &executed->sides[COLLET_READ];
	return side->away ? copy(executed, side, side->pinned, side->first, side->bytes) : COLLET_OK;
}

collet_status executed_copy_out(const struct executed *executed)
{
	const struct executed_side *side = &executed->sides[COLLET_WRITTEN];
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; p < parts_of(executed) && status == COLLET_OK; p++) {
		const struct executed_part part = part_of(executed, p);
		if (part.bytes)
			status =
				copy(executed, side, side->first + part.offset, side->pinned + part.offset, part.bytes);
	}
	return status;
}

/* The host's part of a stream's copies. */
static void run_in(void *data)
{
	const struct executed *executed = data;
	const struct executed_side *side = &executed->sides[COLLET_READ];
	memcpy(side->pinned, side->first, side->bytes);
}

static void note_passed(void *data)
{
	struct executed *executed = data;
	/* Pairs with the look of whoever wants to free it. */
	atomic_store_explicit(&executed->passed, true, memory_order_release);
}

static void run_out(void *data)
{
	struct executed *executed = data;
	const struct executed_side *side = &executed->sides[COLLET_WRITTEN];
	if (side->away && !side->copier)
		(void)executed_copy_out(executed);
	note_passed(executed);
}

static collet_status call_host(const struct executed *executed, cu_stream stream, cu_host_function *function)
{
	const struct collet_cuda *cuda = &context_of(executed)->cuda;
	const cu_result result = cuda->cuLaunchHostFunc(stream, function, (void *)(uintptr_t)executed);
	return result == CU_OK ? COLLET_OK
			       : collet_cuda_fail(cuda, result, "having a stream copy a buffer of the host");
}

static collet_status add_copy(
	const struct executed *executed, cu_stream stream, char *to, const char *from, size_t bytes)
{
	const struct collet_cuda *cuda = &context_of(executed)->cuda;
	const cu_result result = cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "copying a buffer of another GPU");
}

collet_status executed_enqueue_in(struct executed *executed, cu_stream stream)
{
	const struct executed_side *side = &executed->sides[COLLET_READ];
	if (!side->away)
		return COLLET_OK;
	return side->copier ? add_copy(executed, stream, side->pinned, side->first, side->bytes)
			    : call_host(executed, stream, run_in);
}

collet_status executed_enqueue_out(struct executed *executed, cu_stream stream)
{
	const struct executed_side *side = &executed->sides[COLLET_WRITTEN];
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; side->copier && p < parts_of(executed) && status == COLLET_OK; p++) {
		const struct executed_part part = part_of(executed, p);
		if (part.bytes)
			status = add_copy(
				executed, stream, side->first + part.offset, side->pinned + part.offset, part.bytes);
	}
	return status == COLLET_OK ? call_host(executed, stream, run_out) : status;
}

collet_status executed_enqueue_passed(struct executed *executed, cu_stream stream)
{
	return call_host(executed, stream, note_passed);
}

void executed_free(struct executed *executed)
{
	for (int b = 0; b < COLLET_SIDES; b++)
		collet_pinned_give(&context_of(executed)->pinned, executed->blocks[b]);
	free(executed->parts);
	free(executed);
}
