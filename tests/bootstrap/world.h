/* A world of ranks for tests: threads of this process, each with its own launch, meeting for real. */
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
	struct collet_peer_info card;
	struct collet_bootstrap bootstrap;   /* deinit by the test */
	collet_status status;
	char sentence[1024];
	int64_t took_ns;
	pthread_t thread;
};

/* rank of size, in a store, with a secret's key (NULL: none) and a rendezvous deadline. */
void test_rank_set(struct test_rank *rank, uint32_t number, uint32_t size, const char *store, const char *secret,
	int64_t timeout_ms);
void test_rank_start(struct test_rank *rank);
void test_rank_join(struct test_rank *rank);
/* All of them, in the order given or by number; returns the longest time. */
int64_t test_world_meet(struct test_rank *ranks, uint32_t size);
void test_world_deinit(struct test_rank *ranks, uint32_t size);
/* All have all cards, and what test_blob_of_seven() has made. */
void test_world_assert_met(struct test_rank *ranks, uint32_t size);
collet_status test_blob_of_seven(
	void *context, const struct collet_peer_info *cards, uint32_t size, void **blob, size_t *bytes);

/* A name nobody else uses now. */
void test_unique_name(char name[32]);
/* A TCP port of 127.0.0.1 that was free a moment ago. */
uint16_t test_free_port(void);

uint32_t test_count_descriptors(void);
uint32_t test_count_threads(void);

#endif
