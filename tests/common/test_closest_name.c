/* Tests which name a misspelt word is said to mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "closest_name.h"

static const char *const names[] = { "ring", "tree", "allreduce", "allgather", "reduce", "reduce_scatter",
	"COLLET_TIMEOUT", "COLLET_TRANSPORT", "i8" };

struct row {
	const char *word, *expected;
};

static const struct row rows[] = {
	{ "ring", "ring" }, { "rign", "ring" }, { "rin", "ring" }, { "rings", "ring" }, { "rang", "ring" },
	{ "RING", "ring" }, { "rxxg", NULL }, { "alreduce", "allreduce" }, { "all_reduce", "allreduce" },
	{ "all-reduce", "allreduce" }, { "allgahter", "allgather" }, { "reduce-scatter", "reduce_scatter" },
	{ "reduce_scater", "reduce_scatter" }, { "COLLET_TIMOUT", "COLLET_TIMEOUT" },
	{ "COLLET_TRANSPROT", "COLLET_TRANSPORT" }, { "halving", NULL }, { "x", NULL }, { "i", NULL }, { "", NULL },
	{ "a word that is much longer than any name that a user could have meant", NULL },
};

static void a_word_is_close_to_what_it_differs_least_from(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("\"%s\"\n", rows[i].word);
		const char *found = collet_closest_name(rows[i].word, names, sizeof(names) / sizeof(names[0]));
		if (rows[i].expected == NULL)
			assert_null(found);
		else
			assert_string_equal(found, rows[i].expected);
	}
	assert_null(collet_closest_name("ring", names, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_word_is_close_to_what_it_differs_least_from),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
