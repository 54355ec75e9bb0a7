/* Sets up the pools of units, and exchanges units with the peer. */
#include "core/cpu.h"
#include "transport/shm/shm_endpoint.h"

/* The compiler's own function is a call where the instruction is not certain. */
static uint32_t count_bits(uint64_t word)
{
	uint32_t count = 0;
	for (; word; word &= word - 1)
		count++;
	return count;
}

void collet_shm_pool_init(struct shm_pool *pool, struct shm_region *region, enum shm_pool_kind kind, unsigned side)
{
	const unsigned units = kind == SHM_SMALL_UNITS ? SHM_SMALL_UNIT_COUNT : SHM_LARGE_UNIT_COUNT;
	const unsigned first = side ? units / 2 : 0;
	*pool = (struct shm_pool){
		.base = kind == SHM_SMALL_UNITS ? region->small[0] : region->large[0],
		.kind = kind,
		.unit_bytes = kind == SHM_SMALL_UNITS ? SHM_SMALL_UNIT_BYTES : SHM_LARGE_UNIT_BYTES,
		.half = units / 2,
		.rewrites_slowly = collet_cpu_rewrites_slowly(),
		.own_half = shm_bits(first, units / 2),
		.own_reserve = shm_bits(first, SHM_RESERVE_UNITS),
		.peer_reserve = shm_bits(units / 2 - first, SHM_RESERVE_UNITS),
		.free = shm_bits(first, units / 2),
		.free_count = units / 2,
	};
}

bool collet_shm_pool_take_back(struct shm_endpoint *shm, struct shm_pool *pool)
{
	/* Pairs with the release in the peer's collet_shm_pool_give(): it has read the units. */
	const uint64_t word =
		collet_shm_distance_load(&shm->distance, &shm->theirs->returned[pool->kind], pool->taken);
	/* A peer that writes nonsense harms its own messages only. */
	const uint64_t all = shm_bits(0, 2 * pool->half), back = (word ^ pool->taken) & ~pool->free & all;
	pool->taken = word;
	pool->free |= back;
	pool->free_count += count_bits(back);
	return back;
}

uint64_t collet_shm_pool_spare(const struct shm_endpoint *shm, const struct shm_pool *pool)
{
	return shm_is_oversubscribed(shm) ? pool->free & ~pool->own_reserve : 0;
}

void collet_shm_pool_give(struct shm_endpoint *shm, struct shm_pool *pool, uint64_t units)
{
	pool->free &= ~units;
	pool->consumed &= ~units;
	pool->free_count -= count_bits(units);
	pool->given ^= units;
	/* Pairs with the acquire in the peer's collet_shm_pool_take_back(). */
	shm_publish(shm, &shm->mine->returned[pool->kind], pool->given);
}
