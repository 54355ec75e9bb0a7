/* Detects other load by the number of runnable threads. That number describes the present; the load averages
 * describe the last minute, including a job that has just ended. One sample cannot tell a passing daemon from a busy
 * job, so several are taken in a row. */
#include "busy.h"

#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { SAMPLES = 6, SAMPLE_NS = 2000000 };

/* Returns the number of runnable threads, the caller included; 0 if it is unknown. */
static uint32_t running(const char *loadavg)
{
	uint32_t count;
	FILE *file = fopen(loadavg, "re");
	if (file == NULL)
		return 0;
	/* Three averages, then "running/all". */
	const bool read = fscanf(file, "%*f %*f %*f %u/", &count) == 1;
	fclose(file);
	return read ? count : 0;
}

bool busy_others(const char *loadavg)
{
	static const struct timespec moment = { .tv_nsec = SAMPLE_NS };
	for (int sample = 0; sample < SAMPLES; sample++) {
		if (sample > 0)
			nanosleep(&moment, NULL);
		if (running(loadavg) == 1)
			return false;
	}
	return true;
}
