/* Waiting: spin, then yield, then sleep; ended by what is waited for, or by something that ends it. How long each lasts
 * is here; what a sleep is, sleep.c says, and what is looked at before it, watchdog.c. A progress thread
 * (progress_thread.c) waits likewise while no other thread does. */
#include <sched.h>

#include "core/cpu.h"
#include "engine/lock.h"
#include "engine/wait.h"

/* How many times as often somebody looks whom the ranks of its core wait for. */
enum { OWING_LOOKS = 10 };

/* How long the progress thread leaves the core to a thread that rouses it. */
enum { MOMENT_NS = 20 * 1000 };

/* Whoever waits in earnest looks at its routes alone: what is run on the spot has its receives posted, and what came
 * and is not used yet is taken out of peers' memory, since they may wait for just that. True: some were posted. */
static bool settle_down(struct collet_engine *engine)
{
	bool some = false;
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		if (group->inlined)
			some |= collet_inline_post(group->inlined);
		some |= collet_p2p_progress_all(group);
	}
	for (struct collet_route *route = engine->active; route; route = route->next_active)
		collet_route_unload_all(route);
	return some;
}

/* What a round of progress that moved nothing costs, in looks into memory. Under lock. */
static uint32_t polls_of_a_round(const struct collet_engine *engine)
{
	uint32_t polls = 1;
	for (const struct collet_route *route = engine->active; route; route = route->next_active) {
		/* Acquire: it may have been published since progress looked. */
		const struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
		if (conduit && conduit->transport->caps & COLLET_CAP_SYSCALLS)
			polls += COLLET_CALL_LOOKS;
	}
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		if (group->inlined)
			polls += collet_inline_look_cost(group->inlined);
		polls += collet_p2p_poll_cost(group);
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
	engine->wake.shared_cpu = cpu >= 0 && cpu < UINT16_MAX ? (uint32_t)cpu + 1 : 0;
}

/* Does it go on looking instead of giving way? Where ranks outnumber cores: not if it waits for one that needs this
 * very core; far longer than else if those of its core wait for it in turn, since whom it gives way to gives way
 * again. */
static bool looks_on(const struct collet_engine *engine, struct collet_patience *patience)
{
	const bool owes = engine->crowded && patience->polls >= patience->spin_polls &&
		patience->polls < patience->spin_polls * OWING_LOOKS && owes_own_core(engine);
	const uint32_t most = patience->spin_polls * (owes ? OWING_LOOKS : 1);
	if (patience->polls < most)
		patience->polls += polls_of_a_round(engine);
	return patience->polls < most && !(engine->crowded && awaits_own_core(engine));
}

void collet_engine_wait_a_little(struct collet_engine *engine, struct collet_patience *patience)
{
	engine->wake.empty_polls++;
	if (looks_on(engine, patience)) {
		collet_cpu_relax();
		if (++patience->rounds % 16 == 0) { /* let other threads of this rank in */
			collet_engine_unlock(engine);
			collet_cpu_relax();
			collet_engine_lock(engine);
		}
		return;
	}
	const int64_t now = collet_clock_ns();
	if (!patience->yielding_since)
		patience->yielding_since = now;
	if (now - patience->yielding_since < engine->yield_ns) {
		collet_engine_unlock(engine);
		sched_yield();
		collet_engine_lock(engine);
		if (engine->crowded)
			look_where(engine);
		return;
	}
	if (settle_down(engine))
		return;
	collet_engine_look_around(engine);
	collet_engine_sleep(engine);
	patience->yielding_since = 0;
	patience->polls = patience->spin_polls / 2;
}

static void advance_until(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	struct collet_patience patience = { .spin_polls = engine->spin_polls };
	for (;;) {
		if (collet_engine_progress(engine))
			collet_patience_renew(&patience);
		if (done(context))
			return;
		collet_engine_wait_a_little(engine, &patience);
	}
}

/* ---- Users' threads ---- */

/* Is anything under way that somebody should go on with? */
static bool has_work(const struct collet_engine *engine)
{
	bool some = engine->requests || engine->active;
	for (const struct collet_group *group = engine->used_groups; group; group = group->next_used)
		some |= collet_p2p_is_busy(group);
	return some;
}

/* Not under lock, which the progress thread may hold: it is to let go. */
static void come_in(struct collet_engine *engine)
{
	if (engine->has_progress_thread)
		atomic_fetch_add_explicit(&engine->users, 1, memory_order_relaxed);
}

/* Under lock. */
static void go_out(struct collet_engine *engine)
{
	if (!engine->has_progress_thread)
		return;
	atomic_fetch_sub_explicit(&engine->users, 1, memory_order_relaxed);
	if (!engine->parked || engine->roused || collet_users_wait(engine) || !has_work(engine))
		return;
	engine->roused = true;
	collet_progress_thread_rouse(engine, MOMENT_NS);
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
	collet_engine_lock(engine);
	advance_until(engine, done, context);
	go_out(engine);
	collet_engine_unlock(engine);
}

bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	collet_engine_lock(engine);
	collet_engine_progress(engine);
	bool ended = done(context);
	engine->wake.empty_polls += !ended;
	if (!ended && engine->polls_since_look++ % 64 == 0) {
		(void)settle_down(engine);
		collet_engine_look_around(engine);
		collet_engine_progress(engine);
		ended = done(context);
	}
	collet_engine_unlock(engine);
	return ended;
}

void collet_engine_unlock_handing_over(struct collet_engine *engine)
{
	const bool background = engine->has_progress_thread && !collet_users_wait(engine);
	const bool wake = !background && engine->has_sleeper;
	const bool rouse = background && (engine->parked || engine->has_sleeper) && !engine->roused;
	engine->roused |= rouse;
	collet_engine_unlock(engine);
	if (wake)
		collet_engine_wake(engine);
	if (rouse)
		collet_progress_thread_rouse(engine, MOMENT_NS);
}
