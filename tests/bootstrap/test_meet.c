/* The rendezvous: everybody gets everybody's card, whatever the store, the order and the number; who does not come is
 * named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/store.h"
#include "core/status.h"
#include "world.h"

static collet_status blob_of_seven(void *context, const struct collet_card *cards, uint32_t size, void **blob, size_t *bytes)
{
	*blob = malloc(7);
	*bytes = 7;
	memcpy(*blob, "seven!", 7);
	return COLLET_OK;
}

static void assert_met(struct test_rank *ranks, uint32_t size)
{
	for (uint32_t r = 0; r < size; r++) {
		const struct collet_bootstrap *b = &ranks[r].bootstrap;
		if (ranks[r].status)
			fail_msg("rank %u: %s", r, ranks[r].sentence);
		assert_memory_equal(b->cards, ranks[0].bootstrap.cards, size * sizeof(*b->cards));
		assert_memory_equal(b->session_key, ranks[0].bootstrap.session_key, sizeof(b->session_key));
		assert_int_equal(b->blob_bytes, 7);
		assert_string_equal(b->blob, "seven!");
		assert_memory_equal(&b->cards[r], &ranks[r].card, sizeof(*b->cards));
		for (uint32_t i = 0; i < size; i++)
			assert_int_equal(b->star[i] >= 0, size > 1 && (r == 0) != (i == 0));
		if (size > 1) {
			assert_int_not_equal(b->cards[r].unix_name[0], 0);
			assert_int_not_equal(b->cards[r].port, 0);
			assert_true(b->listen_unix >= 0 && b->listen_tcp >= 0);
		}
		assert_int_equal(b->cards[r].host_id, b->cards[0].host_id);
		assert_int_equal(b->cards[r].process_id, b->cards[0].process_id);
		assert_true(b->cards[r].usable_cores >= 1);
	}
}

static void meet_and_check(const char *store, const char *secret, uint32_t size, const collet_store_callbacks *callbacks)
{
	struct test_rank *ranks = calloc(size, sizeof(*ranks));
	const uint32_t descriptors = test_count_descriptors();
	for (uint32_t r = 0; r < size; r++) {
		test_rank_set(&ranks[r], r, size, store, secret, 20000);
		ranks[r].launch.store_callbacks = callbacks;
		ranks[r].make_blob = blob_of_seven;
	}
	int64_t took = test_world_meet(ranks, size);
	assert_met(ranks, size);
	print_message("%u ranks met in %.1f ms at %s\n", size, (double)took / 1e6, callbacks ? "callbacks" : store);
	test_world_deinit(ranks, size);
	test_world_deinit(ranks, size);  /* safe to repeat */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_meet_at_a_unix_socket),
		cmocka_unit_test(all_ranks_meet_over_tcp),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
