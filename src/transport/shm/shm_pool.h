/* Accounts for the units of payload that the two ends of an shm endpoint pair own together.
 *
 * Units change hands with the messages in them. The sender fills units that it owns; then they belong to the receiver,
 * which fills them with its own next message once it has read them. So, where messages go both ways, no end writes
 * lines twice in a row with only its peer's reading in between. Such writes are slow: 2 to 9 GB/s where 50 are possible
 * (docs/design/shared-memory.md).
 *
 * Where messages go one way, the receiver soon owns more units than it began with, and gives back those of the peer. As
 * it reads them, it also stores a word into each line ("touch") on processors where that makes the peer's next write
 * fast again. Where
 * ranks outnumber cores, a receiver that sends nothing for long gives the peer its own units too: each message that
 * finds room saves a context switch.
 *
 * A unit is given back by a toggled bit in a word of this end. The bit changes only while the giver owns the unit, so
 * the taker has always seen the bit's last change, and two words of one writer each keep the account.
 *
 * Neither end starves. A few units of each end are its reserve: the peer gives them back as soon as it has read them,
 * and never views them. */
#ifndef COLLET_TRANSPORT_SHM_SHM_POOL_H
#define COLLET_TRANSPORT_SHM_SHM_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/shm/shm_region.h"

struct shm_endpoint;

/* One end's account of one pool. A bit stands for a unit. */
struct shm_pool {
	unsigned char *base;
	enum shm_pool_kind kind;
	uint32_t unit_bytes;
	uint32_t half;           /* units that each end owned at first */
	bool rewrites_slowly;    /* collet_cpu_rewrites_slowly() */
	uint64_t own_half, own_reserve, peer_reserve;
	uint64_t free;           /* units that this end may fill */
	uint32_t free_count;
	uint64_t consumed;       /* those of them that this end has read since either end wrote them */
	uint32_t kept;           /* runs that this end has kept since it last filled one */
	uint64_t given;          /* this end's word of returned units, as last published */
	uint64_t taken;          /* the peer's word of returned units, as last read */
};

void collet_shm_pool_init(struct shm_pool *pool, struct shm_region *region, enum shm_pool_kind kind, unsigned side);
/* Takes back what the peer has returned. False if that is nothing. */
bool collet_shm_pool_take_back(struct shm_endpoint *shm, struct shm_pool *pool);
/* Gives units to the peer. */
void collet_shm_pool_give(struct shm_endpoint *shm, struct shm_pool *pool, uint64_t units);

/* Returns which free units this end can do without as long as it sends nothing. */
uint64_t collet_shm_pool_spare(const struct shm_endpoint *shm, const struct shm_pool *pool);

/* Returns how many units hold this many bytes. */
static inline unsigned shm_pool_units(const struct shm_pool *pool, uint64_t bytes)
{
	return (unsigned)((bytes + pool->unit_bytes - 1) / pool->unit_bytes);
}

static inline unsigned char *shm_pool_address(const struct shm_pool *pool, unsigned unit)
{
	return pool->base + (size_t)unit * pool->unit_bytes;
}

/* Returns the first unit of a free run; -1 if there is none. Prefers what this end has read last. */
static inline int shm_pool_find(const struct shm_pool *pool, unsigned count)
{
	int first = shm_find_run(pool->consumed, count);
	if (first < 0)
		first = shm_find_run(pool->free & ~pool->own_reserve, count);
	return first < 0 ? shm_find_run(pool->free, count) : first;
}

/* Takes a run of free units, to be filled and sent. Returns its first unit; -1 if there is none. */
static inline int shm_pool_take(struct shm_endpoint *shm, struct shm_pool *pool, unsigned count)
{
	int first = shm_pool_find(pool, count);
	if (first < 0 && collet_shm_pool_take_back(shm, pool))
		first = shm_pool_find(pool, count);
	if (first < 0)
		return -1;
	const uint64_t run = shm_bits((unsigned)first, count);
	pool->free &= ~run;
	pool->consumed &= ~run;
	pool->free_count -= count;
	pool->kept = 0;
	return first;
}

/* True if this end should touch the lines that it reads now: it will give them back, rather than fill them. */
static inline bool shm_pool_should_touch(const struct shm_pool *pool)
{
	return pool->rewrites_slowly && (pool->free_count >= pool->half || pool->kept > SHM_IDLE_AFTER);
}

/* True if a view may hold the run. */
static inline bool shm_pool_may_view(const struct shm_pool *pool, unsigned first, unsigned count)
{
	return !(shm_bits(first, count) & pool->peer_reserve);
}

/* Takes over a run that this end has read. Gives back what it owns too many of. */
static inline void shm_pool_keep(struct shm_endpoint *shm, struct shm_pool *pool, unsigned first, unsigned count)
{
	const uint64_t run = shm_bits(first, count);
	uint64_t surplus = run & pool->peer_reserve;
	if (pool->free_count > pool->half)
		surplus |= pool->free & ~pool->own_half;
	if (++pool->kept > SHM_IDLE_AFTER)
		surplus |= collet_shm_pool_spare(shm, pool);
	pool->free |= run;
	pool->consumed |= run;
	pool->free_count += count;
	if (surplus)
		collet_shm_pool_give(shm, pool, surplus);
}

#endif
