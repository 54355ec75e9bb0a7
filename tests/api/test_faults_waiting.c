/* Tests that ranks that wait for long use little CPU time, and idle ranks none. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "ranks.h"

enum { LATE_MS = 100, IDLE_MS = 300, WAITING_MOST_US = 10 * 1000, IDLE_MOST_US = 1000 };

/* Two ranks have a core each on most machines and spin before they sleep; more ranks may not. */
static const struct row {
	const char *transport;
	uint32_t size;
} rows[] = {{"shm", 3}, {"tcp", 3}, {"shm", 2}, {"tcp", 2}};

/* Returns the CPU time of the whole process: the caller's thread and the library's. */
static int64_t used_us(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return ((int64_t)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec +
	       usage.ru_stime.tv_usec;
}

static void wait_for_one_that_is_late(struct rank *rank)
{
	float data[64] = {0};
	int64_t *used = rank->shared;
	rank_ok(rank, collet_allreduce(rank->comm, data, data, 64, COLLET_F32, COLLET_SUM, NULL), "a first call");
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	if (rank->rank == 1)
		poll(NULL, 0, LATE_MS); /* waits for nothing: it makes this rank late */
	const int64_t before = used_us();
	rank_ok(rank, collet_allreduce(rank->comm, data, data, 64, COLLET_F32, COLLET_SUM, NULL),
		"the call that waits");
	used[rank->rank] = used_us() - before;
}

static void do_nothing(struct rank *rank)
{
	int64_t *used = rank->shared;
	rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier");
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	const int64_t before = used_us();
	poll(NULL, 0, IDLE_MS);
	used[rank->rank] = used_us() - before;
}

static void measure(ranks_body *body, const char *what, int64_t most_us)
{
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const struct row *row = &rows[r];
		const struct ranks_options options = { .size = row->size,
			.transport = row->transport,
			.shared_bytes = row->size * sizeof(int64_t) };
		struct ranks *ranks = ranks_start(&options, body);
		ranks_wait(ranks);
		const bool passed = ranks_all_passed(ranks);
		const int64_t *used = ranks_shared(ranks);
		const int64_t last = used[row->size - 1 > 1 ? row->size - 1 : 0]; /* rank 1 is late */
		const int64_t most = used[0] > last ? used[0] : last;
		printf("%s, %u ranks: %s: %lld us of CPU\n", row->transport, row->size, what, (long long)most);
		ranks_free(&ranks);
		assert_true(passed);
		assert_true(most < most_us);
	}
}

static void a_rank_that_waits_sleeps(void **state)
{
	measure(wait_for_one_that_is_late, "waiting 100 ms for a late rank", WAITING_MOST_US);
}

static void an_idle_rank_uses_nothing(void **state)
{
	measure(do_nothing, "idle for 300 ms", IDLE_MOST_US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_waits_sleeps),
		cmocka_unit_test(an_idle_rank_uses_nothing),
	};
	return cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
}
