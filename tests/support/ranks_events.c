/* Implements events between ranks, and between ranks and the test. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ranks_run.h"

static void post(struct ranks *ranks, uint32_t event)
{
	ranks_give_sign(ranks);
	/* Release: a rank that awaits the event sees what was done before the post. Pairs with the load below. */
	atomic_fetch_add_explicit(&ranks->shared->events[event], 1, memory_order_release);
	syscall(SYS_futex, &ranks->shared->events[event], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool await(struct ranks *ranks, uint32_t event, uint32_t count)
{
	_Atomic uint32_t *posted = &ranks->shared->events[event];
	for (;;) {
		/* Acquire: pairs with post(). */
		const uint32_t seen = atomic_load_explicit(posted, memory_order_acquire);
		if (seen >= count)
			return true;
		/* A rank that waits for an event is stuck like any other, and must still be here at the deadline. */
		const int64_t left = ranks_deadline(ranks) + (int64_t)GRACE_MS / 3 * 1000000 - ranks_now_ns();
		if (left <= 0)
			return false;
		const struct timespec limit = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
		syscall(SYS_futex, posted, FUTEX_WAIT, seen, &limit, NULL, 0);
	}
}

void rank_post(struct rank *rank, uint32_t event)
{
	post(rank->run, event);
}

bool rank_await(struct rank *rank, uint32_t event, uint32_t count)
{
	return rank_check(rank, await(rank->run, event, count), "waited in vain for event %u to be posted %u times",
		event, count);
}

bool rank_barrier(struct rank *rank)
{
	rank_post(rank, RANKS_EVENTS - 1);
	return rank_await(rank, RANKS_EVENTS - 1, ++rank->barriers * rank->size);
}

void ranks_post(struct ranks *ranks, uint32_t event)
{
	post(ranks, event);
}

bool ranks_await(struct ranks *ranks, uint32_t event, uint32_t count)
{
	return await(ranks, event, count);
}
