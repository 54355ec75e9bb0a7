/* Translates step programs into kernel plans. It resolves the peers of each step, and splits a step into moves where it
 * sends each peer different data. Where one channel may read what another wrote, it inserts a barrier. */
#include "cuda/peer_gpus/kernel_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* A growing array. */
struct plan_array {
	char *items;
	size_t count, capacity, item_bytes;
};

/* Returns NULL if out of memory. */
static void *append(struct plan_array *list)
{
	if (list->count == list->capacity) {
		const size_t capacity = list->capacity ? 2 * list->capacity : 64;
		char *items = realloc(list->items, capacity * list->item_bytes);
		if (!items)
			return NULL;
		list->items = items;
		list->capacity = capacity;
	}
	void *item = list->items + list->count++ * list->item_bytes;
	memset(item, 0, list->item_bytes);
	return item;
}

/* Elements of this rank that a step accesses. */
struct buffer_access {
	uint32_t buffer;
	bool writes;
	uint64_t first, count;
};

struct plan_builder {
	const struct collet_shape *shape;
	struct plan_array steps, moves, ranges;
	struct plan_array accesses;  /* since the last barrier */
	bool out_of_memory;
};

static const enum collet_plan_buffer places[] = {
	[COLLET_INPUT] = COLLET_PLAN_INPUT,
	[COLLET_RESULT] = COLLET_PLAN_RESULT,
	[COLLET_SCRATCH] = COLLET_PLAN_SCRATCH,
};

/* ---- Conflicts. All channels of a rank divide every span alike. So they need a barrier only if a later step's span
 * overlaps an earlier one and is not equal to it. ---- */

/* INPUT and RESULT may be the same memory. Then spans of equal length in both are either equal or disjoint. */
static bool conflicts(const struct buffer_access *a, const struct buffer_access *b)
{
	if (!a->writes && !b->writes)
		return false;
	if (a->buffer != b->buffer)
		return a->buffer != COLLET_PLAN_SCRATCH && b->buffer != COLLET_PLAN_SCRATCH && a->count != b->count;
	const bool same = a->first == b->first && a->count == b->count;
	return !same && a->first < b->first + b->count && b->first < a->first + a->count;
}

static bool needs_barrier(const struct plan_builder *builder, const struct plan_array *accesses)
{
	for (size_t i = 0; i < accesses->count; i++)
		for (size_t k = 0; k < builder->accesses.count; k++)
			if (conflicts((const struct buffer_access *)(const void *)accesses->items + i,
				    (const struct buffer_access *)(const void *)builder->accesses.items + k))
				return true;
	return false;
}

/* ---- Steps ---- */

static void add_range(struct plan_builder *builder, bool own, enum collet_buffer buffer, uint64_t first, uint32_t peer)
{
	struct collet_plan_range *end = append(&builder->ranges);
	if (!end) {
		builder->out_of_memory = true;
		return;
	}
	end->buffer = own ? places[buffer] : COLLET_PLAN_PEER;
	end->first = own ? first : 0;
	end->peer = own ? 0 : peer;
}

static struct collet_plan_move *add_move(struct plan_builder *builder, uint64_t count, bool finish)
{
	struct collet_plan_move *move = append(&builder->moves);
	if (!move) {
		builder->out_of_memory = true;
		return NULL;
	}
	move->count = count;
	move->first_range = (uint32_t)builder->ranges.count;
	move->is_final = finish;
	return move;
}

/* Adds a range for every rank that these ranges name; returns their number. */
static uint32_t add_ranges(struct plan_builder *builder, const struct collet_buffer_range *ends, uint32_t count)
{
	uint32_t added = 0;
	for (uint32_t e = 0; e < count; e++)
		for (uint32_t i = 0; i < ends[e].peers.count; i++, added++) {
			const uint32_t peer = collet_peers_at(&ends[e].peers, i, builder->shape->size);
			add_range(builder, peer == builder->shape->rank, ends[e].buffer, ends[e].span.first, peer);
		}
	return added;
}

static void build_move(struct plan_builder *builder, const struct collet_step *step)
{
	struct collet_plan_move *move = add_move(builder, step->source[0].span.count, step->is_final);
	if (!move)
		return;
	move->source_count = (uint16_t)add_ranges(builder, step->source, step->source_count);
	move->result_count = (uint16_t)add_ranges(builder, step->destination, step->destination_count);
}

/* Adds one move per peer: one chunk sent to each, or received from each. */
static void build_per_peer(struct plan_builder *builder, const struct collet_step *step)
{
	const struct collet_shape *shape = builder->shape;
	const bool sends = step->source[0].peers.count == 1 && step->source[0].peers.first == shape->rank;
	const struct collet_buffer_range *near = sends ? &step->source[0] : &step->destination[0];
	const struct collet_buffer_range *far = sends ? &step->destination[0] : &step->source[0];
	for (uint32_t i = 0; i < far->peers.count; i++) {
		const uint32_t peer = collet_peers_at(&far->peers, i, shape->size);
		const struct collet_span span =
			collet_partition_chunk(collet_step_partition(shape, near->buffer), shape, peer);
		struct collet_plan_move *move =
			peer == shape->rank ? NULL : add_move(builder, span.count, step->is_final);
		if (!move)
			continue;
		move->source_count = move->result_count = 1;
		add_range(builder, sends, near->buffer, span.first, peer);
		add_range(builder, !sends, near->buffer, span.first, peer);
	}
}

static void list_accesses(
	struct plan_builder *builder, const struct collet_plan_step *step, struct plan_array *accesses)
{
	accesses->count = 0;
	for (uint32_t m = step->first_move; m < step->first_move + step->move_count; m++) {
		const struct collet_plan_move *move =
			(const struct collet_plan_move *)(const void *)builder->moves.items + m;
		for (uint32_t e = 0; e < (uint32_t)move->source_count + move->result_count; e++) {
			const struct collet_plan_range *end =
				(const struct collet_plan_range *)(const void *)builder->ranges.items +
				move->first_range + e;
			struct buffer_access *access = end->buffer == COLLET_PLAN_PEER ? NULL : append(accesses);
			if (access)
				*access = (struct buffer_access){
					end->buffer, e >= move->source_count, end->first, move->count };
			else
				builder->out_of_memory |= end->buffer != COLLET_PLAN_PEER;
		}
	}
}

static void build_step(struct plan_builder *builder, const struct collet_step *step)
{
	struct plan_array accesses = { .item_bytes = sizeof(struct buffer_access) };
	struct collet_plan_step *built = append(&builder->steps);
	if (!built) {
		builder->out_of_memory = true;
		return;
	}
	built->first_move = (uint32_t)builder->moves.count;
	built->is_paired = step->is_paired;
	if (step->source_count && step->is_per_peer)
		build_per_peer(builder, step);
	else if (step->source_count)
		build_move(builder, step);
	built->move_count = (uint32_t)builder->moves.count - built->first_move;
	for (uint32_t m = built->first_move; m < built->first_move + built->move_count; m++) {
		const uint64_t count = ((const struct collet_plan_move *)(const void *)builder->moves.items)[m].count;
		built->longest_move = count > built->longest_move ? count : built->longest_move;
	}
	list_accesses(builder, built, &accesses);
	built->has_barrier = needs_barrier(builder, &accesses);
	if (built->has_barrier)
		builder->accesses.count = 0;
	for (size_t i = 0; i < accesses.count; i++) {
		struct buffer_access *access = append(&builder->accesses);
		if (access)
			*access = ((const struct buffer_access *)(const void *)accesses.items)[i];
		else
			builder->out_of_memory = true;
	}
	free(accesses.items);
}

/* ---- Plans ---- */

/* The result must not depend on the rank. */
static collet_status check(const struct collet_program *program, const struct collet_shape *shape, uint32_t parts)
{
	const uint32_t fan_in = collet_program_fan_in(program, shape);
	if (shape->size > COLLET_PLAN_RANKS || fan_in >= COLLET_PLAN_RANKS)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "%u ranks are more than the %d that a kernel serves",
			shape->size, COLLET_PLAN_RANKS);
	if (parts > COLLET_PLAN_PARTS || parts > shape->size)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "%s has %u parts, and a kernel runs no more than %u",
			program->name, parts, shape->size < COLLET_PLAN_PARTS ? shape->size : COLLET_PLAN_PARTS);
	return COLLET_OK;
}

static uint32_t append_array(char *at, uint32_t bytes, const struct plan_array *list)
{
	if (list->count)
		memcpy(at + bytes, list->items, list->count * list->item_bytes);
	return bytes + (uint32_t)(list->count * list->item_bytes);
}

static struct collet_kernel_plan *assemble(const struct plan_builder *builder, const struct collet_kernel_plan *head)
{
	const size_t bytes = sizeof(*head) + builder->steps.count * builder->steps.item_bytes +
		builder->moves.count * builder->moves.item_bytes + builder->ranges.count * builder->ranges.item_bytes;
	struct collet_kernel_plan *plan = malloc(bytes);
	if (!plan)
		return NULL;
	*plan = *head;
	plan->steps_offset = sizeof(*head);
	plan->moves_offset = append_array((char *)plan, plan->steps_offset, &builder->steps);
	plan->ranges_offset = append_array((char *)plan, plan->moves_offset, &builder->moves);
	plan->bytes = append_array((char *)plan, plan->ranges_offset, &builder->ranges);
	return plan;
}

collet_status collet_kernel_plan_build(const struct collet_program *program, const struct collet_shape *shape,
	const struct collet_plan_options *options, struct collet_kernel_plan **plan)
{
	const uint32_t parts = collet_program_part_count(program, shape);
	const collet_status status = check(program, shape, parts);
	if (status != COLLET_OK)
		return status;
	struct plan_builder builder = {
		.shape = shape,
		.steps.item_bytes = sizeof(struct collet_plan_step),
		.moves.item_bytes = sizeof(struct collet_plan_move),
		.ranges.item_bytes = sizeof(struct collet_plan_range),
		.accesses.item_bytes = sizeof(struct buffer_access),
	};
	struct collet_kernel_plan head = {
		.rank = shape->rank,
		.size = shape->size,
		.parts = parts,
		.channels_per_part = options->channels_per_part,
		.segments_per_pass = program->segmented ? COLLET_PLAN_SEGMENTS_PER_PASS : UINT32_MAX,
		.element_bytes = options->element_bytes,
		.is_ll = options->is_ll,
		.segment_elements = options->segment_bytes / options->element_bytes,
	};
	for (uint32_t part = 0; part < parts; part++) {
		const uint64_t steps = program->step_count(shape, part);
		head.first_step[part] = (uint32_t)builder.steps.count;
		builder.accesses.count = 0;
		for (uint64_t s = 0; s < steps && !builder.out_of_memory; s++) {
			const struct collet_step step = program->step(shape, part, s);
			build_step(&builder, &step);
		}
	}
	for (uint32_t part = parts; part <= COLLET_PLAN_PARTS; part++)
		head.first_step[part] = (uint32_t)builder.steps.count;
	/* Segmented programs divide the spans of all steps at the same places, and their channels make passes of their
	 * own. */
	for (size_t s = 0; s < builder.steps.count && program->segmented; s++)
		((struct collet_plan_step *)(void *)builder.steps.items)[s].has_barrier = false;
	*plan = builder.out_of_memory ? NULL : assemble(&builder, &head);
	free(builder.steps.items);
	free(builder.moves.items);
	free(builder.ranges.items);
	free(builder.accesses.items);
	return *plan ? COLLET_OK : collet_fail(COLLET_ERR_MEMORY, "no memory for a kernel plan");
}

struct collet_window collet_window_for(uint32_t size, uint32_t channels, uint64_t segment_bytes)
{
	const uint32_t parts = size < COLLET_PLAN_PARTS ? size : COLLET_PLAN_PARTS;
	return (struct collet_window){ size, channels * parts, (uint32_t)((segment_bytes + 63) / 64 * 64) };
}
