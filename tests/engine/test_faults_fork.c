/* Kills a rank that has forked a child, which lives on with copies of all its connections. The other ranks must be told
 * at once anyway: those of its host by a neighbour, and those of other hosts through rank 0. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"

enum { SIZE = 4, CHILD_IS_THERE = 0, TOLD_WITHIN_MS = 5000 };

struct row {
	const char *name, *transport;
	uint32_t victim;
	uint32_t hosts;              /* number of hosts; ranks are assigned in turn */
	int gate[2];                 /* a pipe; the child lives until the test closes it */
};

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Closes all pipes but one. By their end the test knows that a rank has ended; the library has no pipes. */
static void close_pipes_but(int kept)
{
	struct stat info;
	for (int fd = 3; fd < 1024; fd++)
		if (fd != kept && fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode))
			close(fd);
}

/* Forks a child that only keeps the inherited descriptors, then dies. */
static void fork_and_die(struct rank *rank, const struct row *row, int64_t *died_ms)
{
	char nothing;
	const pid_t child = fork();
	if (child == 0) {
		close_pipes_but(row->gate[0]);
		while (read(row->gate[0], &nothing, 1) > 0)
			;
		_exit(0);
	}
	rank_check(rank, child > 0, "it cannot fork");
	rank_post(rank, CHILD_IS_THERE);
	*died_ms = now_ms();
	raise(SIGKILL);
}

static void lose_one(struct rank *rank)
{
	const struct row *row = rank->options->context;
	int64_t *died_ms = rank->shared;
	int32_t value = 1;
	char id[32], wanted[32];
	snprintf(id, sizeof(id), "host-%u", rank->rank % row->hosts);
	setenv("COLLET_HOST_ID", id, 1);
	setenv("COLLET_SECRET", "of one job", 1);
	if (!rank_create(rank))
		return;
	/* Connects all pairs of ranks. */
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = "direct";
	if (!rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, &how),
		    "the first call"))
		return;
	if (rank->rank == row->victim)
		fork_and_die(rank, row, died_ms);
	rank_doing(rank, "waiting for rank %u's child", row->victim);
	if (!rank_await(rank, CHILD_IS_THERE, 1))
		return;
	rank_doing(rank, "a call that rank %u never makes", row->victim);
	rank_status(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, &how),
		COLLET_ERR_PEER_LOST, "without the victim");
	const int64_t took_ms = now_ms() - *died_ms;
	rank_check(rank, took_ms < TOLD_WITHIN_MS * (ranks_are_slow() ? 4 : 1), "it took %lld ms", (long long)took_ms);
	snprintf(wanted, sizeof(wanted), "rank %u on", row->victim);
	rank_check(rank, strstr(collet_last_error(), wanted) != NULL, "not named: %s", collet_last_error());
}

static void run(void **state)
{
	struct row *row = *state;
	assert_int_equal(pipe(row->gate), 0);
	const struct ranks_options options = { .mode = RANKS_PROCESSES,
		.size = SIZE,
		.transport = row->transport,
		.bare = true,
		.shared_bytes = sizeof(int64_t),
		.context = row };
	struct ranks *ranks = ranks_start(&options, lose_one);
	assert_non_null(ranks);
	const bool ended = ranks_wait(ranks);
	close(row->gate[0]);
	close(row->gate[1]);
	assert_true(ended);
	for (uint32_t r = 0; r < SIZE; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		if (r == row->victim)
			assert_int_equal(report->end, RANK_KILLED);
		else if (report->failed || report->end != RANK_RETURNED)
			fail_msg("%s: rank %u, %s: %s", row->name, r, report->doing, report->sentence);
	}
	ranks_free(&ranks);
}

int main(void)
{
	static struct row rows[] = {
		{ .name = "shm, rank 2", .transport = "shm", .victim = 2, .hosts = 1 },
		{ .name = "tcp, rank 1", .transport = "tcp", .victim = 1, .hosts = 1 },
		{ .name = "shm, rank 0", .transport = "shm", .victim = 0, .hosts = 1 },
		{ .name = "two hosts, on rank 0's", .victim = 2, .hosts = 2 },
		{ .name = "two hosts, on the other", .victim = 3, .hosts = 2 },
	};
	struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0])];
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		tests[i] = (struct CMUnitTest){ .name = rows[i].name, .test_func = run, .initial_state = &rows[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
