/* Ranks of several hosts, each with a GPU that its ranks share. If one of them fails, all others are told, and so they
 * are of whatever else ends the communicator. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hierarchical.h"
#include "losses.h"
#include "sample.h"

static void fail_once(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const struct row row = {
		COLLET_F32, COLLET_SUM, LARGE, .kind = world->kind, .root = world->root, .chosen = true };
	const collet_how how = hosts_how(rank, &row);
	const struct sides sides = hosts_sides(rank, &row);
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!hosts_begin(&gpu, rank) || !gpu_make(&gpu, &buffer, rank->size * LARGE, 1))
		return;
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);  /* otherwise it may fail while others are about to begin */
	if (rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", world->fail, 1);
	rank_status(rank,
		hosts_call(rank, &row, buffer.first + sides.send_at, buffer.first + sides.recv_at, &how),
		COLLET_ERR_SYSTEM, world->fail);
	unsetenv("FAKE_CUDA_FAIL");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_leaders_failure_is_everybodys(void **state)
{
	static const struct world worlds[] = {
		{ "aabb", .fail = "cuLaunchKernel:0:700" },
		{ "aabb", .fail = "cuMemcpyAsync:0:1" },
		{ "aabb", .fail = "cuLaunchKernel:0:700", .kind = REDUCE, .root = 3 },
		{ "aabb", .fail = "cuLaunchKernel:0:700", .kind = BROADCAST },
		{ "aabb", .fail = "cuMemcpyAsync:0:1", .kind = BROADCAST },
		{ "aabb", .fail = "cuLaunchKernel:0:700", .kind = ALLGATHER },
		{ "aabb", .fail = "cuMemcpyAsync:0:1", .kind = ALLGATHER },
		{ "aabb", .fail = "cuLaunchKernel:0:700", .kind = REDUCE_SCATTER },
		{ "aabb", "0123", "cuLaunchKernel:0:700" },
		{ "aabb", "1022", "cuMemcpyAsync:0:1" },
	};
	const size_t count = sizeof(worlds) / sizeof(worlds[0]);
	for (size_t w = 0; w < count; w++) {
		const struct ranks_options options = { .size = 4, .bare = true, .context = &worlds[w] };
		if (!sample_of(count, w))
			continue;
		ranks_must_pass(&options, fail_once);
	}
}

/* One rank dies instead of calling, while the others call. Leaders among them have gathered their hosts' blocks, and
 * wait. */
static void lose_one(struct rank *rank)
{
	const struct world *world = rank->options->context;
	const struct row row = {COLLET_F32, COLLET_SUM, MIDDLE, .kind = world->kind, .chosen = true};
	const struct sides sides = hosts_sides(rank, &row);
	const collet_how how = hosts_how(rank, &row);
	struct gpu gpu;
	struct buffer buffer = {0};
	char lost[32];
	if (!hosts_begin(&gpu, rank) || !gpu_make(&gpu, &buffer, rank->size * MIDDLE, 1))
		return;
	char *send = buffer.first + sides.send_at, *recv = buffer.first + sides.recv_at;
	rank_ok(rank, hosts_call(rank, &row, send, recv, &how), "before");
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	if (rank->rank == world->lost)
		raise(SIGKILL);
	collet_status status = hosts_call(rank, &row, send, recv, &how);
	/* A rank that waits for nobody may complete before it hears of it. */
	while (row.kind == BROADCAST && status == COLLET_OK)
		status = hosts_call(rank, &row, send, recv, &how);
	rank_status(rank, status, COLLET_ERR_PEER_LOST, "the call");
	snprintf(lost, sizeof(lost), "rank %u", world->lost);
	rank_check(rank, strstr(collet_last_error(), lost) != NULL, "%s", collet_last_error());
	rank_destroy(rank);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_rank_that_dies_is_named_on_every_host(void **state)
{
	/* A follower, a leader, and a rank that is alone. */
	static const struct world worlds[] = {
		{"aabbc", .kind = ALLGATHER, .lost = 1},
		{"aabbc", .kind = ALLGATHER, .lost = 2},
		{"aabbc", .kind = ALLGATHERV, .lost = 4},
		{"aabbc", .kind = REDUCE_SCATTER, .lost = 3},
		{"aabbc", .kind = REDUCE_SCATTER, .lost = 2},
		{"aabbc", .kind = ALLREDUCE, .lost = 2},
		{"aabbc", "01010", .kind = ALLREDUCE, .lost = 0},
		{"aabbc", "10001", .kind = ALLREDUCE, .lost = 1},
		{"aabbc", "23110", .kind = BROADCAST, .lost = 4},
	};
	const size_t count = sizeof(worlds) / sizeof(worlds[0]);
	for (size_t w = 0; w < count; w++) {
		const struct ranks_options options = { .size = 5, .bare = true, .context = &worlds[w] };
		if (!sample_of(count, w))
			continue;
		struct ranks *ranks = ranks_start(&options, lose_one);
		assert_true(ranks_wait(ranks));
		for (uint32_t r = 0; r < options.size; r++) {
			const struct rank_report *report = ranks_report(ranks, r);
			if (r != worlds[w].lost && (report->failed || report->end != RANK_RETURNED))
				fail_msg("%zu: rank %u: %s", w, r, report->sentence);
		}
		ranks_free(&ranks);
	}
}

static bool begin_call(struct gpu *gpu, struct rank *rank)
{
	const struct loss *loss = rank->options->context;
	return hosts_begin_in(gpu, rank, loss->call->context);
}

static void a_lost_rank_ends_the_call_on_every_host(void **state)
{
	static const struct world shared = {"aabbc"}, own = {"aabbc", "01010"};
	static const struct loss_call calls[] = {
		{begin_call, &shared, ALLREDUCE, MIDDLE, .gpu_path = "hierarchical"},
		{begin_call, &own, ALLGATHER, MIDDLE, .gpu_path = "hierarchical"},
	};
	const struct ranks_options options = { .size = 5, .bare = true };
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
		losses_must_be_told(&options, &calls[c], LOSS_BLOCKING);
}

static void die_in_graphs(struct rank *rank)
{
	struct gpu gpu;
	if (hosts_begin(&gpu, rank))
		losses_in_graphs(&gpu, MIDDLE);
}

static void a_rank_that_dies_leaves_no_hosts_graph_stuck(void **state)
{
	/* The rank is a leader, a follower, and alone. */
	static const struct world worlds[] = { { .hosts = "aabb" }, { .hosts = "aaab" }, { .hosts = "aabcc" } };
	const size_t count = sizeof(worlds) / sizeof(worlds[0]);
	for (size_t w = 0; w < count; w++) {
		if (!sample_of(count, w))
			continue;
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].hosts), .bare = true,
			.context = &worlds[w] };
		losses_must_spare(&options, die_in_graphs, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leaders_failure_is_everybodys),
		cmocka_unit_test(a_rank_that_dies_is_named_on_every_host),
		cmocka_unit_test(a_lost_rank_ends_the_call_on_every_host),
		cmocka_unit_test(a_rank_that_dies_leaves_no_hosts_graph_stuck),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
