/* Two threads, each on a core, hand a flag to and fro. */
#include <collet/tools.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "core/clock.h"

enum { BATCHES = 16, ROUND_TRIPS = 64, MOST_NS = 100 * 1000 * 1000 };

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
		if (collet_clock_ns() > ping_pong->deadline_ns) {
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
		const int64_t begin_ns = collet_clock_ns();
		for (int i = 0; i < ROUND_TRIPS; i++) {
			atomic_store_explicit(&ping_pong->sequence, sequence + 1, memory_order_release);
			sequence += 2;
			if (!await(ping_pong, sequence))
				return NULL;
		}
		const double one_way_ns = (double)(collet_clock_ns() - begin_ns) / (2 * ROUND_TRIPS);
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

static bool start_on(uint32_t cpu, pthread_t *thread, void *(*run)(void *context), struct ping_pong *ping_pong)
{
	pthread_attr_t attr;
	cpu_set_t cpus;
	if (cpu >= CPU_SETSIZE || pthread_attr_init(&attr) != 0)
		return false;
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	const bool started = pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus) == 0 &&
		pthread_create(thread, &attr, run, ping_pong) == 0;
	pthread_attr_destroy(&attr);
	return started;
}

static void measure(uint32_t cpu, uint32_t other, struct ping_pong *ping_pong)
{
	pthread_t serving, returning;
	if (!start_on(other, &returning, pong, ping_pong))
		return;
	if (start_on(cpu, &serving, ping, ping_pong))
		pthread_join(serving, NULL);
	else
		atomic_store_explicit(&ping_pong->over, true, memory_order_relaxed);
	pthread_join(returning, NULL);
}

double collet_core_latency_ns(uint32_t cpu, uint32_t other)
{
	struct ping_pong ping_pong = { .deadline_ns = collet_clock_ns() + MOST_NS };
	sigset_t all, before;
	if (cpu == other)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);  /* leaves signals to the user's threads */
	measure(cpu, other, &ping_pong);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ping_pong.least_ns;
}
