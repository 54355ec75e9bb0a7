#include "engine/lock.h"

#include <sched.h>

#include "core/fence.h"

void collet_engine_take_over(struct collet_engine *engine)
{
	atomic_store_explicit(&engine->usual, 0, memory_order_relaxed);
	collet_fence_all();
	/* Acquire, pairing with the release in collet_engine_step_out(). It steps in for what is over soon. */
	while (atomic_load_explicit(&engine->inside, memory_order_acquire))
		sched_yield();
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
