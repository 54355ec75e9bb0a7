/* What --json wrote is read back, and collet is judged by its standing to the same peers in the same cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare/baseline.h"
#include "report/flat_json.h"

static void a_members_value_is_found_and_nothing_else(void **state)
{
	static const char line[] =
		" {\"a\":\"x\\\"y\\\\\", \"g\":[1,2],\"h\":[],\"b\":1.5e3,\"c\":true,\"d\":null , "
		"\"e\":\"\\\"b\\\":2\",\"f\":-4}\n";
	char text[16];
	double number;
	assert_true(bench_flat_text(line, "a", text, sizeof(text)));
	assert_string_equal(text, "x\"y\\");
	assert_true(bench_flat_text(line, "e", text, sizeof(text)));
	assert_string_equal(text, "\"b\":2");
	assert_true(bench_flat_number(line, "b", &number) && number == 1500);
	assert_true(bench_flat_number(line, "c", &number) && number == 1);
	assert_true(bench_flat_number(line, "f", &number) && number == -4);
	assert_false(bench_flat_number(line, "d", &number));
	assert_false(bench_flat_text(line, "d", text, sizeof(text)));
	assert_false(bench_flat_text(line, "b", text, sizeof(text)));
	assert_false(bench_flat_text(line, "none", text, sizeof(text)));
	assert_false(bench_flat_text(line, "a", text, 4));   /* does not fit */
}

static void what_is_no_flat_object_has_no_members(void **state)
{
	static const char *const lines[] = { "", "a", "{", "{}", "{\"a\"", "{\"a\":", "{\"a\":\"", "{\"a\":\"x",
		"[\"a\":1]", "{\"b\":\"x\\", "{\"b\" 1,\"a\":1}", "{\"b\":1;\"a\":1}" };
	char text[8];
	double number;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_false(bench_flat_text(lines[i], "a", text, sizeof(text)));
		assert_false(bench_flat_number(lines[i], "a", &number));
	}
}

static const char lines[] =
	"{\"library\":\"collet\",\"collective\":\"allreduce\",\"transport\":\"shm\",\"dtype\":\"f32\","
	"\"op\":\"sum\",\"ranks\":2,\"bytes\":4,\"in_place\":false,\"collet_buffers\":\"malloc\","
	"\"collet_ratio\":null,\"collet_ratio_least\":null,\"collet_ratio_most\":null}\n"
	"{\"limit\":\"memcpy\",\"median\":12}\n"
	"{\"library\":\"mpich\",\"collective\":\"allreduce\",\"transport\":\"shm\",\"dtype\":\"f32\","
	"\"op\":\"sum\",\"ranks\":2,\"bytes\":4,\"in_place\":false,\"collet_buffers\":\"malloc\","
	"\"collet_ratio\":0.5,\"collet_ratio_least\":0.49,\"collet_ratio_most\":0.51,"
	"\"cores\":\"far\",\"repeats_us\":[1]}\n";

static void write_file(char path[64], const char *text)
{
	strcpy(path, "/tmp/collet-test-XXXXXX");
	const int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static struct bench_standing mpich(double ratio)
{
	return (struct bench_standing){
		.peer = "mpich",
		.at = { .collective = "allreduce", .transport = "shm", .dtype = "f32", .op = "sum", .buffers = "malloc",
			.cores = "far", .ranks = 2, .bytes = 4 },
		.ratio = { ratio, ratio, ratio },
	};
}

static int compare_with_lines(const struct bench_standing *standing, char *told, size_t bytes)
{
	struct bench_baseline then, now = { 0 };
	char path[64];
	write_file(path, lines);
	assert_true(bench_baseline_read(&then, path));
	unlink(path);
	assert_int_equal(then.count, 1);
	assert_true(bench_baseline_add(&now, standing));
	FILE *out = fmemopen(told, bytes, "w");
	const int slower = bench_baseline_compare(&then, &now, out);
	fclose(out);
	bench_baseline_deinit(&then);
	bench_baseline_deinit(&now);
	return slower;
}

static void slower_and_faster_are_told(void **state)
{
	static const struct {
		double ratio;
		int slower;
		const char *says;
	} rows[] = { { 0.5, 0, "1.00 times" }, { 0.53, 0, "1.06 times" }, { 0.7, 1, "SLOWER" }, { 0.2, 0, "faster" } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bench_standing now = mpich(rows[i].ratio);
		char told[256] = "";
		assert_int_equal(compare_with_lines(&now, told, sizeof(told)), rows[i].slower);
		if (strstr(told, rows[i].says) == NULL)
			fail_msg("%.2f: %s", rows[i].ratio, told);
	}
}

static void another_case_or_peer_is_not_compared(void **state)
{
	struct bench_standing others[9];
	for (size_t i = 0; i < 9; i++)
		others[i] = mpich(5);
	strcpy(others[0].peer, "gloo");
	strcpy(others[1].at.collective, "reduce");
	strcpy(others[2].at.transport, "tcp");
	strcpy(others[3].at.buffers, "alloc");
	others[4].at.ranks = 3;
	others[5].at.bytes = 8;
	others[6].at.in_place = true;
	strcpy(others[7].at.dtype, "f64");
	strcpy(others[8].at.cores, "near");
	for (size_t i = 0; i < 9; i++) {
		char told[256] = "";
		assert_int_equal(compare_with_lines(&others[i], told, sizeof(told)), -1);
	}
}

static void a_file_without_standings_is_refused(void **state)
{
	struct bench_baseline baseline;
	char path[64];
	assert_false(bench_baseline_read(&baseline, "/nowhere/at/all"));
	write_file(path, "{\"limit\":\"memcpy\",\"median\":12}\nnonsense\n");
	assert_false(bench_baseline_read(&baseline, path));
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_members_value_is_found_and_nothing_else),
		cmocka_unit_test(what_is_no_flat_object_has_no_members),
		cmocka_unit_test(slower_and_faster_are_told),
		cmocka_unit_test(another_case_or_peer_is_not_compared),
		cmocka_unit_test(a_file_without_standings_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
