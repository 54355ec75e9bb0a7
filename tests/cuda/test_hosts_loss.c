/* Ranks of several hosts, of which each has a GPU that its ranks share: what one of them lacks, all others are told. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hosts.h"

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
	rank_await(rank, 0, rank->size);  /* else it may fail while others are about to begin */
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
		{ "aabb", "cuLaunchKernel:0:700" },
		{ "aabb", "cuMemcpyAsync:0:1" },
		{ "aabb", "cuLaunchKernel:0:700", REDUCE, .root = 3 },
		{ "aabb", "cuLaunchKernel:0:700", BROADCAST },
		{ "aabb", "cuMemcpyAsync:0:1", BROADCAST },
		{ "aabb", "cuLaunchKernel:0:700", ALLGATHER },
		{ "aabb", "cuMemcpyAsync:0:1", ALLGATHER },
		{ "aabb", "cuLaunchKernel:0:700", REDUCE_SCATTER },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = 4, .bare = true, .context = &worlds[w] };
		ranks_must_pass(&options, fail_once);
	}
}

/* One dies instead of calling, while the others call: leaders among them have brought their hosts' blocks, and wait. */
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
	rank_status(rank, hosts_call(rank, &row, send, recv, &how), COLLET_ERR_PEER_LOST, "the call");
	snprintf(lost, sizeof(lost), "rank %u", world->lost);
	rank_check(rank, strstr(collet_last_error(), lost) != NULL, "%s", collet_last_error());
	rank_destroy(rank);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void whoever_dies_is_named_on_every_host(void **state)
{
	/* A follower, a leader, and one that is alone. */
	static const struct world worlds[] = {
		{"aabbc", .kind = ALLGATHER, .lost = 1},
		{"aabbc", .kind = ALLGATHER, .lost = 2},
		{"aabbc", .kind = ALLGATHERV, .lost = 4},
		{"aabbc", .kind = REDUCE_SCATTER, .lost = 3},
		{"aabbc", .kind = REDUCE_SCATTER, .lost = 2},
		{"aabbc", .kind = ALLREDUCE, .lost = 2},
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = { .size = 5, .bare = true, .context = &worlds[w] };
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leaders_failure_is_everybodys),
		cmocka_unit_test(whoever_dies_is_named_on_every_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
