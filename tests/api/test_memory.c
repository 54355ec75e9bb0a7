/* Tests memory: collet_mem_alloc(), leaks of communicators, and messages of more bytes than 32 bits count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "entries.h"
#include "ranks.h"
#include "skip.h"

static void use_memory(struct rank *rank)
{
	enum { BLOCKS = 20 };
	unsigned char *blocks[BLOCKS];
	for (size_t i = 0; i < BLOCKS; i++) {
		void *memory = NULL;
		const size_t bytes = (size_t)1 << i;
		if (!rank_ok(rank, collet_mem_alloc(rank->comm, &memory, bytes), "collet_mem_alloc"))
			return;
		blocks[i] = memory;
		rank_check(rank, (uintptr_t)memory % 64 == 0, "%zu bytes are not aligned", bytes);
		for (size_t b = 0; b < bytes; b++)
			if (!rank_check(rank, blocks[i][b] == 0, "%zu bytes are not zeroed", bytes))
				return;
		memset(memory, 0x33, bytes);
	}
	for (size_t i = 0; i < BLOCKS; i += 2)
		rank_ok(rank, collet_mem_free(rank->comm, blocks[i]), "collet_mem_free");
	for (size_t i = 1; i < BLOCKS; i += 2)
		for (size_t b = 0; b < (size_t)1 << i; b++)
			if (!rank_check(
				    rank, blocks[i][b] == 0x33, "freeing others has changed %zu bytes", (size_t)1 << i))
				return;
	void *again;
	rank_ok(rank, collet_mem_alloc(rank->comm, &again, 1 << 18), "collet_mem_alloc again");
	for (size_t b = 0; b < 1 << 18; b++)
		if (!rank_check(rank, ((unsigned char *)again)[b] == 0, "memory given again is not zeroed"))
			return;
	/* In use by a request: freeing it is refused. */
	collet_request *request = NULL;
	const collet_how how = { .request = &request };
	if (rank->rank == 0) {
		rank_ok(rank, collet_allreduce(rank->comm, again, again, 100, COLLET_F32, COLLET_SUM, &how),
			"allreduce");
		rank_status(rank, collet_mem_free(rank->comm, again), COLLET_ERR_ARGUMENT, "free of memory in use");
		rank_post(rank, 0);
	} else {
		rank_await(rank, 0, 1);
		rank_ok(rank, collet_allreduce(rank->comm, again, again, 100, COLLET_F32, COLLET_SUM, &how),
			"allreduce");
	}
	rank_ok(rank, collet_request_wait(&request), "wait");
	rank_ok(rank, collet_mem_free(rank->comm, again), "free");
	rank_status(rank, collet_mem_free(rank->comm, again), COLLET_ERR_ARGUMENT, "free again");
	char own[100];
	rank_ok(rank, collet_mem_register(rank->comm, own, sizeof(own)), "register");
	rank_ok(rank, collet_mem_deregister(rank->comm, own), "deregister");
}

static void memory_is_given_and_taken_back(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, use_memory);
}

/* ---- What stays behind ---- */

static uint32_t count_lines(const char *path)
{
	FILE *file = fopen(path, "r");
	uint32_t lines = 0;
	for (int c; file && (c = fgetc(file)) != EOF;)
		lines += c == '\n';
	if (file)
		fclose(file);
	return lines;
}

struct belongings {
	uint32_t descriptors, threads, mappings;
};

static struct belongings take_stock(void)
{
	return (struct belongings){
		count_entries("/proc/self/fd"), count_entries("/proc/self/task"), count_lines("/proc/self/maps")};
}

/* Waits until there are no more threads than that, or for so long, as a joined thread stays visible for a moment. */
static struct belongings take_steady_stock(uint32_t threads, double patience_s)
{
	struct timespec now, began;
	clock_gettime(CLOCK_MONOTONIC, &began);
	struct belongings least = take_stock();
	do {
		const struct belongings stock = take_stock();
		if (stock.threads < least.threads)
			least = stock;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (least.threads > threads && (double)(now.tv_sec - began.tv_sec) +
			(double)(now.tv_nsec - began.tv_nsec) * 1e-9 < patience_s);
	return least;
}

static bool make_use_of_one(struct rank *rank, uint32_t world)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, world, &options, store);
	collet_comm *comm, *split;
	if (!rank_ok(rank, collet_comm_create(&comm, &options), "create"))
		return false;
	static const uint64_t counts[] = { 1, 100000 };
	float *values = calloc(counts[1], sizeof(float));
	void *memory;
	for (uint32_t i = 0; i < 2; i++)
		rank_ok(rank, collet_allreduce(comm, values, values, counts[i], COLLET_F32, COLLET_SUM, NULL),
			"allreduce");
	rank_ok(rank, collet_mem_alloc(comm, &memory, 100000), "alloc");
	rank_ok(rank, collet_comm_split(comm, 0, 0, &split), "split");
	rank_ok(rank, collet_sendrecv(comm, values, 10, (rank->rank + 1) % rank->size, 0, memory, 10,
		(rank->rank + rank->size - 1) % rank->size, 0, COLLET_F32, NULL, NULL), "sendrecv");
	rank_ok(rank, collet_allreduce(split, memory, memory, 10000, COLLET_F32, COLLET_SUM, NULL), "allreduce");
	rank_ok(rank, collet_comm_destroy(&comm), "destroy");
	rank_ok(rank, collet_comm_destroy(&split), "destroy");
	free(values);
	return !rank->report->failed;
}

/* Processes only: threads of one process share the counted resources. */
static void create_and_destroy(struct rank *rank)
{
	enum { TIMES = 50, WARM = 3 };
	struct belongings first = { 0 };
	for (uint32_t i = 0; i < TIMES; i++) {
		rank_doing(rank, "communicator %u", i);
		if (!make_use_of_one(rank, i))
			return;
		if (i == WARM)  /* the C library and the harness have allocated what they keep */
			first = take_steady_stock(0, 0.1);
	}
	const struct belongings last = take_steady_stock(first.threads, 10);
	rank_check(rank, last.descriptors == first.descriptors, "%u descriptors at first, %u in the end",
		first.descriptors, last.descriptors);
	rank_check(
		rank, last.threads == first.threads, "%u threads at first, %u in the end", first.threads, last.threads);
	/* malloc's arenas may still grow by some mappings; a leak would be at least one for each communicator. Under
	 * a sanitizer mappings prove nothing. AddressSanitizer's quarantine makes its allocator use new ones, as
	 * many as half the communicators. ThreadSanitizer keeps a shadow of every address that was ever in use. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	rank_check(rank, last.mappings <= first.mappings + TIMES / 2, "%u mappings at first, %u in the end",
		first.mappings, last.mappings);
#endif
}

static void nothing_stays_behind(void **state)
{
	static const char *const transports[] = { "shm", "tcp" };
	for (uint32_t i = 0; i < 2; i++)
		ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true, .transport = transports[i],
			.progress_thread = i == 1 }, create_and_destroy);
}

/* ---- More than 32 bits of anything ---- */

static void move_five_gigabytes(struct rank *rank)
{
	const uint64_t bytes = (uint64_t)5 << 30;
	unsigned char *values =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!rank_check(rank, values != MAP_FAILED, "no memory"))
		return;
	const uint64_t probes[] = {0, bytes / 2 - 1, bytes / 2, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 32, bytes - 1};
	for (uint32_t i = 0; i < 6; i++)
		values[probes[i]] = (unsigned char)(10 * i + rank->rank + 1);
	rank_ok(rank, collet_allreduce(rank->comm, values, values, bytes, COLLET_U8, COLLET_SUM, NULL),
		"allreduce of 5 GiB");
	for (uint32_t i = 0; i < 6; i++)
		rank_check(rank, values[probes[i]] == 20 * i + 3, "byte %llu is %u", (unsigned long long)probes[i],
			values[probes[i]]);
	munmap(values, bytes);
}

static void a_message_may_have_five_gigabytes(void **state)
{
#if defined(__SANITIZE_THREAD__)
	const uint64_t needed_gib = 60;  /* it keeps four bytes for each byte */
#else
	const uint64_t needed_gib = 12;
#endif
	const uint64_t available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	if (available < needed_gib << 30)
		skip_because("this machine has less than %llu GiB of free memory", (unsigned long long)needed_gib);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .transport = "shm" }, move_five_gigabytes);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .transport = "tcp" }, move_five_gigabytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_given_and_taken_back),
		cmocka_unit_test(nothing_stays_behind),
		cmocka_unit_test(a_message_may_have_five_gigabytes),
	};
	if (!getenv("COLLET_TEST_FULL"))
		cmocka_set_skip_filter("a_message_may_have_five_gigabytes");
	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
