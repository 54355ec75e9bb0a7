/* Tests the arena of collet_mem_alloc. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"
#include "transport/arena.h"

enum { MIB = 1 << 20, RESERVE = 64 * MIB };

static void *take(struct collet_arena *arena, size_t bytes)
{
	void *memory = NULL;
	assert_int_equal(collet_arena_alloc(arena, &memory, bytes), COLLET_OK);
	return memory;
}

static bool is_zero(const unsigned char *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (memory[i])
			return false;
	return true;
}

static void blocks_are_zeroed_and_aligned(void **state)
{
	static const struct {
		size_t bytes, alignment;
	} rows[] = {
		{0, 64},
		{1, 64},
		{63, 64},
		{64, 64},
		{65, 64},
		{4095, 64},
		{4096, 4096},
		{4097, 4096},
		{255 << 10, 4096},
		{256 << 10, 4096},
		{2 * MIB - 1, 4096},
		{2 * MIB, 2 * MIB},
		{5 * MIB + 1, 2 * MIB},
	};
	enum { COUNT = sizeof(rows) / sizeof(rows[0]) };
	struct collet_arena arena;
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	for (unsigned round = 0; round < 3; round++) {
		unsigned char *memory[COUNT];
		for (unsigned i = 0; i < COUNT; i++) {
			memory[i] = take(&arena, rows[i].bytes);
			assert_int_equal((uintptr_t)memory[i] % rows[i].alignment, 0);
			assert_true(is_zero(memory[i], rows[i].bytes));
			memset(memory[i], (int)i + 1, rows[i].bytes);
		}
		/* Blocks do not overlap. */
		for (unsigned i = 0; i < COUNT; i++)
			for (size_t at = 0; at < rows[i].bytes; at++)
				if (memory[i][at] != i + 1)
					fail_msg("block of %zu bytes overwritten at %zu", rows[i].bytes, at);
		/* Blocks are freed in another order each time. */
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(
				collet_arena_free(&arena, memory[(i * (round + 2) + round) % COUNT]), COLLET_OK);
		assert_int_equal(arena.used_bytes, 0);
		assert_int_equal(arena.block_count, 1);  /* all free blocks are merged */
	}
	collet_arena_deinit(&arena);
}

static void a_full_arena_says_so(void **state)
{
	struct collet_arena arena;
	void *memory = &arena;
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	assert_int_equal(collet_arena_alloc(&arena, &memory, RESERVE + 1), COLLET_ERR_MEMORY);
	assert_int_equal(collet_arena_alloc(&arena, &memory, SIZE_MAX), COLLET_ERR_MEMORY);
	assert_ptr_equal(memory, &arena);  /* written on success only */
	void *whole = take(&arena, RESERVE);
	assert_int_equal(collet_arena_alloc(&arena, &memory, 1), COLLET_ERR_MEMORY);
	assert_non_null(strstr(collet_last_error(), "67108864"));
	assert_int_equal(collet_arena_free(&arena, whole), COLLET_OK);
	assert_ptr_equal(take(&arena, RESERVE), whole);
	collet_arena_deinit(&arena);
}

static void only_blocks_are_freed(void **state)
{
	struct collet_arena arena;
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	unsigned char *memory = take(&arena, 1000), *other = take(&arena, 1000);
	assert_int_equal(collet_arena_free(&arena, NULL), COLLET_OK);
	assert_int_equal(collet_arena_free(&arena, &arena), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_arena_free(&arena, memory + 64), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_arena_free(&arena, arena.base + arena.bytes), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_arena_free(&arena, memory), COLLET_OK);
	assert_int_equal(collet_arena_free(&arena, memory), COLLET_ERR_ARGUMENT);
	assert_int_equal(collet_arena_free(&arena, other), COLLET_OK);
	collet_arena_deinit(&arena);
	collet_arena_deinit(&arena);
}

static void contains_knows_the_edges(void **state)
{
	struct collet_arena arena;
	uint64_t offset = 0;
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	assert_true(collet_arena_contains(&arena, arena.base, RESERVE, &offset) && offset == 0);
	assert_true(collet_arena_contains(&arena, arena.base + RESERVE - 1, 1, &offset) && offset == RESERVE - 1);
	assert_false(collet_arena_contains(&arena, arena.base, RESERVE + 1, &offset));
	assert_false(collet_arena_contains(&arena, arena.base + RESERVE - 1, 2, &offset));
	assert_false(collet_arena_contains(&arena, arena.base + RESERVE, 1, &offset));
	assert_false(collet_arena_contains(&arena, arena.base - 1, 2, &offset));
	assert_false(collet_arena_contains(&arena, arena.base + 1, SIZE_MAX, &offset));
	assert_false(collet_arena_contains(&arena, NULL, 1, &offset));
	collet_arena_deinit(&arena);
}

static blkcnt_t pages_in_use(const struct collet_arena *arena)
{
	struct stat file;
	assert_int_equal(fstat(arena->fd, &file), 0);
	return file.st_blocks / 8;
}

static void freed_memory_returns_to_the_system(void **state)
{
	struct collet_arena arena;
	assert_int_equal(collet_arena_init(&arena, 0), COLLET_OK);  /* gigabytes of address space, without memory */
	assert_int_equal(pages_in_use(&arena), 0);
	void *memory = take(&arena, 16 * MIB);
	assert_int_equal(pages_in_use(&arena), 0);
	memset(memory, 1, 16 * MIB);
	assert_true(pages_in_use(&arena) >= 16 * MIB / 4096);
	assert_int_equal(collet_arena_free(&arena, memory), COLLET_OK);
	assert_int_equal(pages_in_use(&arena), 0);
	collet_arena_deinit(&arena);
}

static void peers_read_what_is_written(void **state)
{
	struct collet_arena mine, theirs;
	struct collet_arena_map *first, *second, *alone;
	assert_int_equal(collet_arena_init(&mine, RESERVE), COLLET_OK);
	assert_int_equal(collet_arena_init(&theirs, RESERVE), COLLET_OK);
	unsigned char *memory = take(&theirs, 100);
	assert_int_equal(collet_arena_attach(&mine, theirs.fd, &first), COLLET_OK);
	assert_int_equal(collet_arena_attach(&mine, theirs.fd, &second), COLLET_OK);
	assert_int_equal(collet_arena_attach(NULL, theirs.fd, &alone), COLLET_OK);
	assert_ptr_equal(first, second);  /* two endpoints, one mapping */
	assert_ptr_not_equal(first->base, alone->base);
	memset(memory, 0x5a, 100);
	assert_memory_equal(first->base + (memory - theirs.base), memory, 100);
	assert_memory_equal(alone->base + (memory - theirs.base), memory, 100);
	collet_arena_map_unref(alone);
	collet_arena_map_unref(first);
	/* The memory lives as long as a process has it mapped. */
	const size_t offset = (size_t)(memory - theirs.base);
	collet_arena_deinit(&theirs);
	assert_int_equal(second->base[offset], 0x5a);
	collet_arena_map_unref(second);
	assert_null(mine.peer_maps);
	collet_arena_deinit(&mine);
}

static void a_file_that_may_shrink_is_not_mapped(void **state)
{
	struct collet_arena_map *map = NULL;
	const int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
	int ends[2];
	assert_int_equal(ftruncate(unsealed, 4096), 0);
	assert_int_equal(collet_arena_attach(NULL, unsealed, &map), COLLET_ERR_TRANSPORT);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(collet_arena_attach(NULL, ends[0], &map), COLLET_ERR_TRANSPORT);
	assert_int_equal(collet_arena_attach(NULL, -1, &map), COLLET_ERR_SYSTEM);
	assert_null(map);
	close(unsealed);
	close(ends[0]);
	close(ends[1]);
}

static void *allocate_and_free(void *argument)
{
	struct collet_arena *arena = argument;
	uintptr_t wrong = 0;
	for (unsigned i = 0; i < 300; i++) {
		void *a, *b;
		const size_t bytes = 1 + i * 97 % 9000;
		if (collet_arena_alloc(arena, &a, bytes) != COLLET_OK || collet_arena_alloc(arena, &b, 64) != COLLET_OK)
			return (void *)1;
		wrong |= !is_zero(a, bytes) || !is_zero(b, 64);
		memset(a, 1, bytes);
		memset(b, 2, 64);
		wrong |= collet_arena_free(arena, a) != COLLET_OK || collet_arena_free(arena, b) != COLLET_OK;
	}
	return (void *)wrong;
}

static void threads_share_it(void **state)
{
	struct collet_arena arena;
	pthread_t threads[3];
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &arena), 0);
	for (unsigned i = 0; i < 3; i++) {
		void *wrong;
		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	assert_int_equal(arena.used_bytes, 0);
	collet_arena_deinit(&arena);
}

/* The child shares the memory, and a thread that it does not have may hold the lock. */
static void a_forked_child_frees_no_block(void **state)
{
	enum { CHILD_DEADLINE_S = 20 };
	struct collet_arena arena;
	assert_int_equal(collet_arena_init(&arena, RESERVE), COLLET_OK);
	unsigned char *small = take(&arena, 100), *large = take(&arena, MIB);
	memset(small, 0x5a, 100);
	memset(large, 0x5a, MIB);
	assert_int_equal(pthread_mutex_lock(&arena.lock), 0);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(CHILD_DEADLINE_S);
		const bool freed = collet_arena_free(&arena, small) == COLLET_OK &&
			collet_arena_free(&arena, large) == COLLET_OK;
		collet_arena_deinit(&arena);
		_exit(freed ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(pthread_mutex_unlock(&arena.lock), 0);
	for (size_t i = 0; i < MIB; i++)
		assert_int_equal(large[i], 0x5a);
	assert_int_equal(small[99], 0x5a);
	assert_int_equal(collet_arena_free(&arena, small), COLLET_OK);
	assert_int_equal(collet_arena_free(&arena, large), COLLET_OK);
	assert_int_equal(arena.used_bytes, 0);
	collet_arena_deinit(&arena);
}

/* Sanitizers reserve terabytes of address space and cannot run under a limit. */
static void a_limited_address_space_is_not_filled(void **state)
{
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct collet_arena arena;
		const struct rlimit limit = { (rlim_t)1 << 30, (rlim_t)1 << 30 };
		if (setrlimit(RLIMIT_AS, &limit) != 0 || collet_arena_init(&arena, 0) != COLLET_OK)
			_exit(1);
		_exit(arena.bytes > (size_t)256 << 20                                     ? 2
			: collet_arena_init(&arena, (size_t)4 << 30) != COLLET_ERR_MEMORY ? 3
											  : 0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void a_zeroed_arena_is_deinitialised(void **state)
{
	struct collet_arena arena = { 0 };
	collet_arena_deinit(&arena);
	collet_arena_deinit(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_zeroed_and_aligned),
		cmocka_unit_test(a_full_arena_says_so),
		cmocka_unit_test(only_blocks_are_freed),
		cmocka_unit_test(contains_knows_the_edges),
		cmocka_unit_test(freed_memory_returns_to_the_system),
		cmocka_unit_test(peers_read_what_is_written),
		cmocka_unit_test(a_file_that_may_shrink_is_not_mapped),
		cmocka_unit_test(threads_share_it),
		cmocka_unit_test(a_forked_child_frees_no_block),
		cmocka_unit_test(a_limited_address_space_is_not_filled),
		cmocka_unit_test(a_zeroed_arena_is_deinitialised),
	};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	cmocka_set_skip_filter("a_limited_address_space_is_not_filled");
#endif
	return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
