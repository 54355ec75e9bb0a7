/* Computes what programs cost, from formulas, measured links and, where ranks share cores, the total work. */
#include "selection/choice_cost.h"

#include <math.h>
#include <string.h>

#include "selection/total_work.h"

/* A larger segment size is taken if it costs at most this factor more, since it saves messages. */
static const double segment_slack = 1.02;
/* More channels must reduce the cost to this factor. */
static const double channel_gain = 0.97;

struct collet_choice_inputs collet_choice_inputs_for(
	const struct collet_choice_inputs *inputs, enum collet_collective collective)
{
	struct collet_choice_inputs used = *inputs;
	if (inputs->far && (inputs->size == 2 || !collet_collective_is_reduction(collective))) {
		used.local = inputs->far;
		used.beside = NULL;
	}
	return used;
}

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

void collet_choice_set_models(
	struct collet_cost_models *models, const struct collet_choice_inputs *inputs, uint64_t bytes)
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

bool collet_choice_has_factors(const struct collet_choice_inputs *inputs)
{
	const collet_link_cost *link = inputs->local;
	const bool same = inputs->size == link->ranks && fabs(relative_oversubscription(inputs, link) - 1) <= 0.01;
	const bool is_borrowed =
		is_oversubscribed(inputs) && link->cores == inputs->cores_per_host && link->ranks > link->cores;
	return link->size_count > 0 && inputs->host_count <= 1 && (same || is_borrowed);
}

static double factor_of(const struct collet_choice_inputs *inputs, const struct collet_program *program, uint64_t bytes)
{
	return collet_choice_has_factors(inputs) ? collet_tuning_factor(inputs->local, program, bytes) : 1;
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
	const struct collet_choice_inputs *inputs, const struct collet_cost_models *models,
	struct collet_segmentation segmentation, struct collet_work_cache *cache)
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
	const struct collet_choice_inputs *inputs, struct collet_work_cache *cache)
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
	size_t element_bytes, const struct collet_cost_models *models, struct collet_segmentation segmentation,
	double alone, double link)
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
	size_t element_bytes, const struct collet_choice_inputs *inputs, const struct collet_cost_models *models,
	struct collet_work_cache *cache, struct collet_segmentation *segmentation)
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

double collet_choice_best_segmentation(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, const struct collet_choice_inputs *inputs, const struct collet_cost_models *models,
	struct collet_work_cache *cache, struct collet_segmentation *segmentation, bool *measured)
{
	const collet_link_cost *link = outer_link(inputs);
	if (collet_choice_has_factors(inputs)) {
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

double collet_choice_predicted_time(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, uint64_t bytes, const struct collet_choice_inputs *inputs,
	const struct collet_cost_models *models, struct collet_segmentation segmentation,
	struct collet_work_cache *cache, double alone)
{
	const double link = network_time(program, shape, element_bytes, inputs, cache);
	const double time = factor_of(inputs, program, bytes) *
			    with_network_time(program, shape, element_bytes, models, segmentation, alone, link);
	if (!inputs->beside || !collet_choice_has_factors(inputs))
		return time;
	struct collet_choice_inputs beside = *inputs;
	struct collet_cost_models other;
	beside.local = inputs->beside;
	collet_choice_set_models(&other, &beside, bytes);
	const double other_time = factor_of(&beside, program, bytes) *
				  program_cost(program, shape, element_bytes, &beside, &other, segmentation, cache);
	const double from = inputs->local->ranks, share = log2(inputs->size / from) / log2(beside.local->ranks / from);
	return pow(time, 1 - share) * pow(other_time, share);
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
	struct collet_cost_models models;
	const struct collet_choice_inputs used = collet_choice_inputs_for(inputs, program->collective);
	collet_choice_set_models(&models, &used, bytes);
	struct collet_work_cache cache = {0};
	struct collet_segmentation segmentation;
	bool measured;
	collet_choice_best_segmentation(
		program, &common, element_bytes, &used, &models, &cache, &segmentation, &measured);
	return (struct collet_decision){
		.program = program, .channels = segmentation.channels, .segment_bytes = segmentation.segment_bytes};
}

double collet_choice_cost(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation)
{
	const struct collet_shape common = common_shape(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct collet_cost_models models;
	const struct collet_choice_inputs used = collet_choice_inputs_for(inputs, program->collective);
	collet_choice_set_models(&models, &used, bytes);
	struct collet_work_cache cache = {0};
	const double alone = program_cost(program, &common, element_bytes, &used, &models, segmentation, &cache);
	return collet_choice_predicted_time(
		program, &common, element_bytes, bytes, &used, &models, segmentation, &cache, alone);
}

double collet_choice_cost_inter_host(const struct collet_choice_inputs *inputs, const struct collet_program *program,
	const struct collet_shape *shape, size_t element_bytes, struct collet_segmentation segmentation)
{
	const struct collet_shape common = common_shape(program->collective, shape);
	const uint64_t bytes = collet_shape_bytes(program->collective, shape, element_bytes);
	struct collet_cost_models models;
	collet_choice_set_models(&models, inputs, bytes);
	/* The part inside hosts costs nothing here. */
	models.local = (struct collet_cost_model){ 0 };
	struct collet_work_cache cache = {0};
	const double link = network_time(program, &common, element_bytes, inputs, &cache);
	const double alone = program_cost(program, &common, element_bytes, inputs, &models, segmentation, NULL);
	return with_network_time(program, &common, element_bytes, &models, segmentation, alone, link);
}
