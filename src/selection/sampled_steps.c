/* Samples the ranks and steps of a program.
 *
 * In trees and recursive programs the work of a rank depends on how often 2 divides its distance from the root. So
 * ranks are drawn from strata: those with odd distances, those with twice an odd distance, and so on. The ranks that
 * lead others are not left to chance. Of a rank's steps, the first, the last and runs of consecutive ones between them
 * are taken, so that sends and receives that take turns have equal shares. */
#include "selection/sampled_steps.h"

enum {
	ALL_RANKS = 64,     /* up to this number of ranks, all are walked */
	LEADERS = 9,        /* first ranks, which may lead; hierarchical_ring has eight leaders */
	LARGEST_STRATUM = 48, STRATUM = 4, /* ranks drawn from the largest stratum, and at least */
	ALL_STEPS = 128,    /* up to this number of steps, all are walked */
	RUNS = 6, RUN = 4   /* of more steps: the first and the last run, and more in between */
};

struct sampling {
	const struct collet_program *program;
	struct collet_shape shape;
	uint32_t ranks;
	uint32_t rank_index;
	void (*visit)(void *argument, const struct collet_sampled_step *sampled);
	void *argument;
};

static void visit_step(const struct sampling *s, uint32_t part, uint64_t index, double rank_weight, double step_weight)
{
	const struct collet_sampled_step sampled = { .shape = &s->shape,
		.rank_index = s->rank_index,
		.step = s->program->step(&s->shape, part, index),
		.rank_weight = rank_weight,
		.step_weight = step_weight };
	s->visit(s->argument, &sampled);
}

/* Returns where sample i of `samples` lies in a range of `length`: somewhere in the i-th of equal parts. The places do
 * not have equal distances, which could coincide with a pattern of the program. Each seed has other places. */
static uint64_t place_of(uint32_t i, uint32_t samples, uint64_t length, uint32_t seed)
{
	/* The golden ratio spreads its multiples evenly; so does the root of 2. */
	const uint32_t scrambled = (i + 1) * 2654435769u + seed * 1779033703u;
	const double within = (double)scrambled / 4294967296.;
	const uint64_t place = (uint64_t)((i + within) * (double)length / samples);
	return place < length ? place : length - 1;
}

static void sample_part(const struct sampling *s, uint32_t part, double weight)
{
	const uint64_t steps = s->program->step_count(&s->shape, part);
	if (s->program->next_message || steps <= ALL_STEPS) {
		for (uint64_t i = 0; i < steps; i++) {
			i = s->program->next_message ? s->program->next_message(&s->shape, i) : i;
			if (i < steps)
				visit_step(s, part, i, weight, 1);
		}
		return;
	}
	const uint64_t between = steps - 2 * RUN;
	for (uint32_t i = 0; i < RUN; i++) {
		visit_step(s, part, i, weight, 1);
		visit_step(s, part, steps - 1 - i, weight, 1);
	}
	for (uint32_t run = 0; run < RUNS; run++) {
		const uint64_t first = RUN + place_of(run, RUNS, between - RUN + 1, s->rank_index);
		for (uint32_t i = 0; i < RUN; i++)
			visit_step(s, part, first + i, weight, (double)between / (RUNS * RUN));
	}
}

/* distance: from the root, if that is one of these ranks. */
static void sample_rank(struct sampling *s, uint32_t distance, double weight)
{
	const uint32_t origin = s->shape.root < s->ranks ? s->shape.root : 0;
	s->shape.rank = (uint32_t)(((uint64_t)origin + distance) % s->ranks);
	const uint32_t parts = collet_program_part_count(s->program, &s->shape);
	for (uint32_t part = 0; part < parts; part++)
		sample_part(s, part, weight);
	s->rank_index++;
}

/* Draws from the ranks whose distance is an odd multiple of 2^exponent, without the leaders, and without the first rank
 * of the upper half and the last rank. */
static void sample_stratum(struct sampling *s, uint32_t exponent)
{
	const uint64_t unit = (uint64_t)1 << exponent, next = 2 * unit;
	const uint64_t apart[] = {s->ranks - s->ranks / 2, s->ranks - 1};
	const uint64_t first = unit < LEADERS ? (LEADERS - unit + next - 1) / next * next + unit : unit;
	if (first >= s->ranks)
		return;
	uint64_t members = (s->ranks - 1 - first) / next + 1;
	for (int i = 0; i < 2; i++)
		members -= apart[i] % next == unit;
	const uint32_t halved = (uint32_t)LARGEST_STRATUM >> exponent, wanted = halved > STRATUM ? halved : STRATUM;
	const uint32_t samples = members < wanted ? (uint32_t)members : wanted;
	for (uint32_t i = 0; i < samples; i++) {
		uint64_t distance = first + next * (samples == members ? i : place_of(i, samples, members, 0));
		for (int k = 0; k < 2; k++)
			if (apart[k] % next == unit && distance >= apart[k])
				distance += next;
		sample_rank(s, (uint32_t)distance, (double)members / samples);
	}
}

void collet_sample_steps(const struct collet_program *program, const struct collet_shape *like, uint32_t ranks,
	void (*visit)(void *argument, const struct collet_sampled_step *sampled), void *argument)
{
	struct sampling s = {
		.program = program, .shape = *like, .ranks = ranks, .visit = visit, .argument = argument };
	if (ranks <= ALL_RANKS) {
		for (uint32_t distance = 0; distance < ranks; distance++)
			sample_rank(&s, distance, 1);
		return;
	}
	for (uint32_t distance = 0; distance < LEADERS; distance++)
		sample_rank(&s, distance, 1);
	sample_rank(&s, ranks - ranks / 2, 1);
	sample_rank(&s, ranks - 1, 1);
	for (uint32_t exponent = 0; exponent < 32; exponent++)
		sample_stratum(&s, exponent);
}
