/* Compares what is chosen with the other programs: up to 512 ranks by the walk of their steps in virtual time
 * (tests/collectives/simulate.h), beyond by the model. A seeded sample of worlds and sizes, of which COLLET_TEST_SAMPLE
 * takes a share; all with COLLET_TEST_FULL=1. COLLET_TEST_SEED: another sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "links.h"
#include "sample.h"
#include "selection/choice.h"
#include "simulate.h"

enum { ELEMENT_BYTES = 4, SCRATCH_BYTES = 8 << 20 };

/* A choice may take this many times as long as the best program; one in ONE_IN may take more. About one in 500 does: a
 * share of the sample has SPARE of them now and then. */
static const double tolerance = 1.25, worst_tolerance = 1.7;
enum { ONE_IN = 100, SPARE = 2 };
/* Programs whose predicted time is this many times the best simulated one are not simulated. */
static const double hopeless = 2.5;

/* The one of links.h with a single channel, as the walk has no others. */
static collet_link_cost tcp_link;

struct world {
	struct collet_choice_inputs inputs;
	uint32_t *host_first;
	struct collet_choice_table table;
};

/* cores: of each host; 0: one per rank. */
static void make_world(struct world *world, uint32_t ranks, uint32_t ranks_per_host, uint32_t cores)
{
	const uint32_t hosts = (ranks + ranks_per_host - 1) / ranks_per_host;
	world->host_first = (uint32_t *)calloc(hosts + 1, sizeof(uint32_t));
	assert_non_null(world->host_first);
	for (uint32_t h = 0; h <= hosts; h++)
		world->host_first[h] = h < hosts ? h * ranks_per_host : ranks;
	world->inputs = (struct collet_choice_inputs){ .size = ranks,
		.host_count = hosts,
		.host_first = hosts > 1 ? world->host_first : NULL,
		.cores_per_host = cores,
		.local = &links[SHM_LINK],
		.remote = &tcp_link,
		.network_byte_ns = tcp_link.byte_ns[0],
		.scratch_bytes = SCRATCH_BYTES };
	collet_choice_table_init(&world->table, &world->inputs);
}

static struct collet_shape shape_of(const struct world *world, enum collet_collective collective, uint64_t bytes)
{
	const uint32_t ranks = world->inputs.size;
	const struct collet_shape one = collet_shape_of(collective, 0, ranks, 0, 1);
	const uint64_t unit = collet_shape_bytes(collective, &one, ELEMENT_BYTES);
	struct collet_shape shape = collet_shape_of(collective, 0, ranks, 0, unit ? (bytes + unit - 1) / unit : 0);
	shape.host_first = world->inputs.host_first;
	shape.host_count = world->inputs.host_count;
	return shape;
}

static double predict(const struct world *world, const struct collet_shape *shape, struct collet_decision decision)
{
	const struct collet_segmentation cut = { decision.segment_bytes, decision.channels };
	return collet_choice_cost(&world->inputs, decision.program, shape, ELEMENT_BYTES, cut);
}

static double simulate_decision(
	const struct world *world, const struct collet_shape *shape, struct collet_decision decision)
{
	const struct collet_cost_model local = collet_tuning_model(&links[SHM_LINK], 0, 1);
	struct collet_cost_model model = collet_tuning_model(&tcp_link, 0, 1);
	model.local = &local;
	return simulate(decision.program, shape, ELEMENT_BYTES, decision.segment_bytes,
		world->inputs.host_count > 1 ? &model : &local);
}

/* Returns how many times as long the chosen program takes as the best one. */
static double judge(struct world *world, enum collet_collective collective, uint64_t bytes, bool is_simulated)
{
	const struct collet_shape shape = shape_of(world, collective, bytes);
	const struct collet_decision chosen = collet_choose(&world->table, collective, true, &shape, ELEMENT_BYTES);
	const double time = is_simulated ? simulate_decision(world, &shape, chosen) : predict(world, &shape, chosen);
	double best = time;
	const char *name = chosen.program->name;
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++) {
		if (programs[i] == chosen.program || !collet_program_fits(programs[i], &shape) ||
			collet_program_max_scratch(programs[i], shape) > SCRATCH_BYTES / ELEMENT_BYTES)
			continue;
		const struct collet_decision other =
			collet_choose_segmentation(&world->inputs, programs[i], &shape, ELEMENT_BYTES);
		const double predicted = predict(world, &shape, other);
		if (is_simulated && predicted > hopeless * best)
			continue;
		const double other_time = is_simulated ? simulate_decision(world, &shape, other) : predicted;
		if (other_time < best) {
			best = other_time;
			name = programs[i]->name;
		}
	}
	if (time > tolerance * best)
		print_message("%s of %llu bytes, %u ranks on %u hosts: %s takes %.2f times as long as %s (%.1f us)\n",
			collet_collective_name(collective), (unsigned long long)bytes, world->inputs.size,
			world->inputs.host_count, chosen.program->name, time / best, name, best * 1e6);
	return best > 0 ? time / best : 1;
}

static bool is_full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && text[0] == '1';
}

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % limit);
}

/* Returns whether a point is in the sample. Large worlds take long to simulate. */
static bool is_sampled(uint64_t *seed, uint32_t ranks, uint64_t bytes)
{
	const uint32_t draw = random_below(seed, 1000);
	if (is_full())
		return true;
	if (ranks <= 8)
		return draw < sample_share(250);
	if (ranks <= 32)
		return draw < sample_share(bytes > 16 << 20 ? 30 : 100);
	if (ranks <= 128)
		return bytes <= 1 << 20 && draw < sample_share(40);
	return bytes <= 64 << 10 && draw < sample_share(12);
}

static void choices_are_near_the_best(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 32, 48, 64, 100, 128, 200, 256, 384, 512};
	const char *text = getenv("COLLET_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
	uint32_t points = 0, bad = 0;
	double worst = 1;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const uint32_t n = sizes[i], per_host[] = {n, 1, 2, 3, 4, 8, n / 4, n / 2};
		for (size_t k = 0; k < sizeof(per_host) / sizeof(per_host[0]); k++) {
			bool is_new = per_host[k] > 0 && per_host[k] <= n;
			for (size_t j = 0; j < k; j++)
				is_new &= per_host[j] != per_host[k];
			if (!is_new)
				continue;
			static struct world world;
			make_world(&world, n, per_host[k], 0);
			for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
				const uint64_t most = c == COLLET_BARRIER ? 4 : (uint64_t)256 << 20;
				for (uint64_t bytes = 4; bytes <= most; bytes *= 4) {
					if (!is_sampled(&seed, n, bytes))
						continue;
					const double ratio = judge(&world, c, bytes, true);
					points++;
					bad += ratio > tolerance;
					worst = ratio > worst ? ratio : worst;
				}
			}
			free(world.host_first);
		}
	}
	print_message("%u of %u choices take more than %.2f times as long as the best, at worst %.2f\n", bad, points,
		tolerance, worst);
	assert_true(points > sample_share(500));
	assert_true(bad <= (sample_share(ONE_IN) < ONE_IN ? SPARE : 0) + points / ONE_IN);
	assert_true(worst <= worst_tolerance);
}

/* Between the table's sizes too. */
static void large_worlds_choose_by_the_model(void **state)
{
	(void)state;
	static const uint32_t worlds[][3] = {{513, 513, 2}, {700, 8, 0}, {1024, 64, 0}, {1000, 1000, 4}, {4096, 8, 0},
		{3000, 1, 0}, {100000, 8, 0}, {100000, 100000, 2}};
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		static struct world world;
		make_world(&world, worlds[i][0], worlds[i][1], worlds[i][2]);
		for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++)
			for (uint64_t bytes = 4; bytes <= 256 << 20; bytes = bytes * 13 / 4)
				assert_true(judge(&world, c, bytes, false) <= tolerance);
		free(world.host_first);
	}
}

static double chosen_time(uint32_t ranks, uint32_t ranks_per_host, uint32_t cores, enum collet_collective collective,
	uint64_t bytes)
{
	static struct world world;
	make_world(&world, ranks, ranks_per_host > 0 ? ranks_per_host : ranks, cores);
	const struct collet_shape shape = shape_of(&world, collective, bytes);
	const double time =
		predict(&world, &shape, collet_choose(&world.table, collective, true, &shape, ELEMENT_BYTES));
	free(world.host_first);
	return time;
}

/* One rank more changes little, at most that ranks or hosts are no longer a power of two. With twice as many ranks no
 * call of as many bytes per rank is faster. */
static void there_is_no_cliff(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		uint32_t per_host, cores; /* per_host 0: one host */
	} kinds[] = {{"two cores", 0, 2}, {"16 cores", 0, 16}, {"8 a host", 8, 0}, {"8 a host on 2 cores", 8, 2},
		{"1 a host", 1, 0}};
	static const uint32_t ranks[] = {64, 128, 256, 512, 4096};
	static const uint64_t bytes_per_rank[] = {4, 1024, 64 << 10};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++)
			for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++)
				for (size_t b = 0; b < sizeof(bytes_per_rank) / sizeof(bytes_per_rank[0]); b++) {
					const uint32_t n = ranks[r];
					const uint64_t bytes = n * bytes_per_rank[b];
					const double at = chosen_time(n, kinds[i].per_host, kinds[i].cores, c, bytes);
					const double next = chosen_time(n + 1, kinds[i].per_host, kinds[i].cores, c,
						bytes + bytes_per_rank[b]);
					const double twice =
						chosen_time(2 * n, kinds[i].per_host, kinds[i].cores, c, 2 * bytes);
					if (next < 0.7 * at || next > 2.5 * at || twice < 0.95 * at)
						fail_msg("%s, %s, %llu bytes a rank: %.2f us of %u ranks, %.2f of %u, "
							 "%.2f of %u",
							kinds[i].name, collet_collective_name(c),
							(unsigned long long)bytes_per_rank[b], at * 1e6, n, next * 1e6,
							n + 1, twice * 1e6, 2 * n);
				}
}

int main(void)
{
	tcp_link = links[TCP_LINK];
	for (uint32_t c = 1; c < sizeof(tcp_link.channel_ratios) / sizeof(tcp_link.channel_ratios[0]); c++)
		tcp_link.channel_ratios[c] = 0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(choices_are_near_the_best),
		cmocka_unit_test(large_worlds_choose_by_the_model),
		cmocka_unit_test(there_is_no_cliff),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
