#include "schedule.h"

#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

enum { MOST_TURNS = 1000000, MOST_BLOCKS = FAKE_MULTIPROCESSORS * FAKE_BLOCKS_EACH };

struct schedule {
	pthread_mutex_t lock;
	pthread_cond_t turned[MOST_BLOCKS]; /* one each, so that only the next block is woken */
	uint64_t state;
	uint32_t blocks, joined, current, turns;
	uint32_t slow;               /* this block seldom runs; the number of blocks if none */
	bool gone[MOST_BLOCKS];
};

static uint32_t draw(struct schedule *schedule)
{
	schedule->state = schedule->state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(schedule->state >> 33);
}

uint64_t schedule_seed(void)
{
	const char *seed = getenv("FAKE_CUDA_SCHEDULE");
	return seed ? strtoull(seed, NULL, 10) : 0;
}

struct schedule *schedule_create(uint32_t blocks)
{
	const uint64_t seed = schedule_seed();
	if (!seed || blocks > MOST_BLOCKS)
		return NULL;
	struct schedule *schedule = calloc(1, sizeof(*schedule));
	if (!schedule)
		abort();
	pthread_mutex_init(&schedule->lock, NULL);
	for (uint32_t b = 0; b < MOST_BLOCKS; b++)
		pthread_cond_init(&schedule->turned[b], NULL);
	schedule->state = seed;
	schedule->blocks = blocks;
	schedule->slow = draw(schedule) % (2 * blocks);
	return schedule;
}

void schedule_destroy(struct schedule *schedule)
{
	if (!schedule)
		return;
	for (uint32_t b = 0; b < MOST_BLOCKS; b++)
		pthread_cond_destroy(&schedule->turned[b]);
	pthread_mutex_destroy(&schedule->lock);
	free(schedule);
}

/* Returns the nth of the blocks that have not ended. */
static uint32_t nth_left(const struct schedule *schedule, uint32_t nth)
{
	uint32_t b = 0;
	while (schedule->gone[b] || nth-- > 0)
		b++;
	return b;
}

/* Chooses a block that has not ended. Sometimes one runs for a while, so that it gets far ahead of the others. */
static void choose(struct schedule *schedule)
{
	uint32_t left = 0;
	for (uint32_t b = 0; b < schedule->blocks; b++)
		left += !schedule->gone[b];
	const uint32_t drawn = draw(schedule);
	if (!left || (drawn % 4 == 0 && !schedule->gone[schedule->current]))
		return;
	const uint32_t nth = drawn / 4 % left;
	schedule->current = nth_left(schedule, nth);
	if (schedule->current == schedule->slow && (drawn >> 16) % 32)
		schedule->current = nth_left(schedule, (nth + 1) % left);
	pthread_cond_signal(&schedule->turned[schedule->current]);
}

static void wait_for_turn(struct schedule *schedule, uint32_t b)
{
	while (schedule->joined < schedule->blocks || schedule->current != b)
		pthread_cond_wait(&schedule->turned[b], &schedule->lock);
}

void schedule_join(struct schedule *schedule, uint32_t b)
{
	if (!schedule)
		return;
	pthread_mutex_lock(&schedule->lock);
	if (++schedule->joined == schedule->blocks) {
		choose(schedule);
		pthread_cond_signal(&schedule->turned[schedule->current]);
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
