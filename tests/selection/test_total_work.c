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

/* The sums over all steps of all ranks. */
struct sums {
	double transfers, moved, reduced, waiting_steps;
};

static void add_operands(struct sums *sums, const struct collet_shape *shape, const struct collet_step *step)
{
	const double before = sums->transfers;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_peers *peers = &step->source[e].peers;
		for (uint32_t i = 0; i < peers->count; i++) {
			const uint32_t peer = collet_peers_at(peers, i, shape->size);
			const struct collet_partition *partition =
				collet_step_partition(shape, step->destination[0].buffer);
			const double elements = (double)(step->is_per_peer
					? collet_partition_chunk(partition, shape, peer).count
					: step->source[e].span.count);
			if (peer == shape->rank)
				continue;
			sums->transfers++;
			sums->moved += elements / (double)shape->count;
			sums->reduced += step->is_reduction ? elements / (double)shape->count : 0;
		}
	}
	sums->waiting_steps += sums->transfers > before;
}

static struct sums sum_all(const struct collet_program *program, uint32_t size)
{
	struct sums sums = {0};
	double most = 0;
	for (uint32_t rank = 0; rank < size; rank++) {
		const struct collet_shape shape = collet_shape_of(program->collective, rank, size, 0, 1ull << 32);
		sums.waiting_steps = 0;
		for (uint32_t part = 0; part < collet_program_part_count(program, &shape); part++) {
			for (uint64_t s = 0; s < program->step_count(&shape, part); s++) {
				const struct collet_step step = program->step(&shape, part, s);
				add_operands(&sums, &shape, &step);
			}
		}
		most = fmax(most, sums.waiting_steps);
	}
	sums.waiting_steps = most;
	return sums;
}

static void must_be_near(const char *what, const struct collet_program *program, uint32_t size, double value,
	double wanted, double tolerance)
{
	if (fabs(value - wanted) > tolerance * wanted)
		fail_msg("%s %s n%u: %s is %g, not %g", collet_collective_name(program->collective), program->name,
			size, what, value, wanted);
}

/* Sums over sampled ranks and steps are near those over all. */
static void samples_stand_for_all(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {64, 65, 96, 100, 128, 129, 160, 200, 256, 333, 512, 700};
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t programs;
		const struct collet_program *const *program = collet_programs(c, &programs);
		const bool has_root = c == COLLET_REDUCE || c == COLLET_BROADCAST || c == COLLET_GATHER ||
				      c == COLLET_SCATTER;
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * programs; i++) {
			const struct collet_program *p = program[i % programs];
			const uint32_t size = sizes[i / programs];
			const struct collet_shape shape = collet_shape_of(c, 0, size, 0, 1 << 20);
			if (!collet_program_fits(p, &shape))
				continue;
			/* Which ranks of a binary reduce have two children, no stratum knows. */
			const bool is_irregular = c == COLLET_REDUCE && strcmp(p->name, "tree") == 0;
			const double tolerance = size <= 64 ? 1e-3 : is_irregular ? 0.1 : 0.02;
			const struct sums all = sum_all(p, size);
			struct collet_total_work some;
			collet_total_work_count(&some, p, size, 0);
			must_be_near("transfers", p, size, transfers(&some), all.transfers, tolerance);
			must_be_near("moved", p, size, moved(&some), all.moved, tolerance);
			must_be_near("combined", p, size, some.reduced_ratio, all.reduced, tolerance);
			must_be_near("turns", p, size, some.waiting_steps, has_root ? 0 : all.waiting_steps, tolerance);
		}
	}
}

/* Four hosts of many ranks each. */
static void bytes_through_a_link_of_many_ranks(void **state)
{
	(void)state;
	enum { HOSTS = 4 };
	static const uint32_t ranks[] = {16, 64, 128, 1000};
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		const uint32_t g = ranks[i], n = HOSTS * g;
		const uint32_t host_first[] = {0, g, 2 * g, 3 * g, n};
		const struct {
			enum collet_collective collective;
			const char *name;
			double counts;
		} rows[] = {
			{COLLET_ALLREDUCE, "ring", 2 * (n - 1.) / n},
			{COLLET_ALLREDUCE, "hierarchical_ring", 2 * 3 / 4.},
			{COLLET_ALLREDUCE, "two_shot", 2 * 3 / 4. * g},
			{COLLET_ALLGATHER, "ring", n - 1.},
			{COLLET_ALLGATHER, "hierarchical", 3. * g},
			{COLLET_ALLGATHER, "direct", 3. * g * g},
			{COLLET_REDUCE_SCATTER, "ring", n - 1.},
			{COLLET_REDUCE_SCATTER, "direct", 3. * g * g},
			{COLLET_BROADCAST, "direct", 3. * g},
			{COLLET_GATHER, "direct", 3. * g},
			{COLLET_ALLTOALL, "pairwise", 3. * g * g},
		};
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
			struct collet_shape shape = collet_shape_of(rows[k].collective, 0, n, 0, 1);
			const struct collet_program *program = collet_program_find(rows[k].collective, rows[k].name);
			shape.host_count = HOSTS;
			shape.host_first = host_first;
			must_be_near("through the link", program, n, collet_network_ratio(program, &shape, g),
				rows[k].counts, g <= 64 && n <= 96 ? 1e-3 : 0.02);
		}
	}
}

static void no_program_does_less_than_it_must(void **state)
{
	(void)state;
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t programs;
		const struct collet_program *const *program = collet_programs(c, &programs);
		for (size_t p = 0; p < programs; p++) {
			for (uint32_t size = 2; size <= 64; size++) {
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
		cmocka_unit_test(samples_stand_for_all),
		cmocka_unit_test(bytes_through_a_link_of_many_ranks),
		cmocka_unit_test(no_program_does_less_than_it_must),
		cmocka_unit_test(a_price_is_made_of_turns_and_of_work_on_all_cores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
