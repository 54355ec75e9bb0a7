#include "core/clock.h"

#include <time.h>

int64_t collet_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t collet_deadline_after(int64_t timeout_ns)
{
	if (timeout_ns < 0)
		return COLLET_NEVER;
	int64_t now = collet_clock_ns();
	return timeout_ns < COLLET_NEVER - now ? now + timeout_ns : COLLET_NEVER;
}

bool collet_deadline_passed(int64_t deadline)
{
	return deadline != COLLET_NEVER && collet_clock_ns() >= deadline;
}

int collet_deadline_ms(int64_t deadline, int cap_ms)
{
	if (deadline == COLLET_NEVER)
		return cap_ms;
	int64_t left = deadline - collet_clock_ns();
	if (left <= 0)
		return 0;
	int64_t ms = (left + 999999) / 1000000;
	return ms < cap_ms ? (int)ms : cap_ms;
}
