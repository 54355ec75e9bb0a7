/* Reads the monotonic clock and computes deadlines. A deadline is a time of that clock in ns; COLLET_NEVER never
 * passes. */
#ifndef COLLET_CORE_CLOCK_H
#define COLLET_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define COLLET_NEVER INT64_MAX

int64_t collet_clock_ns(void);

/* Reads a counter that only grows. Its rate is constant but unknown: compare it with the clock to learn it. Where the
 * processor has such a counter, reading it costs a third of reading the clock. */
static inline uint64_t collet_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)collet_clock_ns();
#endif
}

/* Returns the deadline timeout_ns from now. A negative timeout gives COLLET_NEVER. The sum saturates. */
int64_t collet_deadline_after(int64_t timeout_ns);
bool collet_deadline_passed(int64_t deadline);
/* Returns the time left in ms for poll() and epoll_wait(): rounded up, from 0 to cap_ms. */
int collet_deadline_ms(int64_t deadline, int cap_ms);

#endif
