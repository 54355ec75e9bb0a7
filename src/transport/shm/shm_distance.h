/* Tells how far the peer's core is, by the time in which a line that it has just written comes to this core.
 *
 * Cores of one machine may share a cache or not, and a virtual machine's cores change between the two every few
 * seconds: a line takes 40 ns or 120 (docs/design/shared-memory.md). Near and far, different stores are fast. */
#ifndef COLLET_TRANSPORT_SHM_SHM_DISTANCE_H
#define COLLET_TRANSPORT_SHM_SHM_DISTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/cpu.h"

enum {
	SHM_FAR_NS = 75,            /* cores between which a line takes longer are far apart */
	SHM_DISTANCE_SAMPLES = 8,   /* samples whose mean counts, roughly */
	SHM_DISTANCE_MOST_NS = 1000, /* a longer sample was interrupted, and counts as this */
	SHM_RATE_NS = 1000000       /* how long the ticks are compared with the clock */
};

struct shm_distance {
	int64_t start_ns;
	uint64_t start_ticks;
	uint64_t ticks_sum;         /* of SHM_DISTANCE_SAMPLES samples */
	uint64_t far_ticks;         /* SHM_FAR_NS; 0 until the rate of ticks is known */
};

static inline void shm_distance_init(struct shm_distance *distance)
{
	*distance = (struct shm_distance){ .start_ns = collet_clock_ns(), .start_ticks = collet_ticks() };
}

/* Loads a word that the peer writes and this end has read before. Acquire. If the word has changed, its line has come
 * from the peer's core, and the time is a sample. */
uint64_t collet_shm_distance_load(struct shm_distance *distance, const _Atomic uint64_t *word, uint64_t before);

static inline bool shm_distance_is_far(const struct shm_distance *distance)
{
	return distance->far_ticks && distance->ticks_sum > distance->far_ticks * SHM_DISTANCE_SAMPLES;
}

#endif
