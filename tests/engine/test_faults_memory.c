/* Fails the n-th allocation of the library, for every n while a communicator is created and makes its first all-reduce,
 * and while a group of all its ranks does so.
 * Every failure must give a status and a sentence on every rank. No rank may crash or hang, and nothing may leak.
 *
 * The linker wraps the library's allocations. Ranks are threads, so the n-th allocation may be any rank's. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ranks.h"
#include "sample.h"

enum { COUNT = 1000, SPARED_MOST = 100000, ALLOCATIONS_MOST = 1000 };

/* ---- The library's memory ---- */

static atomic_bool counting;
static atomic_int until_failure; /* allocations until one fails; below 0: none fails any more */
static atomic_int outstanding;

static bool fails(void)
{
	return atomic_load(&counting) && atomic_fetch_sub(&until_failure, 1) == 0;
}

static void *handed_out(void *memory)
{
	if (memory)
		atomic_fetch_add(&outstanding, 1);
	return memory;
}

void *__real_malloc(size_t);
void *__wrap_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
void __real_free(void *);
void __wrap_free(void *);

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : handed_out(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails() ? NULL : handed_out(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	if (fails())
		return NULL;
	void *moved = __real_realloc(memory, bytes);
	return memory ? moved : handed_out(moved);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : handed_out(__real_aligned_alloc(alignment, bytes));
}

void __wrap_free(void *memory)
{
	if (memory)
		atomic_fetch_sub(&outstanding, 1);
	__real_free(memory);
}

/* ---- Runs ---- */

static unsigned count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned entries = 0;
	while (directory && readdir(directory))
		entries++;
	if (directory)
		closedir(directory);
	return entries;
}

static bool is_named(collet_status status)
{
	return status == COLLET_ERR_MEMORY || status == COLLET_ERR_RENDEZVOUS || status == COLLET_ERR_PEER_LOST ||
	       status == COLLET_ERR_TIMEOUT || status == COLLET_ERR_TRANSPORT || status == COLLET_ERR_SYSTEM;
}

static void check_status(struct rank *rank, collet_status status, const char *what)
{
	if (status != COLLET_OK)
		atomic_fetch_add((atomic_int *)rank->shared, 1);
	rank_check(rank, status == COLLET_OK || is_named(status), "%s: %s: %s", what, collet_status_name(status),
		collet_last_error());
	rank_check(rank, status == COLLET_OK || *collet_last_error(), "%s: %s without a sentence", what,
		collet_status_name(status));
}

static void reduce(struct rank *rank, collet_comm *comm)
{
	float data[COUNT] = {1};
	const collet_status status = collet_allreduce(comm, data, data, COUNT, COLLET_F32, COLLET_SUM, NULL);
	check_status(rank, status, "all-reduce");
	rank_check(rank, status != COLLET_OK || data[0] == (float)rank->size, "the sum is %g", (double)data[0]);
}

/* A member that has no memory for the group ends it on the others, which would else wait for it. */
static void create_group_and_reduce(struct rank *rank, collet_comm *comm)
{
	static const uint32_t ranks[] = { 0, 1 };
	collet_comm *group = NULL;
	if (collet_comm_error(comm) != COLLET_OK)
		return;
	check_status(rank, collet_comm_create_group(comm, ranks, rank->size, 0, &group), "group");
	if (!group)
		return;
	reduce(rank, group);
	rank_ok(rank, collet_comm_destroy(&group), "destroy");
}

static void create_and_reduce(struct rank *rank)
{
	char store[64];
	collet_options options;
	if (!rank_await(rank, 0, 1))
		return;
	rank_fill_options(rank, 0, &options, store);
	options.rendezvous_timeout_ns = INT64_C(400000000);
	options.timeout_ns = INT64_C(400000000);
	collet_comm *comm = NULL;
	collet_status status = collet_comm_create(&comm, &options);
	check_status(rank, status, "creation");
	rank_check(rank, (status == COLLET_OK) == (comm != NULL), "creation: %s, but comm is %p",
		collet_status_name(status), (void *)comm);
	if (status != COLLET_OK)
		return;
	reduce(rank, comm);
	create_group_and_reduce(rank, comm);
	/* Destroying works even without memory. */
	rank_ok(rank, collet_comm_destroy(&comm), "destroy");
}

/* Returns whether anything failed. On a busy machine that may be a deadline, so this ends a search, not the count. */
static bool run_row(const char *transport, uint32_t size, int spared)
{
	const struct ranks_options options = { .mode = RANKS_THREADS,
		.size = size,
		.transport = transport,
		.bare = true,
		.shared_bytes = sizeof(atomic_int) };
	const unsigned descriptors = count_descriptors();
	atomic_store(&until_failure, spared);
	struct ranks *ranks = ranks_start(&options, create_and_reduce);
	const int before = atomic_load(&outstanding);
	atomic_store(&counting, true);
	ranks_post(ranks, 0);
	ranks_wait(ranks);
	atomic_store(&counting, false);
	const int left = atomic_load(&outstanding) - before;
	const bool passed = ranks_all_passed(ranks);
	const bool failed = *(atomic_int *)ranks_shared(ranks) != 0;
	ranks_free(&ranks);
	if (!passed || left != 0 || count_descriptors() != descriptors)
		fail_msg("%s, %u ranks, allocation %d fails: %s; %d blocks left, %u descriptors before, %u after",
			transport, size, spared, passed ? "reported well" : "badly", left, descriptors,
			count_descriptors());
	return failed || atomic_load(&until_failure) < 0;
}

static bool full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && *text && strcmp(text, "0") != 0;
}

static void every_allocation(const char *transport, uint32_t size, int stride)
{
	run_row(transport, size, SPARED_MOST); /* allocates what libraries allocate once */
	int spared = (int)sample_from(0);
	while (run_row(transport, size, spared) && spared < ALLOCATIONS_MOST)
		spared = (int)sample_from((uint64_t)(spared + (full() ? 1 : stride)));
	printf("%s, %u ranks: about %d allocations\n", transport, size, spared);
}

static void alone(void **state)
{
	every_allocation("shm", 1, 1);
}

static void two_over_shm(void **state)
{
	every_allocation("shm", 2, 3);
}

static void two_over_tcp(void **state)
{
	every_allocation("tcp", 2, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone),
		cmocka_unit_test(two_over_shm),
		cmocka_unit_test(two_over_tcp),
	};
	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
