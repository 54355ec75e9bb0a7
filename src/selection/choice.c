/* Computes the choice table: evaluates every program's formula at sizes a factor of two apart, takes the cheapest, and
 * merges equal neighbours into one row. */
#include "selection/choice.h"

#include <math.h>
#include <string.h>

#include "collectives/host_groups.h"
#include "core/status.h"
#include "selection/total_work.h"

/* A larger segment size is taken if it costs at most this factor more, since it saves messages. */
static const double segment_slack = 1.02;
/* More channels must reduce the cost to this factor. */
static const double channel_gain = 0.97;
/* A program later in the list must reduce the cost to this factor. Formulas are not more accurate than that. Measured
 * factors of equally fast programs differ by chance. */
static const double program_gain = 0.99, measured_gain = 0.95;

enum {
	TABLE_SIZES = COLLET_CHOICE_ROWS, /* 1 byte to 8 GiB */
	ELEMENT_BYTES = 4,          /* element size that tables are computed for: f32 */
	SAMPLED_RANKS = 64          /* ranks asked for their scratch */
};

/* ---- The table ------------------------------------------------------------------------------------------------ */

enum table_kind { COMMUTATIVE, RANK_ORDERED, VECTOR };

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
		uint64_t count = 0;
		/* Only in this collective does every rank know all counts. */
		if (collective == COLLET_ALLGATHER)
			for (uint32_t i = 0; i < shape->size; i++)
				count += shape->result.counts[i];
		return count * element_bytes;
	}
	return shape->count * element_bytes * (is_counted_in_blocks(collective) ? shape->size : 1);
}

/* Returns the shape of a call of this many bytes, counted as in collet_shape_bytes(), rounded up. */
static struct collet_shape shape_for(enum collet_collective collective, enum table_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs)
{
	const uint64_t unit = (uint64_t)ELEMENT_BYTES * (is_counted_in_blocks(collective) ? inputs->size : 1);
	struct collet_shape shape = collet_shape_of(collective, 0, inputs->size, 0, bytes / unit + (bytes % unit != 0));
	if (kind != RANK_ORDERED && inputs->host_first) { /* positions are ranks if operations do not commute */
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

static bool is_candidate(const struct collet_program *program, enum table_kind kind, const struct collet_shape *shape)
{
	return (kind != RANK_ORDERED || program->rank_ordered) && (kind != VECTOR || program->has_vector_form) &&
	       collet_program_fits(program, shape);
}

/* Returns the inputs for one collective: with the link of far cores where the bits of results do not depend on the
 * choice. Programs add the operands of more than two ranks in different orders, and a job must give the same bits
 * wherever its cores are. */
static struct collet_choice_inputs inputs_for(
	const struct collet_choice_inputs *inputs, enum collet_collective collective)
{
	struct collet_choice_inputs used = *inputs;
	if (inputs->far && (inputs->size == 2 || !collet_collective_is_reduction(collective))) {
		used.local = inputs->far;
		used.beside = NULL;
	}
	return used;
}

/* The models that a program's cost for one shape is computed from. */
struct cost_models {
	struct collet_cost_model model, local;
};

/* Cache of all ranks' total work, by program index, and of what else a table asks for many times. */
struct work_cache {
	struct collet_total_work work[COLLET_TUNING_ALGORITHMS];
	bool is_counted[COLLET_TUNING_ALGORITHMS];
	/* Traffic through a host's link, for programs that are told of hosts and for those that are not. */
	double network_ratios[2][COLLET_TUNING_ALGORITHMS];
	uint32_t host_most, host_least; /* as in collet_shape */
	bool is_network_known[2][COLLET_TUNING_ALGORITHMS];
};

static uint32_t local_ranks(const struct collet_choice_inputs *inputs)
{
	const uint32_t hosts = inputs->host_count > 0 ? inputs->host_count : 1;
	return (inputs->size + hosts - 1) / hosts;
}

/* Returns the oversubscription here, relative to that of the link's measurement. */
static double relative_oversubscription(const struct collet_choice_inputs *inputs, const collet_link_cost *link)
{
	return collet_tuning_ranks_per_core(local_ranks(inputs), inputs->cores_per_host) /
	       collet_tuning_ranks_per_core(link->ranks, link->cores);
}

/* Returns true if the price is the total work of all ranks, instead of the slowest rank's time. */
static bool is_oversubscribed(const struct collet_choice_inputs *inputs)
{
	return inputs->host_count <= 1 && collet_tuning_ranks_per_core(inputs->size, inputs->cores_per_host) > 1;
}

static void set_cost_models(struct cost_models *models, const struct collet_choice_inputs *inputs, uint64_t bytes)
{
	if (is_oversubscribed(inputs)) {
		/* Total work counts what the ranks of a core do, but not how long each waits for its turn. */
		models->model = collet_tuning_model(inputs->local, bytes, 1);
		models->model.alpha_s *= relative_oversubscription(inputs, inputs->local);
		return;
	}
	models->local = collet_tuning_model(inputs->local, bytes, relative_oversubscription(inputs, inputs->local));
	models->model = models->local;
	if (inputs->host_count > 1)
		models->model =
			collet_tuning_model(inputs->remote, bytes, relative_oversubscription(inputs, inputs->remote));
	models->model.local = inputs->host_count > 1 ? &models->local : NULL;
}

/* Returns true if measured factors and segmentations apply. They hold for the world they were measured in. If ranks
 * share cores, the number of context switches outweighs the number of ranks, and formulas know little of it. Then the
 * nearest measured world with as many cores is better than none. */
static bool has_factors(const struct collet_choice_inputs *inputs)
{
	const collet_link_cost *link = inputs->local;
	const bool same = inputs->size == link->ranks && fabs(relative_oversubscription(inputs, link) - 1) <= 0.01;
	const bool is_borrowed =
		is_oversubscribed(inputs) && link->cores == inputs->cores_per_host && link->ranks > link->cores;
	return link->size_count > 0 && inputs->host_count <= 1 && (same || is_borrowed);
}

static double factor_of(const struct collet_choice_inputs *inputs, const struct collet_program *program, uint64_t bytes)
{
	return has_factors(inputs) ? collet_tuning_factor(inputs->local, program, bytes) : 1;
}

static const collet_link_cost *outer_link(const struct collet_choice_inputs *inputs)
{
	return inputs->host_count > 1 ? inputs->remote : inputs->local;
}

/* Returns the model for this many channels; an unmeasured number counts as one channel. */
static struct collet_cost_model model_over_channels(
	const struct collet_choice_inputs *inputs, const struct collet_cost_model *one, uint32_t channels)
{
	struct collet_cost_model model = *one;
	double ratio = 1;
	for (int i = 0; i < COLLET_TUNING_CHANNELS; i++)
		if (channels == (uint32_t)1 << i && outer_link(inputs)->channel_ratios[i] > 0)
			ratio = outer_link(inputs)->channel_ratios[i];
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		model.beta_s[i] *= ratio;
	return model;
}

/* Returns a program's predicted time. cache: the cache of total work, or NULL. */
static double program_cost(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, const struct cost_models *models,
	struct collet_segmentation segmentation, struct work_cache *cache)
{
	const struct collet_cost_model model = model_over_channels(inputs, &models->model, segmentation.channels);
	if (!is_oversubscribed(inputs))
		return program->cost(shape, element_bytes, segmentation.segment_bytes, &model);
	struct collet_total_work alone, *work = &alone;
	const uint32_t index = collet_program_index(program);
	const bool is_cached = cache && index < COLLET_TUNING_ALGORITHMS;
	if (is_cached)
		work = &cache->work[index];
	if (!is_cached || !cache->is_counted[index])
		collet_total_work_count(work, program, shape->size, shape->root);
	if (is_cached)
		cache->is_counted[index] = true;
	return collet_total_work_cost(
		work, shape->count, element_bytes, segmentation.segment_bytes, inputs->cores_per_host, &model);
}

/* Returns how long a program occupies the busiest host's link to the others. Formulas do not know that: they describe
 * one rank, and all ranks of a host share its link. 0: there is no such link, or its sharing is unknown. */
static double network_time(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	const struct collet_choice_inputs *inputs, struct work_cache *cache)
{
	const uint32_t index = collet_program_index(program);
	const bool knows_hosts = shape->host_first;
	if (inputs->host_count <= 1 || !inputs->host_first || (!knows_hosts && inputs->order) ||
		index >= COLLET_TUNING_ALGORITHMS)
		return 0;
	double *counts = &cache->network_ratios[knows_hosts][index];
	if (!cache->is_network_known[knows_hosts][index])
		*counts = collet_network_ratio(program, shape, inputs->host_first[1]);
	cache->is_network_known[knows_hosts][index] = true;
	return *counts * (double)shape->count * (double)element_bytes * inputs->network_byte_ns * 1e-9;
}

/* Returns the time of a program whose bytes occupy its host's link for a time of `link`. alone: by its formula, which
 * has the time of one rank's bytes between hosts. The link's time replaces that if it is longer. Segmented programs
 * move bytes all the time but for latencies and overheads; others also reduce, and move bytes inside hosts, before or
 * after. */
static double with_network_time(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, const struct cost_models *models, struct collet_segmentation segmentation, double alone,
	double link)
{
	if (link <= 0)
		return alone;
	if (program->segmented) {
		struct collet_shape empty = *shape;
		empty.count = 0;
		return fmax(alone, link + program->cost(&empty, element_bytes, segmentation.segment_bytes,
						  &models->model));
	}
	struct collet_cost_model free_bytes = models->model;
	memset(free_bytes.beta_s, 0, sizeof(free_bytes.beta_s));
	const double rest = program->cost(shape, element_bytes, segmentation.segment_bytes, &free_bytes);
	return rest + fmax(alone - rest, link);
}

/* Returns the cheapest segment size for this program by its formula: the largest of those that cost hardly more. */
static double best_segment_bytes(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, const struct collet_choice_inputs *inputs, const struct cost_models *models,
	struct work_cache *cache, struct collet_segmentation *segmentation)
{
	const collet_link_cost *link = outer_link(inputs);
	struct collet_segmentation candidate = { .segment_bytes = link->max_segment_bytes,
		.channels = segmentation->channels };
	double least = program_cost(program, shape, element_bytes, inputs, models, candidate, cache);
	*segmentation = candidate;
	if (shape->count * element_bytes <= link->min_segment_bytes) /* no span is longer than a segment */
		return least;
	for (candidate.segment_bytes /= 2; candidate.segment_bytes >= link->min_segment_bytes;
		candidate.segment_bytes /= 2) {
		const double cost = program_cost(program, shape, element_bytes, inputs, models, candidate, cache);
		least = cost < least ? cost : least;
	}
	while (segmentation->segment_bytes / 2 >= link->min_segment_bytes &&
		program_cost(program, shape, element_bytes, inputs, models, *segmentation, cache) >
			least * segment_slack)
		segmentation->segment_bytes /= 2;
	return program_cost(program, shape, element_bytes, inputs, models, *segmentation, cache);
}

/* Chooses how to cut this program's messages, and returns the cost: the measured optimum if there is one, else that of
 * the formulas. */
static double best_segmentation(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, const struct collet_choice_inputs *inputs, const struct cost_models *models,
	struct work_cache *cache, struct collet_segmentation *segmentation, bool *measured)
{
	const collet_link_cost *link = outer_link(inputs);
	if (has_factors(inputs)) {
		*segmentation = collet_tuning_segmentation(
			inputs->local, program, collet_shape_bytes(program->collective, shape, element_bytes));
		*measured = segmentation->segment_bytes > 0;
		if (*measured)
			return program_cost(program, shape, element_bytes, inputs, models, *segmentation, cache);
	}
	*measured = false;
	*segmentation = (struct collet_segmentation){ .channels = 1 };
	double least = best_segment_bytes(program, shape, element_bytes, inputs, models, cache, segmentation);
	for (int i = 1; program->segmented && i < COLLET_TUNING_CHANNELS; i++) {
		struct collet_segmentation candidate = { .channels = (uint32_t)1 << i };
		if (link->channel_ratios[i] <= 0)
			continue;
		const double cost =
			best_segment_bytes(program, shape, element_bytes, inputs, models, cache, &candidate);
		/* Each channel must have a segment of a rank's chunk. */
		if (cost >= least * channel_gain || shape->count * element_bytes / shape->size <
							    (uint64_t)candidate.channels * candidate.segment_bytes)
			continue;
		least = cost;
		*segmentation = candidate;
	}
	return least;
}

/* Returns a program's predicted time. alone: by the formula and this world's link. Between two measured worlds it is
 * the geometric mean of what both predict, weighted by how near they are in the logarithm of ranks. */
static double predicted_time(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, uint64_t bytes, const struct collet_choice_inputs *inputs,
	const struct cost_models *models, struct collet_segmentation segmentation, struct work_cache *cache,
	double alone)
{
	const double link = network_time(program, shape, element_bytes, inputs, cache);
	const double time = factor_of(inputs, program, bytes) *
			    with_network_time(program, shape, element_bytes, models, segmentation, alone, link);
	if (!inputs->beside || !has_factors(inputs))
		return time;
	struct collet_choice_inputs beside = *inputs;
	struct cost_models other;
	beside.local = inputs->beside;
	set_cost_models(&other, &beside, bytes);
	const double other_time = factor_of(&beside, program, bytes) *
				  program_cost(program, shape, element_bytes, &beside, &other, segmentation, cache);
	const double from = inputs->local->ranks, share = log2(inputs->size / from) / log2(beside.local->ranks / from);
	return pow(time, 1 - share) * pow(other_time, share);
}

static struct collet_choice_row cheapest_row(enum collet_collective collective, enum table_kind kind, uint64_t bytes,
	const struct collet_choice_inputs *inputs, struct work_cache *cache)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	struct collet_shape shape = shape_for(collective, kind, bytes, inputs);
	shape.host_most = cache->host_most;
	shape.host_least = cache->host_least;
	struct collet_choice_row row = { .max_bytes = bytes };
	struct cost_models models;
	set_cost_models(&models, inputs, bytes);
	const double gain = has_factors(inputs) ? measured_gain : program_gain;
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
		const double alone = best_segmentation(programs[i], &shape, ELEMENT_BYTES, inputs, &models, cache,
			&segmentation, &measured);
		const double cost = predicted_time(programs[i], &shape, ELEMENT_BYTES, bytes, inputs, &models,
			segmentation, cache, alone);
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
	enum table_kind kind, const struct collet_choice_inputs *inputs, struct work_cache *cache)
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

void collet_choice_table_fill(struct collet_choice_table *table, const struct collet_choice_inputs *inputs)
{
	const struct collet_shape shape = shape_for(COLLET_BARRIER, COMMUTATIVE, 0, inputs);
	struct work_cache cache = { .host_most = collet_host_group_max_size(&shape),
		.host_least = collet_host_group_min_size(&shape) };
	memset(table, 0, sizeof *table);
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		const struct collet_choice_inputs used = inputs_for(inputs, c);
		size_t count;
		collet_programs(c, &count);
		if (count == 0)
			continue;
		table->commutative[c].rows = fill_rows(table->commutative[c].row, c, COMMUTATIVE, &used, &cache);
		table->rank_ordered[c].rows = fill_rows(table->rank_ordered[c].row, c, RANK_ORDERED, &used, &cache);
		table->vector[c].rows = fill_rows(table->vector[c].row, c, VECTOR, &used, &cache);
	}
}

/* ---- A call's choice ------------------------------------------------------------------------------------------ */

/* Returns the first program that can run a shape that the table was not made for. */
static const struct collet_program *first_that_fits(
	enum collet_collective collective, enum table_kind kind, const struct collet_shape *shape)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++)
		if (is_candidate(programs[i], kind, shape))
			return programs[i];
	return NULL;
}

struct collet_decision collet_choose(const struct collet_choice_table *table, enum collet_collective collective,
	bool commutative, const struct collet_shape *shape, size_t element_bytes)
{
	const bool is_vector = shape->result.kind == COLLET_PARTITION_VECTOR;
	const struct collet_choice_row *row = is_vector        ? table->vector[collective].row
					      : commutative ? table->commutative[collective].row
							    : table->rank_ordered[collective].row;
	const uint64_t bytes = collet_shape_bytes(collective, shape, element_bytes);
	while (bytes > row->max_bytes) /* the last row has UINT64_MAX */
		row++;
	size_t count;
	const struct collet_program *program = collet_programs(collective, &count)[row->program];
	if (!collet_program_fits(program, shape))
		program = first_that_fits(collective,
			is_vector     ? VECTOR
			: commutative ? COMMUTATIVE
				      : RANK_ORDERED,
			shape);
	return (struct collet_decision){ .program = program,
		.channels = row->segmentation.channels,
		.segment_bytes = row->segmentation.segment_bytes };
}

/* Returns the shape of a call as all ranks know it, since they must make the same choice. In v-forms each rank knows
 * other counts; the common shape has equal blocks with as many elements in all. */
static struct collet_shape common_shape(enum collet_collective collective, const struct collet_shape *shape)
{
	struct collet_shape common = *shape;
	if (shape->result.kind == COLLET_PARTITION_VECTOR)
		common.count = (collet_shape_bytes(collective, shape, 1) + shape->size - 1) / shape->size;
	return common;
}

struct collet_decision collet_choose_segmentation(const struct collet_choice_inputs *inputs,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes)
{
	const struct collet_shape common = common_shape(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct cost_models models;
	const struct collet_choice_inputs used = inputs_for(inputs, program->collective);
	set_cost_models(&models, &used, bytes);
	struct work_cache cache = {0};
	struct collet_segmentation segmentation;
	bool measured;
	best_segmentation(program, &common, element_bytes, &used, &models, &cache, &segmentation, &measured);
	return (struct collet_decision){
		.program = program, .channels = segmentation.channels, .segment_bytes = segmentation.segment_bytes};
}

double collet_choice_cost(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation)
{
	const struct collet_shape common = common_shape(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct cost_models models;
	const struct collet_choice_inputs used = inputs_for(inputs, program->collective);
	set_cost_models(&models, &used, bytes);
	struct work_cache cache = {0};
	const double alone = program_cost(program, &common, element_bytes, &used, &models, segmentation, &cache);
	return predicted_time(
		program, &common, element_bytes, bytes, &used, &models, segmentation, &cache, alone);
}

double collet_choice_cost_inter_host(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation)
{
	const struct collet_shape common = common_shape(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct cost_models models;
	set_cost_models(&models, inputs, bytes);
	/* The part inside hosts costs nothing here. */
	models.local = (struct collet_cost_model){ 0 };
	struct work_cache cache = {0};
	const double link = network_time(program, &common, element_bytes, inputs, &cache);
	const double alone = program_cost(program, &common, element_bytes, inputs, &models, segmentation, NULL);
	return with_network_time(program, &common, element_bytes, &models, segmentation, alone, link);
}
