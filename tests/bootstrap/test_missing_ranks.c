/* Tests the bootstrap when ranks are missing, or when processes connect that do not belong to the job. All ranks learn
 * which. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/interface.h"
#include "bootstrap/store/store.h"
#include "core/status.h"
#include "skip.h"
#include "world.h"

static void who_does_not_come_is_named_to_all(void **state)
{
	enum { SIZE = 8 };
	struct test_rank ranks[SIZE];
	static const uint32_t present[] = { 0, 1, 2, 4, 7 };
	char name[32], store[64];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (size_t i = 0; i < 5; i++) {
		test_rank_set(&ranks[present[i]], present[i], SIZE, store, NULL, present[i] == 0 ? 600 : 20000);
		test_rank_start(&ranks[present[i]]);
	}
	for (size_t i = 0; i < 5; i++) {
		struct test_rank *rank = &ranks[present[i]];
		test_rank_join(rank);
		assert_int_equal(rank->status, COLLET_ERR_RENDEZVOUS);
		if (!strstr(rank->sentence, "ranks 3, 5-6 of 8 have not connected"))
			fail_msg("rank %u: %s", present[i], rank->sentence);
		test_world_deinit(rank, 1);
	}
	/* A rank with an earlier deadline has the names from rank 0 too. */
	for (uint32_t r = 0; r < 2; r++) {
		test_rank_set(&ranks[r], r, 3, store, NULL, r == 0 ? 1500 : 900);
		test_rank_start(&ranks[r]);
	}
	for (uint32_t r = 0; r < 2; r++) {
		test_rank_join(&ranks[r]);
		assert_int_equal(ranks[r].status, COLLET_ERR_RENDEZVOUS);
		assert_non_null(strstr(
			ranks[r].sentence, r == 0 ? "ranks 1-2 of 3" : "rank 2 of 3 has not connected"));
		test_world_deinit(&ranks[r], 1);
	}
}

static void without_rank_0_it_is_named(void **state)
{
	struct test_rank rank;
	char name[32], store[64];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	test_rank_set(&rank, 1, 2, store, NULL, 100);
	test_world_meet(&rank, 1);
	assert_int_equal(rank.status, COLLET_ERR_RENDEZVOUS);
	assert_non_null(strstr(rank.sentence, "rank 0"));
	assert_non_null(strstr(rank.sentence, store));
	assert_true(rank.took_ns < 5000000000);
	test_world_deinit(&rank, 1);
}

static void who_does_not_belong_is_refused_and_the_rest_goes_on(void **state)
{
	static const struct {
		const char *secret, *job, *says;
		uint32_t size;
		collet_status status;
	} rows[] = {
		{ "another", "test", "another secret", 2, COLLET_ERR_AUTH },
		{ NULL, "test", "127.0.0.1", 2, COLLET_ERR_CONFIG },
		{ "s3cret", "other", "'test'", 2, COLLET_ERR_AUTH },
		{ "s3cret", "test", "world size 2", 5, COLLET_ERR_CONFIG },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct test_rank ranks[2], stranger;
		char store[64];
		snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", test_free_port());
		test_rank_set(&ranks[0], 0, 2, store, "s3cret", 20000);
		test_rank_set(&ranks[1], 1, 2, store, "s3cret", 20000);
		ranks[0].make_blob = test_blob_of_seven;
		test_rank_set(&stranger, 1, rows[i].size, store, rows[i].secret, 20000);
		snprintf(stranger.launch.job, sizeof(stranger.launch.job), "%s", rows[i].job);
		test_rank_start(&ranks[0]);
		test_world_meet(&stranger, 1);
		if (stranger.status != rows[i].status)
			fail_msg("row %zu: %s: %s", i, collet_status_name(stranger.status), stranger.sentence);
		if (rows[i].secret)
			assert_non_null(strstr(stranger.sentence, rows[i].says));
		test_rank_start(&ranks[1]);
		test_rank_join(&ranks[0]);
		test_rank_join(&ranks[1]);
		test_world_assert_met(ranks, 2);
		test_world_deinit(ranks, 2);
		test_world_deinit(&stranger, 1);
	}
}

static void two_of_one_rank_are_named(void **state)
{
	struct test_rank ranks[2], again;
	char name[32], store[64];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < 2; r++) {
		test_rank_set(&ranks[r], r, 3, store, NULL, 1500);
		test_rank_start(&ranks[r]);
	}
	test_rank_set(&again, 1, 3, store, NULL, 1500);
	test_rank_start(&again);
	test_rank_join(&ranks[0]);
	test_rank_join(&ranks[1]);
	test_rank_join(&again);
	assert_int_equal(ranks[0].status, COLLET_ERR_RENDEZVOUS);
	/* The error goes to the one that connected second. */
	const struct test_rank *second = again.status == COLLET_ERR_CONFIG ? &again : &ranks[1];
	assert_int_equal(second->status, COLLET_ERR_CONFIG);
	assert_non_null(strstr(second->sentence, "two processes claim to be rank 1"));
	test_world_deinit(ranks, 2);
	test_world_deinit(&again, 1);
}

static collet_status blob_refused(
	void *context, const struct collet_peer_info *infos, uint32_t size, void **blob, size_t *bytes)
{
	return collet_fail(COLLET_ERR_CONFIG, "COLLET_X is 1 on rank %u and 2 on rank 0", size - 1);
}

static void what_rank_0_finds_wrong_everybody_hears(void **state)
{
	struct test_rank ranks[4];
	char name[32], store[64];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < 4; r++) {
		test_rank_set(&ranks[r], r, 4, store, NULL, 20000);
		ranks[r].make_blob = blob_refused;
	}
	test_world_meet(ranks, 4);
	for (uint32_t r = 0; r < 4; r++) {
		assert_int_equal(ranks[r].status, COLLET_ERR_CONFIG);
		assert_string_equal(ranks[r].sentence, "COLLET_X is 1 on rank 3 and 2 on rank 0");
	}
	test_world_deinit(ranks, 4);
}

/* Runs in a child process of user nobody. Connects to the name and reports a rejection, or listens at it. */
static int as_nobody(const char *local_name, bool squat, int ready)
{
	struct collet_address endpoint;
	char byte = 0;
	int fd;
	if (setuid(65534) != 0)
		return 2;
	collet_address_unix(&endpoint, local_name);
	if (squat) {
		if (collet_socket_listen(&endpoint, 0, 0, &fd) != COLLET_OK || write(ready, "x", 1) != 1)
			return 2;
		pause();  /* until the parent ends this */
		return 0;
	}
	for (int tries = 0; tries < 2000; tries++) {  /* until rank 0 listens */
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, &endpoint.any, endpoint.bytes) == 0)
			return read(fd, &byte, 1) <= 0 ? 0 : 1;  /* closed without a message */
		close(fd);
		poll(NULL, 0, 5);
	}
	return 2;
}

static void another_user_is_neither_let_in_nor_believed(void **state)
{
	struct test_rank ranks[2];
	char name[32], store[64], local_name[64];
	int status, ready[2];
	char byte;
	if (geteuid() != 0)
		skip_because("only root can become another user");
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	assert_int_equal(collet_store_unix_name(name, local_name), COLLET_OK);
	assert_int_equal(pipe(ready), 0);
	for (uint32_t r = 0; r < 2; r++) {
		test_rank_set(&ranks[r], r, 2, store, NULL, 20000);
		ranks[r].make_blob = test_blob_of_seven;
	}
	fflush(NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(as_nobody(local_name, false, -1));
	test_rank_start(&ranks[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	test_rank_start(&ranks[1]);
	test_rank_join(&ranks[0]);
	test_rank_join(&ranks[1]);
	test_world_assert_met(ranks, 2);
	test_world_deinit(ranks, 2);

	child = fork();
	if (child == 0)
		_exit(as_nobody(local_name, true, ready[1]));
	assert_int_equal(read(ready[0], &byte, 1), 1);
	test_world_meet(&ranks[1], 1);
	assert_int_equal(ranks[1].status, COLLET_ERR_AUTH);
	assert_non_null(strstr(ranks[1].sentence, "user 65534"));
	test_world_deinit(&ranks[1], 1);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_does_not_come_is_named_to_all),
		cmocka_unit_test(without_rank_0_it_is_named),
		cmocka_unit_test(who_does_not_belong_is_refused_and_the_rest_goes_on),
		cmocka_unit_test(two_of_one_rank_are_named),
		cmocka_unit_test(what_rank_0_finds_wrong_everybody_hears),
		cmocka_unit_test(another_user_is_neither_let_in_nor_believed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
