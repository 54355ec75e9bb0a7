#include "world.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"

void test_rank_set(struct test_rank *rank, uint32_t number, uint32_t size, const char *store, const char *secret,
	int64_t timeout_ms)
{
	memset(rank, 0, sizeof(*rank));
	struct collet_launch *launch = &rank->launch;
	launch->rank = number;
	launch->size = size;
	launch->launcher = "options";
	snprintf(launch->store, sizeof(launch->store), "%s", store);
	snprintf(launch->job, sizeof(launch->job), "test");
	launch->timeout_ns = 30000000000;
	launch->rendezvous_timeout_ns = timeout_ms * 1000000;
	if (secret) {
		launch->secret_bytes = COLLET_MAC_BYTES;
		if (collet_mac(launch->secret, "test", 4, secret, strlen(secret)))
			abort();
	}
	rank->log.rank = number;
	if (getenv("COLLET_LOG"))
		rank->log.level = (enum collet_log_level)collet_log_level_parse(getenv("COLLET_LOG"));
}

static void *run(void *data)
{
	struct test_rank *rank = data;
	const int64_t start = collet_clock_ns();
	rank->status = collet_bootstrap_init(
		&rank->bootstrap, &rank->launch, &rank->peer_info, rank->make_blob, rank->context, &rank->log);
	rank->took_ns = collet_clock_ns() - start;
	snprintf(rank->sentence, sizeof(rank->sentence), "%s", rank->status ? collet_last_error() : "");
	return NULL;
}

void test_rank_start(struct test_rank *rank)
{
	if (pthread_create(&rank->thread, NULL, run, rank))
		abort();
}

void test_rank_join(struct test_rank *rank)
{
	pthread_join(rank->thread, NULL);
}

int64_t test_world_meet(struct test_rank *ranks, uint32_t size)
{
	int64_t longest = 0;
	for (uint32_t r = 0; r < size; r++)
		test_rank_start(&ranks[r]);
	for (uint32_t r = 0; r < size; r++) {
		test_rank_join(&ranks[r]);
		if (ranks[r].took_ns > longest)
			longest = ranks[r].took_ns;
	}
	return longest;
}

void test_world_deinit(struct test_rank *ranks, uint32_t size)
{
	for (uint32_t r = 0; r < size; r++)
		collet_bootstrap_deinit(&ranks[r].bootstrap);
}

void test_unique_name(char name[32])
{
	uint8_t random[12];
	if (collet_random(random, sizeof(random)))
		abort();
	collet_hex(name, random, sizeof(random));
}

uint16_t test_free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
		abort();
	close(fd);
	return ntohs(address.sin_port);
}

static uint32_t count_entries(const char *path)
{
	uint32_t count = 0;
	DIR *folder = opendir(path);
	if (!folder)
		abort();
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

uint32_t test_count_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

uint32_t test_count_threads(void)
{
	return count_entries("/proc/self/task");
}

collet_status test_blob_of_seven(
	void *context, const struct collet_peer_info *infos, uint32_t size, void **blob, size_t *bytes)
{
	*blob = malloc(7);
	*bytes = 7;
	memcpy(*blob, "seven!", 7);
	return COLLET_OK;
}

void test_world_assert_met(struct test_rank *ranks, uint32_t size)
{
	for (uint32_t r = 0; r < size; r++) {
		const struct collet_bootstrap *b = &ranks[r].bootstrap;
		if (ranks[r].status)
			fail_msg("rank %u: %s", r, ranks[r].sentence);
		assert_memory_equal(b->peer_infos, ranks[0].bootstrap.peer_infos, size * sizeof(*b->peer_infos));
		assert_memory_equal(b->session_key, ranks[0].bootstrap.session_key, sizeof(b->session_key));
		assert_int_equal(b->blob_bytes, 7);
		assert_string_equal(b->blob, "seven!");
		assert_memory_equal(&b->peer_infos[r], &ranks[r].peer_info, sizeof(*b->peer_infos));
		for (uint32_t i = 0; i < size; i++)
			assert_int_equal(b->control_sockets[i] >= 0, size > 1 && (r == 0) != (i == 0));
		if (size > 1) {
			assert_int_not_equal(b->peer_infos[r].unix_name[0], 0);
			assert_int_not_equal(b->peer_infos[r].port, 0);
			assert_true(b->listen_unix >= 0 && b->listen_tcp >= 0);
		}
		assert_int_equal(b->peer_infos[r].host_id, b->peer_infos[0].host_id);
		assert_int_equal(b->peer_infos[r].process_id, b->peer_infos[0].process_id);
		assert_true(b->peer_infos[r].usable_cores >= 1);
	}
}
