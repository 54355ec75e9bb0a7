#include "schedule.h"

#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

enum { MOST_TURNS = 1000000 };

struct schedule {
	pthread_mutex_t lock;
	pthread_cond_t turned;
	uint64_t state;
	uint32_t blocks, joined, current, turns;
	bool gone[FAKE_MULTIPROCESSORS * FAKE_BLOCKS_EACH];
};

struct schedule *schedule_create(uint32_t blocks)
{
	const char *seed = getenv("FAKE_CUDA_SCHEDULE");
	if (!seed || !*seed || blocks > FAKE_MULTIPROCESSORS * FAKE_BLOCKS_EACH)
		return NULL;
	struct schedule *schedule = calloc(1, sizeof(*schedule));
	if (!schedule)
		abort();
	pthread_mutex_init(&schedule->lock, NULL);
	pthread_cond_init(&schedule->turned, NULL);
	schedule->state = strtoull(seed, NULL, 10);
	schedule->blocks = blocks;
	return schedule;
}

void schedule_destroy(struct schedule *schedule)
{
	if (!schedule)
		return;
	pthread_cond_destroy(&schedule->turned);
	pthread_mutex_destroy(&schedule->lock);
	free(schedule);
}

/* Somebody who is still there; in runs of one's own length now and then, so that one gets far ahead of the others. */
static void choose(struct schedule *schedule)
{
	uint32_t left = 0;
	for (uint32_t b = 0; b < schedule->blocks; b++)
		left += !schedule->gone[b];
	schedule->state = schedule->state * 6364136223846793005u + 1442695040888963407u;
	const uint32_t drawn = (uint32_t)(schedule->state >> 33);
	if (!left || (drawn % 4 == 0 && !schedule->gone[schedule->current]))
		return;
	uint32_t nth = drawn / 4 % left;
	for (uint32_t b = 0; b < schedule->blocks; b++)
		if (!schedule->gone[b] && nth-- == 0)
			schedule->current = b;
	pthread_cond_broadcast(&schedule->turned);
}

static void wait_for_turn(struct schedule *schedule, uint32_t b)
{
	while (schedule->joined < schedule->blocks || schedule->current != b)
		pthread_cond_wait(&schedule->turned, &schedule->lock);
}

void schedule_join(struct schedule *schedule, uint32_t b)
{
	if (!schedule)
		return;
	pthread_mutex_lock(&schedule->lock);
	if (++schedule->joined == schedule->blocks) {
		choose(schedule);
		pthread_cond_broadcast(&schedule->turned);
	}
	wait_for_turn(schedule, b);
	pthread_mutex_unlock(&schedule->lock);
}

bool schedule_pause(struct schedule *schedule, uint32_t b)
{
	if (!schedule)
		return true;
	pthread_mutex_lock(&schedule->lock);
	const bool fine = ++schedule->turns < MOST_TURNS;
	choose(schedule);
	wait_for_turn(schedule, b);
	pthread_mutex_unlock(&schedule->lock);
	return fine;
}

void schedule_leave(struct schedule *schedule, uint32_t b)
{
	if (!schedule)
		return;
	pthread_mutex_lock(&schedule->lock);
	schedule->gone[b] = true;
	choose(schedule);
	pthread_mutex_unlock(&schedule->lock);
}
