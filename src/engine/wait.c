/* Waiting: spin, then yield, then sleep; ended by what is waited for, or by something that ends it.
 *
 * One thread of a rank sleeps in epoll for everything (the sleeper); further ones, waiting for other communicators,
 * follow it on a condition variable and are told when a request ends or the sleeper leaves. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/cpu.h"
#include "engine/engine.h"

/* Asking a kernel whether something has come takes as long as so many looks into memory. */
enum { CALL_POLLS = 16 };

/* A sleep is never longer than this, so that deadlines and suspicions are looked at. */
enum { SLEEP_MS = 50, EVENTS = 16 };

void collet_engine_wake(struct collet_engine *engine)
{
	const uint64_t one = 1;
	const ssize_t written = write(engine->wake.event_fd, &one, sizeof(one));
	(void)written;  /* EAGAIN: the counter is full, so the rank is awake already */
}

void collet_engine_ended_one(struct collet_engine *engine)
{
	if (!engine->followers)
		return;
	pthread_cond_broadcast(&engine->something_ended);
}

/* Which ranks the group's pending transfers wait for, for a sentence. */
static void name_awaited(struct collet_group *group, char *text, size_t capacity)
{
	size_t used = 0;
	uint32_t named = 0;
	text[0] = '\0';
	for (const struct collet_route *route = group->engine->active; route && named < 8; route = route->next_active) {
		if (route->group != group ||
			(route->receive.settled == route->receive.tail && route->send.settled == route->send.tail))
			continue;
		const int more = snprintf(text + used, capacity - used, "%s%u on %s%s", named ? ", " : "", route->peer,
			group->engine->cards[collet_group_world_rank(group, route->peer)].host,
			atomic_load_explicit(&route->conduit, memory_order_relaxed) ? "" : " (not connected)");
		if (more < 0 || used + (size_t)more >= capacity)
			break;
		used += (size_t)more;
		named++;
	}
	if (!named)
		snprintf(text, capacity, "none in particular");
}

/* Deadlines, suspicions and warnings of everything pending. Under lock. */
static void look_around(struct collet_engine *engine)
{
	const int64_t now = collet_clock_ns();
	for (struct collet_request *request = engine->requests, *next; request; request = next) {
		next = request->next_active;
		struct collet_group *group = request->group;
		if (atomic_load_explicit(&group->ended, memory_order_relaxed) != COLLET_OK)
			continue;
		if (!request->started_ns)
			collet_request_set_clock(
				request, collet_recorder_time(&group->recorder, request->started_ticks));
		if (request->deadline != COLLET_NEVER && now >= request->deadline) {
			char call[160], awaited[400], sentence[COLLET_ERROR_BYTES];
			collet_request_describe(request, call, sizeof(call));
			name_awaited(group, awaited, sizeof(awaited));
			snprintf(sentence, sizeof(sentence), "%s timed out after %.3f s, waiting for rank %s", call,
				(double)(now - request->started_ns) * 1e-9, awaited);
			collet_group_end(group, COLLET_ERR_TIMEOUT, true, sentence);
			continue;
		}
		collet_board_waited(request, now);
	}
}

/* Whoever waits in earnest looks at its routes alone: what is run on the spot has its receives posted, and what came
 * and is not used yet is taken out of peers' memory, since they may wait for just that. True: some were posted. */
static bool settle_down(struct collet_engine *engine)
{
	bool some = false;
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used)
		if (group->inlined)
			some |= collet_inline_post(group->inlined);
	for (struct collet_route *route = engine->active; route; route = route->next_active)
		collet_route_unload_all(route);
	return some;
}

static int sleep_limit_ms(const struct collet_engine *engine)
{
	int64_t first = COLLET_NEVER;
	for (const struct collet_request *request = engine->requests; request; request = request->next_active)
		if (request->deadline < first)
			first = request->deadline;
	return collet_deadline_ms(first, SLEEP_MS);
}

/* Is it certain that every active route tells when it can move? Else something can move now. Under lock. */
static bool arm_all(struct collet_engine *engine)
{
	for (struct collet_route *route = engine->active; route; route = route->next_active) {
		struct collet_conduit *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
		/* One that has failed waits for the board to say why. Relaxed: progress has just been here. */
		const bool failed = conduit && conduit->status != COLLET_OK &&
			atomic_load_explicit(&route->group->board.suspected, memory_order_relaxed) != COLLET_OK;
		if (conduit && !failed && !conduit->transport->arm(conduit))
			return false;
	}
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used)
		if (!collet_p2p_arm(group))
			return false;
	return true;
}

static void disarm_all(struct collet_engine *engine)
{
	for (struct collet_route *route = engine->active; route; route = route->next_active) {
		/* Acquire: it may have been published during the sleep. */
		struct collet_conduit *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
		if (conduit)
			conduit->transport->disarm(conduit);
	}
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used)
		collet_p2p_disarm(group);
}

/* Under lock, which it lets go of while asleep. */
static void sleep_once(struct collet_engine *engine)
{
	if (engine->has_sleeper) {
		collet_engine_wake(engine);  /* so that the sleeper arms what this thread has started since */
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += SLEEP_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		engine->followers++;
		pthread_cond_timedwait(&engine->something_ended, &engine->lock, &until);
		engine->followers--;
		return;
	}
	struct epoll_event events[EVENTS];
	if (arm_all(engine)) {
		engine->has_sleeper = true;
		const int limit = sleep_limit_ms(engine);
		pthread_mutex_unlock(&engine->lock);
		const int count = epoll_wait(engine->wake.epoll_fd, events, EVENTS, limit);
		for (int i = 0; i < count; i++) {
			uint64_t ignored;
			if (!events[i].data.ptr && read(engine->wake.event_fd, &ignored, sizeof(ignored)) < 0)
				continue;  /* another thread has drained it */
		}
		pthread_mutex_lock(&engine->lock);
		engine->has_sleeper = false;
		if (engine->followers)
			pthread_cond_broadcast(&engine->something_ended);
	}
	disarm_all(engine);
}

/* What a round of progress that moved nothing costs, in looks into memory. Under lock. */
static uint32_t polls_of_a_round(const struct collet_engine *engine)
{
	uint32_t polls = 1;
	for (const struct collet_route *route = engine->active; route; route = route->next_active) {
		/* Acquire: it may have been published since progress looked. */
		const struct collet_conduit *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
		if (conduit && conduit->transport->caps & COLLET_CAP_CALLS)
			polls += CALL_POLLS;
	}
	return polls;
}

/* May somebody who is waited for need this very core to run on? */
static bool awaits_own_core(const struct collet_engine *engine)
{
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used)
		if (group->inlined && collet_inline_awaits_own_core(group->inlined))
			return true;
	for (const struct collet_route *route = engine->active; route; route = route->next_active)
		if (route->receive.settled != route->receive.tail && collet_route_shares_core(route))
			return true;
	return false;
}

/* Where this rank is, for its peers to know. */
static void look_where(struct collet_engine *engine)
{
	const int cpu = sched_getcpu();
	engine->wake.cpu = cpu >= 0 && cpu < UINT16_MAX ? (uint32_t)cpu + 1 : 0;
}

void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	uint32_t polls = 0, rounds = 0;
	int64_t yielding_since = 0;
	for (;;) {
		if (collet_engine_progress(engine))
			polls = 0, yielding_since = 0;
		if (done(context))
			break;
		if (polls < engine->spin_polls)
			polls += polls_of_a_round(engine);
		if (polls < engine->spin_polls && !(engine->crowded && awaits_own_core(engine))) {
			collet_cpu_relax();
			if (++rounds % 16 == 0) {  /* let other threads of this rank in */
				pthread_mutex_unlock(&engine->lock);
				collet_cpu_relax();
				pthread_mutex_lock(&engine->lock);
			}
			continue;
		}
		const int64_t now = collet_clock_ns();
		if (!yielding_since)
			yielding_since = now;
		if (now - yielding_since < engine->yield_ns) {
			pthread_mutex_unlock(&engine->lock);
			sched_yield();
			pthread_mutex_lock(&engine->lock);
			if (engine->crowded)
				look_where(engine);
			continue;
		}
		if (settle_down(engine))
			continue;
		look_around(engine);
		sleep_once(engine);
		yielding_since = 0;
		polls = engine->spin_polls / 2;
	}
}

void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	pthread_mutex_lock(&engine->lock);
	collet_engine_wait_locked(engine, done, context);
	pthread_mutex_unlock(&engine->lock);
}

bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	pthread_mutex_lock(&engine->lock);
	collet_engine_progress(engine);
	bool ended = done(context);
	if (!ended && engine->polls_since_look++ % 64 == 0) {
		(void)settle_down(engine);
		look_around(engine);
		collet_engine_progress(engine);
		ended = done(context);
	}
	pthread_mutex_unlock(&engine->lock);
	return ended;
}

static bool asked_to_stop(void *context)
{
	struct collet_engine *engine = context;
	return engine->stop_progress_thread;
}

static void *progress_main(void *context)
{
	struct collet_engine *engine = context;
	collet_engine_wait(engine, asked_to_stop, engine);
	return NULL;
}

collet_status collet_engine_start_progress_thread(struct collet_engine *engine)
{
	const int error = pthread_create(&engine->progress_thread, NULL, progress_main, engine);
	if (error)
		return collet_fail(COLLET_ERR_SYSTEM, "cannot start the progress thread: %s", strerror(error));
	engine->has_progress_thread = true;
	return COLLET_OK;
}

void collet_engine_stop_progress_thread(struct collet_engine *engine)
{
	if (!engine->has_progress_thread)
		return;
	pthread_mutex_lock(&engine->lock);
	engine->stop_progress_thread = true;
	pthread_cond_broadcast(&engine->something_ended);
	pthread_mutex_unlock(&engine->lock);
	collet_engine_wake(engine);
	pthread_join(engine->progress_thread, NULL);
	engine->has_progress_thread = false;
}
