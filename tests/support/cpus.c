#include "cpus.h"

#include <sched.h>
#include <stddef.h>

bool test_two_cpus(int cpus[2])
{
	cpu_set_t set;
	int found = 0;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return false;
	for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set))
			cpus[found++] = (int)i;
	return found == 2;
}
