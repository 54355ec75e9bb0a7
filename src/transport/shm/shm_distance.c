/* Samples the time in which a line comes from the peer's core. */
#include "transport/shm/shm_distance.h"

/* Learns how many ticks SHM_FAR_NS are, once enough time has passed. */
static void learn_rate(struct shm_distance *distance)
{
	const int64_t passed_ns = collet_clock_ns() - distance->start_ns;
	if (passed_ns >= SHM_RATE_NS)
		distance->far_ticks =
			(collet_ticks() - distance->start_ticks) * SHM_FAR_NS / (uint64_t)passed_ns;
}

uint64_t collet_shm_distance_load(struct shm_distance *distance, const _Atomic uint64_t *word, uint64_t before)
{
	if (!distance->far_ticks)
		learn_rate(distance);
	const uint64_t start = collet_ticks();
	const uint64_t value = atomic_load_explicit(word, memory_order_acquire);
	collet_cpu_wait_for_loads();
	const uint64_t ticks = collet_ticks() - start;
	if (value == before || !distance->far_ticks)
		return value;
	const uint64_t most = distance->far_ticks * SHM_DISTANCE_MOST_NS / SHM_FAR_NS;
	distance->ticks_sum += (ticks < most ? ticks : most) - distance->ticks_sum / SHM_DISTANCE_SAMPLES;
	return value;
}
