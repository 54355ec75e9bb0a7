/* The command line is taken strictly: what makes sense is read as it says, what does not is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

static void sizes_are_lists_and_ranges(void **state)
{
	static const struct {
		const char *text;
		size_t count;
		uint64_t first, second, last;
	} rows[] = {
		{ "4", 1, 4, 0, 4 },
		{ "0", 1, 0, 0, 0 },
		{ "4,1K,16k,2M,3G", 5, 4, 1024, (uint64_t)3 << 30 },
		{ "4:256M:x4", 14, 4, 16, (uint64_t)256 << 20 },
		{ "4:63:x2", 4, 4, 8, 32 },
		{ "4:64:+4", 16, 4, 8, 64 },
		{ "0:10:+5,1M", 4, 0, 5, 1 << 20 },
		{ "0,4:64K:x16", 5, 0, 4, 16384 },
		{ "8:8:x2", 1, 8, 0, 8 },
		{ "17179869183G:17179869183G:x2", 1, (uint64_t)17179869183u << 30, 0, (uint64_t)17179869183u << 30 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_sizes sizes;
		assert_null(bench_sizes_parse(rows[i].text, &sizes));
		assert_int_equal(sizes.count, rows[i].count);
		assert_int_equal(sizes.bytes[0], rows[i].first);
		if (sizes.count > 1)
			assert_int_equal(sizes.bytes[1], rows[i].second);
		assert_int_equal(sizes.bytes[sizes.count - 1], rows[i].last);
	}
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
	static const char *const rows[] = { "", ",", "4,", "4,,8", "x", "-4", "4 ", "4KB", "4T", "4:8", "4:8:", "4:8:2",
		"4:8:x", "4:8:x1", "4:8:x0", "4:8:+0", "0:8:x2", "8:4:x2", "4:8:x2:", "18446744073709551616",
		"17179869184G", "0:300:+1" };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_sizes sizes = { .count = 77 };
		assert_non_null(bench_sizes_parse(rows[i], &sizes));
		assert_int_equal(sizes.count, 77);
	}
}

static void bytes_are_told_in_the_unit_that_divides(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = { { 0, "0" }, { 4, "4" }, { 1000, "1000" }, { 1024, "1 KiB" }, { 1025, "1025" },
		{ 16 << 20, "16 MiB" }, { (uint64_t)5 << 30, "5 GiB" }, { (uint64_t)5 << 40, "5120 GiB" } };
	char text[24];
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_string_equal(bench_bytes_text(rows[i].bytes, text), rows[i].text);
}

/* Splits at blanks. */
static bool parse(const char *line, struct bench_options *options, char problem[256])
{
	static char words[512];
	enum { WORDS = 64 };
	char *argv[WORDS + 1], *at = words;
	int argc = 0;
	snprintf(words, sizeof(words), "collet-bench %s", line);
	for (char *word; (word = strsep(&at, " ")) != NULL;) {
		if (*word == '\0')
			continue;
		assert_in_range(argc, 0, WORDS - 1);
		argv[argc++] = word;
	}
	argv[argc] = NULL;
	return bench_options_parse(argc, argv, options, problem);
}

static void a_bare_collective_has_the_defaults(void **state)
{
	struct bench_options o;
	char problem[256];
	assert_true(parse("allreduce", &o, problem));
	assert_int_equal(o.command, BENCH_COMMAND_MEASURE);
	assert_int_equal(o.work.collective, BENCH_ALLREDUCE);
	assert_int_equal(o.work.dtype, COLLET_F32);
	assert_int_equal(o.work.op, COLLET_SUM);
	assert_int_equal(o.work.in_place, 0);
	assert_int_equal(o.ranks, 0);
	assert_int_equal(o.sizes.count, 14);
	assert_true(o.mode.seconds == 0.3 && o.mode.iterations == 0 && o.mode.pin && !o.mode.cold
		&& !o.mode.sync);
	assert_int_equal(o.mode.buffers, BENCH_MALLOC);
	assert_null(o.json);
}

static void every_option_is_read(void **state)
{
	struct bench_options o;
	char problem[256];
	assert_true(parse("reduce -n 4 --transport tcp --algorithm tree --dtype bf16 --op average --root 3 --sizes "
			  "4:64:x2 --seconds 1.5 "
			  "--iters 10 --in-place --buffers huge --cold --sync --rewrite --no-pin --json out.json "
			  "--pieces 64K --channels 2",
		&o, problem));
	assert_int_equal(o.work.collective, BENCH_REDUCE);
	assert_int_equal(o.ranks, 4);
	assert_string_equal(o.transport, "tcp");
	assert_string_equal(o.algorithm, "tree");
	assert_int_equal(o.work.dtype, COLLET_BF16);
	assert_int_equal(o.work.op, COLLET_AVERAGE);
	assert_int_equal(o.work.root, 3);
	assert_int_equal(o.sizes.count, 5);
	assert_true(o.mode.seconds == 1.5);
	assert_int_equal(o.mode.iterations, 10);
	assert_true(o.work.in_place && o.mode.cold && o.mode.sync && o.mode.rewrite && !o.mode.pin);
	assert_int_equal(o.mode.buffers, BENCH_HUGE);
	assert_string_equal(o.json, "out.json");
	assert_int_equal(o.segment_bytes, 65536);
	assert_int_equal(o.channels, 2);
	assert_true(parse(
		"--sizes 8 compare -n 2 allgather --with openmpi,gloo --repeats 7 --plot p.svg --json -", &o, problem));
	assert_int_equal(o.command, BENCH_COMMAND_COMPARE);
	assert_int_equal(o.work.collective, BENCH_ALLGATHER);
	assert_string_equal(o.with, "openmpi,gloo");
	assert_true(o.tuned);
	assert_int_equal(o.repeats, 7);
	assert_string_equal(o.plot, "p.svg");
	assert_int_equal(o.collectives, 1u << BENCH_ALLGATHER);
	assert_true(parse("compare reduce,broadcast --markdown - --baseline before.json", &o, problem));
	assert_int_equal(o.collectives, 1u << BENCH_REDUCE | 1u << BENCH_BROADCAST);
	assert_string_equal(o.markdown, "-");
	assert_string_equal(o.baseline, "before.json");
	assert_true(parse("compare all", &o, problem));
	assert_int_equal(o.collectives, (1u << BENCH_COLLECTIVES) - 1);
	assert_true(parse("compare allreduce --variants default", &o, problem));
	assert_false(o.tuned);
}

static void commands_are_words(void **state)
{
	static const struct {
		const char *line;
		enum bench_command_kind command;
	} rows[] = {
		{ "list", BENCH_COMMAND_LIST },
		{ "limits --sizes 1M", BENCH_COMMAND_LIMITS },
		{ "init -n 64", BENCH_COMMAND_INIT },
		{ "faults -n 3 --repeats 2", BENCH_COMMAND_FAULTS },
		{ "explain allreduce -n 8", BENCH_COMMAND_EXPLAIN },
		{ "tune", BENCH_COMMAND_TUNE },
		{ "--help", BENCH_COMMAND_HELP },
		{ "-h", BENCH_COMMAND_HELP },
		{ "--version", BENCH_COMMAND_VERSION },
		{ "compare barrier", BENCH_COMMAND_COMPARE },
		{ "driver --transport tcp", BENCH_COMMAND_DRIVER },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_options o;
		char problem[256];
		assert_true(parse(rows[i].line, &o, problem));
		assert_int_equal(o.command, rows[i].command);
	}
}

static void help_has_topics(void **state)
{
	static const struct {
		const char *line;
		enum bench_command_kind topic;
	} rows[] = {
		{ "help", BENCH_COMMAND_HELP },
		{ "--help", BENCH_COMMAND_HELP },
		{ "help compare", BENCH_COMMAND_COMPARE },
		{ "help allreduce", BENCH_COMMAND_MEASURE },
		{ "help all-reduce", BENCH_COMMAND_MEASURE },
		{ "help help", BENCH_COMMAND_HELP },
		{ "compare --help", BENCH_COMMAND_COMPARE },
		{ "-n 2 allreduce -h", BENCH_COMMAND_MEASURE },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_options o;
		char problem[256] = "";
		if (!parse(rows[i].line, &o, problem))
			fail_msg("%s: %s", rows[i].line, problem);
		assert_int_equal(o.command, BENCH_COMMAND_HELP);
		assert_int_equal(o.topic, rows[i].topic);
	}
}

static void tune_takes_parts(void **state)
{
	static const struct {
		const char *line;
		uint32_t collectives;
		bool limits;
	} rows[] = {
		{ "tune", (UINT32_C(1) << BENCH_COLLECTIVES) - 1, true },
		{ "tune all", (UINT32_C(1) << BENCH_COLLECTIVES) - 1, true },
		{ "tune limits", 0, true },
		{ "tune reduce", UINT32_C(1) << BENCH_REDUCE, false },
		{ "tune --check reduce,limits", UINT32_C(1) << BENCH_REDUCE, true },
		{ "compare all", (UINT32_C(1) << BENCH_COLLECTIVES) - 1, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_options o;
		char problem[256];
		if (!parse(rows[i].line, &o, problem))
			fail_msg("%s: %s", rows[i].line, problem);
		assert_int_equal(o.collectives, rows[i].collectives);
		assert_int_equal(o.limits, rows[i].limits);
	}
}

static void people_may_type_the_names_that_they_know(void **state)
{
	static const struct {
		const char *line;
		enum bench_collective collective;
		collet_dtype dtype;
		collet_op op;
	} rows[] = {
		{ "all-reduce", BENCH_ALLREDUCE, COLLET_F32, COLLET_SUM },
		{ "all_reduce --dtype float", BENCH_ALLREDUCE, COLLET_F32, COLLET_SUM },
		{ "AllReduce --dtype fp32", BENCH_ALLREDUCE, COLLET_F32, COLLET_SUM },
		{ "bcast --dtype double", BENCH_BROADCAST, COLLET_F64, COLLET_SUM },
		{ "all_gather --dtype half", BENCH_ALLGATHER, COLLET_F16, COLLET_SUM },
		{ "reduce-scatter --dtype fp16 --op avg", BENCH_REDUCE_SCATTER, COLLET_F16, COLLET_AVERAGE },
		{ "reducescatter --dtype bfloat16", BENCH_REDUCE_SCATTER, COLLET_BF16, COLLET_SUM },
		{ "all_to_all --dtype int", BENCH_ALLTOALL, COLLET_I32, COLLET_SUM },
		{ "all2all --dtype uint8", BENCH_ALLTOALL, COLLET_U8, COLLET_SUM },
		{ "send-recv --dtype fp8_e4m3", BENCH_SENDRECV, COLLET_F8E4M3, COLLET_SUM },
		{ "reduce --dtype int64 --op prod", BENCH_REDUCE, COLLET_I64, COLLET_PRODUCT },
		{ "allreduce --dtype short --op bor", BENCH_ALLREDUCE, COLLET_I16, COLLET_OR },
		{ "allreduce --dtype uint16", BENCH_ALLREDUCE, COLLET_U16, COLLET_SUM },
		{ "allreduce --dtype boolean --op max", BENCH_ALLREDUCE, COLLET_BOOL, COLLET_MAX },
		{ "tune all-gather", BENCH_ALLGATHER, COLLET_F32, COLLET_SUM },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_options o;
		char problem[256] = "";
		if (!parse(rows[i].line, &o, problem))
			fail_msg("%s: %s", rows[i].line, problem);
		assert_int_equal(o.work.collective, rows[i].collective);
		assert_int_equal(o.work.dtype, rows[i].dtype);
		assert_int_equal(o.work.op, rows[i].op);
	}
}

static void nonsense_is_refused_by_its_name(void **state)
{
	static const struct {
		const char *line, *named;
	} rows[] = {
		{ "", "which collective" },
		{ "compare", "which collective" },
		{ "explain -n 4", "which collective" },
		{ "alreduce", "'alreduce' is no collective and no command; did you mean allreduce?" },
		{ "limit", "'limit' is no collective and no command; did you mean limits?" },
		{ "explian allreduce", "'explian' is no collective and no command; did you mean explain?" },
		{ "tune limit", "'limit' is no collective; did you mean limits?" },
		{ "compare limit", "'limit' is no collective; there are allreduce, reduce, " },
		{ "nonsense", "'nonsense' is no collective and no command; there are allreduce, reduce, " },
		{ "allreduce broadcast", "broadcast" },
		{ "list allreduce", "allreduce" },
		{ "allreduce -n 0", "--ranks 0" },
		{ "allreduce -n two", "--ranks two" },
		{ "allreduce -n", "-n" },
		{ "allreduce --dtype f33", "--dtype f33: there is no such type; did you mean f32?" },
		{ "allreduce --dtype flaot", "--dtype flaot: there is no such type; did you mean float?" },
		{ "bacst", "'bacst' is no collective and no command; did you mean bcast?" },
		{ "allreduce --dtype complex", "--dtype complex: there is no such type; there are i8, u8, i32, " },
		{ "allreduce --op plus", "--op plus: there is no such operation; there are sum, product, min, " },
		{ "allreduce --op produkt", "--op produkt: there is no such operation; did you mean product?" },
		{ "allreduce --algorithm rign",
			"--algorithm rign: allreduce has no such algorithm; did you mean ring?" },
		{ "barrier --algorithm ring",
			"--algorithm ring: barrier has no such algorithm; there are direct, dissemination, " },
		{ "compare barrier,alltoall --algorithm ring", "none of these collectives has this algorithm" },
		{ "sendrecv --algorithm ring", "--algorithm ring: sendrecv has no algorithms to choose from" },
		{ "allreduce --op xor", "xor" },
		{ "allreduce --op premul_sum --dtype i32", "premul_sum" },
		{ "allreduce --op user", "user" },
		{ "reduce -n 2 --root 2", "--root 2" },
		{ "allreduce --sizes 4:8", "4:8" },
		{ "allreduce --seconds 0", "--seconds 0" },
		{ "allreduce --seconds 1s", "1s" },
		{ "allreduce --seconds nan", "nan" },
		{ "allreduce --iters 0", "--iters 0" },
		{ "allreduce --buffers stack", "stack" },
		{ "allreduce --fast", "--fast" },
		{ "allreduce --size 4:8:x2 --dtyp f32 --itres 3", "--itres: unknown option; did you mean --iters?" },
		{ "allreduce --device gpu", "--device gpu: expected cpu or cuda" },
		{ "compare allreduce --device cuda", "--device is for a collective, explain, limits and tune" },
		{ "allreduce --device cuda --buffers huge", "--buffers huge" },
		{ "limits --device cuda --transport shm", "--transport" },
		{ "allreduce --stream", "--stream and --graph are for a collective with --device cuda" },
		{ "limits --device cuda --graph", "--graph is for a collective" },
		{ "allreduce --device cuda --stream --sync", "--sync: calls on a stream" },
		{ "limits --threads", "--threads is for a collective" },
		{ "tune allreduce --rewrite", "--rewrite is for a collective and compare" },
		{ "allreduce --device cuda --rewrite", "--rewrite: the host writes no GPU's buffers" },
		{ "allreduce --repeats 3", "--repeats" },
		{ "allreduce --plot p.svg", "--plot" },
		{ "limits --with gloo", "--with" },
		{ "allreduce --baseline f", "--baseline" },
		{ "init --markdown f", "--markdown" },
		{ "compare all --plot p.svg", "--plot" },
		{ "compare allreduce,", "''" },
		{ "compare allreduce,plenty", "plenty" },
		{ "compare limits", "limits" },
		{ "compare broadcast,reduce --op xor", "xor" },
		{ "allreduce,reduce", "only compare" },
		{ "compare allreduce,sendrecv --in-place", "in-place" },
		{ "allreduce --variants tuned", "--variants" },
		{ "compare allreduce --variants best", "--variants best" },
		{ "sendrecv --in-place", "in-place" },
		{ "compare allreduce --repeats 0", "--repeats 0" },
		{ "init --repeats 3", "--repeats" },
		{ "faults -n 1", "-n 1" },
		{ "init --dtype f16", "--dtype is for a collective, explain, overlap, request, waiting and compare" },
		{ "list -n 2", "--ranks is for a collective, explain, init, faults, " },
		{ "explain allreduce --json -", "--json is for a collective, limits, init, " },
		{ "explain sendrecv", "sendrecv has no algorithms to choose from" },
		{ "help nonsense", "'nonsense' is no collective and no command" },
		{ "help comparr", "did you mean compare?" },
		{ "help compare tune", "do not know what to do with 'tune'" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_options o = { .ranks = 77 };
		char problem[256] = "";
		assert_false(parse(rows[i].line, &o, problem));
		if (strstr(problem, rows[i].named) == NULL)
			fail_msg("'%s' gave '%s', which does not name '%s'", rows[i].line, problem, rows[i].named);
		assert_int_equal(o.ranks, 77);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_lists_and_ranges),
		cmocka_unit_test(sizes_that_make_no_sense_are_refused),
		cmocka_unit_test(bytes_are_told_in_the_unit_that_divides),
		cmocka_unit_test(a_bare_collective_has_the_defaults),
		cmocka_unit_test(every_option_is_read),
		cmocka_unit_test(commands_are_words),
		cmocka_unit_test(help_has_topics),
		cmocka_unit_test(tune_takes_parts),
		cmocka_unit_test(people_may_type_the_names_that_they_know),
		cmocka_unit_test(nonsense_is_refused_by_its_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
