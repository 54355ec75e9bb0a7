#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_ELEMENTS = 1 << 24 }; /* elements of different calls differ */

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

struct side *world_side(const struct world *world, uint32_t call, uint32_t rank)
{
	return &world->sides[(size_t)call * world->run->size + rank];
}

expression *world_at(const struct side *side, enum collet_buffer buffer, struct collet_span span)
{
	const struct buffer *b = &side->buffer[buffer];
	if (span.first > b->count || span.count > b->count - span.first)
		return NULL;
	static expression nothing;
	return b->values ? b->values + span.first : &nothing; /* an empty span needs no buffer */
}

/* ---- Buffers ------------------------------------------------------------------------------------------------ */

/* Returns what rank i of a v-form has for rank j; symmetric, so that it works in place too. */
static uint64_t listed_count(const struct run *run, uint32_t i, uint32_t j)
{
	const uint32_t low = i < j ? i : j, high = i < j ? j : i;
	uint64_t seed = run->seed * 77 + low * 131 + high;
	return draw(&seed, 5);
}

/* Fills in counts[] and displacements[] with gaps, in shuffled order. Returns the buffer's length. */
static uint64_t list(const struct run *run, uint32_t rank, bool pairs, uint64_t *counts, uint64_t *displacements)
{
	uint64_t seed = run->seed + (pairs ? rank : 0), used = 0;
	const uint32_t start = (uint32_t)draw(&seed, run->size);
	for (uint32_t k = 0; k < run->size; k++) {
		const uint32_t i = (start + k) % run->size;
		counts[i] = pairs ? listed_count(run, rank, i) : listed_count(run, i, 0);
		used += draw(&seed, 3);
		displacements[i] = used;
		used += counts[i];
	}
	return used;
}

static void list_side(const struct run *run, const struct call *call, struct side *side, uint64_t lengths[2])
{
	const enum collet_collective c = call->program->collective;
	const uint32_t rank = side->shape.rank;
	side->counts = must(calloc(run->size, sizeof *side->counts));
	side->displacements = must(calloc(run->size, sizeof *side->displacements));
	const bool pairs = c == COLLET_ALLTOALL;
	const uint64_t all = list(run, rank, pairs, side->counts, side->displacements),
		       own = listed_count(run, rank, 0);
	const struct collet_partition listed = {COLLET_PARTITION_VECTOR, 0, side->counts, side->displacements};
	const struct collet_partition alone = {COLLET_PARTITION_VECTOR, own, NULL, NULL};
	const bool is_root = rank == call->root;
	side->shape.count = 0;
	const bool lists_input = pairs || c == COLLET_REDUCE_SCATTER || (c == COLLET_SCATTER && is_root);
	side->shape.input = lists_input ? listed : alone;
	side->shape.result = pairs || c == COLLET_ALLGATHER || (c == COLLET_GATHER && is_root) ? listed : alone;
	if (lists_input && !pairs)
		side->shape.input.count = own;
	lengths[0] = side->shape.input.counts ? all : own;
	lengths[1] = side->shape.result.counts ? all : own;
}

/* Returns the lengths of the send and recv buffers, as in the public API. */
static void plain_lengths(const struct call *call, uint32_t size, uint64_t lengths[2])
{
	const uint64_t n = size;
	static const struct {
		bool input_blocks, result_blocks;
	} of[COLLET_COLLECTIVE_COUNT] = {
		[COLLET_ALLGATHER] = {false, true},
		[COLLET_REDUCE_SCATTER] = {true, false},
		[COLLET_GATHER] = {false, true},
		[COLLET_SCATTER] = {true, false},
		[COLLET_ALLTOALL] = {true, true},
	};
	lengths[0] = call->count * (of[call->program->collective].input_blocks ? n : 1);
	lengths[1] = call->count * (of[call->program->collective].result_blocks ? n : 1);
}

/* Finds, in place, which of the two buffers contains the other, and where. */
static uint64_t in_place_at(enum collet_collective c, const struct side *side)
{
	if (c == COLLET_ALLGATHER || c == COLLET_GATHER)
		return collet_partition_chunk(&side->shape.result, &side->shape, side->shape.rank).first;
	if (c == COLLET_REDUCE_SCATTER || c == COLLET_SCATTER)
		return collet_partition_chunk(&side->shape.input, &side->shape, side->shape.rank).first;
	return 0;
}

static bool has_input(enum collet_collective c, bool is_root)
{
	return is_root || (c != COLLET_BROADCAST && c != COLLET_SCATTER);
}

static bool has_result(enum collet_collective c, bool is_root)
{
	return is_root || (c != COLLET_REDUCE && c != COLLET_GATHER);
}

static void lay_out(struct side *side, enum collet_collective c, const uint64_t lengths[2], bool is_root)
{
	const bool in = has_input(c, is_root), out = has_result(c, is_root);
	const uint64_t total = lengths[0] + lengths[1];
	side->memory = must(calloc(total + 1, sizeof *side->memory));
	if (side->in_place && in && out) {
		const bool result_holds = lengths[1] >= lengths[0];
		const uint64_t at = in_place_at(c, side);
		side->buffer[COLLET_INPUT].values = side->memory + (result_holds ? at : 0);
		side->buffer[COLLET_RESULT].values = side->memory + (result_holds ? 0 : at);
	} else {
		side->in_place = false;
		side->buffer[COLLET_INPUT].values = in ? side->memory : NULL;
		side->buffer[COLLET_RESULT].values = out ? side->memory + lengths[0] : NULL;
	}
	side->buffer[COLLET_INPUT].count = in ? lengths[0] : 0;
	side->buffer[COLLET_RESULT].count = out ? lengths[1] : 0;
}

static void set_up(struct world *world, uint32_t c, uint32_t rank)
{
	const struct run *run = world->run;
	const struct call *call = &run->calls[c];
	struct side *side = world_side(world, c, rank);
	uint64_t lengths[2];
	side->shape = collet_shape_of(call->program->collective, rank, run->size, call->root, call->count);
	side->shape.order = call->order;
	side->shape.host_first = call->host_first;
	side->shape.host_count = call->host_first ? call->hosts : 1;
	side->shape.leader_is_first = call->first_leads;
	side->in_place = call->in_place >> rank & 1;
	plain_lengths(call, run->size, lengths);
	if (call->is_vector)
		list_side(run, call, side, lengths);
	lay_out(side, call->program->collective, lengths, rank == call->root);
	struct buffer *scratch = &side->buffer[COLLET_SCRATCH];
	scratch->count = collet_program_scratch(call->program, &side->shape);
	scratch->values = must(calloc(scratch->count + 1, sizeof *scratch->values));
	for (uint64_t i = 0; i < side->buffer[COLLET_INPUT].count; i++)
		side->buffer[COLLET_INPUT].values[i] =
			expression_leaf(world->store, rank, c * (uint32_t)CALL_ELEMENTS + (uint32_t)i);
}

struct world *world_create(const struct run *run)
{
	struct world *world = must(calloc(1, sizeof *world));
	world->run = run;
	world->store = expression_store_create();
	world->sides = must(calloc((size_t)run->call_count * run->size, sizeof *world->sides));
	for (uint32_t c = 0; c < run->call_count; c++)
		for (uint32_t rank = 0; rank < run->size; rank++)
			set_up(world, c, rank);
	return world;
}

void world_destroy(struct world *world)
{
	for (size_t i = 0; i < (size_t)world->run->call_count * world->run->size; i++) {
		struct side *side = &world->sides[i];
		free(side->memory);
		free(side->buffer[COLLET_SCRATCH].values);
		free(side->counts);
		free(side->displacements);
	}
	free(world->sides);
	expression_store_destroy(world->store);
	free(world);
}

/* ---- Results ------------------------------------------------------------------------------------------------ */

struct checking {
	const struct world *world;
	const struct call *call;
	uint32_t c, rank;
	struct finding finding;
};

static bool found(struct checking *check, enum defect defect, uint64_t i, expression e)
{
	char tree[120];
	expression_print(check->world->store, e, tree, sizeof tree);
	check->finding.defect = defect;
	snprintf(check->finding.text, sizeof check->finding.text, "call %u, rank %u, element %llu: %s", check->c,
		check->rank, (unsigned long long)i, tree);
	return false;
}

static uint32_t element_of(const struct checking *check, uint64_t i)
{
	return check->c * (uint32_t)CALL_ELEMENTS + (uint32_t)i;
}

/* Checks that RESULT's `count` elements from `first` on are the contributor's from `element` on. */
static bool check_copied(struct checking *check, struct collet_span span, uint32_t contributor, uint64_t element)
{
	const struct side *side = world_side(check->world, check->c, check->rank);
	for (uint64_t i = 0; i < span.count; i++) {
		const expression e = side->buffer[COLLET_RESULT].values[span.first + i];
		if (e == 0)
			return found(check, DEFECT_MISSING, span.first + i, e);
		if (e != expression_leaf(check->world->store, contributor, element_of(check, element + i)))
			return found(check, DEFECT_WRONG_ELEMENT, span.first + i, e);
	}
	return true;
}

/* Checks that all of RESULT is sums of all ranks' elements from `element` on. */
static bool check_combined(struct checking *check, uint64_t element)
{
	const struct run *run = check->world->run;
	const struct side *side = world_side(check->world, check->c, check->rank);
	const struct buffer *first = &world_side(check->world, check->c, 0)->buffer[COLLET_RESULT];
	const uint64_t everybody = run->size == 64 ? UINT64_MAX : ((uint64_t)1 << run->size) - 1;
	for (uint64_t i = 0; i < side->buffer[COLLET_RESULT].count; i++) {
		const expression e = side->buffer[COLLET_RESULT].values[i];
		const struct expression_summary s = expression_look(check->world->store, e);
		if (e == 0 || s.ranks != everybody)
			return found(check, DEFECT_MISSING, i, e);
		if (s.element != element_of(check, element + i))
			return found(check, DEFECT_WRONG_ELEMENT, i, e);
		if (!s.finished)
			return found(check, DEFECT_UNFINISHED, i, e);
		if (check->call->program->rank_ordered && !s.is_sorted)
			return found(check, DEFECT_OUT_OF_ORDER, i, e);
		if (check->call->program->collective == COLLET_ALLREDUCE && first->values[i] != e)
			return found(check, DEFECT_RESULTS_DIFFER, i, e);
	}
	return true;
}

static struct collet_span chunk(
	const struct checking *check, const struct collet_partition *cut, uint32_t of_rank, uint32_t p)
{
	return collet_partition_chunk(cut, &world_side(check->world, check->c, of_rank)->shape, p);
}

static bool check_blocks(struct checking *check, const struct side *side, bool from_blocks)
{
	for (uint32_t p = 0; p < check->world->run->size; p++) {
		const struct side *peer = world_side(check->world, check->c, p);
		const uint64_t element = from_blocks ? chunk(check, &peer->shape.input, p, check->rank).first : 0;
		if (!check_copied(check, collet_partition_chunk(&side->shape.result, &side->shape, p), p, element))
			return false;
	}
	return true;
}

static bool check_results(struct checking *check)
{
	const struct side *side = world_side(check->world, check->c, check->rank);
	const uint32_t root = check->call->root;
	const struct side *root_side = world_side(check->world, check->c, root);
	const struct collet_span own = {0, side->buffer[COLLET_RESULT].count};
	switch (check->call->program->collective) {
	case COLLET_ALLREDUCE: return check_combined(check, 0);
	case COLLET_REDUCE: return check->rank != root || check_combined(check, 0);
	case COLLET_REDUCE_SCATTER:
		return check_combined(
			check, collet_partition_chunk(&side->shape.input, &side->shape, check->rank).first);
	case COLLET_BROADCAST: return check_copied(check, own, root, 0);
	case COLLET_SCATTER:
		return check_copied(check, own, root, chunk(check, &root_side->shape.input, root, check->rank).first);
	case COLLET_GATHER: return check->rank != root || check_blocks(check, side, false);
	case COLLET_ALLGATHER: return check_blocks(check, side, false);
	case COLLET_ALLTOALL: return check_blocks(check, side, true);
	case COLLET_BARRIER:
	case COLLET_COLLECTIVE_COUNT: break;
	}
	return true;
}

/* Checks that INPUT is unchanged, unless in place. */
static bool check_input(struct checking *check)
{
	const struct side *side = world_side(check->world, check->c, check->rank);
	for (uint64_t i = 0; !side->in_place && i < side->buffer[COLLET_INPUT].count; i++) {
		const expression e = side->buffer[COLLET_INPUT].values[i];
		if (e != expression_leaf(check->world->store, check->rank, element_of(check, i)))
			return found(check, DEFECT_INPUT_WRITTEN, i, e);
	}
	return true;
}

struct finding world_check(const struct world *world)
{
	struct checking check = { .world = world };
	for (check.c = 0; check.c < world->run->call_count; check.c++) {
		check.call = &world->run->calls[check.c];
		for (check.rank = 0; check.rank < world->run->size; check.rank++)
			if (!check_results(&check) || !check_input(&check))
				return check.finding;
	}
	return check.finding;
}
