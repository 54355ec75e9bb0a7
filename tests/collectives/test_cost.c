/* Compares each program's closed form with the walk of its own steps in virtual time (simulate.h). A formula ignores
 * how messages of different steps coincide. So it may be off by a fifth on average over worlds and sizes, and by a
 * factor of two at most. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selection/total_work.h"
#include "simulate.h"

static const double mean_tolerance = 1.2, worst_tolerance = 2.0; /* factors, in either direction */

enum { ELEMENT_BYTES = 4 };

static bool has_blocks(enum collet_collective c)
{
	return c == COLLET_ALLGATHER || c == COLLET_REDUCE_SCATTER || c == COLLET_GATHER || c == COLLET_SCATTER ||
	       c == COLLET_ALLTOALL;
}

struct tally {
	double worst, logs;
	uint32_t rows;
	char where[120];
};

/* Costs like those of shared memory and loopback TCP; not the built-in ones, which are measured again from time to
 * time. */
static struct collet_cost_model model_of(const char *transport)
{
	static const struct collet_cost_model shm = { .alpha_s = 0.2e-6, .overhead_s = 0.05e-6, .segment_s = 0.04e-6,
		.beta_s = {1 / 8e9, 1 / 8e9, 1 / 8e9, 1 / 8e9}, .gamma_s = 1 / 20e9 };
	static const struct collet_cost_model tcp = { .alpha_s = 3.5e-6, .overhead_s = 1.5e-6, .segment_s = 0.7e-6,
		.beta_s = {1 / 2e9, 1 / 3e9, 1 / 3e9, 1 / 4e9}, .gamma_s = 1 / 20e9 };
	return strcmp(transport, "shm") == 0 ? shm : tcp;
}

static void hold(struct tally *tally, const struct collet_program *program, const struct collet_shape *shape,
	size_t segment_bytes, const struct collet_cost_model *model, const char *model_name)
{
	if (!collet_program_fits(program, shape))
		return;
	const double predicted = program->cost(shape, ELEMENT_BYTES, segment_bytes, model);
	const double walked = simulate(program, shape, ELEMENT_BYTES, segment_bytes, model);
	const double off = fabs(log(predicted / walked));
	tally->rows++;
	tally->logs += off;
	if (off <= tally->worst)
		return;
	tally->worst = off;
	snprintf(tally->where, sizeof tally->where,
		"n%u, %llu elements, pieces of %zu, %s: %.2f us predicted, %.2f walked", shape->size,
		(unsigned long long)shape->count, segment_bytes, model_name, predicted * 1e6, walked * 1e6);
}

static void hold_all_sizes(struct tally *tally, const struct collet_program *program)
{
	static const uint32_t sizes[] = {2, 3, 4, 5, 8, 13, 16, 33};
	static const uint64_t bytes[] = {8, 4096, 100000, 2 << 20};
	static const size_t segments[] = {16 << 10, 256 << 10};
	static const char *const models[] = {"shm", "tcp"};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
			const uint64_t unit = ELEMENT_BYTES * (has_blocks(program->collective) ? sizes[s] : 1);
			const uint64_t count = program->collective == COLLET_BARRIER ? 0 : 1 + bytes[b] / unit;
			const struct collet_shape shape = collet_shape_of(program->collective, 0, sizes[s], 0, count);
			for (size_t k = 0; k < 4; k++) {
				const struct collet_cost_model model = model_of(models[k % 2]);
				hold(tally, program, &shape, segments[k / 2], &model, models[k % 2]);
			}
		}
	}
}

static void formulas_follow_the_steps(void **state)
{
	(void)state;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		for (size_t i = 0; i < count; i++) {
			struct tally tally = { .worst = 0 };
			hold_all_sizes(&tally, programs[i]);
			assert_true(tally.rows > 0);
			print_message("%-14s %-18s off by %.2f on average, %.2f at worst: %s\n",
				collet_collective_name(c), programs[i]->name, exp(tally.logs / tally.rows),
				exp(tally.worst), tally.where);
			assert_true(exp(tally.worst) <= worst_tolerance);
			assert_true(exp(tally.logs / tally.rows) <= mean_tolerance);
		}
	}
}

/* Hosts of different sizes, with links between them that are more expensive than those inside. */
static void hierarchies_follow_theirs(void **state)
{
	(void)state;
	static const uint32_t first[] = {0, 4, 8, 11, 16};
	const struct collet_cost_model local = model_of("shm");
	struct collet_cost_model model = model_of("tcp");
	model.local = &local;
	static const struct {
		enum collet_collective collective;
		const char *name;
	} of[] = {
		{ COLLET_ALLREDUCE, "hierarchical" },
		{ COLLET_ALLREDUCE, "hierarchical_ring" },
		{ COLLET_REDUCE, "hierarchical" },
		{ COLLET_BROADCAST, "hierarchical" },
		{ COLLET_BARRIER, "hierarchical" },
		{ COLLET_ALLGATHER, "hierarchical" },
		{ COLLET_REDUCE_SCATTER, "hierarchical" },
	};
	for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
		const struct collet_program *program = collet_program_find(of[i].collective, of[i].name);
		struct tally tally = { .worst = 0 };
		for (uint64_t count = 2; count < 1 << 20; count *= 16) {
			struct collet_shape shape = collet_shape_of(of[i].collective, 0, 16, 0, count);
			shape.host_first = first;
			shape.host_count = 4;
			hold(&tally, program, &shape, 64 << 10, &model, "shm in tcp");
		}
		print_message("%-14s %-18s off by %.2f at worst: %s\n", collet_collective_name(of[i].collective),
			of[i].name, exp(tally.worst), tally.where);
		assert_true(exp(tally.worst) <= worst_tolerance);
	}
}

/* Returns the time by the formula and by the link that four ranks share. */
static double with_link(
	const struct collet_program *program, const struct collet_shape *shape, const struct collet_cost_model *model)
{
	const double link = collet_network_ratio(program, shape, 4) * (double)shape->count * ELEMENT_BYTES *
			    model->beta_s[COLLET_COST_CLASSES - 1];
	return fmax(link, program->cost(shape, ELEMENT_BYTES, 64 << 10, model));
}

/* Why there are several leaders: 2 hosts of 4 ranks have links that are slow beside everything else. A ring over all
 * ranks then takes (7/4) / (2/2) times as long as rings over hosts, by the model and by the walk. */
static void a_slow_link_wants_rings_over_hosts(void **state)
{
	(void)state;
	static const uint32_t first[] = {0, 4, 8};
	const struct collet_cost_model local = model_of("shm");
	struct collet_cost_model model = model_of("tcp");
	struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, 8, 0, 4 << 20);
	const struct collet_program *ring = collet_program_find(COLLET_ALLREDUCE, "ring");
	const struct collet_program *rings = collet_program_find(COLLET_ALLREDUCE, "hierarchical_ring");
	for (int i = 0; i < COLLET_COST_CLASSES; i++)
		model.beta_s[i] = 1 / 31.25e6;
	model.local = &local;
	shape.host_first = first;
	shape.host_count = 2;
	const double predicted = with_link(ring, &shape, &model) / with_link(rings, &shape, &model);
	const double walked = simulate(ring, &shape, ELEMENT_BYTES, 64 << 10, &model) /
			      simulate(rings, &shape, ELEMENT_BYTES, 64 << 10, &model);
	print_message("ring / hierarchical_ring at 250 Mbit/s: %.3f predicted, %.3f walked\n", predicted, walked);
	assert_true(predicted > 1.70 && predicted < 1.80);
	assert_true(walked > 1.70 && walked < 1.80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formulas_follow_the_steps),
		cmocka_unit_test(hierarchies_follow_theirs),
		cmocka_unit_test(a_slow_link_wants_rings_over_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
