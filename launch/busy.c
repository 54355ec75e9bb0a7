/* Other load, by the number of threads that are ready to run: it says what is so now, where the load averages say what
 * was so in the last minute, and what a job that has just ended used. In one look a passing daemon is seen like a
 * busy job, so it takes several in a row. */
#include "busy.h"

#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { SAMPLES = 6, SAMPLE_NS = 2000000 };

/* Threads that run or could, the one that asks among them; 0: not known. */
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
