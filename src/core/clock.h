/* Time, deadlines. A deadline is a point of the monotonic clock in ns; COLLET_NEVER is the one that never passes. */
#ifndef COLLET_CORE_CLOCK_H
#define COLLET_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define COLLET_NEVER INT64_MAX

int64_t collet_clock_ns(void);

/* A counter that only grows, at a steady rate that only a comparison with the clock tells; a third of the clock's price
 * where the processor has one. */
static inline uint64_t collet_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)collet_clock_ns();
#endif
}

/* timeout_ns < 0: never. Saturates. */
int64_t collet_deadline_after(int64_t timeout_ns);
bool collet_deadline_passed(int64_t deadline);
/* For poll() and epoll_wait(): ms left, rounded up, at most cap_ms; never negative, never -1. */
int collet_deadline_ms(int64_t deadline, int cap_ms);

#endif
