/* Checks that calls which alternate keep their plans. The linker wraps a part of planning, and this file counts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/comm.h"
#include "engine/fast_path.h"
#include "engine/request.h"
#include "ranks.h"

enum { DIFFERENT_MOST = 200, ROUNDS = 3 };

static uint64_t planned;   /* by this process, which is one rank */

void __real_collet_fast_path_plan(struct collet_request *);
void __wrap_collet_fast_path_plan(struct collet_request *);

void __wrap_collet_fast_path_plan(struct collet_request *request)
{
	planned++;
	__real_collet_fast_path_plan(request);
}

struct row {
	const char *name;
	uint32_t different;     /* calls that alternate, of 1, 2, 3, ... elements */
	bool in_flight;         /* all are started, then awaited */
	bool keeps_plans;       /* none is planned again in a later round */
	const char *transport;
};

/* Makes the calls one after the other, or all at once. False if one failed. */
static bool make_calls(struct rank *rank, const struct row *row, uint32_t (*sums)[DIFFERENT_MOST])
{
	static collet_request *requests[DIFFERENT_MOST];
	for (uint32_t i = 0; i < row->different; i++) {
		for (uint32_t e = 0; e <= i; e++)
			sums[i][e] = e + rank->rank;
		const collet_how how = { .request = row->in_flight ? &requests[i] : NULL };
		if (!rank_ok(rank, collet_allreduce(rank->comm, sums[i], sums[i], i + 1, COLLET_U32, COLLET_SUM,
			row->in_flight ? &how : NULL), "a sum"))
			return false;
		if (!row->in_flight && !rank_ok(rank, collet_barrier(rank->comm, NULL), "a barrier"))
			return false;
	}
	return !row->in_flight || rank_ok(rank, collet_request_wait_all(requests, row->different), "wait_all");
}

static void alternate(struct rank *rank)
{
	static uint32_t sums[DIFFERENT_MOST][DIFFERENT_MOST];
	const struct row *row = rank->options->context;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		planned = 0;
		if (!make_calls(rank, row, sums))
			return;
		for (uint32_t i = 0; i < row->different; i++)
			for (uint32_t e = 0; e <= i; e++)
				rank_check(rank, sums[i][e] == 2 * e + 1, "call %u, sum %u is %u", i, e, sums[i][e]);
		if (round > 0)
			rank_check(rank, !planned == row->keeps_plans, "round %u planned %llu times", round,
				(unsigned long long)planned);
	}
	rank_check(rank, rank->comm->state.request_count <= COLLET_PLANS_KEPT, "there are %u requests",
		rank->comm->state.request_count);
}

static void calls_that_alternate_are_planned_once(void **state)
{
	static const struct row rows[] = {
		{ "a sum and a barrier", 1, false, true, "shm" },
		{ "few", 8, false, true, "shm" },
		{ "few over tcp", 8, false, true, "tcp" },
		{ "few in flight", 8, true, true, "shm" },
		{ "as many as are kept", COLLET_PLANS_KEPT - 1, false, true, "shm" },
		{ "more than are kept", DIFFERENT_MOST, false, false, "shm" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("%s\n", rows[i].name);
		ranks_must_pass(&(struct ranks_options){ .mode = RANKS_PROCESSES, .size = 2,
			.transport = rows[i].transport, .context = &rows[i] }, alternate);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_that_alternate_are_planned_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
