/* Measures between the cores that the first two ranks are bound to. */
#include "core_latency.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>

#include <collet/tools.h>

#include "pin.h"

/* Finds the two again only if the affinity has changed: that takes longer than the measurement. */
static uint32_t two_cpus(uint32_t cpus[2])
{
	static cpu_set_t affinity;
	static uint32_t found[2], count;
	cpu_set_t now;
	if (sched_getaffinity(0, sizeof(now), &now) != 0)
		CPU_ZERO(&now);
	if (count == 0 || !CPU_EQUAL(&now, &affinity))
		count = bench_first_cpus(found, 2);
	affinity = now;
	memcpy(cpus, found, sizeof(found));
	return count;
}

double bench_core_latency_ns(void)
{
	uint32_t cpus[2];
	return two_cpus(cpus) == 2 ? collet_core_latency_ns(cpus[0], cpus[1]) : 0;
}
