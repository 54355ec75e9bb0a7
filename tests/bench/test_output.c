/* JSON has exactly the documented members, in one line, whatever the values are; the table has what nccl-tests' has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "report/output.h"
#include "report/plot.h"
#include "report/wrap.h"
#include "skip.h"

static const struct bench_measurement measured = {
	.library = "collet",
	.version = "1.2.3",
	.host = "node \"1\"\\",
	.algorithm = "ring",
	.transport = "shm",
	.work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32, .op = COLLET_SUM },
	.buffers = BENCH_HUGE,
	.ranks = 4,
	.pinned = true,
	.bytes = 4000,
	.count = 1000,
	.time_ns = 2000,
	.p50_ns = 1900,
	.p99_ns = 2500,
	.rewritten_ns = -1,
	.cpu_ns = 8000,
	.page_faults = 0,
	.switches = 2.5,
	.predicted_ns = 1500,
	.wrong = 3,
};

static char *written(void (*write)(FILE *, const struct bench_measurement *), const struct bench_measurement *m)
{
	char *text = NULL;
	size_t bytes;
	FILE *memory = open_memstream(&text, &bytes);
	write(memory, m);
	fclose(memory);
	return text;
}

static void a_measurement_is_one_object_with_the_documented_members(void **state)
{
	char *text = written(bench_json_measurement, &measured);
	assert_string_equal(text,
		"{\"library\":\"collet\",\"version\":\"1.2.3\",\"host\":\"node "
		"\\\"1\\\"\\\\\",\"collective\":\"allreduce\","
		"\"algorithm\":\"ring\",\"transport\":\"shm\",\"dtype\":\"f32\",\"op\":\"sum\",\"ranks\":4,\"bytes\":"
		"4000,"
		"\"in_place\":false,\"buffers\":\"huge\",\"pinned\":true,\"time_us\":2,\"p50_us\":1.9,\"p99_us\":2.5,"
		"\"algbw_gbs\":2,\"busbw_gbs\":3,\"wrong\":3,\"cpu_s_per_op\":8e-06,\"page_faults_per_op\":0,"
		"\"switches_per_op\":2.5,\"predicted_us\":1.5}\n");
	free(text);
}

static void of_a_gpu_it_says_how_near_to_a_copy_it_came(void **state)
{
	const struct bench_on_device on = { .name = "a GPU", .copy_gbs = 20, .copy_bytes = 8000 };
	struct bench_measurement m = measured;
	m.device = &on;
	m.threads = true;
	m.buffers = BENCH_DEVICE;
	/* 8000 bytes in 2000 ns are 4 GB/s, a fifth. */
	char *text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"buffers\":\"device\""));
	assert_non_null(strstr(text,
		"\"predicted_us\":1.5,\"threads\":true,\"device\":\"a GPU\",\"copy_gbs\":20,\"of_copy\":0.2}\n"));
	free(text);
	text = written(bench_table_header, &m);
	assert_non_null(strstr(text, ", threads, device buffers\n# GPU: a GPU; copies within its memory at 20.0 GB/s"));
	free(text);
	text = written(bench_table_row, &m);
	assert_non_null(strstr(text, "       3    20.00\n"));
	free(text);
}

static void of_calls_on_a_stream_it_says_what_they_cost_the_host(void **state)
{
	struct bench_on_device on = { .name = "a GPU", .copy_gbs = 20, .copy_bytes = 8000, .calling = "stream",
		.host_ns = 4200 };
	struct bench_measurement m = measured;
	m.device = &on;
	char *text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"of_copy\":0.2,\"calling\":\"stream\",\"host_us\":4.2}\n"));
	free(text);
	text = written(bench_table_header, &m);
	assert_non_null(strstr(text, "# calls on a stream, times by the stream's events;"));
	assert_non_null(strstr(text, "of copy       host\n"));
	free(text);
	text = written(bench_table_row, &m);
	assert_non_null(strstr(text, "    20.00      4.200\n"));
	free(text);
	on.calling = "graph";
	on.host_ns = -1;
	text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"calling\":\"graph\",\"host_us\":null}\n"));
	free(text);
}

static void rewritten_inputs_have_a_column_and_a_member(void **state)
{
	struct bench_measurement m = measured;
	m.rewritten_ns = 4200;
	char *text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"p99_us\":2.5,\"rewritten_us\":4.2,\"algbw_gbs\""));
	free(text);
	text = written(bench_table_header, &m);
	assert_non_null(strstr(text, "   wrong  rewritten\n"));
	free(text);
	text = written(bench_table_row, &m);
	assert_non_null(strstr(text, "       3      4.200\n"));
	free(text);
}

static void what_was_disturbed_is_marked(void **state)
{
	static const struct {
		enum bench_disturbance disturbance;
		const char *json, *row;
	} rows[] = {
		{ BENCH_NOT_JUDGED, "\"predicted_us\":1.5}\n", "       3\n" },
		{ BENCH_UNDISTURBED, "\"predicted_us\":1.5,\"disturbed\":false}\n", "       3\n" },
		{ BENCH_DISTURBED, "\"predicted_us\":1.5,\"disturbed\":true}\n", "       3 *\n" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_measurement m = measured;
		m.disturbance = rows[i].disturbance;
		char *text = written(bench_json_measurement, &m);
		assert_non_null(strstr(text, rows[i].json));
		free(text);
		text = written(bench_table_row, &m);
		assert_non_null(strstr(text, rows[i].row));
		free(text);
	}
}

static void what_is_not_known_is_null(void **state)
{
	struct bench_measurement m = measured;
	m.algorithm = m.transport = NULL;
	m.predicted_ns = -1;
	m.work.collective = BENCH_BARRIER;
	m.p50_ns = (double)NAN;
	char *text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"algorithm\":null,\"transport\":null,"));
	assert_non_null(strstr(text, "\"predicted_us\":null}"));
	assert_non_null(strstr(text, "\"op\":\"none\""));
	assert_non_null(strstr(text, "\"p50_us\":null"));
	free(text);
}

static void in_a_comparison_it_says_how_it_stands(void **state)
{
	static const double times_us[] = { 2, 2.5 }, flags_ns[] = { 55, 56 };
	struct bench_beside beside = { .settings = "UCX_TLS=tcp", .collet_buffers = BENCH_ALLOC, .cores = "near",
		.repeats = 2, .times_us = times_us, .flags_ns = flags_ns, .ratio = 0.5, .ratio_least = 0.25,
		.ratio_most = 1, .best = true };
	struct bench_measurement m = measured;
	m.beside = &beside;
	char *text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"predicted_us\":1.5,\"settings\":\"UCX_TLS=tcp\",\"collet_buffers\":\"alloc\","
		"\"repeats\":2,\"best_peer\":true,\"collet_ratio\":0.5,\"collet_ratio_least\":0.25,"
		"\"collet_ratio_most\":1,\"cores\":\"near\",\"repeats_us\":[2,2.5],\"flags_ns\":[55,56]}\n"));
	free(text);
	m.rewritten_ns = 3000;
	beside.rewritten_ratio = 0.75;
	text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, "\"collet_ratio_most\":1,\"collet_rewritten_ratio\":0.75,\"cores\":\"near\","));
	free(text);
	beside.cores = NULL;
	beside.repeats = 0;
	text = written(bench_json_measurement, &m);
	assert_non_null(strstr(text, ",\"cores\":null,\"repeats_us\":[],\"flags_ns\":[]}\n"));
	free(text);
}

static void long_lines_are_broken_between_words(void **state)
{
	static const char forty[] = "0123456789012345678901234567890123456789";
	static const struct {
		int column;
		const char *first, *second, *printed;
	} rows[] = {
		{ 0, "", "", "" },
		{ 4, "one  two ", "three", "one two three" },
		{ 60, forty, "", forty },
		{ 59, forty, "x", "0123456789012345678901234567890123456789\n"
			"                                                           x" },
		{ 90, forty, "", forty },
		{ 10, "0123456789012345678901234567890123456789 b 0123456789012345678901234567890123456789", "c d e",
			"0123456789012345678901234567890123456789 b 0123456789012345678901234567890123456789 c d e" },
		{ 12, "0123456789012345678901234567890123456789 b 0123456789012345678901234567890123456789", "c d e",
			"0123456789012345678901234567890123456789 b 0123456789012345678901234567890123456789 c d\n"
			"            e" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[256] = "";
		FILE *memory = fmemopen(text, sizeof(text), "w");
		const int at = bench_wrap(memory, rows[i].column, rows[i].column, rows[i].first);
		bench_wrap(memory, rows[i].column, at, rows[i].second);
		fclose(memory);
		assert_string_equal(text, rows[i].printed);
	}
}

static void control_characters_are_escaped(void **state)
{
	char text[64] = "";
	FILE *memory = fmemopen(text, sizeof(text), "w");
	bench_json_string(memory, "a\nb\x01\"");
	fclose(memory);
	assert_string_equal(text, "\"a\\u000ab\\u0001\\\"\"");
}

static void the_table_has_a_row_that_reads_like_nccl_tests(void **state)
{
	char *header = written(bench_table_header, &measured), *row = written(bench_table_row, &measured);
	static const char *const columns[] = { "bytes", "count", "type", "op", "algorithm", "transport", "time", "p50",
		"p99", "algbw", "busbw", "wrong" };
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		assert_non_null(strstr(header, columns[i]));
	uint64_t bytes, count, wrong;
	char type[8], op[16], algorithm[32], transport[16];
	double time, p50, p99, algbw, busbw;
	assert_int_equal(sscanf(row, "%lu %lu %7s %15s %31s %15s %lf %lf %lf %lf %lf %lu", &bytes, &count, type, op,
				 algorithm, transport, &time, &p50, &p99, &algbw, &busbw, &wrong),
		12);
	assert_true(bytes == 4000 && count == 1000 && time == 2 && p50 == 1.9 && p99 == 2.5 && algbw == 2 && busbw == 3
		&& wrong == 3);
	free(header);
	free(row);
}

static void a_plot_is_an_svg_and_a_quote_in_a_name_is_only_a_quote(void **state)
{
	if (system("command -v gnuplot >/dev/null") != 0)
		skip_because("there is no gnuplot");
	char folder[] = "/tmp/collet-test-XXXXXX", path[128], start[256] = "";
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/it's.svg", folder);
	const uint64_t bytes[] = { 0, 4, 1024 };
	const double fast[] = { 1, 2, 3 }, missing[] = { -1, -1, -1 }, slow[] = { 1, 20, -1 };
	const struct bench_curve plain[] = { { "a'b", fast }, { "none", missing }, { "slow", slow } };
	const struct bench_level levels[] = { { "a flag, there", 0.5, false }, { "memcpy", 12, true } };
	struct bench_plot plot = { .path = path, .title = "title's", .bytes = bytes, .sizes = 3, .bus_factor = 1.5,
		.curves = plain, .curve_count = 3, .levels = levels, .level_count = 2 };
	assert_true(bench_plot(&plot));
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(start, 1, sizeof(start) - 1, file) > 0);
	fclose(file);
	assert_non_null(strstr(start, "<svg"));
	plot.curves = &plain[1];
	plot.curve_count = 1;
	assert_false(bench_plot(&plot));
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_measurement_is_one_object_with_the_documented_members),
		cmocka_unit_test(of_a_gpu_it_says_how_near_to_a_copy_it_came),
		cmocka_unit_test(of_calls_on_a_stream_it_says_what_they_cost_the_host),
		cmocka_unit_test(rewritten_inputs_have_a_column_and_a_member),
		cmocka_unit_test(what_was_disturbed_is_marked),
		cmocka_unit_test(what_is_not_known_is_null),
		cmocka_unit_test(in_a_comparison_it_says_how_it_stands),
		cmocka_unit_test(long_lines_are_broken_between_words),
		cmocka_unit_test(control_characters_are_escaped),
		cmocka_unit_test(the_table_has_a_row_that_reads_like_nccl_tests),
		cmocka_unit_test(a_plot_is_an_svg_and_a_quote_in_a_name_is_only_a_quote),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
