/* Two threads, each on a core, hand a flag to and fro. */
#include "core_latency.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"

enum { BATCHES = 16, ROUND_TRIPS = 64 };
static const int64_t most_ns = 100 * 1000 * 1000;

struct ping_pong {
	_Alignas(128) _Atomic uint32_t sequence;       /* odd: it has been served, even: returned */
	_Alignas(128) _Atomic bool over;           /* somebody has given up */
	_Alignas(128) int64_t deadline_ns;
	double least_ns;                           /* of a batch, one way; 0: none has ended */
};

/* Waits for this sequence number. Returns false at the deadline. */
static bool await(struct ping_pong *ping_pong, uint32_t sequence)
{
	for (uint32_t polls = 1;; polls++) {
		if (atomic_load_explicit(&ping_pong->sequence, memory_order_acquire) == sequence)
			return true;
		if (polls % 1024 != 0)
			continue;
		if (atomic_load_explicit(&ping_pong->over, memory_order_relaxed))
			return false;
		if (bench_clock_ns() > ping_pong->deadline_ns) {
			atomic_store_explicit(&ping_pong->over, true, memory_order_relaxed);
			return false;
		}
	}
}

static void *ping(void *context)
{
	struct ping_pong *ping_pong = context;
	uint32_t sequence = 0;
	for (int batch = 0; batch < BATCHES; batch++) {
		const int64_t begin_ns = bench_clock_ns();
		for (int i = 0; i < ROUND_TRIPS; i++) {
			atomic_store_explicit(&ping_pong->sequence, sequence + 1, memory_order_release);
			sequence += 2;
			if (!await(ping_pong, sequence))
				return NULL;
		}
		const double one_way_ns = (double)(bench_clock_ns() - begin_ns) / (2 * ROUND_TRIPS);
		if (ping_pong->least_ns == 0 || one_way_ns < ping_pong->least_ns)
			ping_pong->least_ns = one_way_ns;
	}
	return NULL;
}

static void *pong(void *context)
{
	struct ping_pong *ping_pong = context;
	for (uint32_t sequence = 1; sequence < 2 * BATCHES * ROUND_TRIPS; sequence += 2) {
		if (!await(ping_pong, sequence))
			break;
		atomic_store_explicit(&ping_pong->sequence, sequence + 1, memory_order_release);
	}
	return NULL;
}

/* The first two cores of this process. */
static bool two_cores(size_t cores[2])
{
	cpu_set_t mine;
	size_t found = 0;
	if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
		return false;
	for (size_t cpu = 0; found < 2 && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &mine))
			cores[found++] = cpu;
	return found == 2;
}

static bool start_on(pthread_t *thread, size_t core, void *(*what)(void *context), struct ping_pong *ping_pong)
{
	pthread_attr_t attr;
	cpu_set_t set;
	if (pthread_attr_init(&attr) != 0)
		return false;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	const bool started = pthread_attr_setaffinity_np(&attr, sizeof(set), &set) == 0
		&& pthread_create(thread, &attr, what, ping_pong) == 0;
	pthread_attr_destroy(&attr);
	return started;
}

double bench_core_latency_ns(void)
{
	struct ping_pong ping_pong = { .deadline_ns = bench_clock_ns() + most_ns };
	pthread_t one, other;
	size_t cores[2];
	if (!two_cores(cores) || !start_on(&one, cores[1], pong, &ping_pong))
		return 0;
	const bool both = start_on(&other, cores[0], ping, &ping_pong);
	if (!both)
		atomic_store_explicit(&ping_pong.over, true, memory_order_relaxed);
	else
		pthread_join(other, NULL);
	pthread_join(one, NULL);
	return ping_pong.least_ns;
}
