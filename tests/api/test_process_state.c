/* What a process has set before it uses the library, and the library must work with: a locale. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <collet/ddp_hook.h>

#include "comma_locale.h"
#include "ranks.h"

/* Also reads numbers from the environment: a timeout, and, as always, the built-in tuning. */
static void create_and_add(struct rank *rank)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, 0, &options, store);
	options.timeout_ns = options.rendezvous_timeout_ns = 0;
	setenv("COLLET_TIMEOUT", "600.5", 1);
	setenv("COLLET_RENDEZVOUS_TIMEOUT", "600.5", 1);
	if (!rank_ok(rank, collet_comm_create(&rank->comm, &options), "collet_comm_create"))
		return;
	float value = 0.5F;
	if (rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_F32, COLLET_SUM, NULL), "allreduce"))
		rank_check(rank, value == 1, "the sum is %g", (double)value);
}

static void must_make_hook(const char *words)
{
	collet_ddp_hook *hook;
	if (collet_ddp_hook_create(&hook, words, 1) != COLLET_OK)
		fail_msg("%s", collet_last_error());
	assert_int_equal(collet_ddp_hook_destroy(&hook), COLLET_OK);
}

static void a_decimal_comma(void **state)
{
	if (!comma_locale_set())
		skip(); /* no localedef here */
	const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .bare = true };
	ranks_must_pass(&options, create_and_add);
	must_make_hook("topk:0.01,momentum:0.9");
	setlocale(LC_ALL, "C");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decimal_comma),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
