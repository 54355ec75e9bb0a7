/* The engine's lock, and a shorter way in for the thread that makes a rank's calls.
 *
 * A mutex is two locked instructions, and such a one waits until all stores before it are done: in a stream of small
 * messages, until each message's lines have come from the receiver's core. Mostly one thread makes all calls. So the
 * first to call becomes the *usual* thread, which steps in by plain stores; whoever else comes first takes that away
 * from it, for good, and from then on all have the mutex alone. (Biased locking: Kawachiya, Koseki, Onodera, "Lock
 * reservation", 2002; Dice, Huang, Yang, "Asymmetric Dekker synchronization", 2001.)
 *
 * Stepped in is under lock, but for this: it is for what is over soon, so whoever has stepped in does not wait for
 * peers, nor lets go of the mutex, which it has not; before that it goes over to the mutex. */
#ifndef COLLET_ENGINE_LOCK_H
#define COLLET_ENGINE_LOCK_H

#include <assert.h>

#include "engine/engine.h"

/* A number of the calling thread's alone. */
static inline uintptr_t collet_this_thread(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
	return (uintptr_t)__builtin_thread_pointer();  /* saves a call */
#endif
#endif
	return (uintptr_t)pthread_self();
}

/* The calling thread has, or is about to take, what only the usual thread may have had so far. Under lock. */
void collet_engine_revoke_bias(struct collet_engine *engine);
/* By whoever has just taken the mutex, whichever way. */
static inline void collet_engine_exclude_owner(struct collet_engine *engine)
{
	/* Relaxed: it becomes another's under the mutex. */
	const uintptr_t owner = atomic_load_explicit(&engine->bias_owner, memory_order_relaxed);
	if (owner && owner != collet_this_thread())
		collet_engine_revoke_bias(engine);
}

static inline void collet_engine_lock(struct collet_engine *engine)
{
	/* Who has stepped in goes over to the mutex by collet_engine_upgrade_lock(). */
	assert(atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) != collet_this_thread() ||
		!atomic_load_explicit(&engine->bias_held, memory_order_relaxed));
	pthread_mutex_lock(&engine->mutex);
	collet_engine_exclude_owner(engine);
}

static inline void collet_engine_unlock(struct collet_engine *engine)
{
	pthread_mutex_unlock(&engine->mutex);
}

/* Only the usual thread can, and not within what it has stepped in for. */
static inline bool collet_engine_enter_biased(struct collet_engine *engine)
{
	const uintptr_t self = collet_this_thread();
	if (atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) != self ||
		atomic_load_explicit(&engine->bias_held, memory_order_relaxed))
		return false;
	/* Pairs with collet_engine_revoke_bias(): of the two one must see the other. This thread has only the compiler
	 * keep the order; the other has the processors keep it. */
	atomic_store_explicit(&engine->bias_held, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) == self)
		return true;
	atomic_store_explicit(&engine->bias_held, 0, memory_order_release);
	return false;
}

static inline void collet_engine_leave_biased(struct collet_engine *engine)
{
	/* Release, pairing with the acquire in collet_engine_revoke_bias(): what was done inside is seen. */
	atomic_store_explicit(&engine->bias_held, 0, memory_order_release);
}

/* For what may be over soon: steps in (true), or locks. */
static inline bool collet_engine_lock_biased(struct collet_engine *engine)
{
	if (collet_engine_enter_biased(engine))
		return true;
	collet_engine_lock(engine);
	return false;
}

/* It is not over soon: from here on by the mutex. Others may have been in between. */
static inline void collet_engine_upgrade_lock(struct collet_engine *engine, bool *is_biased)
{
	if (!*is_biased)
		return;
	collet_engine_leave_biased(engine);
	collet_engine_lock(engine);
	*is_biased = false;
}

static inline void collet_engine_unlock_biased(struct collet_engine *engine, bool is_biased)
{
	if (is_biased)
		collet_engine_leave_biased(engine);
	else
		collet_engine_unlock(engine);
}

/* A thread is about to call. When this returns it is the usual thread, or there is none any more. Not under lock. */
void collet_engine_register_thread(struct collet_engine *engine);
/* Is that so already? */
static inline bool collet_engine_knows_thread(const struct collet_engine *engine)
{
	/* In this order, so that who is usual is seen. Acquire, pairing with the release stores in lock.c: that nobody
	 * is any more is known once the last one has stepped out. */
	if (!atomic_load_explicit(&engine->has_caller, memory_order_acquire))
		return false;
	const uintptr_t owner = atomic_load_explicit(&engine->bias_owner, memory_order_acquire);
	return !owner || owner == collet_this_thread();
}

#endif
