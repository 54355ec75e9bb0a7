/* Which way an end of an shm conduit sends long messages that lie in ordinary memory: through the ring (or published in
 * the arena), two copies by two cores through their caches, or left where they are and read by the kernel for the
 * receiver, one copy by one core. What is faster depends on caches, kernel and pattern: on what else each end copies
 * meanwhile, on who waits for whom, and on whose cache holds the buffers when they are used next. None of that is in
 * the time of a single copy. So what is compared is what calls take, of one kind and size, from start to end, at the
 * end where they take longer. Of calls in a row that is the pace: who sends through the ring is ahead of its receiver
 * by as much as the ring holds, and only when that is full, long after a burst, is it held up as long.
 *
 * What a way leaves in the caches is paid for by the next call, so ways are tried in bursts of calls, of which the
 * first ones do not count. Of the rest a burst's price is the least mean of a few calls in a row: what disturbs them
 * makes calls longer, and what one call leaves to the next averages out. A burst of the other way that is much dearer
 * from its first calls on goes on by the way taken, and the trial ends with it: a call that goes the wrong way can cost
 * ten of the right one. Not so one of huge calls, which is nearly over when that is known.
 *
 * A trial is four bursts: the way taken, the other, and both again; it ends after two if these show no gain. The other
 * is taken if both pairs show a gain. The first trial begins when the ring's pages have all been touched, and has all
 * four, unless the calls are huge and two tell ways clearly apart: such calls last, and a program has few. Then, or
 * else, the next trial is far off: each in vain doubles that, and it is so far at least that the calls that went the
 * worse way cost less than a hundredth.
 *
 * Between trials what calls take is watched: the cores of a virtual machine are near each other at one time and far
 * apart at the next, and which way is better with them. When it is not what it was, in either direction, there is a
 * trial at once, or when a quarter of the way to the next one is behind.
 *
 * What one pair of ranks does changes what the others' calls take, so pairs should try in step. They see the same
 * calls, and mostly the same times; bursts have a length that nothing changes, and trials begin at round numbers of
 * calls.
 *
 * Pure: no clock, no memory but this. */
#ifndef COLLET_TRANSPORT_SHM_SHM_TRIALS_H
#define COLLET_TRANSPORT_SHM_SHM_TRIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/registry.h"

enum {
	SHM_CALL_CLASSES = COLLET_CALL_CLASSES, /* kinds and sizes of calls that learn apart */
	SHM_TRIAL_BURSTS = 4,                  /* of a trial */
	SHM_TRIAL_WARMUP_BURSTS = 4,           /* as many calls before the first one; */
	SHM_TRIAL_GROUPS = 3,                  /* of a burst, after one (or two calls) that does not count */
	SHM_TRIAL_GROUP_CALLS = 4,             /* calls in a row, whose mean counts; */
	SHM_TRIAL_LARGE_BYTES = 256 << 10,     /* half as many of so many bytes each, of which caches keep less, */
	SHM_TRIAL_HUGE_BYTES = 2 << 20,        /* and one of so many, */
	SHM_TRIAL_HUGE_WARMUP = 2,             /* after as many that do not count */
	SHM_TRIAL_STEP_GROUPS = 16,            /* trials begin every so many groups, or some such steps later */
	SHM_TRIAL_INTERVAL_MIN = 256,          /* calls until the next trial, */
	SHM_TRIAL_INTERVAL_MAX = 1 << 16       /* up to here */
};

/* Of one kind and size of calls. Zeroed: nothing is known, and the first calls go through the ring. */
struct shm_trials {
	uint64_t own_time, peer_time; /* sums of the group under way: of what calls took either end */
	uint32_t min_time;       /* of the groups of the burst, or of the last calls of a rest */
	uint32_t chosen_cost, other_cost; /* the prices of this trial's bursts: the last, or in the first trial the
	                                     least */
	uint32_t observed_calls; /* calls that have taught something */
	uint32_t calls;          /* of the burst, or of the rest, under way */
	uint32_t trial_calls;    /* of the trial's calls: went the other way */
	uint32_t interval;       /* until the next trial */
	uint8_t burst;           /* of the trial; SHM_TRIAL_BURSTS: at rest */
	uint8_t group_calls;     /* of this burst */
	bool is_trained;         /* the first trial is over */
	bool is_costly;          /* the burst's calls were so far all much dearer than those of the way taken; */
	bool is_abandoned;       /* so the rest of it goes that way */
	bool has_changed;        /* what calls took has changed since the last trial */
	bool is_cma_chosen;      /* the way taken */
};

/* Is the next call's share to be left to the peer's kernel? */
static inline bool collet_shm_trials_next_is_cma(const struct shm_trials *trials)
{
	return trials->is_cma_chosen != (trials->burst % 2 == 1 && !trials->is_abandoned);
}

/* A call of so many bytes has gone this way and taken this end and the other so long (ticks a MiB). What went another
 * way than was wanted had no choice, and teaches nothing. */
void collet_shm_trials_add(
	struct shm_trials *trials, bool by_cma, uint32_t own_time, uint32_t peer_time, uint64_t bytes);

/* How an end sends in calls in which the other end sends too: they must agree, since if one reads while the other
 * copies through the ring, one of them does the copying of both. The end that dialed decides for both. */
enum shm_exchange_protocol {
	SHM_EXCHANGE_UNKNOWN,  /* it sends nothing in such calls */
	SHM_EXCHANGE_RING,
	SHM_EXCHANGE_CMA
};

#endif
