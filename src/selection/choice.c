/* Computes the choice table: evaluates every program's formula at sizes a factor of two apart, takes the cheapest, and
 * merges equal neighbours into one row. */
#include "selection/choice.h"

#include <assert.h>
#include <string.h>

#include "collectives/host_groups.h"
#include "core/status.h"
#include "reduce/fpmode.h"
#include "selection/choice_cost.h"

/* A program later in the list must reduce the cost to this factor. Formulas are not more accurate than that. Measured
 * factors of equally fast programs differ by chance. */
static const double program_gain = 0.99, measured_gain = 0.95;

enum {
	TABLE_SIZES = COLLET_CHOICE_ROWS, /* 1 byte to 8 GiB */
	ELEMENT_BYTES = 4,          /* element size that tables are computed for: f32 */
	SAMPLED_RANKS = 64          /* ranks asked for their scratch */
};

/* ---- The table ------------------------------------------------------------------------------------------------ */

static bool is_counted_in_blocks(enum collet_collective collective)
{
	return collective == COLLET_ALLGATHER || collective == COLLET_REDUCE_SCATTER || collective == COLLET_GATHER ||
	       collective == COLLET_SCATTER || collective == COLLET_ALLTOALL;
}

uint64_t collet_shape_bytes(enum collet_collective collective, const struct collet_shape *shape, size_t element_bytes)
{
	if (collective == COLLET_BARRIER)
		return 0;
	if (shape->result.kind == COLLET_PARTITION_VECTOR) {
		/* Only in these collectives does every rank know all counts. */
		const uint64_t *counts = collective == COLLET_ALLGATHER     ? shape->result.counts
					 : collective == COLLET_REDUCE_SCATTER ? shape->input.counts
									       : NULL;
		uint64_t count = 0;
		for (uint32_t i = 0; counts && i < shape->size; i++)
			count += counts[i];
		return count * element_bytes;
	}
	return shape->count * element_bytes * (is_counted_in_blocks(collective) ? shape->size : 1);
}

/* Returns the shape of a call of this many bytes, counted as in collet_shape_bytes(), rounded up. */
static struct collet_shape shape_for(enum collet_collective collective, enum collet_choice_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs)
{
	const uint64_t unit = (uint64_t)ELEMENT_BYTES * (is_counted_in_blocks(collective) ? inputs->size : 1);
	struct collet_shape shape = collet_shape_of(collective, 0, inputs->size, 0, bytes / unit + (bytes % unit != 0));
	/* Positions are ranks if operations do not commute. */
	if (kind != COLLET_CHOICE_RANK_ORDERED && inputs->host_first) {
		shape.host_count = inputs->host_count;
		shape.host_first = inputs->host_first;
		shape.order = inputs->order;
	}
	return shape;
}

/* A few dozen sampled ranks show the pattern of all ranks' scratch. */
uint64_t collet_program_max_scratch(const struct collet_program *program, struct collet_shape shape)
{
	uint64_t most = 0;
	const uint32_t sampled = shape.size < SAMPLED_RANKS ? shape.size : SAMPLED_RANKS;
	for (uint32_t i = 0; program->scratch && i < sampled; i++) {
		shape.rank = (uint32_t)((uint64_t)shape.size * i / sampled);
		const uint64_t elements = program->scratch(&shape);
		most = elements > most ? elements : most;
	}
	return most;
}

static bool is_candidate(
	const struct collet_program *program, enum collet_choice_kind kind, const struct collet_shape *shape)
{
	return (kind != COLLET_CHOICE_RANK_ORDERED || program->rank_ordered) &&
	       (kind != COLLET_CHOICE_VECTOR || program->has_vector_form) &&
	       collet_program_fits(program, shape);
}

static struct collet_choice_row cheapest_row(enum collet_collective collective, enum collet_choice_kind kind,
	uint64_t bytes, const struct collet_choice_inputs *inputs, struct collet_work_cache *cache)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	struct collet_shape shape = shape_for(collective, kind, bytes, inputs);
	shape.host_most = cache->host_most;
	shape.host_least = cache->host_least;
	struct collet_choice_row row = { .max_bytes = bytes };
	struct collet_cost_models models;
	collet_choice_set_models(&models, inputs, bytes);
	const double gain = collet_choice_has_factors(inputs) ? measured_gain : program_gain;
	double least = 0;
	bool found = false, found_in_bounds = false;
	for (size_t i = 0; i < count; i++) {
		if (!is_candidate(programs[i], kind, &shape))
			continue;
		/* A program that needs too much scratch is better than none. */
		const bool in_bounds =
			collet_program_max_scratch(programs[i], shape) <= inputs->scratch_bytes / ELEMENT_BYTES;
		struct collet_segmentation segmentation;
		bool measured;
		const double alone = collet_choice_best_segmentation(
			programs[i], &shape, ELEMENT_BYTES, inputs, &models, cache, &segmentation, &measured);
		const double cost = collet_choice_predicted_time(programs[i], &shape, ELEMENT_BYTES, bytes, inputs,
			&models, segmentation, cache, alone);
		if (found &&
			(found_in_bounds > in_bounds || (found_in_bounds == in_bounds && cost >= least * gain)))
			continue;
		found = true;
		found_in_bounds = in_bounds;
		least = cost;
		row.program = (uint16_t)i;
		row.segmentation = segmentation;
		row.measured = measured;
	}
	return row;
}

static bool same_answer(const struct collet_choice_row *a, const struct collet_choice_row *b)
{
	return a->program == b->program && a->segmentation.channels == b->segmentation.channels &&
	       a->segmentation.segment_bytes == b->segmentation.segment_bytes && a->measured == b->measured;
}

static uint32_t fill_rows(struct collet_choice_row out[COLLET_CHOICE_ROWS], enum collet_collective collective,
	enum collet_choice_kind kind, const struct collet_choice_inputs *inputs, struct collet_work_cache *cache)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < TABLE_SIZES; i++) {
		const struct collet_choice_row row = cheapest_row(collective, kind, (uint64_t)1 << i, inputs, cache);
		if (count > 0 && same_answer(&out[count - 1], &row))
			out[count - 1] = row;
		else
			out[count++] = row;
	}
	out[count - 1].max_bytes = UINT64_MAX;
	return count;
}

void collet_choice_table_init(struct collet_choice_table *table, const struct collet_choice_inputs *inputs)
{
	memset(table, 0, sizeof(*table));
	table->inputs = inputs;
	pthread_mutex_init(&table->lock, NULL);
}

/* Computes in the mode of kernels: the caller's could give this rank other choices than its peers. */
static void compute_rows(
	struct collet_choice_table *table, enum collet_collective collective, enum collet_choice_kind kind)
{
	const uint64_t mode = collet_fpmode_enter();
	const struct collet_choice_inputs used = collet_choice_inputs_for(table->inputs, collective);
	const struct collet_shape shape = shape_for(COLLET_BARRIER, COLLET_CHOICE_COMMUTATIVE, 0, table->inputs);
	struct collet_work_cache cache = { .host_most = collet_host_group_max_size(&shape),
		.host_least = collet_host_group_min_size(&shape) };
	struct collet_choice_rows *rows = &table->rows[collective][kind];
	const uint32_t count = fill_rows(rows->row, collective, kind, &used, &cache);
	/* Pairs with the acquire load of whoever needs the rows. */
	atomic_store_explicit(&rows->count, count, memory_order_release);
	collet_fpmode_leave(mode);
}

const struct collet_choice_rows *collet_choice_table_rows(
	struct collet_choice_table *table, enum collet_collective collective, enum collet_choice_kind kind)
{
	const struct collet_choice_rows *rows = &table->rows[collective][kind];
	if (atomic_load_explicit(&rows->count, memory_order_acquire))
		return rows;
	pthread_mutex_lock(&table->lock);
	if (!atomic_load_explicit(&rows->count, memory_order_relaxed))
		compute_rows(table, collective, kind);
	pthread_mutex_unlock(&table->lock);
	return rows;
}

/* ---- A call's choice ------------------------------------------------------------------------------------------ */

/* Returns the first program that can run a shape that the table was not made for. */
static const struct collet_program *first_that_fits(
	enum collet_collective collective, enum collet_choice_kind kind, const struct collet_shape *shape)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++)
		if (is_candidate(programs[i], kind, shape))
			return programs[i];
	return NULL;
}

/* Returns the first program that combines in rank order blocks of any counts. */
static const struct collet_program *first_ordered_vector_form(enum collet_collective collective)
{
	size_t count, i = 0;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	while (i < count && !(programs[i]->rank_ordered && programs[i]->has_vector_form))
		i++;
	assert(i < count);
	return programs[i];
}

struct collet_decision collet_choose(struct collet_choice_table *table, enum collet_collective collective,
	bool commutative, const struct collet_shape *shape, size_t element_bytes)
{
	const enum collet_choice_kind kind = shape->result.kind == COLLET_PARTITION_VECTOR ? COLLET_CHOICE_VECTOR
					     : commutative ? COLLET_CHOICE_COMMUTATIVE
							   : COLLET_CHOICE_RANK_ORDERED;
	const struct collet_choice_row *row = collet_choice_table_rows(table, collective, kind)->row;
	const uint64_t bytes = collet_shape_bytes(collective, shape, element_bytes);
	while (bytes > row->max_bytes) /* the last row has UINT64_MAX */
		row++;
	size_t count;
	const struct collet_program *program = collet_programs(collective, &count)[row->program];
	if (!collet_program_fits(program, shape))
		program = first_that_fits(collective, kind, shape);
	if (kind == COLLET_CHOICE_VECTOR && !commutative && !program->rank_ordered)
		program = first_ordered_vector_form(collective);
	return (struct collet_decision){ .program = program,
		.channels = row->segmentation.channels,
		.segment_bytes = row->segmentation.segment_bytes };
}
