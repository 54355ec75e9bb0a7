/* Tests COLLET_DETERMINISTIC: the same call uses the same algorithm on every transport. Without it the transports
 * must differ, or the test would prove nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "ranks.h"

static const uint64_t counts[] = { 1, 300, 1000, 3000, 10000, 100000, 1000000, 10000000 };

enum { COUNTS = sizeof(counts) / sizeof(counts[0]), NAME_BYTES = 32 };

static void note_algorithms(struct rank *rank)
{
	char(*names)[NAME_BYTES] = rank->shared;
	for (size_t i = 0; i < COUNTS; i++) {
		collet_plan plan;
		const collet_status status =
			collet_comm_plan(rank->comm, "allreduce", counts[i], COLLET_F32, COLLET_SUM, 0, NULL, &plan);
		if (rank_check(rank, status == COLLET_OK, "%s", collet_last_error()) && rank->rank == 0)
			strncpy(names[i], plan.algorithm, NAME_BYTES - 1);
	}
}

static void algorithms_over(const char *transport, char names[COUNTS][NAME_BYTES])
{
	const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .transport = transport,
		.shared_bytes = COUNTS * NAME_BYTES };
	struct ranks *ranks = ranks_start(&options, note_algorithms);
	assert_true(ranks_wait(ranks));
	assert_true(ranks_all_passed(ranks));
	memcpy(names, ranks_shared(ranks), COUNTS * NAME_BYTES);
	ranks_free(&ranks);
}

static bool same_over_both(void)
{
	char shm[COUNTS][NAME_BYTES], tcp[COUNTS][NAME_BYTES];
	algorithms_over("shm", shm);
	algorithms_over("tcp", tcp);
	return memcmp(shm, tcp, sizeof(shm)) == 0;
}

static void a_choice_follows_the_transport(void **state)
{
	unsetenv("COLLET_DETERMINISTIC");
	assert_false(same_over_both());
}

static void a_deterministic_choice_does_not(void **state)
{
	setenv("COLLET_DETERMINISTIC", "1", 1);
	assert_true(same_over_both());
	unsetenv("COLLET_DETERMINISTIC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_choice_follows_the_transport),
		cmocka_unit_test(a_deterministic_choice_does_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
