/* Choosing by prices; way.h says how. */
#include "transport/shm/way.h"

static const uint64_t MIB_BYTES = 1 << 20;

/* By how much the way that is not taken must be cheaper to be taken, in parts of 8: what is level stays as it is. */
enum { MARGIN = 1 };

void collet_shm_price_add(struct shm_price *price, uint64_t ns, uint64_t bytes)
{
	const uint64_t most = UINT32_MAX / 16; /* so that no sum below can wrap */
	uint64_t value = bytes ? ns * MIB_BYTES / bytes : 0;
	value = value < 1 ? 1 : value > most ? most : value;
	price->last[price->next % SHM_WAY_SAMPLES] = (uint32_t)value;
	/* Once full it stays so when it wraps round. */
	price->next = price->next + 1 < 2 * SHM_WAY_SAMPLES ? price->next + 1 : SHM_WAY_SAMPLES;
}

uint32_t collet_shm_price(const struct shm_price *price)
{
	uint32_t least = price->last[0];
	for (unsigned i = 1; i < SHM_WAY_SAMPLES; i++)
		least = price->last[i] < least ? price->last[i] : least;
	return price->next < SHM_WAY_SAMPLES ? 0 : least;
}

static bool is_known(const struct shm_way *way)
{
	return way->told.reads && collet_shm_price(&way->writes);
}

bool collet_shm_way_pulls(const struct shm_way *way, bool mutual)
{
	if (!is_known(way))
		return way->sent % 2;
	return way->pulls[mutual] != (way->sent >= way->interval);
}

bool collet_shm_way_wants(const struct shm_way *way, bool mutual)
{
	return !is_known(way) || way->pulls[mutual] || way->sent >= way->interval;
}

/* Are reads that take so long worth their while, where they were before or not? */
static bool pays(bool before, uint64_t reads, uint64_t ring)
{
	return before ? reads * 8 <= ring * (8 + MARGIN) : reads * (8 + MARGIN) < ring * 8;
}

static bool decide(struct shm_way *way, uint32_t reads)
{
	const struct shm_told *told = &way->told;
	const uint64_t writes = collet_shm_price(&way->writes);
	bool pulls[2];
	/* One way, the other end's copy out of the ring overlaps this end's, but for the first run and what the two
	 * take of each other's caches: measured, two copies take from 1.25 to 2 times as long as one. */
	pulls[false] = pays(way->pulls[false], told->reads, writes * 3 / 2);
	if (way->follows && told->exchanges != SHM_EXCHANGES_UNKNOWN) {
		pulls[true] = told->exchanges == SHM_EXCHANGES_READS;
	} else {
		/* In the ring each end writes one message and takes another out, which costs about as much; and where
		 * ranks share a core they take turns at it, run by run. */
		const uint64_t both_write = writes + (told->writes ? told->writes : writes);
		const uint64_t both_read = told->reads + (uint64_t)(reads ? reads : told->reads);
		pulls[true] = pays(way->pulls[true], both_read, (way->crowded ? 3 : 2) * both_write);
	}
	const bool changed = pulls[false] != way->pulls[false] || pulls[true] != way->pulls[true];
	way->pulls[false] = pulls[false];
	way->pulls[true] = pulls[true];
	return changed;
}

bool collet_shm_way_went(struct shm_way *way, bool mutual, bool pulled, struct shm_told told, uint32_t reads)
{
	const bool first = !is_known(way), tried = !first && pulled != way->pulls[mutual];
	way->told = told;
	way->sent++;
	if (!is_known(way))
		return false;
	const bool changed = decide(way, reads);
	if (first || changed)
		way->interval = SHM_WAY_TRIAL_LEAST;
	else if (tried && way->interval < SHM_WAY_TRIAL_MOST)
		way->interval *= 2;
	if (first || changed || tried)
		way->sent = 0;
	return first || changed;
}

void collet_shm_way_passed(struct shm_way *way)
{
	if (is_known(way) && way->sent < way->interval)
		way->sent++;
}
