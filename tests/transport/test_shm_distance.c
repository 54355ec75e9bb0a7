/* Tests the mean of shm_distance.h: which loads count, by how much, and what is far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transport/shm/shm_distance.h"

enum { SAMPLES = 1000 };

static const uint64_t never_reached = (uint64_t)1 << 40; /* ticks: some minutes */

/* Loads a word that has changed, or has not. Returns the ticks that the call took. */
static uint64_t load(struct shm_distance *distance, bool changes)
{
	static _Atomic uint64_t word;
	const uint64_t before = word, value = before + changes;
	atomic_store(&word, value);
	const uint64_t start = collet_ticks();
	assert_int_equal(collet_shm_distance_load(distance, &word, before), value);
	return collet_ticks() - start;
}

/* Each sample replaces an eighth of the sum, and counts as SHM_DISTANCE_MOST_NS at most. */
static void a_change_is_a_sample(void **state)
{
	static const struct {
		const char *what;
		uint64_t far_ticks, ticks_sum;
	} rows[] = {
		{ "the first one", 10000, 0 },
		{ "a mean of 100 ticks", 10000, 100 * SHM_DISTANCE_SAMPLES },
		{ "a mean of a thousand times that", 10000, 100000 * SHM_DISTANCE_SAMPLES },
		{ "each sample counts as the most", 1, 0 },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct shm_distance distance = { .far_ticks = rows[row].far_ticks, .ticks_sum = rows[row].ticks_sum };
		const uint64_t most = rows[row].far_ticks * SHM_DISTANCE_MOST_NS / SHM_FAR_NS;
		for (unsigned i = 0; i < SAMPLES; i++) {
			const uint64_t rest = distance.ticks_sum - distance.ticks_sum / SHM_DISTANCE_SAMPLES;
			const uint64_t took = load(&distance, true);
			const uint64_t sample = distance.ticks_sum - rest;
			if (distance.ticks_sum < rest || sample > took || sample > most)
				fail_msg("%s: sample %u counts as %llu ticks", rows[row].what, i,
					(unsigned long long)sample);
		}
	}
}

static void no_change_is_no_sample(void **state)
{
	struct shm_distance distance = { .far_ticks = 10000, .ticks_sum = 777 };
	for (unsigned i = 0; i < SAMPLES; i++)
		(void)load(&distance, false);
	assert_int_equal(distance.ticks_sum, 777);
}

/* The mean goes from far to near within some tens of samples, and the other way. */
static void the_mean_decides(void **state)
{
	static const struct {
		const char *what;
		uint64_t far_ticks, ticks_sum;
		bool is_far_before, is_far_after;
	} rows[] = {
		{ "stays near", never_reached, 0, false, false },
		{ "comes near", never_reached, never_reached * 16 * SHM_DISTANCE_SAMPLES, true, false },
		{ "exactly at the limit", never_reached, never_reached * SHM_DISTANCE_SAMPLES, false, false },
		{ "goes far", 1, 0, false, true },
		{ "stays far", 1, 9 * SHM_DISTANCE_SAMPLES, true, true },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct shm_distance distance = { .far_ticks = rows[row].far_ticks, .ticks_sum = rows[row].ticks_sum };
		const bool before = shm_distance_is_far(&distance);
		for (unsigned i = 0; i < 8 * SHM_DISTANCE_SAMPLES; i++)
			(void)load(&distance, true);
		const bool after = shm_distance_is_far(&distance);
		if (before != rows[row].is_far_before || after != rows[row].is_far_after)
			fail_msg("%s: far before: %d, after: %d", rows[row].what, before, after);
	}
}

/* Nothing is known before the ticks have been compared with the clock. */
static void the_rate_is_learned_first(void **state)
{
	struct shm_distance distance;
	shm_distance_init(&distance);
	distance.start_ns = collet_clock_ns() + 60 * INT64_C(1000000000); /* the time has not passed yet */
	(void)load(&distance, true);
	assert_true(distance.far_ticks == 0 && distance.ticks_sum == 0 && !shm_distance_is_far(&distance));
	shm_distance_init(&distance);
	distance.start_ns -= 1000 * (int64_t)SHM_RATE_NS; /* a second, of 2 * 10^9 ticks */
	distance.start_ticks -= UINT64_C(2000000000);
	(void)load(&distance, true);
	assert_true(distance.far_ticks >= 2 * SHM_FAR_NS - 20 && distance.far_ticks <= 4 * SHM_FAR_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_is_a_sample),
		cmocka_unit_test(no_change_is_no_sample),
		cmocka_unit_test(the_mean_decides),
		cmocka_unit_test(the_rate_is_learned_first),
	};
	return cmocka_run_group_tests_name("shm_distance", tests, NULL, NULL);
}
