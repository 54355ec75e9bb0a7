/* The engine's lock: a mutex, biased towards the thread that makes a rank's calls.
 *
 * A mutex costs two locked instructions. Each waits until all earlier stores are done: in a stream of small messages,
 * until the cache lines of each message have come from the receiver's core. Mostly one thread makes all calls. So the
 * first thread that calls becomes the *owner of the bias*, which enters by plain stores. The first other thread revokes
 * the bias for good, and from then on all threads take the mutex. (Biased locking: Kawachiya, Koseki, Onodera, "Lock
 * reservation", 2002; Dice, Huang, Yang, "Asymmetric Dekker synchronization", 2001.)
 *
 * "Under the lock" means either. But the biased lock is for short sections: its holder must not wait for peers, and
 * cannot release the mutex, which it does not hold. Before that it upgrades to the mutex. */
#ifndef COLLET_ENGINE_LOCK_H
#define COLLET_ENGINE_LOCK_H

#include <assert.h>

#include "engine/engine.h"

/* Returns a number that identifies the calling thread. */
static inline uintptr_t collet_this_thread(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
	return (uintptr_t)__builtin_thread_pointer();  /* saves a function call */
#endif
#endif
	return (uintptr_t)pthread_self();
}

/* Revokes the bias of another thread and waits until it has left. Under the mutex. */
void collet_engine_revoke_bias(struct collet_engine *engine);
/* Revokes another thread's bias. Called by every thread that has just taken the mutex, by whatever function. */
static inline void collet_engine_exclude_owner(struct collet_engine *engine)
{
	/* Relaxed: it changes under the mutex only. */
	const uintptr_t owner = atomic_load_explicit(&engine->bias_owner, memory_order_relaxed);
	if (owner && owner != collet_this_thread())
		collet_engine_revoke_bias(engine);
}

static inline void collet_engine_lock(struct collet_engine *engine)
{
	/* A holder of the biased lock must use collet_engine_upgrade_lock(). */
	assert(atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) != collet_this_thread() ||
		!atomic_load_explicit(&engine->bias_held, memory_order_relaxed));
	pthread_mutex_lock(&engine->mutex);
	collet_engine_exclude_owner(engine);
}

static inline void collet_engine_unlock(struct collet_engine *engine)
{
	pthread_mutex_unlock(&engine->mutex);
}

/* Enters without the mutex. True only for the owner of the bias, and not if it has already entered. */
static inline bool collet_engine_enter_biased(struct collet_engine *engine)
{
	const uintptr_t self = collet_this_thread();
	if (atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) != self ||
		atomic_load_explicit(&engine->bias_held, memory_order_relaxed))
		return false;
	/* Pairs with collet_engine_revoke_bias(): one of the two threads must see the other's store. This one only
	 * keeps the compiler from reordering; the other one orders the processors (collet_fence_all). */
	atomic_store_explicit(&engine->bias_held, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&engine->bias_owner, memory_order_relaxed) == self)
		return true;
	atomic_store_explicit(&engine->bias_held, 0, memory_order_release);
	return false;
}

static inline void collet_engine_leave_biased(struct collet_engine *engine)
{
	/* Release, pairing with the acquire in collet_engine_revoke_bias(): it makes the section's stores visible. */
	atomic_store_explicit(&engine->bias_held, 0, memory_order_release);
}

/* Enters for a short section: without the mutex (true), or with it. */
static inline bool collet_engine_lock_biased(struct collet_engine *engine)
{
	if (collet_engine_enter_biased(engine))
		return true;
	collet_engine_lock(engine);
	return false;
}

/* Upgrades to the mutex, for a section that turns out to be long. Other threads may enter in between. */
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

/* Registers a thread that is about to call. Afterwards it is the owner of the bias, or there is no owner any more. Not
 * under the lock. */
void collet_engine_register_thread(struct collet_engine *engine);
/* True if the calling thread need not register. */
static inline bool collet_engine_knows_thread(const struct collet_engine *engine)
{
	/* In this order, so that the owner is visible. Acquire, pairing with the release stores in lock.c: 0 is visible
	 * only after the last owner has left. */
	if (!atomic_load_explicit(&engine->has_caller, memory_order_acquire))
		return false;
	const uintptr_t owner = atomic_load_explicit(&engine->bias_owner, memory_order_acquire);
	return !owner || owner == collet_this_thread();
}

#endif
