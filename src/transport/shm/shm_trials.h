/* Chooses the protocol of long messages in ordinary memory: the ring or CMA (cross-memory attach).
 *
 * The ring (or the arena, if the message is published there) takes two copies, by two cores through their caches. CMA
 * takes one copy, by the receiver's kernel. Which is faster depends on the caches, the kernel and the pattern of calls:
 * on what else each end copies meanwhile, on who waits for whom, and on whose cache holds the buffers at their next
 * use. The time of a single copy shows none of that. So the trials compare the times of whole calls of one class, from
 * start to end, at the end where the call takes longer. For calls in a row this is the pace. A sender through the ring
 * runs ahead of its receiver by the size of the ring, and is delayed only when the ring is full, long after a burst.
 *
 * The next call pays for what a protocol leaves in the caches. So protocols are tried in bursts of calls, of which the
 * first ones do not count. The cost of a burst is the least mean of a few calls in a row: disturbances make calls
 * longer, and the mean evens out what one call leaves to the next. A burst of the other protocol that is much more
 * expensive from its first calls on is abandoned: it continues with the chosen protocol, and the trial ends with it. A
 * call with the wrong protocol can cost ten of the right one. A burst of huge calls is not abandoned, since it is
 * nearly over when its cost is known.
 *
 * A trial has four bursts: chosen, other, chosen, other. It ends after two if they show no gain. The other protocol is
 * chosen if both pairs show a gain. The first trial starts when all pages of the ring have been touched. It always has
 * four bursts, unless the calls are huge and two bursts already differ clearly: such calls are long, and a program has
 * few. The next trial then follows after a long interval. Each trial without a change doubles the interval. It is also
 * long enough that the calls with the worse protocol cost less than a hundredth.
 *
 * Between trials the times of calls are watched. The cores of a virtual machine may be near each other now and far
 * apart later, which changes the better protocol. When the times change in either direction, the next trial starts once
 * a quarter of the interval has passed.
 *
 * The protocol of one pair of ranks changes the call times of the others, so pairs should try in step. They see the
 * same calls, and mostly the same times. Bursts have a fixed length, and trials start at round numbers of calls.
 *
 * The code is pure: it reads no clock and has no state but struct shm_trials. */
#ifndef COLLET_TRANSPORT_SHM_SHM_TRIALS_H
#define COLLET_TRANSPORT_SHM_SHM_TRIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/registry.h"

enum {
	SHM_CALL_CLASSES = COLLET_CALL_CLASSES, /* classes of calls, each with trials of its own */
	SHM_TRIAL_BURSTS = 4,                  /* bursts of a trial */
	SHM_TRIAL_WARMUP_BURSTS = 4,           /* calls before the first trial, in bursts */
	SHM_TRIAL_GROUPS = 3,                  /* groups of a burst, after one (or two calls) that does not count */
	SHM_TRIAL_GROUP_CALLS = 4,             /* calls of a group, whose mean counts */
	SHM_TRIAL_LARGE_BYTES = 256 << 10,     /* half as many calls from this size, of which caches keep less */
	SHM_TRIAL_HUGE_BYTES = 2 << 20,        /* one call from this size */
	SHM_TRIAL_HUGE_WARMUP = 2,             /* huge calls of a burst that do not count */
	SHM_TRIAL_STEP_GROUPS = 16,            /* trials start at multiples of this many groups */
	SHM_TRIAL_INTERVAL_MIN = 256,          /* least number of calls until the next trial */
	SHM_TRIAL_INTERVAL_MAX = 1 << 16       /* largest number of calls until the next trial */
};

/* The trials of one call class. Zeroed: nothing is known, and the first calls use the ring. */
struct shm_trials {
	uint64_t own_time, peer_time; /* sums over the current group of the call times at each end */
	/* Least mean of the groups of the current burst, or of the latest groups between trials. */
	uint32_t min_time;
	/* Costs of this trial's bursts: the last ones, or the least ones in the first trial. */
	uint32_t chosen_cost, other_cost;
	uint32_t observed_calls; /* calls that used the wanted protocol */
	uint32_t calls;          /* calls of the current burst, or since the last trial */
	uint32_t trial_calls;    /* calls of the current trial that used the other protocol */
	uint32_t interval;       /* calls until the next trial */
	uint8_t burst;           /* current burst of the trial; SHM_TRIAL_BURSTS between trials */
	uint8_t group_calls;     /* calls of a group in this burst */
	bool is_trained;         /* the first trial has ended */
	/* All calls of the burst so far were much more expensive than those of the chosen protocol. */
	bool is_costly;
	bool is_abandoned;       /* the rest of the burst uses the chosen protocol */
	bool has_changed;        /* call times have changed since the last trial */
	bool is_cma_chosen;      /* the chosen protocol is CMA */
};

/* True if the next call should use CMA. */
static inline bool collet_shm_trials_next_is_cma(const struct shm_trials *trials)
{
	return trials->is_cma_chosen != (trials->burst % 2 == 1 && !trials->is_abandoned);
}

/* Adds the times of a call of this many bytes at this end and at the peer, in ticks a MiB. by_cma: the protocol that it
 * used. A call that used another protocol than wanted had no choice, and is ignored. */
void collet_shm_trials_add(
	struct shm_trials *trials, bool by_cma, uint32_t own_time, uint32_t peer_time, uint64_t bytes);

/* The protocol of an end in exchanges, that is calls in which both ends send. The ends must agree: if one reads by CMA
 * while the other copies through the ring, one of them copies for both. The end that dialed decides for both. */
enum shm_exchange_protocol {
	SHM_EXCHANGE_UNKNOWN,  /* it sends nothing in such calls */
	SHM_EXCHANGE_RING,
	SHM_EXCHANGE_CMA
};

#endif
