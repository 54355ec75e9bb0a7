/* Runs a world of ranks for tests: threads of this process, each with its own struct collet_launch, which run the real
 * bootstrap. */
#ifndef COLLET_TESTS_BOOTSTRAP_WORLD_H
#define COLLET_TESTS_BOOTSTRAP_WORLD_H

#include <pthread.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/crypto.h"
#include "core/clock.h"

struct test_rank {
	struct collet_launch launch;
	collet_make_blob make_blob;          /* for rank 0 */
	void *context;
	struct collet_log log;
	struct collet_peer_info peer_info;
	struct collet_bootstrap bootstrap;   /* the test calls deinit */
	collet_status status;
	char sentence[1024];
	int64_t took_ns;
	pthread_t thread;
};

/* Sets up a rank of a world of this size, with a store, a secret (NULL: none) and a time limit for the bootstrap. */
void test_rank_set(struct test_rank *rank, uint32_t number, uint32_t size, const char *store, const char *secret,
	int64_t timeout_ms);
void test_rank_start(struct test_rank *rank);
void test_rank_join(struct test_rank *rank);
/* Runs the bootstrap of all ranks. Returns the longest time in ns. */
int64_t test_world_meet(struct test_rank *ranks, uint32_t size);
void test_world_deinit(struct test_rank *ranks, uint32_t size);
/* Asserts that all ranks have all peer infos and the blob of test_blob_of_seven(). */
void test_world_assert_met(struct test_rank *ranks, uint32_t size);
collet_status test_blob_of_seven(
	void *context, const struct collet_peer_info *infos, uint32_t size, void **blob, size_t *bytes);

/* Writes a random name that nobody else uses. */
void test_unique_name(char name[32]);
/* Returns a TCP port of 127.0.0.1 that was free a moment ago. */
uint16_t test_free_port(void);

uint32_t test_count_descriptors(void);
uint32_t test_count_threads(void);

#endif
