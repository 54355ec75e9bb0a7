/* Tests that the library works with what a process has set before: a locale, the size of a stack. */
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <collet/ddp_hook.h>
#include <collet/tools.h>

#include "comma_locale.h"
#include "ranks.h"
#include "skip.h"

/* Creation reads numbers: two timeouts of the environment, and the built-in tuning. */
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
		skip_because("localedef made no locale with a decimal comma");
	const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .bare = true };
	ranks_must_pass(&options, create_and_add);
	must_make_hook("topk:0.01,momentum:0.9");
	setlocale(LC_ALL, "C");
}

/* Makes calls with large frames: creation, and choices of algorithms. */
static void *create_and_call(void *context)
{
	enum { ELEMENTS = 100000 };
	struct rank *rank = context;
	float *send = calloc(ELEMENTS, sizeof(*send)), *recv = calloc(ELEMENTS, sizeof(*recv));
	collet_comm *split = NULL;
	collet_plan plan;
	if (rank_check(rank, send && recv, "no memory") && rank_create(rank) &&
		rank_ok(rank, collet_allreduce(rank->comm, send, recv, ELEMENTS, COLLET_F32, COLLET_SUM, NULL),
			"allreduce") &&
		rank_ok(rank,
			collet_comm_plan(rank->comm, "alltoall", ELEMENTS, COLLET_F32, COLLET_SUM, 0, NULL, &plan),
			"plan") &&
		rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &split), "split") &&
		rank_ok(rank, collet_barrier(split, NULL), "barrier"))
		rank_ok(rank, collet_comm_destroy(&split), "destroy the split");
	rank_destroy(rank);
	free(send);
	free(recv);
	return NULL;
}

static void call_on_small_stack(struct rank *rank)
{
	pthread_t thread;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	if (rank_check(rank, pthread_attr_setstacksize(&attributes, 128 << 10) == 0, "no such stack") &&
		rank_check(rank, pthread_create(&thread, &attributes, create_and_call, rank) == 0, "no thread"))
		pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
}

/* collet.h promises that this is enough. Threads of musl have it by default. */
static void a_stack_of_128_kib(void **state)
{
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t t = 0; t < 2; t++) {
		const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .bare = true,
			.transport = transports[t] };
		ranks_must_pass(&options, call_on_small_stack);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decimal_comma),
		cmocka_unit_test(a_stack_of_128_kib),
	};
	if (ranks_are_slow()) /* sanitizers make frames larger */
		cmocka_set_skip_filter("a_stack_of_128_kib");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
