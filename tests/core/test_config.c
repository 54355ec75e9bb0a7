/* Tests settings and error sentences: variables are parsed strictly, and errors name them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comma_locale.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/status.h"
#include "core/types.h"

static void bytes_are_parsed_strictly(void **state)
{
	static const struct {
		const char *text;
		bool valid;
		uint64_t value;
	} rows[] = {
		{"0", true, 0},
		{"4096", true, 4096},
		{"64K", true, 65536},
		{"64k", true, 65536},
		{"3M", true, 3 << 20},
		{"2G", true, (uint64_t)2 << 30},
		{"18446744073709551615", true, UINT64_MAX},
		{"", false, 0},
		{"-1", false, 0},
		{" 1", false, 0},
		{"1KB", false, 0},
		{"1T", false, 0},
		{"18446744073709551616", false, 0},
		{"17179869184G", false, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t value = 77;
		assert_int_equal(collet_parse_bytes(rows[i].text, &value), rows[i].valid);
		assert_int_equal(value, rows[i].valid ? rows[i].value : 77);
	}
}

static void a_bad_variable_is_named(void **state)
{
	int64_t timeout = 5;
	setenv("COLLET_TEST_TIMEOUT", "soon", 1);
	assert_int_equal(collet_env_timeout("COLLET_TEST_TIMEOUT", &timeout), COLLET_ERR_CONFIG);
	assert_non_null(strstr(collet_last_error(), "COLLET_TEST_TIMEOUT=soon"));
	assert_int_equal(timeout, 5);
	setenv("COLLET_TEST_TIMEOUT", "0", 1);
	assert_int_equal(collet_env_timeout("COLLET_TEST_TIMEOUT", &timeout), COLLET_OK);
	assert_int_equal(timeout, COLLET_NO_TIMEOUT);
	setenv("COLLET_TEST_TIMEOUT", "1.5", 1);
	assert_int_equal(collet_env_timeout("COLLET_TEST_TIMEOUT", &timeout), COLLET_OK);
	assert_int_equal(timeout, 1500000000);
	setenv("COLLET_TEST_TIMEOUT", "", 1);
	assert_int_equal(collet_env_timeout("COLLET_TEST_TIMEOUT", &timeout), COLLET_OK);
	assert_int_equal(timeout, 1500000000);
}

static void a_list_has_an_entry_for_each(void **state)
{
	static const struct {
		const char *text;
		uint32_t index;
		collet_status status;
		uint64_t value;
	} rows[] = {
		{ "", 0, COLLET_OK, 77 }, { "4", 0, COLLET_OK, 4 }, { "4", 3, COLLET_OK, 4 },
		{ "4,5,9", 0, COLLET_OK, 4 }, { "4,5,9", 2, COLLET_OK, 9 }, { "4,5,9", 4, COLLET_OK, 5 },
		{ "10", 0, COLLET_ERR_CONFIG, 77 }, { "4,", 0, COLLET_ERR_CONFIG, 77 },
		{ "4,,5", 0, COLLET_ERR_CONFIG, 77 }, { "4,x", 0, COLLET_ERR_CONFIG, 77 },
		{ "-1", 0, COLLET_ERR_CONFIG, 77 }, { "4-6", 0, COLLET_ERR_CONFIG, 77 },
		{ "000000000000000000000000000001", 0, COLLET_ERR_CONFIG, 77 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t value = 77;
		setenv("COLLET_TEST_LIST", rows[i].text, 1);
		assert_int_equal(collet_env_list_u64("COLLET_TEST_LIST", rows[i].index, 9, &value), rows[i].status);
		assert_int_equal(value, rows[i].value);
		if (rows[i].status != COLLET_OK)
			assert_non_null(strstr(collet_last_error(), rows[i].text));
	}
}

static void every_status_and_type_has_a_name(void **state)
{
	for (int s = 0; s < COLLET_STATUS_COUNT; s++)
		assert_string_not_equal(collet_status_name((collet_status)s), "COLLET_STATUS_UNKNOWN");
	for (int d = 0; d < COLLET_DTYPE_COUNT; d++) {
		assert_non_null(collet_dtype_name((collet_dtype)d));
		assert_true(collet_dtype_bytes((collet_dtype)d) > 0);
	}
	for (int o = 0; o < COLLET_OP_COUNT; o++)
		assert_non_null(collet_op_name((collet_op)o));
	assert_null(collet_dtype_name((collet_dtype)99));
	assert_int_equal(collet_dtype_bytes((collet_dtype)-1), 0);
	assert_false(collet_op_supports(COLLET_XOR, COLLET_F32));
	assert_false(collet_op_supports(COLLET_SUM, (collet_dtype)99));
}

static void a_sentence_may_quote_the_last_one(void **state)
{
	collet_fail(COLLET_ERR_SYSTEM, "connect: refused");
	assert_int_equal(collet_fail(COLLET_ERR_PEER_LOST, "rank 3: %s", collet_last_error()), COLLET_ERR_PEER_LOST);
	assert_string_equal(collet_last_error(), "rank 3: connect: refused");
	collet_error_prefix("rank %d on %s", 1, "a");
	assert_string_equal(collet_last_error(), "rank 1 on a: rank 3: connect: refused");
}

static void deadlines_saturate(void **state)
{
	assert_int_equal(collet_deadline_after(-1), COLLET_NEVER);
	assert_int_equal(collet_deadline_after(INT64_MAX), COLLET_NEVER);
	assert_false(collet_deadline_passed(COLLET_NEVER));
	assert_true(collet_deadline_passed(collet_deadline_after(0)));
	assert_int_equal(collet_deadline_ms(COLLET_NEVER, 100), 100);
	assert_int_equal(collet_deadline_ms(collet_deadline_after(0), 100), 0);
}

int main(int argc, char **argv)
{
	comma_locale_from(argc, argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_parsed_strictly),
		cmocka_unit_test(a_bad_variable_is_named),
		cmocka_unit_test(a_list_has_an_entry_for_each),
		cmocka_unit_test(every_status_and_type_has_a_name),
		cmocka_unit_test(a_sentence_may_quote_the_last_one),
		cmocka_unit_test(deadlines_saturate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
