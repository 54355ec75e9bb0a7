/* Tests the warning after 10 s without progress: it names the missing ranks and their last calls. Takes that long. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"

enum { EVENT_WARNED, PATIENCE_MS = 60 * 1000, AGAIN_MS = 1000 };

/* Rank 2 arrives when the test has seen the warning. */
static void keep_others_waiting(struct rank *rank)
{
	const int *out = rank->options->context;
	float data[8] = {0};
	dup2(*out, STDERR_FILENO);
	rank_ok(rank, collet_allreduce(rank->comm, data, data, 8, COLLET_F32, COLLET_MAX, NULL), "a good call");
	if (rank->rank == 2)
		rank_await(rank, EVENT_WARNED, 1);
	rank_ok(rank, collet_barrier(rank->comm, NULL), "the call that rank 2 comes to late");
}

static size_t read_line(int in, char *text, size_t capacity, int timeout_ms)
{
	struct pollfd item = { .fd = in, .events = POLLIN };
	if (poll(&item, 1, timeout_ms) != 1)
		return 0;
	const ssize_t got = read(in, text, capacity - 1);
	text[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

static void one_warning_names_who_has_not_arrived(void **state)
{
	int ends[2];
	char text[2000], more[2000] = "";
	assert_int_equal(pipe(ends), 0);
	setenv("COLLET_LOG", "warn", 1);
	const struct ranks_options options = { .size = 3, .context = &ends[1] };
	struct ranks *ranks = ranks_start(&options, keep_others_waiting);
	const size_t bytes = read_line(ends[0], text, sizeof(text), PATIENCE_MS);
	const size_t more_bytes = read_line(ends[0], more, sizeof(more), AGAIN_MS);
	ranks_post(ranks, EVENT_WARNED);
	ranks_wait(ranks);
	const bool passed = ranks_all_passed(ranks);
	ranks_free(&ranks);
	close(ends[0]);
	close(ends[1]);
	assert_true(passed);
	assert_true(bytes > 0);
	printf("%s", text);
	assert_non_null(strstr(text, "barrier (call 1"));
	assert_non_null(strstr(text, "rank 2 on "));
	assert_non_null(strstr(text, "last called allreduce of 8 f32 max (call 0"));
	assert_null(strstr(text, "rank 1 on "));
	if (more_bytes)
		fail_msg("more than one warning: %s", more);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_warning_names_who_has_not_arrived),
	};
	return cmocka_run_group_tests_name("warning", tests, NULL, NULL);
}
