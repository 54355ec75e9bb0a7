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
void collet_engine_take_over(struct collet_engine *engine);
/* By whoever has just taken the mutex, whichever way. */
static inline void collet_engine_have_alone(struct collet_engine *engine)
{
	/* Relaxed: it becomes another's under the mutex. */
	const uintptr_t usual = atomic_load_explicit(&engine->usual, memory_order_relaxed);
	if (usual && usual != collet_this_thread())
		collet_engine_take_over(engine);
}

static inline void collet_engine_lock(struct collet_engine *engine)
{
	/* Who has stepped in goes over to the mutex by collet_engine_hold_on(). */
	assert(atomic_load_explicit(&engine->usual, memory_order_relaxed) != collet_this_thread() ||
		!atomic_load_explicit(&engine->inside, memory_order_relaxed));
	pthread_mutex_lock(&engine->mutex);
	collet_engine_have_alone(engine);
}

static inline void collet_engine_unlock(struct collet_engine *engine)
{
	pthread_mutex_unlock(&engine->mutex);
}

/* Only the usual thread can, and not within what it has stepped in for. */
static inline bool collet_engine_step_in(struct collet_engine *engine)
{
	const uintptr_t self = collet_this_thread();
	if (atomic_load_explicit(&engine->usual, memory_order_relaxed) != self ||
		atomic_load_explicit(&engine->inside, memory_order_relaxed))
		return false;
	/* Pairs with collet_engine_take_over(): of the two one must see the other. This thread has only the compiler
	 * keep the order; the other has the processors keep it. */
	atomic_store_explicit(&engine->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&engine->usual, memory_order_relaxed) == self)
		return true;
	atomic_store_explicit(&engine->inside, 0, memory_order_release);
	return false;
}

static inline void collet_engine_step_out(struct collet_engine *engine)
{
	/* Release, pairing with the acquire in collet_engine_take_over(): what was done inside is seen. */
	atomic_store_explicit(&engine->inside, 0, memory_order_release);
}

/* For what may be over soon: steps in (true), or locks. */
static inline bool collet_engine_hold(struct collet_engine *engine)
{
	if (collet_engine_step_in(engine))
		return true;
	collet_engine_lock(engine);
	return false;
}

/* It is not over soon: from here on by the mutex. Others may have been in between. */
static inline void collet_engine_hold_on(struct collet_engine *engine, bool *stepped_in)
{
	if (!*stepped_in)
		return;
	collet_engine_step_out(engine);
	collet_engine_lock(engine);
	*stepped_in = false;
}

static inline void collet_engine_let_go(struct collet_engine *engine, bool stepped_in)
{
	if (stepped_in)
		collet_engine_step_out(engine);
	else
		collet_engine_unlock(engine);
}

/* A thread is about to call. When this returns it is the usual thread, or there is none any more. Not under lock. */
void collet_engine_introduce(struct collet_engine *engine);
/* Is that so already? */
static inline bool collet_engine_knows(const struct collet_engine *engine)
{
	/* In this order, so that who is usual is seen. Acquire, pairing with the release stores in lock.c: that nobody
	 * is any more is known once the last one has stepped out. */
	if (!atomic_load_explicit(&engine->introduced, memory_order_acquire))
		return false;
	const uintptr_t usual = atomic_load_explicit(&engine->usual, memory_order_acquire);
	return !usual || usual == collet_this_thread();
}

#endif
