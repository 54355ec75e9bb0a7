/* Tests that the distributed sampler gives what torch.utils.data.DistributedSampler gives, index for index. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <collet/sampler.h>

static uint64_t *fill(const collet_sampler *sampler, uint64_t epoch)
{
	uint64_t *indices = calloc(collet_sampler_count(sampler) + 1, sizeof(*indices));
	assert_non_null(indices);
	assert_int_equal(collet_sampler_fill(sampler, epoch, indices), COLLET_OK);
	return indices;
}

/* A single rank gets torch.randperm(count, generator=manual_seed(seed + epoch)). */
static void one_rank_gets_torch_randperm(void **state)
{
	static const struct {
		uint64_t seed, epoch;
		uint64_t expected[10];
	} rows[] = {
		{ 0, 0, { 4, 1, 7, 5, 3, 9, 0, 8, 6, 2 } },
		{ 1, 0, { 5, 6, 1, 2, 0, 8, 9, 3, 7, 4 } },
		{ 0, 1, { 5, 6, 1, 2, 0, 8, 9, 3, 7, 4 } },
		{ 40, 2, { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 } },
		{ UINT64_C(1) << 32 | 42, 0, { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 } },
		{ UINT64_MAX, 43, { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const collet_sampler sampler = { .sample_count = 10, .world_size = 1, .seed = rows[i].seed };
		uint64_t *indices = fill(&sampler, rows[i].epoch);
		assert_memory_equal(indices, rows[i].expected, sizeof(rows[i].expected));
		free(indices);
	}
}

static void sixty_thousand_start_and_end_as_torch_does(void **state)
{
	const collet_sampler sampler = { .sample_count = 60000, .world_size = 1 };
	static const uint64_t first[] = { 36044, 10678, 57327, 55074, 21567 }, last[] = { 31951, 27130, 1544 };
	uint64_t *indices = fill(&sampler, 0);
	assert_memory_equal(indices, first, sizeof(first));
	assert_memory_equal(indices + 60000 - 3, last, sizeof(last));
	free(indices);
}

struct vector {
	uint64_t count;
	uint32_t world_size;
	uint64_t seed, epoch;
	bool shuffle, drop_last;
	uint64_t share, hash, first[4];
};

static const struct vector vectors[] = {
#include "sampler_vectors.inc.h"
};

/* Two hundred draws of (samples, ranks, seed, epoch, shuffle, drop_last); every rank's whole list. */
static void every_list_is_what_torch_deals_out(void **state)
{
	const size_t count = sizeof(vectors) / sizeof(vectors[0]);
	assert_int_equal(count, 200);
	for (size_t i = 0; i < count; i++) {
		const struct vector *vector = &vectors[i];
		uint64_t hash = UINT64_C(0xcbf29ce484222325);
		for (uint32_t rank = 0; rank < vector->world_size; rank++) {
			const collet_sampler sampler = { .sample_count = vector->count, .rank = rank,
				.world_size = vector->world_size, .seed = vector->seed, .in_order = !vector->shuffle,
				.tail = vector->drop_last ? COLLET_SAMPLER_DROP : COLLET_SAMPLER_PAD };
			const uint64_t share = collet_sampler_count(&sampler);
			assert_int_equal(share, vector->share);
			uint64_t *indices = fill(&sampler, vector->epoch);
			for (uint64_t at = 0; at < share; at++)
				hash = (hash ^ indices[at]) * UINT64_C(0x100000001b3);
			for (uint64_t at = 0; rank == vector->world_size - 1 && at < share && at < 4; at++)
				assert_int_equal(indices[at], vector->first[at]);
			free(indices);
		}
		if (hash != vector->hash)
			fail_msg("vector %zu: %llu samples, %u ranks, seed %llu, epoch %llu: another order", i,
				(unsigned long long)vector->count, vector->world_size,
				(unsigned long long)vector->seed, (unsigned long long)vector->epoch);
	}
}

/* What DistributedSampler(range(count), world_size, rank, shuffle=False, drop_last=...) yields; EXACT is ours. */
static void the_tail_goes_where_it_is_told(void **state)
{
	static const struct {
		uint64_t count;
		uint32_t rank, world_size;
		collet_sampler_tail tail;
		uint64_t share;
		uint64_t expected[4];
	} rows[] = {
		{10, 0, 3, COLLET_SAMPLER_PAD, 4, {0, 3, 6, 9}},
		{10, 1, 3, COLLET_SAMPLER_PAD, 4, {1, 4, 7, 0}},
		{10, 2, 3, COLLET_SAMPLER_PAD, 4, {2, 5, 8, 1}},
		{10, 2, 3, COLLET_SAMPLER_DROP, 3, {2, 5, 8}},
		{10, 0, 3, COLLET_SAMPLER_DROP, 3, {0, 3, 6}},
		{10, 0, 3, COLLET_SAMPLER_EXACT, 4, {0, 3, 6, 9}},
		{10, 1, 3, COLLET_SAMPLER_EXACT, 3, {1, 4, 7}},
		{9, 2, 3, COLLET_SAMPLER_PAD, 3, {2, 5, 8}},
		{2, 2, 5, COLLET_SAMPLER_PAD, 1, {0}},
		{2, 3, 5, COLLET_SAMPLER_PAD, 1, {1}},
		{2, 4, 5, COLLET_SAMPLER_DROP, 0, {0}},
		{2, 1, 5, COLLET_SAMPLER_EXACT, 1, {1}},
		{2, 2, 5, COLLET_SAMPLER_EXACT, 0, {0}},
		{0, 0, 2, COLLET_SAMPLER_PAD, 0, {0}},
		{1, 0, 1, COLLET_SAMPLER_PAD, 1, {0}},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const collet_sampler sampler = { .sample_count = rows[i].count, .rank = rows[i].rank,
			.world_size = rows[i].world_size, .tail = rows[i].tail, .in_order = true };
		assert_int_equal(collet_sampler_count(&sampler), rows[i].share);
		uint64_t *indices = fill(&sampler, 7);
		assert_memory_equal(indices, rows[i].expected, rows[i].share * sizeof(uint64_t));
		free(indices);
	}
}

/* randperm(10), seed 0, distributed to three ranks and padded with its own start: 4 1 7 5 3 9 0 8 6 2 | 4 1. */
static void a_permutation_is_dealt_like_cards(void **state)
{
	static const uint64_t expected[3][4] = { { 4, 5, 0, 2 }, { 1, 3, 8, 4 }, { 7, 9, 6, 1 } };
	for (uint32_t rank = 0; rank < 3; rank++) {
		const collet_sampler sampler = { .sample_count = 10, .rank = rank, .world_size = 3 };
		uint64_t *indices = fill(&sampler, 0);
		assert_memory_equal(indices, expected[rank], sizeof(expected[rank]));
		free(indices);
	}
}

static void exact_gives_every_sample_once(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 7, 64, 1000 };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		uint8_t seen[997] = { 0 };
		uint64_t total = 0;
		for (uint32_t rank = 0; rank < worlds[w]; rank++) {
			const collet_sampler sampler = { .sample_count = 997, .rank = rank, .world_size = worlds[w],
				.seed = 5, .tail = COLLET_SAMPLER_EXACT };
			uint64_t *indices = fill(&sampler, 3);
			for (uint64_t i = 0; i < collet_sampler_count(&sampler); i++)
				assert_int_equal(seen[indices[i]]++, 0);
			total += collet_sampler_count(&sampler);
			free(indices);
		}
		assert_int_equal(total, 997);
	}
}

static void nonsense_is_refused_and_writes_nothing(void **state)
{
	const collet_sampler rows[] = {
		{ .sample_count = 10, .rank = 2, .world_size = 2 },
		{ .sample_count = 10 },
		{ .sample_count = UINT64_C(1) << 32, .world_size = 1 },
		{ .sample_count = 10, .world_size = 1, .tail = (collet_sampler_tail)3 },
		{ .sample_count = 10, .world_size = 1, .reserved = { [10] = 1 } },
	};
	uint64_t index = 77;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(collet_sampler_count(&rows[i]), 0);
		assert_int_equal(collet_sampler_fill(&rows[i], 0, &index), COLLET_ERR_ARGUMENT);
		assert_int_equal(index, 77);
	}
	assert_int_equal(collet_sampler_fill(NULL, 0, &index), COLLET_ERR_ARGUMENT);
	const collet_sampler fine = { .sample_count = 10, .world_size = 1 };
	assert_int_equal(collet_sampler_fill(&fine, 0, NULL), COLLET_ERR_ARGUMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_rank_gets_torch_randperm),
		cmocka_unit_test(sixty_thousand_start_and_end_as_torch_does),
		cmocka_unit_test(every_list_is_what_torch_deals_out),
		cmocka_unit_test(the_tail_goes_where_it_is_told),
		cmocka_unit_test(a_permutation_is_dealt_like_cards),
		cmocka_unit_test(exact_gives_every_sample_once),
		cmocka_unit_test(nonsense_is_refused_and_writes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
