/* Tests the bootstrap: all ranks get all peer infos, with every store, in every order and number. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/interface.h"
#include "bootstrap/store/store.h"
#include "core/status.h"
#include "skip.h"
#include "world.h"

static void meet_and_check(
	const char *store, const char *secret, uint32_t size, const collet_store_callbacks *callbacks)
{
	struct test_rank *ranks = calloc(size, sizeof(*ranks));
	const uint32_t descriptors = test_count_descriptors();
	for (uint32_t r = 0; r < size; r++) {
		test_rank_set(&ranks[r], r, size, store, secret, 20000);
		ranks[r].launch.store_callbacks = callbacks;
		ranks[r].make_blob = test_blob_of_seven;
	}
	int64_t took = test_world_meet(ranks, size);
	test_world_assert_met(ranks, size);
	print_message("%u ranks met in %.1f ms at %s\n", size, (double)took / 1e6, callbacks ? "callbacks" : store);
	test_world_deinit(ranks, size);
	test_world_deinit(ranks, size);  /* may be called twice */
	assert_int_equal(test_count_descriptors(), descriptors);
	free(ranks);
}

static void all_ranks_meet_at_a_unix_socket(void **state)
{
	char name[32], store[64];
	static const uint32_t sizes[] = { 1, 2, 3, 8, 64 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		test_unique_name(name);
		snprintf(store, sizeof(store), "unix:%s", name);
		meet_and_check(store, i % 2 ? NULL : "s3cret", sizes[i], NULL);
	}
}

static void all_ranks_meet_over_tcp(void **state)
{
	char store[64];
	static const uint32_t sizes[] = { 2, 5, 64 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", test_free_port());
		meet_and_check(store, "s3cret", sizes[i], NULL);
	}
}


static void all_ranks_meet_over_ipv6(void **state)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t bytes = sizeof(any);
	char store[64];
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0) {
		if (fd >= 0)
			close(fd);
		skip_because("this host has no IPv6");
	}
	assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &bytes), 0);
	close(fd);
	snprintf(store, sizeof(store), "tcp://[::1]:%u", ntohs(any.sin6_port));
	meet_and_check(store, "s3cret", 3, NULL);
}

/* Uses a host name that does not look like loopback, but may resolve to it on this host. No rank may listen on
 * loopback, where other hosts could not connect. */
static void by_the_hosts_own_name_nobody_listens_on_loopback(void **state)
{
	struct test_rank ranks[3];
	struct collet_address routed;
	char name[128], store[256];
	uint32_t found;
	assert_int_equal(gethostname(name, sizeof(name)), 0);
	if (collet_host_resolve(name, 1, &routed, 1, &found) || collet_interface_choose("", NULL, &routed) ||
	    collet_address_is_loopback(&routed))
		skip_because("this host has no name of its own, or no network");
	snprintf(store, sizeof(store), "tcp://%.120s:%u", name, test_free_port());
	for (uint32_t r = 0; r < 3; r++) {
		test_rank_set(&ranks[r], r, 3, store, "s3cret", 20000);
		ranks[r].make_blob = test_blob_of_seven;
	}
	test_world_meet(ranks, 3);
	test_world_assert_met(ranks, 3);
	for (uint32_t r = 0; r < 3; r++)
		assert_false(ranks[r].peer_info.family == AF_INET && ranks[r].peer_info.address[0] == 127);
	test_world_deinit(ranks, 3);
}

/* ---- Stores ---- */

static void all_ranks_meet_through_a_folder(void **state)
{
	char folder[] = "/tmp/collet-test-XXXXXX", store[64], path[256];
	assert_non_null(mkdtemp(folder));
	snprintf(store, sizeof(store), "file://%s", folder);
	meet_and_check(store, NULL, 4, NULL);
	meet_and_check(store, "s3cret", 4, NULL);
	assert_int_equal(rmdir(folder), 0);  /* nothing was left in it */

	/* A killed run has left its address: a port where nobody listens, or another program. */
	assert_int_equal(mkdir(folder, 0700), 0);
	struct collet_launch launch = { .job = "test" };
	struct collet_store file;
	snprintf(launch.store, sizeof(launch.store), "%s", store);
	assert_int_equal(collet_store_init(&file, &launch), COLLET_OK);
	static const char *const leftovers[] = {
		"collet-place 1\nhost 0\nunix collet-root-0123\ntcp 127.0.0.1 1\nend\n",
		"collet-place 1\nhost 12",
		"",
		"rubbish\n",
		"collet-place 2\nhost 0\nend\n",
	};
	for (size_t i = 0; i < sizeof(leftovers) / sizeof(leftovers[0]); i++) {
		snprintf(path, sizeof(path), "%s", file.key);
		FILE *left = fopen(path, "w");
		assert_non_null(left);
		fputs(leftovers[i], left);
		fclose(left);
		meet_and_check(store, "s3cret", 3, NULL);
	}
	assert_int_equal(rmdir(folder), 0);
}

/* A key-value store in memory. It counts reads, so a test can start rank 0 after some of them. */
struct table {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	char key[128], value[2048];
	size_t bytes;
	uint32_t gets, removals;
	const char *stale;           /* read until there is a value, and stale_gets times after that */
	uint32_t stale_gets;
};

static int table_set(void *context, const char *key, const void *value, size_t bytes)
{
	struct table *table = context;
	pthread_mutex_lock(&table->mutex);
	snprintf(table->key, sizeof(table->key), "%s", key);
	memcpy(table->value, value, bytes);
	table->bytes = bytes;
	pthread_mutex_unlock(&table->mutex);
	return 0;
}

static int table_get(void *context, const char *key, void *value, size_t capacity, size_t *bytes, int64_t timeout_ns)
{
	struct table *table = context;
	pthread_mutex_lock(&table->mutex);
	table->gets++;
	pthread_cond_broadcast(&table->changed);
	const bool is_stale = table->stale && (!table->bytes || (table->stale_gets && table->stale_gets--));
	const char *found = is_stale ? table->stale : table->value;
	const size_t known = is_stale ? strlen(table->stale) : table->bytes;
	memcpy(value, found, known < capacity ? known : capacity);
	*bytes = known;
	pthread_mutex_unlock(&table->mutex);
	return known ? 0 : 1;
}

static int table_remove(void *context, const char *key)
{
	struct table *table = context;
	pthread_mutex_lock(&table->mutex);
	const bool is_there = table->bytes && strcmp(key, table->key) == 0;
	table->bytes = 0;
	table->removals++;
	pthread_mutex_unlock(&table->mutex);
	return is_there ? 0 : 1;
}

static int set_refused(void *context, const char *key, const void *value, size_t bytes)
{
	return 1;
}

static void all_ranks_meet_through_the_callers_store(void **state)
{
	struct table table = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	const collet_store_callbacks callbacks = { .set = table_set, .get = table_get, .context = &table };
	meet_and_check("", NULL, 3, &callbacks);
	assert_string_equal(table.key, "collet/test/rank0");
	/* Nothing of the first meeting is found by a second one: not its address, not its secret. */
	assert_int_equal(table.bytes, 0);
	meet_and_check("", "s3cret", 3, &callbacks);

	const collet_store_callbacks removing = {
		.set = table_set, .get = table_get, .remove = table_remove, .context = &table
	};
	meet_and_check("", NULL, 3, &removing);
	assert_int_equal(table.removals, 1);

	struct test_rank rank;
	const collet_store_callbacks refusing = { .set = set_refused, .get = table_get, .context = &table };
	test_rank_set(&rank, 0, 2, "", NULL, 5000);
	rank.launch.store_callbacks = &refusing;
	test_world_meet(&rank, 1);
	assert_int_equal(rank.status, COLLET_ERR_RENDEZVOUS);
	test_world_deinit(&rank, 1);
}

/* Starts rank 0 after the others have read the store a few times. All of them must meet. */
static void meet_with_rank_0_last(struct test_rank ranks[3], struct table *table)
{
	test_rank_start(&ranks[1]);
	test_rank_start(&ranks[2]);
	pthread_mutex_lock(&table->mutex);
	while (table->gets < 6)
		pthread_cond_wait(&table->changed, &table->mutex);
	pthread_mutex_unlock(&table->mutex);
	test_rank_start(&ranks[0]);
	for (uint32_t r = 0; r < 3; r++)
		test_rank_join(&ranks[r]);
	test_world_assert_met(ranks, 3);
}

/* Keeps the Unix socket of rank 0 to itself, as if the ranks were on several hosts. */
static int table_set_tcp(void *context, const char *key, const void *value, size_t bytes)
{
	char text[2048];
	const char *name = memmem(value, bytes, "unix ", 5);
	if (!name)
		return table_set(context, key, value, bytes);
	name += strlen("unix ");
	const size_t before = (size_t)(name - (const char *)value), after = strcspn(name, "\n");
	memcpy(text, value, before);
	text[before] = '-';
	memcpy(text + before + 1, name + after, bytes - before - after);
	return table_set(context, key, text, bytes - after + 1);
}

/* Ranks that meet over the network need a secret, and have none but that of the store. An earlier run has left its
 * value there, with another secret, and rank 0 listens at the same port again. */
static void the_callers_store_hands_on_a_secret(void **state)
{
	struct table table = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	const collet_store_callbacks callbacks = { .set = table_set_tcp, .get = table_get, .context = &table };
	struct test_rank ranks[3];
	enum { PORTS = 4 }; /* rank 0 has two listeners */
	char before[400] = "collet-place 1\nhost 0000000000000001\nunix -\n";
	const uint16_t port = (uint16_t)(test_free_port() - PORTS);
	size_t used = strlen(before);
	for (uint16_t p = 0; p < PORTS; p++)
		used += (size_t)snprintf(before + used, sizeof(before) - used, "tcp 127.0.0.1 %u\n", port + p);
	snprintf(before + used, sizeof(before) - used, "secret %064d\nend\n", 7);
	table.stale = before;
	table.stale_gets = 6;
	for (uint32_t r = 0; r < 3; r++) {
		test_rank_set(&ranks[r], r, 3, "", NULL, 20000);
		ranks[r].launch.store_callbacks = &callbacks;
		strcpy(ranks[r].launch.interface, "lo");
		ranks[r].make_blob = test_blob_of_seven;
		assert_int_equal(ranks[r].launch.secret_bytes, 0);
	}
	ranks[0].launch.port_first = port;
	ranks[0].launch.port_last = (uint16_t)(port + PORTS - 1);
	meet_with_rank_0_last(ranks, &table);
	for (uint32_t r = 0; r < 3; r++) {
		assert_int_equal(ranks[r].launch.secret_bytes, ranks[0].launch.secret_bytes);
		assert_memory_equal(
			ranks[r].launch.secret, ranks[0].launch.secret, ranks[0].launch.secret_bytes);
	}
	assert_true(ranks[0].launch.secret_bytes > 0);
	test_world_deinit(ranks, 3);
}

static void rank_0_may_come_last(void **state)
{
	struct table table = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	const collet_store_callbacks callbacks = { .set = table_set, .get = table_get, .context = &table };
	struct test_rank ranks[3];
	for (uint32_t r = 0; r < 3; r++) {
		test_rank_set(&ranks[r], r, 3, "", NULL, 20000);
		ranks[r].launch.store_callbacks = &callbacks;
		ranks[r].make_blob = test_blob_of_seven;
	}
	meet_with_rank_0_last(ranks, &table);
	test_world_deinit(ranks, 3);

	/* TCP: another program uses the port while the clients connect, and closes it; then rank 0 starts. */
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	char store[64];
	const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(holder, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(holder, (struct sockaddr *)&at, &bytes), 0);
	assert_int_equal(listen(holder, 8), 0);
	snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", ntohs(at.sin_port));
	for (uint32_t r = 0; r < 3; r++) {
		test_rank_set(&ranks[r], r, 3, store, "s3cret", 20000);
		ranks[r].make_blob = test_blob_of_seven;
	}
	test_rank_start(&ranks[1]);
	test_rank_start(&ranks[2]);
	for (int i = 0; i < 3; i++) {
		const int knock = accept(holder, NULL, NULL);
		assert_true(knock >= 0);
		close(knock);
	}
	test_rank_start(&ranks[0]);  /* has to wait until the holder is gone */
	close(holder);
	for (uint32_t r = 0; r < 3; r++)
		test_rank_join(&ranks[r]);
	test_world_assert_met(ranks, 3);
	test_world_deinit(ranks, 3);
}

static void a_port_of_the_launcher_is_left_alone(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	struct test_rank ranks[3];
	char store[64];
	const int launcher = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		  first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(launcher, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(launcher, (struct sockaddr *)&at, &bytes), 0);
	assert_int_equal(listen(launcher, 8), 0);
	const uint16_t port = ntohs(at.sin_port);
	/* The first port of the scan is in use too, by another protocol. */
	at.sin_port = htons(collet_store_scan_port(port, "test", 0));
	(void)!bind(first, (struct sockaddr *)&at, sizeof(at));
	snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", port);
	for (uint32_t r = 0; r < 3; r++) {
		test_rank_set(&ranks[r], r, 3, store, "s3cret", 20000);
		ranks[r].launch.needs_port_scan = true;
		ranks[r].make_blob = test_blob_of_seven;
	}
	test_world_meet(ranks, 3);
	test_world_assert_met(ranks, 3);
	test_world_deinit(ranks, 3);
	assert_int_equal(accept(launcher, NULL, NULL), -1);  /* nobody has connected */
	close(launcher);
	close(first);
}

static void listening_ports_come_from_the_range(void **state)
{
	struct test_rank ranks[4];
	char name[32], store[64];
	const uint16_t port = test_free_port(), first = port > 60000 ? 60000 : port;
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < 4; r++) {
		test_rank_set(&ranks[r], r, 4, store, NULL, 20000);
		ranks[r].launch.port_first = first;
		ranks[r].launch.port_last = (uint16_t)(first + 40);
		ranks[r].make_blob = test_blob_of_seven;
	}
	test_world_meet(ranks, 4);
	test_world_assert_met(ranks, 4);
	for (uint32_t r = 0; r < 4; r++)
		assert_in_range(ranks[r].peer_info.port, first, first + 40);
	test_world_deinit(ranks, 4);
}

struct repeated {
	struct test_rank rank;
	uint32_t times, failed;
};

static void *meet_again_and_again(void *data)
{
	struct repeated *repeated = data;
	struct test_rank *rank = &repeated->rank;
	for (uint32_t i = 0; i < repeated->times; i++) {
		if (collet_bootstrap_init(&rank->bootstrap, &rank->launch, &rank->peer_info, NULL, NULL, &rank->log) !=
			COLLET_OK) {
			fprintf(stderr, "rank %u, time %u: %s\n", rank->launch.rank, i, collet_last_error());
			repeated->failed++;
		}
		collet_bootstrap_deinit(&rank->bootstrap);
	}
	return NULL;
}

static void ranks_may_meet_again_at_once_in_the_same_place(void **state)
{
	enum { SIZE = 4, TIMES = 20 };
	for (int tcp = 0; tcp < 2; tcp++) {
		struct repeated ranks[SIZE];
		char name[32], store[64];
		test_unique_name(name);
		if (tcp)
			snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", test_free_port());
		else
			snprintf(store, sizeof(store), "unix:%s", name);
		for (uint32_t r = 0; r < SIZE; r++) {
			test_rank_set(&ranks[r].rank, r, SIZE, store, tcp ? "s" : NULL, 20000);
			ranks[r].times = TIMES;
			ranks[r].failed = 0;
			assert_int_equal(
				pthread_create(&ranks[r].rank.thread, NULL, meet_again_and_again, &ranks[r]), 0);
		}
		for (uint32_t r = 0; r < SIZE; r++) {
			test_rank_join(&ranks[r].rank);
			assert_int_equal(ranks[r].failed, 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_meet_at_a_unix_socket),
		cmocka_unit_test(all_ranks_meet_over_tcp),
		cmocka_unit_test(all_ranks_meet_over_ipv6),
		cmocka_unit_test(by_the_hosts_own_name_nobody_listens_on_loopback),
		cmocka_unit_test(all_ranks_meet_through_a_folder),
		cmocka_unit_test(all_ranks_meet_through_the_callers_store),
		cmocka_unit_test(the_callers_store_hands_on_a_secret),
		cmocka_unit_test(rank_0_may_come_last),
		cmocka_unit_test(a_port_of_the_launcher_is_left_alone),
		cmocka_unit_test(listening_ports_come_from_the_range),
		cmocka_unit_test(ranks_may_meet_again_at_once_in_the_same_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
