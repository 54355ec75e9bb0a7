/* Tests the total work of all ranks of a call, counted from the steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selection/total_work.h"

static struct collet_total_work count(enum collet_collective collective, const char *name, uint32_t size)
{
	struct collet_total_work work;
	const struct collet_program *program = collet_program_find(collective, name);
	assert_non_null(program);
	collet_total_work_count(&work, program, size, 0);
	return work;
}

static double transfers(const struct collet_total_work *work)
{
	double sum = 0;
	for (uint32_t i = 0; i < work->class_count; i++)
		sum += work->classes[i].transfers;
	return sum;
}

/* Returns all that is moved, in counts. */
static double moved(const struct collet_total_work *work)
{
	double sum = 0;
	for (uint32_t i = 0; i < work->class_count; i++)
		sum += work->classes[i].transfers * work->classes[i].length_ratio;
	return sum;
}

static void near(const char *row, const char *what, double value, double wanted)
{
	if (fabs(value - wanted) > 1e-3 * (wanted > 1 ? wanted : 1))
		fail_msg("%s: %s is %g, not %g", row, what, value, wanted);
}

static void known_programs(void **state)
{
	(void)state;
	static const struct {
		enum collet_collective collective;
		const char *name;
		uint32_t size;
		double transfers, moved, combined, turns;
	} rows[] = {
		{COLLET_ALLREDUCE, "direct", 1, 0, 0, 0, 0},
		{COLLET_ALLREDUCE, "direct", 4, 12, 12, 12, 1},
		{COLLET_ALLREDUCE, "doubling", 8, 24, 24, 24, 3},
		{COLLET_ALLREDUCE, "two_shot", 4, 24, 6, 3, 2},
		{COLLET_ALLREDUCE, "ring", 5, 40, 8, 4, 8},
		{COLLET_ALLREDUCE, "tree", 4, 6, 6, 3, 2},
		{COLLET_REDUCE, "direct", 6, 5, 5, 5, 0},
		{COLLET_BROADCAST, "tree", 6, 5, 5, 0, 0},
		{COLLET_ALLGATHER, "ring", 4, 12, 12, 0, 3},
		{COLLET_GATHER, "tree", 4, 3, 4, 0, 0},
		{COLLET_ALLTOALL, "direct", 4, 12, 12, 0, 1},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char row[64];
		snprintf(row, sizeof row, "%s %s n%u", collet_collective_name(rows[i].collective), rows[i].name,
			rows[i].size);
		const struct collet_total_work work = count(rows[i].collective, rows[i].name, rows[i].size);
		near(row, "transfers", transfers(&work), rows[i].transfers);
		near(row, "moved", moved(&work), rows[i].moved);
		near(row, "combined", work.reduced_ratio, rows[i].combined);
		near(row, "turns", work.waiting_steps, rows[i].turns);
	}
}

/* Two hosts of four ranks; the first has the root. */
static void bytes_through_a_hosts_link(void **state)
{
	(void)state;
	static const uint32_t host_first[] = {0, 4, 8};
	static const struct {
		enum collet_collective collective;
		const char *name;
		double counts;
	} rows[] = {
		{COLLET_ALLREDUCE, "ring", 7 / 4.},
		{COLLET_ALLREDUCE, "hierarchical_ring", 1},
		{COLLET_ALLREDUCE, "halving_doubling", 1},
		{COLLET_ALLREDUCE, "two_shot", 4},
		{COLLET_ALLREDUCE, "doubling", 4},
		{COLLET_ALLREDUCE, "direct", 16},
		{COLLET_ALLGATHER, "ring", 7},
		{COLLET_ALLGATHER, "hierarchical", 4},
		{COLLET_ALLGATHER, "direct", 16},
		{COLLET_REDUCE_SCATTER, "ring", 7},
		{COLLET_REDUCE_SCATTER, "hierarchical", 4},
		{COLLET_BROADCAST, "hierarchical", 1},
		{COLLET_BROADCAST, "direct", 4},
		{COLLET_REDUCE, "hierarchical", 1},
		{COLLET_GATHER, "direct", 4},
		{COLLET_ALLTOALL, "pairwise", 16},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_shape shape = collet_shape_of(rows[i].collective, 0, 8, 0, 1);
		shape.host_count = 2;
		shape.host_first = host_first;
		const struct collet_program *program = collet_program_find(rows[i].collective, rows[i].name);
		assert_non_null(program);
		near(rows[i].name, "through the link", collet_network_ratio(program, &shape, 4), rows[i].counts);
	}
}

/* Returns the least that any program of a collective must move. */
static double least_moved(enum collet_collective collective, double size)
{
	switch (collective) {
	case COLLET_ALLREDUCE: return 2 * (size - 1);
	case COLLET_ALLGATHER:
	case COLLET_REDUCE_SCATTER:
	case COLLET_ALLTOALL: return size * (size - 1);
	case COLLET_BARRIER: return 0;
	default: return size - 1;
	}
}

static double least_combined(enum collet_collective collective, double size)
{
	return collective == COLLET_REDUCE_SCATTER                                      ? size * (size - 1)
	       : collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE ? size - 1
										       : 0;
}

static void no_program_does_less_than_it_must(void **state)
{
	(void)state;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t programs;
		const struct collet_program *const *program = collet_programs(c, &programs);
		for (size_t p = 0; p < programs; p++) {
			for (uint32_t size = 2; size <= COLLET_TOTAL_WORK_RANKS; size++) {
				const struct collet_shape shape = collet_shape_of(c, 0, size, 0, 1 << 20);
				if (!collet_program_fits(program[p], &shape))
					continue;
				struct collet_total_work work;
				collet_total_work_count(&work, program[p], size, 0);
				/* Lengths without a class of their own count as the nearest one: a little less. */
				if (moved(&work) < 0.98 * least_moved(c, size) ||
					work.reduced_ratio < 0.999 * least_combined(c, size))
					fail_msg("%s %s n%u: %g moved, %g combined", collet_collective_name(c),
						program[p]->name, size, moved(&work), work.reduced_ratio);
			}
		}
	}
}

static void a_price_is_made_of_turns_and_of_work_on_all_cores(void **state)
{
	(void)state;
	const struct collet_cost_model model = { .alpha_s = 1e-6, .overhead_s = 1e-7, .segment_s = 5e-8,
		.beta_s = {1e-9, 1e-9, 1e-9, 1e-9}, .gamma_s = 1e-10 };
	const struct collet_total_work work = count(COLLET_ALLREDUCE, "direct", 4);
	/* 12 messages of 4 KiB, each reduced. */
	near("2 cores", "us", 1e6 * collet_total_work_cost(&work, 1024, 4, 65536, 2, &model),
		1 + 6 * (0.1 + 4.096 + 0.4096));
	near("1 core", "us", 1e6 * collet_total_work_cost(&work, 1024, 4, 65536, 1, &model),
		1 + 12 * (0.1 + 4.096 + 0.4096));
	/* In four segments each. */
	near("pieces", "us", 1e6 * collet_total_work_cost(&work, 1024, 4, 1024, 2, &model),
		1 + 6 * (0.1 + 3 * 0.05 + 4.096 + 0.4096));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_programs),
		cmocka_unit_test(bytes_through_a_hosts_link),
		cmocka_unit_test(no_program_does_less_than_it_must),
		cmocka_unit_test(a_price_is_made_of_turns_and_of_work_on_all_cores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
