/* FAKE_CUDA_SLOW=SEED: sometimes a stream waits for milliseconds in the middle of an operation. If the driver or a GPU
 * has failed for good meanwhile, it waits until the test calls fakeWaitAll(), or long enough for everything that used
 * the stream to be torn down. So freeing memory that a stream may still use is found out at any moment. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { ONE_IN = 4, MOST_MS = 16, BROKEN_MS = 400, SETTLING_MS = 5000 };

static atomic_uint_fast64_t drawn_so_far;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* settled, or no operation is in progress any more */
static unsigned under_way;
static bool settled;

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t seed)
{
	uint64_t value = seed + (1 + atomic_fetch_add(&drawn_so_far, 1)) * 0x9e3779b97f4a7c15;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
	value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
	return value ^ (value >> 31);
}

/* On the clock that condition variables use. */
static struct timespec in_ms(int ms)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000L;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	return end;
}

/* Returns false if it was settled. */
static bool stay(int ms)
{
	const struct timespec end = in_ms(ms);
	int waited = 0;
	pthread_mutex_lock(&lock);
	while (!settled && waited != ETIMEDOUT)
		waited = pthread_cond_timedwait(&changed, &lock, &end);
	const bool all = !settled;
	pthread_mutex_unlock(&lock);
	return all;
}

void fake_delay(void)
{
	const char *seed = getenv("FAKE_CUDA_SLOW");
	if (!seed || !*seed)
		return;
	const uint64_t drawn = draw(strtoull(seed, NULL, 10));
	if (drawn % ONE_IN)
		return;
	const int ms = (int)(drawn / ONE_IN % MOST_MS);
	if (stay(ms) && fake_is_anything_broken())
		stay(BROKEN_MS - ms);
}

void fake_at_work(bool begins)
{
	pthread_mutex_lock(&lock);
	if (begins)
		under_way++;
	else if (--under_way == 0)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

FAKE_API bool fakeWaitAll(void)
{
	const struct timespec end = in_ms(SETTLING_MS);
	int waited = 0;
	pthread_mutex_lock(&lock);
	settled = true;
	pthread_cond_broadcast(&changed);
	while (under_way && waited != ETIMEDOUT)
		waited = pthread_cond_timedwait(&changed, &lock, &end);
	settled = false;
	const bool quiet = !under_way;
	pthread_mutex_unlock(&lock);
	return quiet;
}
