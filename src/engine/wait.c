/* Waiting: spin, then yield, then sleep; ended by what is waited for, or by something that ends it.
 *
 * One thread of a rank sleeps in epoll for everything (the sleeper); further ones, waiting for other communicators,
 * follow it on a condition variable and are told when a request ends or the sleeper leaves. A progress thread does the
 * same while no other thread waits, and stands aside meanwhile. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/cpu.h"
#include "engine/flow.h"

/* A sleep is never longer than this, so that deadlines and suspicions are looked at. */
enum { SLEEP_MS = 50, EVENTS = 16 };

/* How many times as often somebody looks whom the ranks of its core wait for. */
enum { OWING_LOOKS = 10 };

/* Of the progress thread: looks before it yields, and how long it leaves the core to a thread that rouses it. */
enum { BACKGROUND_POLLS = 32, MOMENT_NS = 20 * 1000 };

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

/* Which ranks the request, or its group's pending transfers, wait for, for a sentence. */
static void name_awaited(const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_group *group = request->group;
	for (const struct collet_group_hook *hook = group->hooks; hook && request->held; hook = hook->next)
		if (hook->hooks->name_awaited(hook->hooked, request, text, capacity))
			return;
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
			name_awaited(request, awaited, sizeof(awaited));
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
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		if (group->inlined)
			some |= collet_inline_post(group->inlined);
		some |= collet_p2p_settle_down(group);
	}
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

static bool hooks_rest(const struct collet_group *group)
{
	for (const struct collet_group_hook *hook = group->hooks; hook; hook = hook->next)
		if (!hook->hooks->rests(hook->hooked))
			return false;
	return true;
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
		if (!collet_p2p_arm(group) || !hooks_rest(group))
			return false;
	for (const struct collet_flow *flow = engine->flows; flow; flow = flow->next)
		if (flow->busy && flow->request->status == COLLET_PENDING)
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
				continue; /* another thread has drained it */
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
			polls += COLLET_CALL_LOOKS;
	}
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		if (group->inlined)
			polls += collet_inline_look_cost(group->inlined);
		polls += collet_p2p_look_cost(group);
	}
	return polls;
}

/* May somebody who is waited for need this very core to run on? */
static bool awaits_own_core(const struct collet_engine *engine)
{
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used)
		if ((group->inlined && collet_inline_awaits_own_core(group->inlined)) ||
			collet_p2p_awaits_own_core(group))
			return true;
	for (const struct collet_route *route = engine->active; route; route = route->next_active)
		if (route->receive.settled != route->receive.tail && collet_route_shares_core(route))
			return true;
	return false;
}

/* Does a call that runs on the spot have something to send yet to a rank of this core? That one waits for it. */
static bool owes_own_core(const struct collet_engine *engine)
{
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used)
		if (group->inlined && collet_inline_owes_own_core(group->inlined))
			return true;
	return false;
}

/* Where this rank is, for its peers to know. */
static void look_where(struct collet_engine *engine)
{
	const int cpu = sched_getcpu();
	engine->wake.cpu = cpu >= 0 && cpu < UINT16_MAX ? (uint32_t)cpu + 1 : 0;
}

/* How long a thread has waited in vain: it spins, then yields, then sleeps. */
struct patience {
	uint32_t spin_polls, polls, rounds;
	int64_t yielding_since;
};

/* Does it go on looking instead of giving way? Where ranks outnumber cores: not if it waits for one that needs this
 * very core; far longer than else if those of its core wait for it in turn, since whom it gives way to gives way
 * again. */
static bool looks_on(const struct collet_engine *engine, struct patience *patience)
{
	const bool owes = engine->crowded && patience->polls >= patience->spin_polls &&
		patience->polls < patience->spin_polls * OWING_LOOKS && owes_own_core(engine);
	const uint32_t most = patience->spin_polls * (owes ? OWING_LOOKS : 1);
	if (patience->polls < most)
		patience->polls += polls_of_a_round(engine);
	return patience->polls < most && !(engine->crowded && awaits_own_core(engine));
}

/* After a round that moved nothing. Under lock, which it lets go of now and then. */
static void wait_a_little(struct collet_engine *engine, struct patience *patience)
{
	engine->wake.waits++;
	if (looks_on(engine, patience)) {
		collet_cpu_relax();
		if (++patience->rounds % 16 == 0) { /* let other threads of this rank in */
			pthread_mutex_unlock(&engine->lock);
			collet_cpu_relax();
			pthread_mutex_lock(&engine->lock);
		}
		return;
	}
	const int64_t now = collet_clock_ns();
	if (!patience->yielding_since)
		patience->yielding_since = now;
	if (now - patience->yielding_since < engine->yield_ns) {
		pthread_mutex_unlock(&engine->lock);
		sched_yield();
		pthread_mutex_lock(&engine->lock);
		if (engine->crowded)
			look_where(engine);
		return;
	}
	if (settle_down(engine))
		return;
	look_around(engine);
	sleep_once(engine);
	patience->yielding_since = 0;
	patience->polls = patience->spin_polls / 2;
}

static void advance_until(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	struct patience patience = { .spin_polls = engine->spin_polls };
	for (;;) {
		if (collet_engine_progress(engine))
			patience.polls = 0, patience.yielding_since = 0;
		if (done(context))
			return;
		wait_a_little(engine, &patience);
	}
}

/* ---- Users' threads and the progress thread ---- */

/* Is anything under way that somebody should go on with? */
static bool has_work(const struct collet_engine *engine)
{
	bool some = engine->requests || engine->active;
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used)
		some |= collet_p2p_is_busy(group);
	return some;
}

/* Relaxed, as everywhere: it says who should run, and orders nothing. */
static bool users_wait(const struct collet_engine *engine)
{
	return atomic_load_explicit(&engine->users, memory_order_relaxed) != 0;
}

/* Not under lock, which the progress thread may hold: it is to let go. */
static void come_in(struct collet_engine *engine)
{
	if (engine->has_progress_thread)
		atomic_fetch_add_explicit(&engine->users, 1, memory_order_relaxed);
}

/* Has the progress thread wake up, a moment from now: if it has the same core as whoever calls, it would else take
 * that away at once, from one who was about to leave it, to sleep perhaps. */
static void rouse_progress_thread(const struct collet_engine *engine, long moment_ns)
{
	const struct itimerspec moment = { .it_value = { .tv_nsec = moment_ns } };
	timerfd_settime(engine->rouse_fd, 0, &moment, NULL);
}

/* Under lock. */
static void go_out(struct collet_engine *engine)
{
	if (!engine->has_progress_thread)
		return;
	atomic_fetch_sub_explicit(&engine->users, 1, memory_order_relaxed);
	if (!engine->parked || engine->roused || users_wait(engine) || !has_work(engine))
		return;
	engine->roused = true;
	rouse_progress_thread(engine, MOMENT_NS);
}

void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	come_in(engine);
	advance_until(engine, done, context);
	go_out(engine);
}

void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	come_in(engine);
	pthread_mutex_lock(&engine->lock);
	advance_until(engine, done, context);
	go_out(engine);
	pthread_mutex_unlock(&engine->lock);
}

bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	pthread_mutex_lock(&engine->lock);
	collet_engine_progress(engine);
	bool ended = done(context);
	engine->wake.waits += !ended;
	if (!ended && engine->polls_since_look++ % 64 == 0) {
		(void)settle_down(engine);
		look_around(engine);
		collet_engine_progress(engine);
		ended = done(context);
	}
	pthread_mutex_unlock(&engine->lock);
	return ended;
}

void collet_engine_unlock_handing_over(struct collet_engine *engine)
{
	const bool background = engine->has_progress_thread && !users_wait(engine);
	const bool wake = !background && engine->has_sleeper;
	const bool rouse = background && (engine->parked || engine->has_sleeper) && !engine->roused;
	engine->roused |= rouse;
	pthread_mutex_unlock(&engine->lock);
	if (wake)
		collet_engine_wake(engine);
	if (rouse)
		rouse_progress_thread(engine, MOMENT_NS);
}

/* While a user's thread waits it makes all the progress there is to make; beside it, this one could only take the core
 * or the lock from it. Under lock, which it lets go of meanwhile. */
static void park(struct collet_engine *engine)
{
	struct pollfd roused = { .fd = engine->rouse_fd, .events = POLLIN };
	uint64_t ignored;
	engine->parked = true;
	/* Who followed this thread may have to sleep now. */
	if (engine->followers)
		pthread_cond_broadcast(&engine->something_ended);
	pthread_mutex_unlock(&engine->lock);
	(void)poll(&roused, 1, -1);
	const ssize_t got = read(engine->rouse_fd, &ignored, sizeof(ignored));
	(void)got;  /* EAGAIN: a signal has ended the poll */
	pthread_mutex_lock(&engine->lock);
	engine->parked = engine->roused = false;
}

/* Goes on with what nobody waits for. What it would spin for is its own rank's computing, so it does not: it yields,
 * which costs little where a core is free. */
static void *progress_main(void *context)
{
	struct collet_engine *engine = context;
	struct patience patience = { .spin_polls = BACKGROUND_POLLS };
	pthread_mutex_lock(&engine->lock);
	while (!engine->stop_progress_thread) {
		engine->roused = false;
		if (users_wait(engine)) {
			park(engine);
			continue;
		}
		if (collet_engine_progress(engine))
			patience.polls = 0, patience.yielding_since = 0;
		wait_a_little(engine, &patience);
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

/* Edge-triggered: a user's thread that sleeps need not know how to silence it. */
static collet_status open_rouse(struct collet_engine *engine)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = &engine->rouse_fd };
	engine->rouse_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (engine->rouse_fd >= 0 &&
		epoll_ctl(engine->wake.epoll_fd, EPOLL_CTL_ADD, engine->rouse_fd, &event) == 0)
		return COLLET_OK;
	const int error = errno;
	if (engine->rouse_fd >= 0)
		close(engine->rouse_fd);
	return collet_fail(COLLET_ERR_SYSTEM, "a timer for the progress thread: %s; is the limit of open files "
		"(ulimit -n) reached?", strerror(error));
}

collet_status collet_engine_start_progress_thread(struct collet_engine *engine)
{
	const collet_status status = open_rouse(engine);
	if (status != COLLET_OK)
		return status;
	const int error = pthread_create(&engine->progress_thread, NULL, progress_main, engine);
	if (error) {
		close(engine->rouse_fd);
		return collet_fail(COLLET_ERR_SYSTEM, "cannot start the progress thread: %s", strerror(error));
	}
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
	rouse_progress_thread(engine, 1);
	pthread_join(engine->progress_thread, NULL);
	close(engine->rouse_fd);
	engine->has_progress_thread = false;
}
