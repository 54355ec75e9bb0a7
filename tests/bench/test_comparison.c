/* How compare groups repeats by the state of the cores, from times that are given: no result and no table mixes near
 * and far, and a repeat in which the state changed counts nowhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare/comparison_results.h"

enum { REPEATS = 4, SIZES = 2 };

/* Collet, two variants of one library, and another one. */
enum { COLLET, ONE, ONE_TUNED, OTHER, COMPETITORS };

static const struct peer_variant variants[COMPETITORS] = { [ONE] = { .library = "one", .name = "default" },
	[ONE_TUNED] = { .library = "one", .name = "tuned" }, [OTHER] = { .library = "other", .name = "default" } };

/* The repeats of one competitor and size: times in ns, and flags before and after. */
struct given {
	size_t size, competitor;
	struct {
		double time_ns, before_ns, after_ns;
	} repeats[REPEATS];
};

static const struct given both_states[] = {
	{ 0, COLLET, { { 50, 47, 48 }, { 300, 240, 250 }, { 52, 47, 49 }, { 310, 241, 240 } } },
	{ 0, ONE, { { 100, 47, 48 }, { 400, 240, 240 }, { 104, 47, 47 }, { 440, 240, 240 } } },
	{ 0, ONE_TUNED, { { 200, 47, 48 }, { 250, 240, 240 }, { 200, 47, 47 }, { 250, 240, 240 } } },
	{ 0, OTHER, { { 500, 47, 48 }, { 500, 240, 240 }, { 500, 47, 47 }, { 500, 240, 240 } } },
	/* Far comes while some are measured; the changed repeats would be the best ones. */
	{ 1, COLLET, { { 10, 46, 47 }, { 1, 46, 240 }, { 12, 47, 47 }, { 90, 240, 240 } } },
	{ 1, ONE, { { 20, 47, 46 }, { 20, 47, 47 }, { 1, 240, 47 }, { 30, 47, 47 } } },
	{ 1, OTHER, { { 40, 47, 46 }, { 40, 240, 240 }, { 36, 47, 47 }, { 40, 240, 47 } } },
};
static const struct given one_state[] = {
	{ 0, COLLET, { { 50, 47, 48 }, { 51, 48, 48 }, { 52, 47, 47 }, { 53, 47, 47 } } },
	{ 0, ONE, { { 100, 47, 48 }, { 100, 48, 48 }, { 100, 47, 47 }, { 100, 47, 47 } } },
};
static const struct given no_flags[] = {
	{ 0, COLLET, { { 50, 0, 0 }, { 52, 0, 0 }, { 54, 0, 0 }, { 56, 0, 0 } } },
	{ 0, ONE, { { 100, 0, 0 }, { 100, 0, 0 }, { 100, 0, 0 }, { 100, 0, 0 } } },
};

static struct bench_options options;
static struct comparison all;
static struct repeat repeats[SIZES * COMPETITORS_MAX * REPEATS];
static bool slow[SIZES * COMPETITORS_MAX];

static void take(const struct given *given, size_t count)
{
	options = (struct bench_options){ .repeats = REPEATS, .sizes = { .bytes = { 4, 65536 }, .count = SIZES } };
	all = (struct comparison){ .options = &options, .repeats = repeats, .slow = slow, .count = COMPETITORS,
		.work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32 }, .bootstrap = { .ranks = 2 },
		.competitors = { [COLLET].name = "collet", [ONE].name = "one", [ONE_TUNED].name = "one:tuned",
			[OTHER].name = "other" } };
	memset(repeats, 0, sizeof(repeats));
	for (size_t c = 1; c < COMPETITORS; c++)
		all.competitors[c].variant = &variants[c];
	for (size_t i = 0; i < count; i++)
		for (size_t r = 0; r < REPEATS; r++) {
			const double before_ns = given[i].repeats[r].before_ns, after_ns = given[i].repeats[r].after_ns;
			comparison_repeats(&all, given[i].size, given[i].competitor)[r] = (struct repeat){
				.time_ns = given[i].repeats[r].time_ns, .cpu_ns = 2 * given[i].repeats[r].time_ns,
				.flag_ns = (before_ns + after_ns) / 2, .cores = bench_cores_of(before_ns, after_ns) };
		}
}

#define TAKE(given) take(given, sizeof(given) / sizeof((given)[0]))

static void each_state_has_its_own_medians_and_best_peer(void **state)
{
	static const struct {
		size_t size;
		enum bench_cores cores;
		double mine_ns;         /* collet's median */
		size_t best;
		double best_ns, ratio;  /* 0: never measured beside collet */
	} rows[] = {
		{ 0, BENCH_CORES_NEAR, 51, ONE, 102, 0.5 },
		{ 0, BENCH_CORES_FAR, 305, ONE_TUNED, 250, 1.22 },
		{ 0, BENCH_CORES_UNKNOWN, 0, 0, 0, 0 },
		/* ONE was beside collet once: its ratio is that repeat's, its median that of three. */
		{ 1, BENCH_CORES_NEAR, 11, ONE, 20, 0.5 },
		{ 1, BENCH_CORES_FAR, 90, OTHER, 40, 0 },
	};
	TAKE(both_states);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const size_t best = comparison_best_peer(&all, rows[i].size, rows[i].cores, COMPARISON_PLAIN);
		const struct comparison_result mine = comparison_result(&all, rows[i].size, COLLET, rows[i].cores,
						       COMPARISON_PLAIN),
					       its = comparison_result(&all, rows[i].size, best, rows[i].cores,
						       COMPARISON_PLAIN);
		const double difference = its.ratio.median - rows[i].ratio;
		if (mine.median_ns != rows[i].mine_ns || best != rows[i].best || difference > 1e-9 || difference < -1e-9
			|| (best > 0 && its.median_ns != rows[i].best_ns) || mine.cpu_ns != 2 * rows[i].mine_ns)
			fail_msg("row %zu: collet %.1f, best %zu with %.1f, ratio %.3f", i, mine.median_ns, best,
				its.median_ns, its.ratio.median);
	}
	assert_true(comparison_leader_ns(&all, 0, ONE, BENCH_CORES_NEAR) == 102);
	assert_true(comparison_leader_ns(&all, 0, ONE, BENCH_CORES_FAR) == 250);
	assert_true(comparison_leader_ns(&all, 1, ONE, BENCH_CORES_FAR) == -1);
}

static void flags_are_told_by_state(void **state)
{
	TAKE(both_states);
	struct comparison_flags flags = comparison_flags(&all, SIZES, BENCH_CORES_NEAR);
	assert_int_equal(flags.repeats, 8 + 2 + 3 + 2);
	assert_true(flags.least_ns == 46.5 && flags.most_ns == 48 && flags.median_ns == 47);
	assert_int_equal(comparison_flags(&all, SIZES, BENCH_CORES_FAR).repeats, 8 + 1 + 0 + 1);
	assert_int_equal(comparison_flags(&all, 1, BENCH_CORES_FAR).repeats, 8);
	assert_null(comparison_unseen_cores(&all, SIZES));
	TAKE(one_state);
	assert_string_equal(comparison_unseen_cores(&all, SIZES), "far");
	TAKE(no_flags);
	assert_null(comparison_unseen_cores(&all, SIZES));
}

static char table[8192], document[8192];

static void print(void)
{
	memset(table, 0, sizeof(table));
	memset(document, 0, sizeof(document));
	all.table = fmemopen(table, sizeof(table), "w");
	all.markdown = fmemopen(document, sizeof(document), "w");
	assert_true(all.table != NULL && all.markdown != NULL);
	comparison_print_table(&all, SIZES);
	comparison_print_markdown(&all, SIZES);
	assert_true(fclose(all.table) == 0 && fclose(all.markdown) == 0);
}

static void has(const char *text, const char *part, bool wanted)
{
	if ((strstr(text, part) != NULL) != wanted)
		fail_msg("%s\"%s\" in:\n%s", wanted ? "no " : "", part, text);
}

static void each_state_has_a_table(void **state)
{
	static const struct {
		const char *text, *part;
		bool wanted;
	} rows[] = {
		{ table, "# cores near: a flag took 47 ns one way (46 to 48)\n     bytes      collet ", true },
		{ table, "# cores far: a flag took 240 ns one way (240 to 245)\n     bytes      collet ", true },
		{ table, "# every variant, cores near; ", true },
		{ table, "# every variant, cores far; ", true },
		{ table, "\n#   64 KiB   46  143~   47  240\n", true },
		{ table, "never", false },
		{ document, ", near cores (a flag takes 47 ns one way):\n\n| bytes | collet | one | other |", true },
		{ document, ", far cores (a flag takes 240 ns one way):\n\n| bytes | collet | one | other |", true },
		{ document, "| 4 B | 0.051 | 0.102 | 0.500 | one | 0.50 | 0.50 to 0.50 | 0.102 | 0.204 |\n", true },
		{ document, "| 4 B | 0.305 | 0.250 | 0.500 | one:tuned | 1.22 | 1.20 to 1.24 | 0.610 |", true },
		{ document, "| 64 KiB | 0.090 | - | 0.040 | - | - | - | 0.180 | 0.080 |\n", true },
	};
	TAKE(both_states);
	print();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		has(rows[i].text, rows[i].part, rows[i].wanted);
}

static void rewritten_calls_have_a_best_peer_of_their_own(void **state)
{
	TAKE(one_state);
	options.mode.rewrite = true;
	for (size_t r = 0; r < REPEATS; r++) {
		comparison_repeats(&all, 0, COLLET)[r].rewritten_ns = 200;
		comparison_repeats(&all, 0, ONE)[r].rewritten_ns = 400;
		comparison_repeats(&all, 0, OTHER)[r] = (struct repeat){ .time_ns = 500, .rewritten_ns = 160,
			.flag_ns = 47, .cores = BENCH_CORES_NEAR };
	}
	print();
	has(table, " rewritten  best peer                     ratio\n", true);
	has(table, "0.200  other                          1.25\n", true);
	has(table, "# every variant, cores near, inputs rewritten; ", true);
	has(document, "| CPU | its CPU | rewritten | best peer | ratio |\n", true);
	has(document, "| one | 0.52 | 0.50 to 0.53 | 0.103 | 0.200 | 0.200 | other | 1.25 |\n", true);
	has(document, "| 64 KiB |", false);
	TAKE(one_state);
	print();
	has(table, "rewritten", false);
	has(document, "rewritten", false);
}

static void a_state_that_was_not_seen_has_none_and_is_named(void **state)
{
	TAKE(one_state);
	print();
	has(table, "# cores near: ", true);
	has(table, "# cores far", false);
	has(table, "# cores were never far meanwhile\n", true);
	has(document, "near cores", true);
	has(document, "\nCores were never far meanwhile.\n", true);
}

static void without_flags_there_is_one_table_that_names_no_state(void **state)
{
	TAKE(no_flags);
	print();
	has(table, "# cores", false);
	has(table, "flag", false);
	has(document, "times in µs:\n", true);
	has(document, "| 4 B | 0.053 | 0.100 |", true);
	has(document, "ores", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_has_its_own_medians_and_best_peer),
		cmocka_unit_test(flags_are_told_by_state),
		cmocka_unit_test(each_state_has_a_table),
		cmocka_unit_test(rewritten_calls_have_a_best_peer_of_their_own),
		cmocka_unit_test(a_state_that_was_not_seen_has_none_and_is_named),
		cmocka_unit_test(without_flags_there_is_one_table_that_names_no_state),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
