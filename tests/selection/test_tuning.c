/* Tests the text of tunings, and the costs that are computed from tunings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selection/choice.h"
#include "comma_locale.h"

static const char machine[] = "3 cores, a kind of its own";

static const char *builtin_file; /* src/selection/builtin.tuning, from which the build embeds the text */

static collet_link_cost some_link(void)
{
	collet_link_cost link = { .transport = "shm",
		.ranks = 4,
		.cores = 2,
		.latency_ns = 250,
		.overhead_ns = 31.25,
		.segment_ns = 15.5,
		.byte_ns = { 0.5, 0.25, 0.125, 0.0625 },
		.uncached_byte_ns = 0.5,
		.reduce_byte_ns = 0.03125,
		.uncached_reduce_byte_ns = 1,
		.cached_bytes = 1 << 20,
		.min_segment_bytes = 8192,
		.max_segment_bytes = 131072,
		.channel_ratios = { 1, 0.5, 1.25 },
		.eager_bytes = 32768,
		.fast_path_bytes = 16384,
		.size_count = 3,
		.size_bytes = { 8, 4096, 1 << 20 } };
	link.factor[0][0] = 1.5F;
	link.factor[0][2] = 0.75F;
	link.factor[collet_program_index(collet_program_find(COLLET_ALLTOALL, "pairwise"))][1] = 2;
	link.segment_log2[0][2] = 16;
	link.channels_log2[0][2] = 2;
	return link;
}

__attribute__((noinline)) static char *text_for(const char *on, const collet_link_cost *links, size_t count)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	assert_non_null(out);
	collet_tuning_format(out, on, links, count);
	assert_int_equal(fclose(out), 0);
	return text;
}

static char *text_of(const collet_link_cost *links, size_t count)
{
	return text_for(machine, links, count);
}

static void text_comes_back(void **state)
{
	(void)state;
	const collet_link_cost one = some_link();
	collet_link_cost two[2] = {one, one}, back[COLLET_TUNING_LINKS];
	strcpy(two[1].transport, "tcp");
	two[1].is_far = 1;
	two[1].cached_bytes = UINT64_MAX;
	two[1].eager_bytes = 0;   /* the default: no line */
	two[1].fast_path_bytes = 0;
	two[1].size_count = 0;
	memset(two[1].size_bytes, 0, sizeof two[1].size_bytes);
	memset(two[1].factor, 0, sizeof two[1].factor);
	memset(two[1].segment_log2, 0, sizeof two[1].segment_log2);
	memset(two[1].channels_log2, 0, sizeof two[1].channels_log2);
	char *text = text_of(two, 2);
	uint32_t count;
	assert_int_equal(collet_tuning_parse(text, "t", machine, back, &count), COLLET_OK);
	assert_int_equal(count, 2);
	assert_memory_equal(back, two, sizeof two);
	/* Comments and empty lines are skipped. */
	char more[8192];
	snprintf(more, sizeof more, "# mine\n\n%s# the end\n", text);
	assert_int_equal(collet_tuning_parse(more, "t", machine, back, &count), COLLET_OK);
	assert_int_equal(collet_tuning_parse(text, "t", NULL, back, &count), COLLET_OK);
	/* A tuning for any machine holds for this one. */
	const char *rest = strchr(strchr(text, '\n') + 1, '\n');
	snprintf(more, sizeof more, "%.*s\nmachine any%s", (int)strcspn(text, "\n"), text, rest);
	assert_int_equal(collet_tuning_parse(more, "t", machine, back, &count), COLLET_OK);
	free(text);
}

/* Replaces the first `from` in a good text by `to`. The error must name this line and contain `says`. */
static void what_is_not_understood_is_an_error(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to;
		uint32_t line;
		const char *says;
	} rows[] = {
		{"collet-tuning 2", "collet-tunning 1", 1, "no tuning"},
		{"collet-tuning 2", "collet-tuning 7", 1, "format 7; this version reads 2"},
		{"collet-tuning 2\n", "", 1, "no tuning"},
		{"3 cores, a", "4 cores, a", 2, "another machine: 4 cores, a kind of its own, not 3 cores"},
		{"machine 3 cores, a kind of its own\n", "", 22, "no line \"machine\""},
		{"link shm 4 2\n", "", 3, "\"latency\" before the first \"link\""},
		{"link shm 4 2", "link shm 4", 3, "takes a transport, a number of ranks, one of cores"},
		{"link shm 4 2", "link shm 0 2", 3, "takes a transport"},
		{"link shm 4 2", "link a-name-that-is-far-too-long 4 2", 3, "takes a transport"},
		{"link shm 4 2", "link shm 4 2 near", 3, "\"far\" or nothing"},
		{"link shm 4 2", "link shm 4 2 far far", 3, "\"far\" or nothing"},
		{"latency 250", "latency", 4, "takes 1 numbers, not 0"},
		{"latency 250", "latency 250 1", 4, "takes 1 numbers, not 2"},
		{"latency 250", "latency -250", 4, "\"-250\" is no number"},
		{"latency 250", "latency nan", 4, "\"nan\" is no number"},
		{"latency 250", "latency 250ns", 4, "\"250ns\" is no number"},
		{"latency 250\n", "", 18, "has no \"latency\""},
		{"message 31.25", "latency 250", 5, "\"latency\" is there twice"},
		{"message 31.25", "mesage 31.25", 5, "\"mesage\" means nothing"},
		{"latency 250", "latency 1e300", 22, "cannot be"},
		{"pieces 8192 131072", "pieces 131072 8192", 20, "pieces of 131072 to 8192"},
		{"pieces 8192 131072", "pieces 8192 99999999999", 12, "\"99999999999\" is no number"},
		{"eager 32768", "eager 1000", 21, "messages of up to 1000 bytes at once; 1024 to 262144 is meant"},
		{"eager 32768", "eager 262145", 21, "messages of up to 262145 bytes"},
		{"eager 32768", "eager -1", 14, "\"-1\" is no number"},
		{"inline 16384", "inline 262145", 21, "calls of up to 262145 bytes inline; 1024 to 262144 is meant"},
		{"inline 16384", "eager 16384", 15, "\"eager\" is there twice"},
		{"channels 1 0.5", "channels 2 0.5", 21, "the part for 1 channel is not 1"},
		{"channels 1 0.5", "channels 1 5000", 21, "the part for 2 channels is not from 0 to 1000"},
		{"channels 1 0.5", "channels 1 nan", 13, "\"nan\" is no number"},
		{"- - 65536x4", "- - 65536", 18, "\"65536\" is no way"},
		{"- - 65536x4", "- - 65537x4", 18, "\"65537x4\" is no way"},
		{"- - 65536x4", "- - 65536x16", 18, "\"65536x16\" is no way"},
		{"- - 65536x4", "- 65536x4", 18, "as many numbers as there are sizes"},
		{"way allreduce direct", "way allreduce dirct", 18, "names no algorithm"},
		{"sizes 8 4096", "sizes 4096 8", 16, "\"8\" is no size that follows"},
		{"sizes 8", "sizes 1 2 3 4 5 6 7 8 9 10 11", 16, "up to 12 sizes"},
		{"factor allreduce direct", "factor allreduce dirct", 17, "names no algorithm"},
		{"factor allreduce direct 150 - 75", "factor allreduce direct 150 -", 17,
			"as many numbers as there are sizes"},
		{"factor allreduce direct 150", "factor allreduce direct 0", 17, "\"0\" is no factor"},
		{"end\n", "", 19, "ends without \"end\""},
		{"end\n", "end\nlatency 1\n", 19, "follows \"end\""},
	};
	const collet_link_cost link = some_link();
	char *good = text_of(&link, 1);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char text[8192], where[32];
		collet_link_cost links[COLLET_TUNING_LINKS];
		uint32_t count;
		const char *at = strstr(good, rows[i].from);
		assert_non_null(at);
		snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, rows[i].to, at + strlen(rows[i].from));
		assert_int_equal(collet_tuning_parse(text, "some/file", machine, links, &count), COLLET_ERR_CONFIG);
		snprintf(where, sizeof where, "some/file:");
		if (strncmp(collet_last_error(), where, strlen(where)) != 0 ||
			!strstr(collet_last_error(), rows[i].says))
			fail_msg("\"%s\" for \"%s\": %s", rows[i].to, rows[i].from, collet_last_error());
		const unsigned long line = strtoul(collet_last_error() + strlen(where), NULL, 10);
		if (rows[i].line < 16 && line != rows[i].line)
			fail_msg("\"%s\" is on line %u: %s", rows[i].to, rows[i].line, collet_last_error());
	}
	char *many = text_of(&link, 1), *all = malloc((COLLET_TUNING_LINKS + 2) * (strlen(many) + 1));
	assert_non_null(all);
	strcpy(all, "collet-tuning 2\nmachine any\n");
	char *from = strstr(many, "link"), *end = strstr(many, "end\n");
	*end = '\0';
	for (int i = 0; i <= COLLET_TUNING_LINKS; i++)
		strcat(all, from);
	collet_link_cost links[COLLET_TUNING_LINKS];
	uint32_t count;
	assert_int_equal(collet_tuning_parse(all, "t", NULL, links, &count), COLLET_ERR_CONFIG);
	assert_non_null(strstr(collet_last_error(), "more than 64 links"));
	free(all);
	free(many);
	free(good);
}

/* Each transport must have a link, with a core for each rank and with fewer. */
static void the_builtin_one_is_whole(void **state)
{
	(void)state;
	collet_link_cost links[COLLET_TUNING_LINKS];
	const uint32_t count = collet_tuning_builtin(links);
	assert_true(count > 0);
	static const char *const transports[] = {"self", "shm", "tcp"};
	for (size_t t = 0; t < 3; t++)
		assert_non_null(collet_tuning_find(links, count, transports[t], 2, 2));
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(collet_tuning_check(&links[i]), COLLET_OK);
	assert_int_equal(collet_tuning_find(links, count, "shm", 2, 2)->ranks, 2);
	assert_int_equal(collet_tuning_find(links, count, "shm", 4, 2)->ranks, 4);
	assert_null(collet_tuning_find(links, count, "pigeons", 2, 2));
	const collet_link_cost fixed = collet_tuning_fixed();
	assert_int_equal(collet_tuning_check(&fixed), COLLET_OK);
}

/* Compares the embedded text with its file. scripts/refit measures all of these links but self. */
static void the_builtin_one_is_its_file(void **state)
{
	(void)state;
	static const struct {
		const char *transport;
		uint32_t ranks, cores;
	} rows[] = {
		{"self", 1, 1}, {"shm", 2, 2}, {"shm", 4, 2}, {"tcp", 2, 2}, {"tcp", 4, 2}, {"shm", 8, 2},
		{"tcp", 8, 2}, {"shm", 16, 2}, {"tcp", 16, 2}, {"shm", 32, 2}, {"tcp", 32, 2},
		{"shm", 3, 2}, {"shm", 6, 2}, {"shm", 5, 2}, {"shm", 7, 2},
	};
	enum { ROWS = sizeof rows / sizeof rows[0] };
	collet_link_cost links[COLLET_TUNING_LINKS];
	assert_int_equal(collet_tuning_builtin(links), ROWS);
	for (size_t i = 0; i < ROWS; i++) {
		assert_string_equal(links[i].transport, rows[i].transport);
		assert_int_equal(links[i].ranks, rows[i].ranks);
		assert_int_equal(links[i].cores, rows[i].cores);
	}
	char *text = text_for("any", links, ROWS), *file = calloc(1, strlen(text) + 2);
	assert_non_null(file);
	FILE *in = fopen(builtin_file, "r");
	assert_non_null(in);
	assert_int_equal(fread(file, 1, strlen(text) + 1, in), strlen(text));
	fclose(in);
	assert_string_equal(file, text);
	free(file);
	free(text);
}

/* Takes the link with the nearest number of ranks a core, and of these the one with the nearest number of ranks. */
static void the_nearest_link_is_taken(void **state)
{
	(void)state;
	collet_link_cost links[4];
	static const uint32_t ranks[4] = {2, 8, 4, 16};
	for (int i = 0; i < 4; i++) {
		links[i] = some_link();
		links[i].ranks = ranks[i];
		links[i].cores = i < 2 ? 8 : 2;
	}
	static const struct {
		uint32_t ranks, cores, found;
	} rows[] = {
		{2, 8, 0}, {3, 8, 0}, {7, 8, 1}, {8, 0, 1}, {4, 2, 2}, {6, 2, 2}, {16, 2, 3}, {64, 2, 3}, {12, 8, 2}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const collet_link_cost *found = collet_tuning_find(links, 4, "shm", rows[i].ranks, rows[i].cores);
		if (found != &links[rows[i].found])
			fail_msg("%u ranks on %u cores: %u ranks", rows[i].ranks, rows[i].cores, found->ranks);
	}
}

/* Rows of far cores are found by just their numbers of ranks and cores, and by nothing that asks for near ones. */
static void far_rows_are_found_apart(void **state)
{
	(void)state;
	collet_link_cost links[3];
	for (int i = 0; i < 3; i++) {
		links[i] = some_link();
		links[i].ranks = i < 2 ? 4 : 8;
		links[i].cores = 2;
		links[i].is_far = i > 0;
	}
	assert_ptr_equal(collet_tuning_find(links, 3, "shm", 4, 2), &links[0]);
	assert_ptr_equal(collet_tuning_find(links, 3, "shm", 8, 2), &links[0]);
	assert_null(collet_tuning_find_beside(links, 3, &links[0], 6, 2));
	assert_ptr_equal(collet_tuning_find_far(links, 3, "shm", 4, 2), &links[1]);
	assert_ptr_equal(collet_tuning_find_far(links, 3, "shm", 8, 2), &links[2]);
	assert_null(collet_tuning_find_far(links, 3, "shm", 6, 2));
	assert_null(collet_tuning_find_far(links, 3, "shm", 4, 4));
	assert_null(collet_tuning_find_far(links, 3, "tcp", 4, 2));
	links[0].is_far = 2;
	assert_int_equal(collet_tuning_check(&links[0]), COLLET_ERR_ARGUMENT);
	collet_link_cost builtin[COLLET_TUNING_LINKS];
	bool has_far = false;
	for (uint32_t i = collet_tuning_builtin(builtin); i-- > 0;)
		has_far |= builtin[i].is_far;
	assert_int_equal(collet_tuning_builtin_has_far(), has_far);
}

static void near(double value, double wanted)
{
	if (fabs(value - wanted) > 1e-6 * fabs(wanted))
		fail_msg("%.9g, not %.9g", value, wanted);
}

static void factors_are_read_off_a_line(void **state)
{
	(void)state;
	const collet_link_cost link = some_link();
	const struct collet_program *direct = collet_program_find(COLLET_ALLREDUCE, "direct");
	near(collet_tuning_factor(&link, direct, 0), 1.5);
	near(collet_tuning_factor(&link, direct, 8), 1.5);
	near(collet_tuning_factor(&link, direct, 1 << 20), 0.75);
	near(collet_tuning_factor(&link, direct, (uint64_t)1 << 40), 0.75);
	/* 4096 was not measured: its factor is interpolated. */
	const double middle = collet_tuning_factor(&link, direct, 4096);
	assert_true(middle < 1.5 && middle > 0.75);
	assert_true(collet_tuning_factor(&link, direct, 64) > middle);
	near(collet_tuning_factor(&link, collet_program_find(COLLET_ALLTOALL, "pairwise"), 77), 2);
	near(collet_tuning_factor(&link, collet_program_find(COLLET_BROADCAST, "tree"), 77), 1);
	/* An algorithm that was not measured is no better than the worst that was. */
	near(collet_tuning_factor(&link, collet_program_find(COLLET_ALLREDUCE, "ring"), 8), 1.5);
	near(collet_tuning_factor(&link, collet_program_find(COLLET_ALLTOALL, "direct"), 77), 2);
}

static double cost_between(const collet_link_cost *link, const collet_link_cost *beside, uint32_t size, uint32_t cores,
	uint64_t count)
{
	const struct collet_choice_inputs inputs = { .size = size,
		.beside = beside,
		.host_count = 1,
		.cores_per_host = cores,
		.local = link,
		.remote = link,
		.scratch_bytes = 8 << 20 };
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, size, 0, count);
	return collet_choice_cost(&inputs, collet_program_find(COLLET_ALLREDUCE, "direct"), &shape, 4,
		(struct collet_segmentation){ .segment_bytes = 65536, .channels = 1 });
}

static double cost_with(const collet_link_cost *link, uint32_t size, uint32_t cores, uint64_t count)
{
	return cost_between(link, NULL, size, cores, count);
}

/* Between two measured worlds whose ranks share as many cores, both predict. */
static void a_world_between_two_uses_both(void **state)
{
	(void)state;
	enum { ROWS = 6 };
	static const struct {
		const char *transport;
		uint32_t ranks, cores, sizes;
	} of[ROWS] = {{"tcp", 2, 2, 1}, {"tcp", 4, 2, 1}, {"tcp", 8, 2, 1}, {"tcp", 16, 4, 1}, {"shm", 5, 2, 1},
		{"tcp", 6, 2, 0}};
	static collet_link_cost rows[ROWS];
	for (int i = 0; i < ROWS; i++) {
		rows[i] = some_link();
		strcpy(rows[i].transport, of[i].transport);
		rows[i].ranks = of[i].ranks;
		rows[i].cores = of[i].cores;
		rows[i].size_count = of[i].sizes ? rows[i].size_count : 0;
	}
	static const struct {
		uint32_t nearest, ranks, cores;
		int beside;
	} worlds[] = {{1, 5, 2, 2}, {2, 7, 2, 1}, {1, 3, 2, -1}, {2, 12, 2, -1}, {2, 8, 2, -1}, {0, 3, 2, -1},
		{3, 12, 4, -1}, {1, 5, 4, -1}, {1, 2, 2, -1}};
	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		const collet_link_cost *beside = collet_tuning_find_beside(
			rows, ROWS, &rows[worlds[i].nearest], worlds[i].ranks, worlds[i].cores);
		if (beside != (worlds[i].beside < 0 ? NULL : &rows[worlds[i].beside]))
			fail_msg("%u ranks: beside them is %s", worlds[i].ranks, beside ? "another row" : "none");
	}
	rows[2].overhead_ns *= 7;
	const double four = cost_with(&rows[1], 5, 2, 2), eight = cost_with(&rows[2], 5, 2, 2), share = log2(5. / 4);
	assert_true(eight > 1.1 * four);
	near(cost_between(&rows[1], &rows[2], 5, 2, 2), pow(four, 1 - share) * pow(eight, share));
	near(cost_between(&rows[2], &rows[1], 5, 2, 2), pow(four, 1 - share) * pow(eight, share));
	near(cost_between(&rows[1], &rows[2], 4, 2, 2), cost_with(&rows[1], 4, 2, 2));
}

/* Factors hold for the ranks and cores of their measurement, and for other numbers of ranks on shared cores. There,
 * times are scaled by the ranks a core, and the cores share the work of all ranks. */
static void a_crowd_takes_longer(void **state)
{
	(void)state;
	const collet_link_cost link = some_link();
	collet_link_cost plain = link;
	plain.size_count = 0;
	near(cost_with(&link, 4, 2, 2), 1.5 * cost_with(&plain, 4, 2, 2));
	near(cost_with(&link, 8, 4, 2), cost_with(&plain, 8, 4, 2));
	near(cost_with(&link, 4, 1, 2), 2 * cost_with(&plain, 4, 2, 2));
	near(cost_with(&link, 6, 2, 2), 1.5 * cost_with(&plain, 6, 2, 2));
	/* A core for each rank: half of what was measured with two ranks a core. */
	const struct collet_cost_model model = collet_tuning_model(&plain, 8, 0.5);
	const struct collet_shape shape = collet_shape_of(COLLET_ALLREDUCE, 0, 4, 0, 2);
	near(cost_with(&link, 4, 4, 2),
		collet_program_find(COLLET_ALLREDUCE, "direct")->cost(&shape, 4, 65536, &model));
	/* Each byte that does not stay in a cache costs more. */
	const double inside = cost_with(&plain, 4, 2, 1 << 18), outside = cost_with(&plain, 4, 2, 1 << 20);
	assert_true(outside > 8 * inside);
}

/* The fit of a tuning relies on this: a cost is the sum of the costs with one number each. */
static void formulas_are_linear(void **state)
{
	(void)state;
	const struct collet_cost_model all = {5e-7, 3e-8, 2e-8, {1e-9, 5e-10, 2e-10, 1e-10}, 7e-11, NULL};
	for (enum collet_collective c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs = collet_programs(c, &count);
		for (size_t i = 0; i < count; i++) {
			const struct collet_shape shape = collet_shape_of(c, 0, 5, 0, 300000);
			if (!collet_program_fits(programs[i], &shape))
				continue;
			double sum = 0;
			for (int u = 0; u < 8; u++) {
				struct collet_cost_model one = { .alpha_s = u == 0 ? all.alpha_s : 0,
					.overhead_s = u == 1 ? all.overhead_s : 0,
					.gamma_s = u == 2 ? all.gamma_s : 0,
					.segment_s = u == 3 ? all.segment_s : 0 };
				if (u >= 4)
					one.beta_s[u - 4] = all.beta_s[u - 4];
				sum += programs[i]->cost(&shape, 4, 65536, &one);
			}
			near(sum, programs[i]->cost(&shape, 4, 65536, &all));
		}
	}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	builtin_file = argv[1];
	comma_locale_from(argc, argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_comes_back),
		cmocka_unit_test(what_is_not_understood_is_an_error),
		cmocka_unit_test(the_builtin_one_is_whole),
		cmocka_unit_test(the_builtin_one_is_its_file),
		cmocka_unit_test(the_nearest_link_is_taken),
		cmocka_unit_test(far_rows_are_found_apart),
		cmocka_unit_test(factors_are_read_off_a_line),
		cmocka_unit_test(a_world_between_two_uses_both),
		cmocka_unit_test(a_crowd_takes_longer),
		cmocka_unit_test(formulas_are_linear),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
