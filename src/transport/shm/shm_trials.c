/* Implements the protocol trials that shm_trials.h explains. */
#include "transport/shm/shm_trials.h"

/* In percent: the gain that changes the choice, the gain that is clear at once, and the change of a call's time that
 * counts as a change. */
enum { MIN_GAIN_PERCENT = 5, CLEAR_GAIN_PERCENT = 25, CHANGE_PERCENT = 33 };

static bool is_cheaper(uint32_t other_cost, uint32_t chosen_cost, unsigned parts)
{
	return (uint64_t)other_cost * 100 <= (uint64_t)chosen_cost * (100 - parts);
}

/* True if one protocol is clearly better in huge calls. Each of these is long, and the first ones touch all pages. */
static bool is_clear_winner(const struct shm_trials *trials)
{
	return trials->group_calls == 1 &&
	       (is_cheaper(trials->other_cost, trials->chosen_cost, CLEAR_GAIN_PERCENT) ||
		       is_cheaper(trials->chosen_cost, trials->other_cost, CLEAR_GAIN_PERCENT));
}

/* Returns the number of calls at the start of a burst that do not count. They pay for what the other protocol has left
 * in the caches, and the peer's reported time may still be of the call before. */
static uint32_t warmup_calls(const struct shm_trials *trials)
{
	return trials->group_calls == 1 ? SHM_TRIAL_HUGE_WARMUP : trials->group_calls;
}

static uint32_t burst_calls(const struct shm_trials *trials)
{
	return warmup_calls(trials) + trials->group_calls * (uint32_t)SHM_TRIAL_GROUPS;
}

static bool is_trying_other(const struct shm_trials *trials)
{
	return trials->burst % 2 == 1;
}

/* Returns the number of calls until the next trial. Over that interval the calls of the trial with the worse protocol
 * cost less than a hundredth. */
static uint32_t next_interval(const struct shm_trials *trials, uint32_t previous)
{
	const uint64_t better = trials->other_cost < trials->chosen_cost ? trials->other_cost : trials->chosen_cost;
	const uint64_t lost = (uint64_t)trials->other_cost + trials->chosen_cost - 2 * better;
	const uint64_t least = 100 * lost * trials->trial_calls / (better ? better : 1);
	const uint64_t rest = least > 2 * (uint64_t)previous ? least : 2 * (uint64_t)previous;
	return rest < SHM_TRIAL_INTERVAL_MIN ? SHM_TRIAL_INTERVAL_MIN :
		rest > SHM_TRIAL_INTERVAL_MAX ? SHM_TRIAL_INTERVAL_MAX : (uint32_t)rest;
}

static void begin_group(struct shm_trials *trials)
{
	trials->own_time = trials->peer_time = 0;
}

static void end_trial(struct shm_trials *trials, bool is_changing)
{
	trials->interval =
		is_changing && trials->is_trained ? SHM_TRIAL_INTERVAL_MIN : next_interval(trials, trials->interval);
	if (is_changing) {
		const uint32_t cost = trials->chosen_cost;
		trials->chosen_cost = trials->other_cost;
		trials->other_cost = cost;
		trials->is_cma_chosen = !trials->is_cma_chosen;
	}
	trials->is_trained = true;
	trials->is_abandoned = trials->has_changed = false;
	trials->burst = SHM_TRIAL_BURSTS;
	trials->calls = 0;
	trials->min_time = UINT32_MAX;
}

static void end_burst(struct shm_trials *trials)
{
	const bool is_other = is_trying_other(trials);
	uint32_t *const cost = is_other ? &trials->other_cost : &trials->chosen_cost;
	/* In the first trial pages may still be new, so each protocol keeps its better burst. */
	const bool keeps_cost = !trials->is_trained && trials->burst >= 2 && *cost < trials->min_time;
	*cost = keeps_cost ? *cost : trials->min_time;
	trials->burst++;
	trials->calls = 0;
	const bool is_clear = !trials->is_trained && is_other && is_clear_winner(trials);
	if (is_other && (trials->burst == SHM_TRIAL_BURSTS || trials->is_trained || is_clear)) {
		const bool gained = is_cheaper(trials->other_cost, trials->chosen_cost, MIN_GAIN_PERCENT);
		if (!gained || is_clear || trials->burst == SHM_TRIAL_BURSTS)
			end_trial(trials, gained);
	}
}

/* Adds a call's times to the current group. True if the group is complete; *mean is then its mean time, at the end
 * where it was longer. */
static bool ends_group(struct shm_trials *trials, uint32_t own_time, uint32_t peer_time, uint32_t *mean)
{
	trials->own_time += own_time;
	trials->peer_time += peer_time;
	if (++trials->calls % trials->group_calls)
		return false;
	const uint64_t longer = trials->own_time > trials->peer_time ? trials->own_time : trials->peer_time;
	*mean = (uint32_t)(longer / trials->group_calls);
	begin_group(trials);
	return true;
}

static uint8_t group_calls_of(uint64_t bytes)
{
	return bytes < SHM_TRIAL_LARGE_BYTES ? SHM_TRIAL_GROUP_CALLS :
		bytes < SHM_TRIAL_HUGE_BYTES ? SHM_TRIAL_GROUP_CALLS / 2 : 1;
}

/* True if the ring is still too new to show the time of calls of this size. Huge calls touch all of it at once. */
static bool is_warming(const struct shm_trials *trials, uint64_t bytes)
{
	const uint32_t group_calls = group_calls_of(bytes);
	return !trials->is_trained && group_calls > 1 &&
		trials->observed_calls <= SHM_TRIAL_WARMUP_BURSTS * group_calls * (SHM_TRIAL_GROUPS + 1);
}

static void add_to_burst(struct shm_trials *trials, uint32_t own_time, uint32_t peer_time, uint64_t bytes)
{
	if (!trials->calls) {
		trials->group_calls = group_calls_of(bytes);
		trials->min_time = UINT32_MAX;
		/* A burst of huge calls is nearly over when its cost is known. */
		trials->is_costly = is_trying_other(trials) && trials->group_calls > 1;
	}
	trials->trial_calls += is_trying_other(trials) && !trials->is_abandoned;
	trials->is_costly =
		trials->is_costly &&
		is_cheaper(trials->chosen_cost, own_time > peer_time ? own_time : peer_time, CLEAR_GAIN_PERCENT);
	uint32_t mean;
	if (!ends_group(trials, own_time, peer_time, &mean))
		return;
	if (trials->calls > warmup_calls(trials) && mean < trials->min_time)
		trials->min_time = mean;
	if (trials->is_costly && trials->calls == warmup_calls(trials) + trials->group_calls) {
		trials->other_cost = mean;
		trials->is_abandoned = true;
	} else if (trials->calls == burst_calls(trials)) {
		if (trials->is_abandoned)
			end_trial(trials, false);
		else
			end_burst(trials);
	}
}

static void begin_trial(struct shm_trials *trials)
{
	trials->burst = 0;
	trials->calls = 0;
	trials->trial_calls = 0;
	begin_group(trials);
}

/* True if the latest calls between trials differ clearly from the cost of the chosen protocol. */
static bool has_changed(struct shm_trials *trials, uint32_t own_time, uint32_t peer_time)
{
	uint32_t mean;
	if (!ends_group(trials, own_time, peer_time, &mean))
		return false;
	trials->min_time = mean < trials->min_time ? mean : trials->min_time;
	if (trials->calls % (trials->group_calls * (uint32_t)SHM_TRIAL_GROUPS))
		return false;
	const uint32_t least = trials->min_time;
	trials->min_time = UINT32_MAX;
	return is_cheaper(least, trials->chosen_cost, CHANGE_PERCENT) ||
	       is_cheaper(trials->chosen_cost, least, CHANGE_PERCENT);
}

void collet_shm_trials_add(
	struct shm_trials *trials, bool by_cma, uint32_t own_time, uint32_t peer_time, uint64_t bytes)
{
	if (by_cma != collet_shm_trials_next_is_cma(trials))
		return;
	trials->observed_calls++;
	if (is_warming(trials, bytes))
		return;
	if (trials->burst < SHM_TRIAL_BURSTS) {
		add_to_burst(trials, own_time, peer_time, bytes);
		return;
	}
	trials->has_changed |= has_changed(trials, own_time, peer_time);
	const bool is_due =
		trials->calls >= trials->interval || (trials->has_changed && trials->calls >= trials->interval / 4);
	if (is_due && trials->observed_calls % (trials->group_calls * (uint32_t)SHM_TRIAL_STEP_GROUPS) == 0)
		begin_trial(trials);
}
