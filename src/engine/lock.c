#include "engine/lock.h"

#include <sched.h>
#include <time.h>

#include "core/fence.h"

/* A value of bias_owner that is no thread's number. */
enum { BIAS_BEING_REVOKED = 1 };

/* Waits for another thread to leave. It mostly leaves at once, but it may need this core and have a lower priority. */
static void back_off(uint32_t round)
{
	static const struct timespec moment = { .tv_nsec = 50 * 1000 };
	enum { YIELDS = 1000 };
	if (round < YIELDS)
		sched_yield();
	else
		nanosleep(&moment, NULL);
}

void collet_engine_revoke_bias(struct collet_engine *engine)
{
	/* Not 0 yet: until the owner has left, other threads must wait for the mutex. */
	atomic_store_explicit(&engine->bias_owner, BIAS_BEING_REVOKED, memory_order_relaxed);
	collet_fence_all();
	/* Acquire, pairing with the release in collet_engine_leave_biased(). */
	for (uint32_t round = 0; atomic_load_explicit(&engine->bias_held, memory_order_acquire); round++)
		back_off(round);
	/* Release, pairing with the acquire in collet_engine_knows_thread(). */
	atomic_store_explicit(&engine->bias_owner, 0, memory_order_release);
}

void collet_engine_register_thread(struct collet_engine *engine)
{
	collet_engine_lock(engine);
	if (!atomic_load_explicit(&engine->has_caller, memory_order_relaxed)) {
		/* A progress thread would revoke the bias at once. */
		if (engine->has_fence && !engine->has_progress_thread)
			atomic_store_explicit(&engine->bias_owner, collet_this_thread(), memory_order_relaxed);
		/* Release, pairing with the acquire in collet_engine_knows_thread(), which then sees the owner. */
		atomic_store_explicit(&engine->has_caller, true, memory_order_release);
	}
	collet_engine_unlock(engine);
}
