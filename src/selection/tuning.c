/* Turns measured link costs into the cost model of a program. Holds the built-in link costs. */
#include "selection/tuning.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* The file builtin.tuning, which scripts/refit writes. The build makes the header from it. */
static const char builtin_text[] =
#include "selection/builtin_tuning.inc.h"
	;

collet_link_cost collet_tuning_fixed(void)
{
	return (collet_link_cost){
		.transport = "tcp",
		.ranks = 2,
		.cores = 2,
		.latency_ns = 3500,
		.overhead_ns = 1500,
		.segment_ns = 1500,
		.byte_ns = {1 / 3., 1 / 3., 1 / 3., 1 / 3.},
		.reduce_byte_ns = 1 / 20.,
		.cached_bytes = UINT64_MAX,
		.min_segment_bytes = 16 << 10,
		.max_segment_bytes = 256 << 10,
		.channel_ratios = {1},
	};
}

double collet_tuning_network_byte_ns(const collet_link_cost *links, size_t count, uint32_t mbps)
{
	const collet_link_cost *found = collet_tuning_find(links, count, "network", 1, 1);
	const double byte_ns = found ? found->byte_ns[COLLET_COST_CLASSES - 1] : 0;
	return byte_ns > 0 ? byte_ns : 8000. / (mbps > 0 ? mbps : 1000);
}

double collet_tuning_ranks_per_core(uint32_t ranks, uint32_t cores)
{
	return cores == 0 || ranks <= cores ? 1 : (double)ranks / cores;
}

struct collet_cost_model collet_tuning_model(const collet_link_cost *link, uint64_t bytes, double oversubscription)
{
	/* If calls reuse their buffers, near_bytes of them stay in a cache. */
	const double uncached = bytes <= link->cached_bytes ? 0 : 1 - (double)link->cached_bytes / (double)bytes;
	const double unit = 1e-9 * oversubscription;
	struct collet_cost_model model = {
		.alpha_s = link->latency_ns * unit,
		.overhead_s = link->overhead_ns * unit,
		.segment_s = link->segment_ns * unit,
		.gamma_s = (link->reduce_byte_ns + uncached * link->uncached_reduce_byte_ns) * unit,
	};
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		model.beta_s[i] = (link->byte_ns[i] + uncached * link->uncached_byte_ns) * unit;
	return model;
}

/* Interpolates the factors of one algorithm, in the logarithm of bytes. 0: it was not measured at any size. */
static double measured_factor(const collet_link_cost *link, uint32_t index, uint64_t bytes)
{
	const float *factor = link->factor[index];
	uint32_t above = 0;
	while (above < link->size_count && link->size_bytes[above] < bytes)
		above++;
	/* Find the nearest measured size on either side. */
	uint32_t high = above, low = above;
	while (high < link->size_count && factor[high] <= 0)
		high++;
	while (low > 0 && factor[low - 1] <= 0)
		low--;
	const bool has_high = high < link->size_count, has_low = low > 0;
	if (!has_high && !has_low)
		return 0;
	if (!has_low)
		return factor[high];
	if (!has_high)
		return factor[low - 1];
	low--;
	const double from = log2((double)link->size_bytes[low] + 1), to = log2((double)link->size_bytes[high] + 1);
	const double part = (log2((double)bytes + 1) - from) / (to - from);
	return exp2((1 - part) * log2(factor[low]) + part * log2(factor[high]));
}

double collet_tuning_factor(const collet_link_cost *link, const struct collet_program *program, uint64_t bytes)
{
	const uint32_t index = collet_program_index(program);
	const double own =
		link->size_count > 0 && index < COLLET_TUNING_ALGORITHMS ? measured_factor(link, index, bytes) : 0;
	if (own > 0 || link->size_count == 0)
		return own > 0 ? own : 1;
	/* Others of the collective were measured, this one was not. It gets their worst factor: with a factor of 1 it
	 * would win by the costs that its formula leaves out. */
	double worst = 0;
	size_t count;
	const struct collet_program *const *programs = collet_programs(program->collective, &count);
	for (size_t i = 0; i < count; i++) {
		const uint32_t other = collet_program_index(programs[i]);
		const double factor = other < COLLET_TUNING_ALGORITHMS ? measured_factor(link, other, bytes) : 0;
		worst = factor > worst ? factor : worst;
	}
	return worst > 0 ? worst : 1;
}

struct collet_segmentation collet_tuning_segmentation(
	const collet_link_cost *link, const struct collet_program *program, uint64_t bytes)
{
	const uint32_t index = collet_program_index(program);
	struct collet_segmentation segmentation = {0};
	if (index >= COLLET_TUNING_ALGORITHMS)
		return segmentation;
	double least = 0;
	for (uint32_t i = 0; i < link->size_count; i++) {
		if (link->factor[index][i] <= 0)
			continue;
		const double distance = fabs(log2(((double)bytes + 1) / ((double)link->size_bytes[i] + 1)));
		if (least > 0 && distance >= least)
			continue;
		least = distance > 0 ? distance : DBL_MIN;
		const uint8_t segment = link->segment_log2[index][i];
		segmentation = (struct collet_segmentation){ .segment_bytes = segment ? (uint32_t)1 << segment : 0,
			.channels = (uint32_t)1 << link->channels_log2[index][i] };
	}
	return segmentation;
}

const collet_link_cost *collet_tuning_find(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores)
{
	const double ranks_per_core = collet_tuning_ranks_per_core(ranks, cores);
	const collet_link_cost *best = NULL;
	double least = 0;
	for (size_t i = 0; rows && transport && i < count; i++) {
		if (rows[i].is_far || strcmp(rows[i].transport, transport) != 0)
			continue;
		/* The number of ranks a core counts more than the number of ranks. */
		const double distance =
			1000 * fabs(log2(ranks_per_core / collet_tuning_ranks_per_core(rows[i].ranks, rows[i].cores))) +
			fabs(log2((double)(ranks > 0 ? ranks : 1) / rows[i].ranks));
		if (best && distance >= least)
			continue;
		best = &rows[i];
		least = distance;
	}
	return best;
}

const collet_link_cost *collet_tuning_find_far(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores)
{
	for (size_t i = 0; rows && transport && i < count; i++)
		if (rows[i].is_far && rows[i].ranks == ranks && rows[i].cores == cores &&
			strcmp(rows[i].transport, transport) == 0)
			return &rows[i];
	return NULL;
}

static bool is_shared_by(const collet_link_cost *row, uint32_t cores)
{
	return !row->is_far && row->size_count > 0 && row->cores == cores && row->ranks > cores;
}

const collet_link_cost *collet_tuning_find_beside(
	const collet_link_cost *rows, size_t count, const collet_link_cost *nearest, uint32_t ranks, uint32_t cores)
{
	const collet_link_cost *best = NULL;
	if (!nearest || nearest->ranks == ranks || ranks <= cores || !is_shared_by(nearest, cores))
		return NULL;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(rows[i].transport, nearest->transport) != 0 || !is_shared_by(&rows[i], cores))
			continue;
		const bool is_beyond = nearest->ranks > ranks ? rows[i].ranks < ranks : rows[i].ranks > ranks;
		const bool is_nearer = !best || (nearest->ranks > ranks ? rows[i].ranks > best->ranks
									: rows[i].ranks < best->ranks);
		if (is_beyond && is_nearer)
			best = &rows[i];
	}
	return best;
}

uint32_t collet_tuning_builtin(collet_link_cost *links)
{
	uint32_t count = 0;
	const collet_status status = collet_tuning_parse(builtin_text, "the built-in tuning", NULL, links, &count);
	assert(status == COLLET_OK); /* the test selection/tuning parses it */
	return status == COLLET_OK ? count : 0;
}

bool collet_tuning_builtin_has_far(void)
{
	return strstr(builtin_text, " far\n") != NULL;
}
