/* Implements the pair of shm ends for the tests of shm alone. */
#include "shm_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

void shm_pair_open(struct pair *pair, bool processes, struct collet_arena *arenas)
{
	*pair = (struct pair){ 0 };
	pair_connect(pair, "shm", processes);
	for (int i = 0; i < 2; i++) {
		pair->ends[i].peer_info.pid = (uint32_t)getpid();
		if (arenas) {
			assert_int_equal(collet_arena_init(&arenas[i], ARENA_BYTES), COLLET_OK);
			pair->ends[i].arena = &arenas[i];
		}
		pair_begin(pair, i);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(pair, i), COLLET_OK);
}

uint64_t shm_units_owned(struct pair *pair, int which, enum shm_pool_kind kind)
{
	const struct shm_endpoint *end = inside(pair, which);
	const struct shm_pool *pool = &end->pools[kind];
	return pool->free | (atomic_load(&end->theirs->returned[kind]) ^ pool->taken);
}

uint64_t shm_units_of_pool(enum shm_pool_kind kind)
{
	return shm_bits(0, kind == SHM_SMALL_UNITS ? SHM_SMALL_UNIT_COUNT : SHM_LARGE_UNIT_COUNT);
}

uint64_t shm_last_run(struct pair *pair, int which, enum shm_pool_kind kind)
{
	const struct shm_endpoint *end = inside(pair, which);
	const uint64_t location = atomic_load(&shm_cell_at(end->out_cells, end->out_next - 1)->word[4]);
	return shm_bits((unsigned)(uint32_t)location, shm_pool_units(&end->pools[kind], location >> 32));
}

void shm_pair_oversubscribe(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		pair->ends[i].wake.shared_cpu = 1;
}
