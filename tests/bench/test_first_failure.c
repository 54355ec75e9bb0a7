/* The rank to blame is the one that failed first, not the one with the lowest number. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ranks/first_failure.h"

enum { RANKS = 3, EXIT_1 = 1 << 8, EXIT_127 = 127 << 8, KILLED = SIGKILL };

static void it_is_the_rank_that_failed_first(void **state)
{
	static const struct {
		const char *name;
		struct bench_end ends[RANKS];
		uint32_t first;
	} rows[] = {
		{ "nobody failed", { { false, 0, 0 }, { true, 0, 0 }, { false, 0, 0 } }, RANKS },
		{ "the earliest report", { { true, EXIT_1, 300 }, { true, EXIT_1, 200 }, { true, EXIT_1, 100 } }, 2 },
		{ "the only report", { { false, 0, 0 }, { true, EXIT_1, 200 }, { false, 0, 0 } }, 1 },
		{ "the report that was told to the others",
			{ { true, EXIT_1, 100, true }, { true, EXIT_1, 200 }, { true, EXIT_1, 50, true } }, 1 },
		{ "a killed rank, whatever others report",
			{ { true, EXIT_1, 100 }, { true, EXIT_1, 200 }, { true, KILLED, 0 } }, 2 },
		{ "a rank that reports nothing",
			{ { true, EXIT_1, 100 }, { true, EXIT_127, 0 }, { true, EXIT_1, 50 } }, 1 },
		{ "not one that was killed afterwards",
			{ { false, KILLED, 0 }, { true, EXIT_1, 7 }, { false, 0, 0 } }, 1 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint32_t first = bench_first_failure(rows[i].ends, RANKS);
		if (first != rows[i].first)
			fail_msg("%s: rank %u, not %u", rows[i].name, first, rows[i].first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(it_is_the_rank_that_failed_first) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
