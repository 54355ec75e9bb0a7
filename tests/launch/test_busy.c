/* Other load, by files made to look like /proc/loadavg. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "busy.h"
#include "tool.h"

static bool busy(const char *text)
{
	char folder[64], path[96];
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/loadavg", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	const bool answer = busy_others(path);
	remove_folder(folder);
	return answer;
}

static void who_asks_is_no_load(void **state)
{
	assert_false(busy("0.00 0.00 0.00 1/96 1234\n"));
	assert_false(busy("7.50 3.00 1.00 1/96 1234\n"));   /* what has ended since is none either */
}

static void others_are(void **state)
{
	assert_true(busy("0.00 0.00 0.00 2/96 1234\n"));
	assert_true(busy("0.00 0.00 0.00 65/960 1234\n"));
}

static void what_cannot_be_told_is_taken_for_load(void **state)
{
	assert_true(busy("nonsense\n"));
	assert_true(busy("0.00 0.00 0.00 0/96 1234\n"));
	assert_true(busy_others("/nowhere/at/all"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_asks_is_no_load),
		cmocka_unit_test(others_are),
		cmocka_unit_test(what_cannot_be_told_is_taken_for_load),
	};
	return cmocka_run_group_tests_name("launch/busy", tests, NULL, NULL);
}
