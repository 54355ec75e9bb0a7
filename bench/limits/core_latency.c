/* Measures between the cores that the first two ranks are bound to. */
#include "core_latency.h"

#include <stdint.h>

#include <collet/tools.h>

#include "pin.h"

double bench_core_latency_ns(void)
{
	static uint32_t cpus[2], count; /* found once: that takes longer than the measurement */
	if (count == 0)
		count = bench_first_cpus(cpus, 2);
	return count == 2 ? collet_core_latency_ns(cpus[0], cpus[1]) : 0;
}
