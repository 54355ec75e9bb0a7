/* Tests what wrappers forward: the engine calls the wrapper's endpoint, and the wrapper calls the wrapped transport
 * with the wrapped endpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair.h"

enum { HINTED = 4096, LONG = 3 * HINTED };  /* bytes; see kind "memory" in modules/kinds.c */

struct row {
	const char *transport, *faulty;
	bool takes_gpu;
};

static void exchange(struct pair *pair)
{
	static char from[LONG], to[LONG];
	struct collet_transfer send = transfer_of(1, from, LONG), receive = transfer_of(1, to, LONG);
	struct collet_endpoint *left = pair->ends[0].endpoint, *right = pair->ends[1].endpoint;
	pattern_fill(from, LONG, 1);
	right->transport->post_recv(right, &receive);
	left->transport->post_send(left, &send);
	assert_true(pair_complete(pair, &receive) && pair_complete(pair, &send));
	assert_int_equal(receive.status, COLLET_OK);
	assert_true(pattern_is(to, LONG, 1));
}

static void wrappers_forward_hints(void **state)
{
	static const struct row rows[] = {
		{ "memory", "", true },
		{ "trace:memory", "", true },
		{ "faulty:memory", "delay=5,split=0,skip=4", true },
		{ "faulty:memory", "delay=5,split=2,skip=4", false },
		{ "trace:faulty:memory", "delay=5,split=0,skip=4", true },
		{ "faulty:skeleton", "delay=5,split=0,skip=4", false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		struct pair pair;
		setenv("COLLET_FAULTY", row->faulty, 1);
		pair_open(&pair, row->transport);
		exchange(&pair);
		struct collet_endpoint *endpoint = pair.ends[1].endpoint;
		bool (*takes_gpu)(struct collet_endpoint *, const void *, uint64_t) = endpoint->transport->accepts_gpu;
		if (row->takes_gpu != (takes_gpu && takes_gpu(endpoint, &pair, HINTED)) ||
			(takes_gpu && takes_gpu(endpoint, &pair, HINTED - 1)))
			fail_msg("%s: accepts_gpu", row->transport);
		if (endpoint->peer_cpu != (row == &rows[5] ? 0 : HINTED))
			fail_msg("%s: peer_cpu is %u", row->transport, endpoint->peer_cpu);
		pair_close(&pair);
	}
	unsetenv("COLLET_FAULTY");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(wrappers_forward_hints) };
	return cmocka_run_group_tests_name("wraps", tests, NULL, NULL);
}
