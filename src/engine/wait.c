/* Waits: spins, then yields, then sleeps, until the awaited event, a deadline, an abort or a loss. This file decides
 * how long each phase lasts. sleep.c sleeps, and watchdog.c checks deadlines before that. A progress thread
 * (progress_thread.c) waits likewise while no other thread does. */
#include <sched.h>

#include "core/clock.h"
#include "core/cpu.h"
#include "engine/comm_state.h"
#include "engine/fast_path.h"
#include "engine/lock.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/progress_thread.h"
#include "engine/sleep.h"
#include "engine/transfer_ring.h"
#include "engine/wait.h"
#include "engine/watch.h"
#include "engine/watchdog.h"

/* Factor by which a rank spins longer if ranks on its core wait for it. */
enum { AWAITED_SPIN_FACTOR = 10 };

/* Delay after which the progress thread wakes, so that the thread that wakes it keeps the core until then. */
enum { PROGRESS_DELAY_NS = 20 * 1000 };

/* Prepares for a sleep, which only peer queues can end. Posts the receives of fast-path calls. Copies arrived data that
 * is not used yet out of peers' memory, since they may wait for its release. True if some receives were posted. */
static bool prepare_to_sleep(struct collet_engine *engine)
{
	bool any = false;
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		if (state->fast_path_request)
			any |= collet_fast_path_post_receives(state->fast_path_request);
		any |= collet_p2p_progress_all(state);
	}
	for (struct collet_peer_queue *peer_queue = engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active)
		collet_peer_queue_copy_views(peer_queue);
	return any;
}

/* Returns the cost of a round of progress that moves nothing, in reads of memory. Under the lock. */
static uint32_t round_poll_cost(const struct collet_engine *engine)
{
	uint32_t polls = 1;
	for (const struct collet_peer_queue *peer_queue = engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active) {
		const struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
		if (endpoint && endpoint->transport->caps & COLLET_CAP_SYSCALLS)
			polls += COLLET_SYSCALL_POLLS;
	}
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		if (state->fast_path_request)
			polls += collet_fast_path_poll_cost(state->fast_path_request);
		polls += collet_p2p_poll_cost(state);
	}
	return polls;
}

/* True if a rank that this one waits for may need this core. */
static bool awaits_own_core(const struct collet_engine *engine)
{
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		if ((state->fast_path_request && collet_fast_path_awaits_own_core(state->fast_path_request)) ||
			collet_p2p_awaits_own_core(state))
			return true;
	for (const struct collet_peer_queue *peer_queue = engine->active_queues; peer_queue;
		peer_queue = peer_queue->next_active)
		if (peer_queue->receive.completed != peer_queue->receive.tail &&
			collet_peer_queue_shares_core(peer_queue))
			return true;
	return false;
}

/* True if a fast-path call still has to send to a rank on this core, which waits for it. */
static bool sends_to_own_core(const struct collet_engine *engine)
{
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		if (state->fast_path_request && collet_fast_path_sends_to_own_core(state->fast_path_request))
			return true;
	return false;
}

/* Tells peers the core that this rank runs on. */
static void update_cpu(struct collet_engine *engine)
{
	const int cpu = sched_getcpu();
	engine->wake.shared_cpu = cpu >= 0 && cpu < UINT16_MAX ? (uint32_t)cpu + 1 : 0;
}

/* True if the thread should spin rather than yield now. If ranks outnumber cores, it yields if it waits for a rank
 * that needs this core. It spins much longer if ranks on its core wait for it, since a rank that it yields to yields
 * again. */
static bool keeps_spinning(const struct collet_engine *engine, struct collet_spin_wait *spin_wait)
{
	const bool is_awaited = engine->oversubscribed && spin_wait->polls >= spin_wait->spin_polls &&
		spin_wait->polls < spin_wait->spin_polls * AWAITED_SPIN_FACTOR && sends_to_own_core(engine);
	const uint32_t most = spin_wait->spin_polls * (is_awaited ? AWAITED_SPIN_FACTOR : 1);
	if (spin_wait->polls < most)
		spin_wait->polls += round_poll_cost(engine);
	return spin_wait->polls < most && !(engine->oversubscribed && awaits_own_core(engine));
}

void collet_engine_wait_once(struct collet_engine *engine, struct collet_spin_wait *spin_wait)
{
	engine->wake.empty_polls++;
	if (keeps_spinning(engine, spin_wait)) {
		collet_cpu_relax();
		if (++spin_wait->rounds % 16 == 0) { /* lets other threads of this rank enter */
			collet_engine_unlock(engine);
			collet_cpu_relax();
			collet_engine_lock(engine);
		}
		return;
	}
	const int64_t now = collet_clock_ns();
	if (!spin_wait->yielding_since)
		spin_wait->yielding_since = now;
	if (now - spin_wait->yielding_since < engine->yield_ns) {
		collet_engine_unlock(engine);
		sched_yield();
		collet_engine_lock(engine);
		if (engine->oversubscribed)
			update_cpu(engine);
		return;
	}
	if (prepare_to_sleep(engine))
		return;
	collet_engine_run_watchdog(engine);
	collet_engine_sleep(engine, spin_wait->until_ns);
	spin_wait->yielding_since = 0;
	spin_wait->polls = spin_wait->spin_polls / 2;
}

static void run_on_end(struct collet_engine *engine)
{
	if (engine->ended_requests)
		engine->run_on_end(engine);
}

/* Returns false if done() is not true by until_ns. */
static bool progress_until(
	struct collet_engine *engine, bool (*done)(void *context), void *context, int64_t until_ns)
{
	struct collet_spin_wait spin_wait = { .spin_polls = engine->spin_polls, .until_ns = until_ns };
	for (;;) {
		if (collet_engine_progress(engine))
			collet_spin_wait_reset(&spin_wait);
		run_on_end(engine);
		if (done(context))
			return true;
		if (until_ns != COLLET_NEVER && collet_clock_ns() >= until_ns)
			return false;
		collet_engine_wait_once(engine, &spin_wait);
	}
}

/* ---- Users' threads ---- */

/* True if anything is under way that needs progress. */
static bool has_work(const struct collet_engine *engine)
{
	bool any = engine->pending_count || engine->active_queues || engine->ended_requests;
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		any |= collet_p2p_is_busy(state);
	return any;
}

/* Counts the waiting thread, so that the progress thread releases the lock. Not under the lock. */
static void begin_user_wait(struct collet_engine *engine)
{
	if (engine->has_progress_thread)
		atomic_fetch_add_explicit(&engine->user_waiters, 1, memory_order_relaxed);
}

/* Ends the wait, and wakes the progress thread if work remains. Under the lock. */
static void end_user_wait(struct collet_engine *engine)
{
	if (!engine->has_progress_thread)
		return;
	atomic_fetch_sub_explicit(&engine->user_waiters, 1, memory_order_relaxed);
	if (!engine->parked || engine->progress_timer_set || collet_engine_has_waiters(engine) || !has_work(engine))
		return;
	engine->progress_timer_set = true;
	collet_progress_thread_wake(engine, PROGRESS_DELAY_NS);
}

void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	begin_user_wait(engine);
	(void)progress_until(engine, done, context, COLLET_NEVER);
	end_user_wait(engine);
}

bool collet_engine_wait_until(
	struct collet_engine *engine, bool (*done)(void *context), void *context, int64_t until_ns)
{
	begin_user_wait(engine);
	collet_engine_lock(engine);
	const bool is_done = progress_until(engine, done, context, until_ns);
	end_user_wait(engine);
	collet_engine_unlock(engine);
	return is_done;
}

void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	(void)collet_engine_wait_until(engine, done, context, COLLET_NEVER);
}

/* Makes one round of progress, and all checks of a thread that is about to sleep if it is thorough. */
static bool poll_round(struct collet_engine *engine, bool (*done)(void *context), void *context, bool is_thorough)
{
	collet_engine_progress(engine);
	run_on_end(engine);
	if (done(context))
		return true;
	engine->wake.empty_polls++;
	if (!is_thorough)
		return false;
	(void)prepare_to_sleep(engine);
	collet_engine_run_watchdog(engine);
	collet_engine_progress(engine);
	run_on_end(engine);
	return done(context);
}

bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context)
{
	collet_engine_lock(engine);
	const bool ended = poll_round(engine, done, context, engine->polls_since_watchdog++ % 64 == 0);
	collet_engine_unlock(engine);
	return ended;
}

static bool any_has_ended(void *context)
{
	const struct collet_engine *engine = context;
	return engine->ended_count != engine->ended_seen;
}

bool collet_engine_progress_until(struct collet_engine *engine, int64_t until_ns)
{
	begin_user_wait(engine);
	collet_engine_lock(engine);
	collet_watch_end(engine);
	const bool ended = until_ns ? progress_until(engine, any_has_ended, engine, until_ns)
				    : poll_round(engine, any_has_ended, engine, true);
	engine->ended_seen = engine->ended_count;
	if (!ended)
		collet_watch_begin(engine);
	end_user_wait(engine);
	collet_engine_unlock(engine);
	return ended;
}

/* Says whom to wake for what this thread has started or queued. */
struct idle {
	bool sleeper, progress_thread;
};

/* Under the lock. */
static struct idle find_idle(struct collet_engine *engine)
{
	const bool background = engine->has_progress_thread && !collet_engine_has_waiters(engine);
	const struct idle idle = { !background && engine->has_sleeper,
		background && (engine->parked || engine->has_sleeper) && !engine->progress_timer_set };
	engine->progress_timer_set |= idle.progress_thread;
	if (engine->is_watched)
		collet_watch_interrupt(engine);
	return idle;
}

static void wake_idle(struct collet_engine *engine, struct idle idle)
{
	if (idle.sleeper)
		collet_engine_wake(engine);
	if (idle.progress_thread)
		collet_progress_thread_wake(engine, PROGRESS_DELAY_NS);
}

void collet_engine_wake_idle(struct collet_engine *engine)
{
	wake_idle(engine, find_idle(engine));
}

void collet_engine_unlock_handoff(struct collet_engine *engine)
{
	const struct idle idle = find_idle(engine);
	collet_engine_unlock(engine);
	wake_idle(engine, idle);
}
