/* What compare says of cores that are near each other at one time and far at the next, from times that are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare/comparison.h"

enum { REPEATS = 4, SIZES = 2 };

/* One competitor's repeats of one size. */
struct given {
	size_t size, competitor;
	double times_ns[REPEATS], flags_ns[REPEATS];
};

/* Collet and two peers; the first is the better one while cores are near, the second while they are far. */
static const struct given two_places[] = {
	{ 0, 0, { 50, 300, 52, 310 }, { 47, 240, 48, 250 } },
	{ 0, 1, { 100, 400, 100, 400 }, { 47, 240, 48, 250 } },
	{ 0, 2, { 200, 200, 200, 200 }, { 47, 240, 48, 250 } },
	{ 1, 0, { 10, 12, 13, 90 }, { 47, 46, 47, 240 } },
	{ 1, 1, { 20, 20, 20, 30 }, { 47, 46, 240, 0 } },
};
static const struct given one_place[] = {
	{ 0, 0, { 50, 51, 52, 53 }, { 47, 48, 48, 50 } },
	{ 0, 1, { 100, 100, 100, 100 }, { 47, 46, 48, 45 } },
};
static const struct given no_place[] = {
	{ 0, 0, { 50, 51, 52, 53 }, { 0 } },
	{ 0, 1, { 100, 100, 100, 100 }, { 0 } },
};

static void text_of(const struct given *given, size_t count, char *table, char *document, size_t bytes)
{
	static struct comparison all;
	static double times_ns[SIZES * COMPETITORS_MAX * REPEATS], flags_ns[SIZES * COMPETITORS_MAX * REPEATS];
	struct bench_options options = { .repeats = REPEATS, .sizes = { .count = SIZES } };
	options.sizes.bytes[0] = 4;
	options.sizes.bytes[1] = 65536;
	all = (struct comparison){ .options = &options, .times_ns = times_ns, .flags_ns = flags_ns, .count = 3,
		.work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32 }, .bootstrap = { .ranks = 2 },
		.competitors = { { .name = "collet" }, { .name = "one" }, { .name = "other" } } };
	memset(times_ns, 0, sizeof(times_ns));
	memset(flags_ns, 0, sizeof(flags_ns));
	for (size_t i = 0; i < count; i++) {
		const size_t from = comparison_times_at(&all, given[i].size, given[i].competitor);
		memcpy(&times_ns[from], given[i].times_ns, sizeof(given[i].times_ns));
		memcpy(&flags_ns[from], given[i].flags_ns, sizeof(given[i].flags_ns));
	}
	memset(table, 0, bytes);
	memset(document, 0, bytes);
	all.table = fmemopen(table, bytes, "w");
	all.markdown = fmemopen(document, bytes, "w");
	assert_true(all.table != NULL && all.markdown != NULL);
	comparison_print_core_latency(&all, SIZES);
	assert_true(fclose(all.table) == 0 && fclose(all.markdown) == 0);
}

static void wants(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void near_and_far_have_a_ratio_and_a_best_peer_each(void **state)
{
	char table[2048], document[2048];
	text_of(two_places, sizeof(two_places) / sizeof(two_places[0]), table, document, sizeof(table));
	wants(table, "# a flag took 47 ns from core to core at ");
	wants(document, "| 4 B | 0.51 | 0.50 to 0.52 | one | 1.52 | 1.50 to 1.55 | other |\n");
	/* A repeat counts where both were timed in the same place: two near, and none far. */
	wants(document, "| 64 KiB | 0.55 | 0.50 to 0.60 | one | - | - | - |\n");
}

static void cores_that_stay_have_one_line_of_the_table(void **state)
{
	char table[2048], document[2048];
	text_of(one_place, sizeof(one_place) / sizeof(one_place[0]), table, document, sizeof(table));
	assert_string_equal(table, "# a flag took 48 ns from core to core\n");
	assert_string_equal(document, "");
}

static void what_could_not_be_measured_is_not_told(void **state)
{
	char table[2048], document[2048];
	text_of(no_place, sizeof(no_place) / sizeof(no_place[0]), table, document, sizeof(table));
	assert_string_equal(table, "");
	assert_string_equal(document, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(near_and_far_have_a_ratio_and_a_best_peer_each),
		cmocka_unit_test(cores_that_stay_have_one_line_of_the_table),
		cmocka_unit_test(what_could_not_be_measured_is_not_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
