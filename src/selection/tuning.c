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
		.message_ns = 1500,
		.piece_ns = 1500,
		.byte_ns = {1 / 3., 1 / 3., 1 / 3., 1 / 3.},
		.reduce_byte_ns = 1 / 20.,
		.near_bytes = UINT64_MAX,
		.least_piece_bytes = 16 << 10,
		.most_piece_bytes = 256 << 10,
		.channel_parts = {1},
	};
}

double collet_tuning_network_byte_ns(const collet_link_cost *links, size_t count, uint32_t mbps)
{
	const collet_link_cost *found = collet_tuning_find(links, count, "network", 1, 1);
	const double byte_ns = found ? found->byte_ns[COLLET_COST_CLASSES - 1] : 0;
	return byte_ns > 0 ? byte_ns : 8000. / (mbps > 0 ? mbps : 1000);
}

double collet_tuning_share(uint32_t ranks, uint32_t cores)
{
	return cores == 0 || ranks <= cores ? 1 : (double)ranks / cores;
}

struct collet_cost_model collet_tuning_model(const collet_link_cost *link, uint64_t bytes, double in_crowd)
{
	/* If calls reuse their buffers, near_bytes of them stay in a cache. */
	const double far = bytes <= link->near_bytes ? 0 : 1 - (double)link->near_bytes / (double)bytes;
	const double unit = 1e-9 * in_crowd;
	struct collet_cost_model model = {
		.alpha_s = link->latency_ns * unit,
		.overhead_s = link->message_ns * unit,
		.piece_s = link->piece_ns * unit,
		.gamma_s = (link->reduce_byte_ns + far * link->far_reduce_byte_ns) * unit,
	};
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		model.beta_s[i] = (link->byte_ns[i] + far * link->far_byte_ns) * unit;
	return model;
}

/* Interpolates the factors of one algorithm, in the logarithm of bytes. 0: it was not measured at any size. */
static double measured_factor(const collet_link_cost *link, uint32_t number, uint64_t bytes)
{
	const float *factor = link->factor[number];
	uint32_t above = 0;
	while (above < link->sizes && link->size[above] < bytes)
		above++;
	/* Find the nearest measured size on either side. */
	uint32_t high = above, low = above;
	while (high < link->sizes && factor[high] <= 0)
		high++;
	while (low > 0 && factor[low - 1] <= 0)
		low--;
	const bool has_high = high < link->sizes, has_low = low > 0;
	if (!has_high && !has_low)
		return 0;
	if (!has_low)
		return factor[high];
	if (!has_high)
		return factor[low - 1];
	low--;
	const double from = log2((double)link->size[low] + 1), to = log2((double)link->size[high] + 1);
	const double part = (log2((double)bytes + 1) - from) / (to - from);
	return exp2((1 - part) * log2(factor[low]) + part * log2(factor[high]));
}

double collet_tuning_factor(const collet_link_cost *link, const struct collet_program *program, uint64_t bytes)
{
	const uint32_t number = collet_program_number(program);
	const double own =
		link->sizes > 0 && number < COLLET_TUNING_ALGORITHMS ? measured_factor(link, number, bytes) : 0;
	if (own > 0 || link->sizes == 0)
		return own > 0 ? own : 1;
	/* Others of the collective were measured, this one was not. It gets their worst factor: with a factor of 1 it
	 * would win by the costs that its formula leaves out. */
	double worst = 0;
	size_t count;
	const struct collet_program *const *programs = collet_programs(program->collective, &count);
	for (size_t i = 0; i < count; i++) {
		const uint32_t other = collet_program_number(programs[i]);
		const double factor = other < COLLET_TUNING_ALGORITHMS ? measured_factor(link, other, bytes) : 0;
		worst = factor > worst ? factor : worst;
	}
	return worst > 0 ? worst : 1;
}

struct collet_way collet_tuning_way(const collet_link_cost *link, const struct collet_program *program, uint64_t bytes)
{
	const uint32_t number = collet_program_number(program);
	struct collet_way way = {0};
	if (number >= COLLET_TUNING_ALGORITHMS)
		return way;
	double least = 0;
	for (uint32_t i = 0; i < link->sizes; i++) {
		if (link->factor[number][i] <= 0)
			continue;
		const double off = fabs(log2(((double)bytes + 1) / ((double)link->size[i] + 1)));
		if (least > 0 && off >= least)
			continue;
		least = off > 0 ? off : DBL_MIN;
		const uint8_t piece = link->piece_log2[number][i];
		way = (struct collet_way){ .piece_bytes = piece ? (uint32_t)1 << piece : 0,
			.channels = (uint32_t)1 << link->channels_log2[number][i] };
	}
	return way;
}

const collet_link_cost *collet_tuning_find(
	const collet_link_cost *rows, size_t count, const char *transport, uint32_t ranks, uint32_t cores)
{
	const double share = collet_tuning_share(ranks, cores);
	const collet_link_cost *best = NULL;
	double least = 0;
	for (size_t i = 0; rows && transport && i < count; i++) {
		if (strcmp(rows[i].transport, transport) != 0)
			continue;
		/* The number of ranks a core counts more than the number of ranks. */
		const double off = 1000 * fabs(log2(share / collet_tuning_share(rows[i].ranks, rows[i].cores))) +
				   fabs(log2((double)(ranks > 0 ? ranks : 1) / rows[i].ranks));
		if (best && off >= least)
			continue;
		best = &rows[i];
		least = off;
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
