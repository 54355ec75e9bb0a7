/* Tests the order of ranks. They are bound alternately to the two halves of a machine described to hwloc. Calls
 * whose result no order can change go round it half by half. A float sum keeps rank order, whatever the binding. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpus.h"
#include "ranks.h"
#include "skip.h"

enum { SIZE = 5, COUNT = 1000, ROWS_MOST = 64 };

struct plan {
	int cpus[2];
	const char *algorithm;
};

static bool bind_and_create(struct rank *rank)
{
	const struct plan *plan = rank->options->context;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)plan->cpus[rank->rank % 2], &set);
	return rank_check(rank, sched_setaffinity(0, sizeof(set), &set) == 0, "it cannot be bound") &&
	       rank_create(rank);
}

/* Bit p is set if this rank has sent to rank p. */
static uint32_t sent_to(struct rank *rank)
{
	collet_stat rows[ROWS_MOST];
	size_t count = 0;
	uint32_t peers = 0;
	if (!rank_ok(rank, collet_comm_stats(rank->comm, rows, ROWS_MOST, &count), "stats"))
		return 0;
	for (size_t i = 0; i < count && i < ROWS_MOST; i++)
		if (rows[i].kind == COLLET_STAT_ENDPOINT && rows[i].bytes_sent > 0)
			peers |= (uint32_t)1 << rows[i].peer;
	return peers;
}

/* The right neighbour in rank order, and with the even ranks before the odd ones. */
static uint32_t right_by_rank(uint32_t rank)
{
	return (uint32_t)1 << (rank + 1) % SIZE;
}

static uint32_t right_by_half(uint32_t rank)
{
	static const uint32_t next[SIZE] = { 2, 3, 4, 0, 1 };   /* 0 2 4 1 3 */
	return (uint32_t)1 << next[rank];
}

static void sum_floats_then_integers(struct rank *rank)
{
	static _Thread_local float floats[COUNT];
	static _Thread_local int32_t integers[COUNT];
	if (!bind_and_create(rank))
		return;
	for (uint32_t i = 0; i < COUNT; i++) {
		floats[i] = (float)(rank->rank + i);
		integers[i] = (int32_t)(rank->rank * i);
	}
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = "ring";
	rank_ok(rank, collet_allreduce(rank->comm, floats, floats, COUNT, COLLET_F32, COLLET_SUM, &how), "floats");
	rank_check(rank, sent_to(rank) == right_by_rank(rank->rank), "floats went to %#x", sent_to(rank));
	rank_ok(rank, collet_allreduce(rank->comm, integers, integers, COUNT, COLLET_I32, COLLET_SUM, &how),
		"integers");
	rank_check(rank, sent_to(rank) == (right_by_rank(rank->rank) | right_by_half(rank->rank)),
		"integers went to %#x", sent_to(rank));
	for (uint32_t i = 0; i < COUNT; i++)
		rank_check(rank, floats[i] == (float)(10 + SIZE * i) && integers[i] == (int32_t)(10 * i),
			"element %u is %g and %d", i, (double)floats[i], integers[i]);
}

/* Checks that blocks are numbered by rank in any order, and that roots are ranks. */
static void move_and_compare(struct rank *rank)
{
	static _Thread_local uint32_t all[SIZE * COUNT], own[COUNT], back[SIZE * COUNT];
	const struct plan *plan = rank->options->context;
	collet_how how = COLLET_HOW_DEFAULT;
	if (!bind_and_create(rank))
		return;
	how.algorithm = plan->algorithm;
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] = rank->rank << 16 | i;
	rank_ok(rank, collet_allgather(rank->comm, own, all, COUNT, COLLET_U32, &how), "allgather");
	if (plan->algorithm)
		rank_check(rank, sent_to(rank) == right_by_half(rank->rank), "blocks went to %#x", sent_to(rank));
	for (uint32_t i = 0; i < SIZE * COUNT; i++)
		rank_check(
			rank, all[i] == ((i / COUNT) << 16 | i % COUNT), "all-gathered element %u is %#x", i, all[i]);
	rank_ok(rank, collet_alltoall(rank->comm, all, back, COUNT, COLLET_U32, NULL), "alltoall");
	for (uint32_t i = 0; i < SIZE * COUNT; i++)
		rank_check(rank, back[i] == (rank->rank << 16 | i % COUNT), "exchanged element %u is %#x", i, back[i]);
	for (uint32_t root = 0; root < SIZE; root++) {
		rank_ok(rank, collet_gather(rank->comm, own, back, COUNT, COLLET_U32, root, NULL), "gather");
		rank_check(rank, rank->rank != root || memcmp(back, all, sizeof(all)) == 0, "gathered wrongly at %u",
			root);
		rank_ok(rank, collet_scatter(rank->comm, all, back, COUNT, COLLET_U32, root, NULL), "scatter");
		rank_check(rank, memcmp(back, own, sizeof(own)) == 0, "scattered wrongly from %u", root);
		back[0] = rank->rank;
		rank_ok(rank, collet_broadcast(rank->comm, back, back, 1, COLLET_U32, root, NULL), "broadcast");
		rank_check(rank, back[0] == root, "broadcast from %u gave %u", root, back[0]);
		rank_ok(rank, collet_reduce(rank->comm, own, back, COUNT, COLLET_U32, COLLET_MAX, root, NULL),
			"reduce");
		rank_check(rank, rank->rank != root || back[1] == ((SIZE - 1) << 16 | 1), "reduced to %#x at %u",
			back[1], root);
	}
	rank_ok(rank, collet_reduce_scatter(rank->comm, all, back, COUNT, COLLET_U32, COLLET_MIN, NULL),
		"reduce_scatter");
	rank_check(rank, memcmp(back, &all[rank->rank * COUNT], sizeof(own)) == 0, "reduce-scattered wrongly");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier");
}

static void on_two_halves(ranks_body *body, const char *algorithm)
{
	struct plan plan = { .algorithm = algorithm };
	char described[64];
	if (!test_two_cpus(plan.cpus))
		skip_because("this process may use one core only");
	snprintf(described, sizeof(described), "pack:%d core:1 pu:1", plan.cpus[1] + 1);
	setenv("HWLOC_SYNTHETIC", described, 1);
	const struct ranks_options options = { .size = SIZE, .bare = true, .context = &plan };
	ranks_must_pass_everywhere(&options, body);
	unsetenv("HWLOC_SYNTHETIC");
}

static void a_float_sum_keeps_its_order(void **state)
{
	on_two_halves(sum_floats_then_integers, NULL);
}

static void moves_follow_the_machine(void **state)
{
	on_two_halves(move_and_compare, "ring");
}

static void whatever_is_chosen(void **state)
{
	on_two_halves(move_and_compare, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_float_sum_keeps_its_order),
		cmocka_unit_test(moves_follow_the_machine),
		cmocka_unit_test(whatever_is_chosen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
