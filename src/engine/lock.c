#include "engine/lock.h"

#include <sched.h>
#include <time.h>

#include "core/fence.h"

/* Of `usual`: no thread's number. */
enum { BEING_TAKEN_OVER = 1 };

/* For another thread to step out: mostly at once; but it may need this very core, and be of lower priority. */
static void give_way(uint32_t round)
{
	static const struct timespec moment = { .tv_nsec = 50 * 1000 };
	enum { YIELDS = 1000 };
	if (round < YIELDS)
		sched_yield();
	else
		nanosleep(&moment, NULL);
}

void collet_engine_take_over(struct collet_engine *engine)
{
	/* Not 0 yet: until the usual thread is out, those who come must wait for the mutex. */
	atomic_store_explicit(&engine->usual, BEING_TAKEN_OVER, memory_order_relaxed);
	collet_fence_all();
	/* Acquire, pairing with the release in collet_engine_step_out(). */
	for (uint32_t round = 0; atomic_load_explicit(&engine->inside, memory_order_acquire); round++)
		give_way(round);
	/* Release, pairing with the acquire in collet_engine_knows(). */
	atomic_store_explicit(&engine->usual, 0, memory_order_release);
}

void collet_engine_introduce(struct collet_engine *engine)
{
	collet_engine_lock(engine);
	if (!atomic_load_explicit(&engine->introduced, memory_order_relaxed)) {
		/* A progress thread would take it away at once. */
		if (engine->fences && !engine->has_progress_thread)
			atomic_store_explicit(&engine->usual, collet_this_thread(), memory_order_relaxed);
		/* Release, pairing with the acquire in collet_engine_knows(): who sees it sees who is usual. */
		atomic_store_explicit(&engine->introduced, true, memory_order_release);
	}
	collet_engine_unlock(engine);
}
