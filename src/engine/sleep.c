/* Sleeps until there is work for the rank. One thread, the sleeper, sleeps in epoll for all communicators. Other
 * threads that wait follow it: they sleep on a condition variable, which is signalled when a request ends or the
 * sleeper wakes. */
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/lock.h"
#include "engine/mismatch.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/pipeline.h"
#include "engine/progress_hook.h"
#include "engine/request.h"
#include "engine/sleep.h"

/* Limits a sleep, so that deadlines and suspicions are checked in time. */
enum { SLEEP_MS = 50, EVENTS = 16 };

void collet_engine_wake(struct collet_engine *engine)
{
	const uint64_t one = 1;
	const ssize_t written = write(engine->wake.event_fd, &one, sizeof(one));
	(void)written;  /* EAGAIN: the counter is full, so the rank is awake already */
}

void collet_engine_notify_followers(struct collet_engine *engine)
{
	if (!engine->followers)
		return;
	pthread_cond_broadcast(&engine->request_ended);
}

int collet_engine_sleep_limit_ms(const struct collet_engine *engine)
{
	int64_t first = COLLET_NEVER;
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		if (state->pending.first_deadline_ns < first)
			first = state->pending.first_deadline_ns;
	return collet_deadline_ms(first, SLEEP_MS);
}

static bool hooks_are_idle(const struct collet_comm_state *state)
{
	for (const struct collet_progress_hook *hook = state->hooks; hook; hook = hook->next)
		if (!hook->table->is_idle(hook->context))
			return false;
	return true;
}

bool collet_engine_arm(struct collet_engine *engine)
{
	for (struct collet_peer_queue *peer_queue = engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active) {
		struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
		/* A failed endpoint waits for mismatch detection to find the reason. Relaxed: progress has just read
		 * it. */
		const bool failed = endpoint && endpoint->status != COLLET_OK &&
				    atomic_load_explicit(&peer_queue->state->mismatch.suspected_status,
					    memory_order_relaxed) != COLLET_OK;
		if (endpoint && !failed && !endpoint->transport->arm(endpoint))
			return false;
	}
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		if (!collet_p2p_arm(state) || !hooks_are_idle(state))
			return false;
	for (const struct collet_pipeline *pipeline = engine->pipelines; pipeline; pipeline = pipeline->next)
		if (pipeline->needs_polling && pipeline->request->status == COLLET_PENDING)
			return false;
	return true;
}

void collet_engine_disarm(struct collet_engine *engine)
{
	for (struct collet_peer_queue *peer_queue = engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active) {
		/* It may have been published during the sleep. */
		struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
		if (endpoint)
			endpoint->transport->disarm(endpoint);
	}
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		collet_p2p_disarm(state);
}

void collet_engine_clear_events(struct collet_engine *engine, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	const int count = epoll_wait(engine->wake.epoll_fd, events, EVENTS, timeout_ms);
	for (int i = 0; i < count; i++) {
		uint64_t ignored;
		if (!events[i].data.ptr && read(engine->wake.event_fd, &ignored, sizeof(ignored)) < 0)
			continue; /* another thread has drained it */
	}
}

void collet_engine_follow(struct collet_engine *engine, int limit_ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += limit_ms * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	engine->followers++;
	pthread_cond_timedwait(&engine->request_ended, &engine->mutex, &until);
	collet_engine_exclude_owner(engine);
	engine->followers--;
}

void collet_engine_sleep(struct collet_engine *engine, int64_t until_ns)
{
	if (engine->has_sleeper) {
		collet_engine_wake(engine);  /* so that the sleeper arms what this thread has started since */
		collet_engine_follow(engine, collet_deadline_ms(until_ns, SLEEP_MS));
		return;
	}
	if (collet_engine_arm(engine)) {
		engine->has_sleeper = true;
		const int limit = collet_engine_sleep_limit_ms(engine);
		collet_engine_unlock(engine);
		collet_engine_clear_events(engine, collet_deadline_ms(until_ns, limit));
		collet_engine_lock(engine);
		engine->has_sleeper = false;
		if (engine->followers)
			pthread_cond_broadcast(&engine->request_ended);
	}
	collet_engine_disarm(engine);
}
