/* The table of options: each kind stores its value, each mistake is named, and the help has every row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "option_table.h"

enum colour { RED, GREEN, BLUE };

struct told {
	bool loud, quiet;
	uint16_t port;
	uint32_t count;
	uint64_t bytes;
	float rate;
	double seconds;
	const char *file;
	enum colour colour;
	char pair[2];
};

static bool parse_pair(void *into, const char *text, char *problem)
{
	if (strlen(text) != 2)
		return option_refuse(problem, "--pair %s: expected two letters", text);
	memcpy(((struct told *)into)->pair, text, 2);
	return true;
}

static const char *const colours[] = { "red", "green", "blue", NULL };

#define AT(member) OPTION_MEMBER(struct told, member)

static const struct option_row rows[] = {
	{ "loud", NULL, "say more", OPTION_SET, AT(loud), true, .letter = 'l' },
	{ "no-quiet", NULL, "do not hush", OPTION_SET, AT(quiet), false },
	{ "port", "P", NULL, OPTION_NUMBER, AT(port), 0, UINT16_MAX },
	{ "count", "N", "how many", OPTION_NUMBER, AT(count), 1, 4096, .letter = 'n' },
	{ "bytes", "B", "how much\nin all", OPTION_NUMBER, AT(bytes), 1, UINT64_MAX, .units = "KMG",
		.expects = "a size" },
	{ "rate", "R", "how fast", OPTION_REAL, AT(rate), .high = 1 },
	{ "seconds", "S", "how long", OPTION_REAL, AT(seconds), .high = 60, .scope = 5 },
	{ "file-with-a-long-name", "FILE", "where to", OPTION_TEXT, AT(file) },
	{ "colour", NULL, "which", OPTION_CHOICE, AT(colour), .choices = colours },
	{ "pair", "XY", "two of them", .kind = OPTION_CALL, .parse = parse_pair, .scope = 2 },
	{ "stop", NULL, "and no further", OPTION_SET, AT(loud), true, .ends = true },
};

static const struct option_table table = { .program = "tell",
	.refusal = "expected",
	.rows = rows,
	.count = sizeof(rows) / sizeof(rows[0]),
	.intro = "Usage: tell\n",
	.outro = "End.\n" };

/* Splits line at blanks and parses it. */
static int parse(const struct option_table *of, const char *line, struct told *told, uint64_t *given, char *problem)
{
	static char words[256];
	static char *argv[32];
	char *at = words;
	int argc = 0;
	snprintf(words, sizeof(words), "tell %s", line);
	for (char *word; (word = strsep(&at, " ")) != NULL;)
		if (*word != '\0')
			argv[argc++] = word;
	argv[argc] = NULL;
	return option_table_parse(of, argc, argv, told, given, problem);
}

static void each_kind_stores_its_value(void **state)
{
	struct told told = { .quiet = true };
	char problem[OPTION_PROBLEM_BYTES] = "";
	uint64_t given = 0;
	assert_int_equal(parse(&table,
				 "-l word --no-quiet --port 65535 -n 4096 --bytes=3G --rate 0.1 --seconds 0.1 "
				 "--file-with-a-long-name f --col blue --pair xy",
				 &told, &given, problem),
		18);
	assert_string_equal(problem, "");
	assert_true(told.loud && !told.quiet);
	assert_int_equal(told.port, 65535);
	assert_int_equal(told.count, 4096);
	assert_int_equal(told.bytes, UINT64_C(3) << 30);
	assert_true(told.rate == 0.1F && told.seconds == 0.1);
	assert_string_equal(told.file, "f");
	assert_int_equal(told.colour, BLUE);
	assert_memory_equal(told.pair, "xy", 2);
	assert_int_equal(given, 0x3ff);
}

static void the_options_end(void **state)
{
	static const struct {
		const char *line;
		bool stops_at_word, loud;
		int first;
	} lines[] = {
		{ "a -l b", false, true, 2 },
		{ "a -l b", true, false, 1 },
		{ "-- -l", false, false, 2 },
		{ "--stop --nonsense", false, true, 2 },
		{ "", false, false, 1 },
	};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct option_table of = table;
		struct told told = { 0 };
		char problem[OPTION_PROBLEM_BYTES];
		of.stops_at_word = lines[i].stops_at_word;
		assert_int_equal(parse(&of, lines[i].line, &told, NULL, problem), lines[i].first);
		assert_int_equal(told.loud, lines[i].loud);
	}
}

static void mistakes_are_named(void **state)
{
	static const struct {
		const char *line, *sentence;
	} lines[] = {
		{ "--port 65536", "--port 65536: expected a whole number from 0 to 65535" },
		{ "-n 0", "--count 0: expected a whole number from 1 to 4096" },
		{ "-n 1K", "--count 1K: expected a whole number from 1 to 4096" },
		{ "-n +1", "--count +1: expected a whole number from 1 to 4096" },
		{ "--bytes 18446744073709551616", "--bytes 18446744073709551616: expected a size" },
		{ "--bytes 18014398509481984K", "--bytes 18014398509481984K: expected a size" },
		{ "--bytes 1T", "--bytes 1T: expected a size" },
		{ "--rate 1.5", "--rate 1.5: expected a number from 0 to 1" },
		{ "--rate nan", "--rate nan: expected a number from 0 to 1" },
		{ "--rate -0.1", "--rate -0.1: expected a number from 0 to 1" },
		{ "--seconds 1s", "--seconds 1s: expected a number from 0 to 60" },
		{ "--colour pink", "--colour pink: expected red, green or blue" },
		{ "--pair xyz", "--pair xyz: expected two letters" },
		{ "--loud=yes", "--loud=yes: this option takes no value" },
		{ "-n", "-n: a value is missing; see tell --help" },
		{ "--count", "--count: a value is missing; see tell --help" },
		{ "-x", "-x: unknown option; see tell --help" },
		{ "--nonsense", "--nonsense: unknown option; see tell --help" },
		{ "--p 1", "--p: ambiguous option: --port or --pair" },
		{ "--coutn 1", "--coutn: unknown option; did you mean --count?" },
		{ "--colur=red", "--colur: unknown option; did you mean --colour?" },
		{ "--prot 1", "--prot: unknown option; see tell --help" }, /* the help leaves --port out */
	};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct told told = { 0 };
		char problem[OPTION_PROBLEM_BYTES] = "";
		assert_int_equal(parse(&table, lines[i].line, &told, NULL, problem), -1);
		assert_string_equal(problem, lines[i].sentence);
	}
}

static void the_help_has_the_rows(void **state)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);
	assert_non_null(file);
	option_table_print(&table, file);
	assert_int_equal(fclose(file), 0);
	assert_string_equal(text, "Usage: tell\n"
				  "  -l, --loud               say more\n"
				  "  --no-quiet               do not hush\n"
				  "  -n, --count N            how many\n"
				  "  --bytes B                how much\n"
				  "                           in all\n"
				  "  --rate R                 how fast\n"
				  "  --seconds S              how long\n"
				  "  --file-with-a-long-name FILE\n"
				  "                           where to\n"
				  "  --colour red|green|blue  which\n"
				  "  --pair XY                two of them\n"
				  "  --stop                   and no further\n"
				  "End.\n");
	free(text);
}

static void a_scope_leaves_out_the_rows_of_others(void **state)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);
	assert_non_null(file);
	option_table_print_rows(&table, 4, file);
	assert_int_equal(fclose(file), 0);
	assert_non_null(strstr(text, "--count"));
	assert_non_null(strstr(text, "--seconds"));
	assert_null(strstr(text, "--pair"));
	assert_null(strstr(text, "Usage"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_stores_its_value),
		cmocka_unit_test(the_options_end),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(the_help_has_the_rows),
		cmocka_unit_test(a_scope_leaves_out_the_rows_of_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
