#include "api/turns.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/status.h"

struct collet_turns {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t next, now;          /* tickets: the next to be drawn, and the one whose turn it is */
	uint32_t inside;             /* threads that have entered, with or without a turn */
};

collet_status collet_turns_create(struct collet_turns **turns)
{
	struct collet_turns *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator");
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->changed, NULL);
	*turns = made;
	return COLLET_OK;
}

void collet_turns_destroy(struct collet_turns *turns, bool forked)
{
	if (turns && !forked) {
		pthread_cond_destroy(&turns->changed);
		pthread_mutex_destroy(&turns->lock);
	}
	free(turns);
}

/* Under lock. */
static void take(struct collet_turns *turns)
{
	const uint64_t ticket = turns->next++;
	while (turns->now != ticket)
		pthread_cond_wait(&turns->changed, &turns->lock);
}

/* Under lock. */
static void give(struct collet_turns *turns)
{
	turns->now++;
	pthread_cond_broadcast(&turns->changed);
}

void collet_turns_enter(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	turns->inside++;
	take(turns);
	pthread_mutex_unlock(&turns->lock);
}

void collet_turns_leave(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	turns->inside--;
	give(turns);
	pthread_mutex_unlock(&turns->lock);
}

void collet_turns_pause(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	give(turns);
	pthread_mutex_unlock(&turns->lock);
}

void collet_turns_resume(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	take(turns);
	pthread_mutex_unlock(&turns->lock);
}

bool collet_turns_are_used(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	const bool used = turns->inside;
	pthread_mutex_unlock(&turns->lock);
	return used;
}

void collet_turns_drain(struct collet_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	while (turns->inside)
		pthread_cond_wait(&turns->changed, &turns->lock);
	pthread_mutex_unlock(&turns->lock);
}
