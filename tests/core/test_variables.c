/* Tests the list of environment variables: it and collet(7) have the same names, and a misspelt name is told from a
 * known one.
 *
 * Usage: test_variables PAGE   The source of collet(7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/variables.h"

static char page[1 << 17];

static bool is_name_letter(char letter)
{
	return letter != '\0' && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", letter) != NULL;
}

/* Copies the next COLLET_ name from *at on that is neither a status nor only the head of names. */
static bool next_name(const char **at, char name[64])
{
	while ((*at = strstr(*at, "COLLET_")) != NULL) {
		size_t length = 0;
		while (is_name_letter((*at)[length]) && length < 63)
			length++;
		memcpy(name, *at, length);
		name[length] = '\0';
		*at += length;
		if (name[length - 1] != '_' && strncmp(name, "COLLET_ERR_", 11) != 0 && strcmp(name, "COLLET_OK") != 0)
			return true;
	}
	return false;
}

static void every_name_of_the_page_is_known(void **state)
{
	const char *at = page;
	char name[64];
	size_t names = 0;
	for (; next_name(&at, name); names++)
		if (!collet_variable_is_known(name))
			fail_msg("collet(7) has %s, which src/core/variables.c does not", name);
	assert_true(names > 40);
}

static void every_variable_is_on_the_page(void **state)
{
	for (const char *const *variable = collet_variables; *variable != NULL; variable++) {
		const char *at = page;
		char name[64];
		bool found = false;
		while (!found && next_name(&at, name))
			found = strcmp(name, *variable) == 0;
		if (!found)
			fail_msg("src/core/variables.c has %s, which collet(7) does not", *variable);
	}
}

static void a_misspelt_name_is_close_to_the_one_that_was_meant(void **state)
{
	static const struct {
		const char *name, *closest;  /* NULL: none is close */
		bool is_known;
	} rows[] = {
		{ "COLLET_TIMEOUT", "COLLET_TIMEOUT", true },
		{ "COLLET_TIMOUT", "COLLET_TIMEOUT", false },
		{ "COLLET_TIMEOUT_S", "COLLET_TIMEOUT", false },
		{ "COLLET_TRANSPORTS", "COLLET_TRANSPORT", false },
		{ "COLLET_ALGO", NULL, false },
		{ "COLLET_lOG", "COLLET_LOG", false },
		{ "COLLET_ZEBRA", NULL, false },
		{ "COLLET_", NULL, false },
		{ "COLLET_TEST_ANYTHING", NULL, true },
		{ "COLLET_BENCH_ANYTHING", NULL, true },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *closest = collet_variable_closest(rows[i].name);
		if (collet_variable_is_known(rows[i].name) != rows[i].is_known)
			fail_msg("%s is %sknown", rows[i].name, rows[i].is_known ? "un" : "");
		if (strcmp(closest != NULL ? closest : "", rows[i].closest != NULL ? rows[i].closest : "") != 0)
			fail_msg("closest to %s is %s", rows[i].name, closest != NULL ? closest : "none");
	}
}

int main(int argc, char **argv)
{
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (file == NULL) {
		fprintf(stderr, "usage: test_variables PAGE\n");
		return EXIT_FAILURE;
	}
	const size_t bytes = fread(page, 1, sizeof(page) - 1, file);
	fclose(file);
	page[bytes] = '\0';
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_of_the_page_is_known),
		cmocka_unit_test(every_variable_is_on_the_page),
		cmocka_unit_test(a_misspelt_name_is_close_to_the_one_that_was_meant),
	};
	return cmocka_run_group_tests_name("variables", tests, NULL, NULL);
}
