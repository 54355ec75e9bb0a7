/* Proves every program by running it on expression trees (interpret.h): for world sizes 1..64 and counts 0, 1, n-1, n,
 * n+1 and a prime; in and out of place; cut into many segments and passes; under rendezvous, one slot and remote reads.
 * Worlds up to 9 are run in all variations, larger ones in some drawn by the seed (COLLET_TEST_SEED), unless
 * COLLET_TEST_FULL=1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "rows.h"

static const enum transfer_mode mode_of[VARIATIONS] = {
	[VARIATION_ONE_SLOT] = TRANSFER_ONE_SLOT, [VARIATION_REMOTE_READ] = TRANSFER_REMOTE_READ};

/* The blocks of all ranks are many elements in large worlds. */
static bool has_blocks(enum collet_collective c)
{
	return c == COLLET_ALLGATHER || c == COLLET_REDUCE_SCATTER || c == COLLET_GATHER || c == COLLET_SCATTER ||
	       c == COLLET_ALLTOALL;
}

static bool is_sampled(
	uint32_t size, uint64_t count, enum variation variation, enum collet_collective c, uint64_t *seed)
{
	if (rows_all() || size <= 9)
		return true;
	const uint64_t weight = size <= 20 ? 2 : has_blocks(c) && count > 2 ? 48 : 12;
	return draw(seed, weight) == 0 || (size <= 17 && variation == VARIATION_IN_PLACE && !has_blocks(c));
}

static void prove_counts(const struct collet_program *program, uint32_t size, uint64_t *seed)
{
	const uint64_t counts[] = {0, 1, size - 1, size, size + 1, 67};
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		for (enum variation v = 0; v < VARIATIONS; v++) {
			const struct call call = row_call(program, size, counts[i], v, seed);
			const uint64_t row_seed = draw(seed, 0);
			if (row_fits(&call, size) && is_sampled(size, counts[i], v, program->collective, seed))
				row_prove(&call, size, mode_of[v], row_seed);
		}
	}
}

static void prove_collective(void **state)
{
	const enum collet_collective c = *(const enum collet_collective *)*state;
	uint64_t seed = rows_seed() + c;
	size_t count;
	const struct collet_program *const *programs = collet_programs(c, &count);
	assert_true(count > 0);
	for (size_t i = 0; i < count; i++)
		for (uint32_t size = 1; size <= EXPRESSION_RANKS; size++)
			prove_counts(programs[i], size, &seed);
}

/* Programs for v-forms, where a rank may know only its own counts. */
static void v_forms(void **state)
{
	(void)state;
	uint64_t seed = rows_seed();
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		for (size_t i = 0; i < count; i++) {
			for (uint32_t size = 1; programs[i]->has_vector_form && size <= 24; size++) {
				for (enum variation v = 0; v < VARIATIONS; v++) {
					struct call call = row_call(programs[i], size, 4, v, &seed);
					call.is_vector = true;
					row_prove(&call, size, mode_of[v], draw(&seed, 0));
				}
			}
		}
	}
}

/* Positions that are not ranks: blocks are numbered by rank. */
static void rank_orders(void **state)
{
	(void)state;
	uint64_t seed = rows_seed();
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		for (size_t i = 0; i < count; i++) {
			for (uint32_t size = 2; size <= 16; size++) {
				uint32_t order[16];
				for (uint32_t r = 0; r < size; r++) {
					const uint32_t other = (uint32_t)draw(&seed, r + 1);
					order[r] = order[other];
					order[other] = r;
				}
				struct call call = row_call(programs[i], size, 5, VARIATION_ONE_SLOT, &seed);
				call.order = order;
				if (row_fits(&call, size))
					row_prove(&call, size, TRANSFER_RENDEZVOUS, draw(&seed, 0));
			}
		}
	}
}

/* Programs that depend on hosts. */
static const struct {
	enum collet_collective collective;
	const char *name;
} of_hosts[] = {
	{ COLLET_ALLREDUCE, "hierarchical" },
	{ COLLET_ALLREDUCE, "hierarchical_ring" },
	{ COLLET_REDUCE, "hierarchical" },
	{ COLLET_BROADCAST, "hierarchical" },
	{ COLLET_BARRIER, "hierarchical" },
	{ COLLET_ALLGATHER, "hierarchical" },
	{ COLLET_REDUCE_SCATTER, "hierarchical" },
};

/* Every distribution of up to 12 ranks over hosts: bit i of `cuts` starts a new host at rank i + 1. Fewer elements than
 * chunks and more; occasionally with the most segments and channels. */
static void hosts(void **state)
{
	(void)state;
	uint64_t seed = rows_seed();
	for (size_t i = 0; i < sizeof of_hosts / sizeof of_hosts[0]; i++) {
		const struct collet_program *program = collet_program_find(of_hosts[i].collective, of_hosts[i].name);
		assert_non_null(program);
		for (uint32_t size = 1; size <= 12; size++) {
			for (uint32_t cuts = 0; cuts < (uint32_t)1 << (size - 1); cuts++) {
				uint32_t first[13] = {0}, count = 0;
				for (uint32_t r = 0; r < size; r++)
					if (r == 0 || cuts >> (r - 1) & 1)
						first[count++] = r;
				first[count] = size;
				const enum variation v = (enum variation)draw(&seed, VARIATIONS);
				const uint64_t elements = draw(&seed, 4) ? 5 : draw(&seed, 40);
				struct call call = row_call(program, size, elements, v, &seed);
				call.host_first = first;
				call.hosts = count;
				call.first_leads = draw(&seed, 2);
				call.is_vector = program->has_vector_form && draw(&seed, 2);
				row_prove(&call, size, mode_of[v], draw(&seed, 0));
			}
		}
	}
}

/* Draws a program that can run in this world. */
static struct call draw_call(uint32_t size, uint64_t *seed)
{
	for (;;) {
		size_t count;
		const enum collet_collective c = (enum collet_collective)draw(seed, COLLET_COLLECTIVE_COUNT);
		const struct collet_program *const *programs = collet_programs(c, &count);
		const struct call call = row_call(programs[draw(seed, count)], size, draw(seed, 12),
			(enum variation)draw(seed, VARIATIONS), seed);
		if (row_fits(&call, size))
			return call;
	}
}

static void prove_several(uint32_t calls_count, uint32_t overlap, uint32_t rounds)
{
	uint64_t seed = rows_seed();
	for (uint32_t i = 0; i < rounds; i++) {
		struct call calls[5];
		const uint32_t size = 2 + (uint32_t)draw(&seed, 12);
		for (uint32_t k = 0; k < calls_count; k++)
			calls[k] = draw_call(size, &seed);
		const struct run run = { .size = size,
			.calls = calls,
			.call_count = calls_count,
			.overlap = overlap,
			.mode = (enum transfer_mode)draw(&seed, TRANSFER_MODES),
			.seed = draw(&seed, 0),
			.late_rank = size };
		char what[200];
		size_t used = (size_t)snprintf(what, sizeof what, "round %u, n%u, mode %d:", i, size, run.mode);
		for (uint32_t k = 0; k < calls_count; k++)
			used += (size_t)snprintf(what + used, sizeof what - used, " %s_%s",
				collet_collective_name(calls[k].program->collective), calls[k].program->name);
		row_prove_all(&run, what);
	}
}

/* Two simultaneous requests share endpoints; a message of the second follows all of the first. */
static void two_at_once(void **state)
{
	(void)state;
	prove_several(2, 2, rows_all() ? 20000 : 800);
}

/* Five calls one after the other, ranks running ahead of each other as far as they can. */
static void five_in_a_row(void **state)
{
	(void)state;
	prove_several(5, 1, rows_all() ? 10000 : 300);
}

/* Five calls, of which three may be in progress. */
static void five_overlapping(void **state)
{
	(void)state;
	prove_several(5, 3, rows_all() ? 10000 : 200);
}

int main(void)
{
	static enum collet_collective all[COLLET_COLLECTIVE_COUNT];
	struct CMUnitTest tests[COLLET_COLLECTIVE_COUNT];
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		all[c] = c;
		tests[c] = (struct CMUnitTest){
			.name = collet_collective_name(c), .test_func = prove_collective, .initial_state = &all[c]};
	}
	const struct CMUnitTest others[] = {
		cmocka_unit_test(v_forms),
		cmocka_unit_test(rank_orders),
		cmocka_unit_test(hosts),
		cmocka_unit_test(two_at_once),
		cmocka_unit_test(five_in_a_row),
		cmocka_unit_test(five_overlapping),
	};
	print_message("seed %llu\n", (unsigned long long)rows_seed());
	const int failed = cmocka_run_group_tests_name("programs", tests, NULL, NULL);
	return failed + cmocka_run_group_tests_name("together", others, NULL, NULL);
}
