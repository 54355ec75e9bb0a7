/* Tests that numbers are read and written alike in every locale, and rounded correctly. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comma_locale.h"
#include "core/number.h"

static void numbers_are_read(void **state)
{
	static const struct {
		const char *text;
		double value;
	} rows[] = {
		{ "0", 0 },
		{ "2.5", 2.5 },
		{ "-0.125", -0.125 },
		{ ".5", 0.5 },
		{ "1e3", 1000 },
		{ "0.1", 0x1.999999999999ap-4 },
		{ "0.3", 0x1.3333333333333p-2 },
		{ "1.7976931348623157e308", DBL_MAX },
		{ "2.2250738585072014e-308", DBL_MIN },
		/* Halfway between two doubles rounds to even; a little more rounds up. */
		{ "9007199254740993", 0x1p53 },
		{ "9007199254740993.00000000000000000001", 0x1.0000000000001p53 },
		{ "9007199254740995", 0x1.0000000000002p53 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double value = NAN;
		if (!collet_number_read(rows[i].text, &value) || memcmp(&value, &rows[i].value, sizeof(value)) != 0)
			fail_msg("%s: %a, not %a", rows[i].text, value, rows[i].value);
	}
}

static void other_text_is_refused(void **state)
{
	static const char *const rows[] = { "", " ", "1,5", "2.5s", "1.2.3", "x", "nan", "inf", "1e999", "1e-999" };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double value = 7;
		if (collet_number_read(rows[i], &value) || value != 7)
			fail_msg("\"%s\" was read as %a", rows[i], value);
	}
}

static void numbers_are_written(void **state)
{
	static const struct {
		double value;
		int digits;
		const char *text;
	} rows[] = {
		{ 0, 5, "0" },
		{ 0.1, 5, "0.1" },
		{ 2.5, 5, "2.5" },
		{ 123456, 5, "1.2346e+05" },
		{ -1234567.5, 17, "-1234567.5" },
		{ -DBL_MAX, 17, "-1.7976931348623157e+308" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[COLLET_NUMBER_BYTES];
		assert_string_equal(collet_number_write(text, rows[i].digits, rows[i].value), rows[i].text);
	}
}

static void what_is_written_reads_back(void **state)
{
	uint64_t bits = 0x9e3779b97f4a7c15;
	for (int i = 0; i < 10000; i++) {
		double value, back;
		char text[COLLET_NUMBER_BYTES];
		bits = bits * 6364136223846793005 + 1442695040888963407;
		memcpy(&value, &bits, sizeof(value));
		if (!isnormal(value))
			continue;
		assert_true(collet_number_read(collet_number_write(text, 17, value), &back));
		assert_memory_equal(&back, &value, sizeof(value));
	}
}

/* Afterwards the caller's locale is still set. */
static void the_locale_stays(void **state)
{
	const char *point = *state;
	char text[16];
	double value;
	assert_true(collet_number_read("2.5", &value));
	snprintf(text, sizeof(text), "%.1f", value);
	assert_string_equal(localeconv()->decimal_point, point);
	assert_int_equal(text[1], point[0]);
}

int main(int argc, char **argv)
{
	comma_locale_from(argc, argv);
	static char point[2];
	point[0] = argc > 1 ? ',' : '.';
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_read),
		cmocka_unit_test(other_text_is_refused),
		cmocka_unit_test(numbers_are_written),
		cmocka_unit_test(what_is_written_reads_back),
		cmocka_unit_test_prestate(the_locale_stays, point),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
