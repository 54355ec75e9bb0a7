/* Choosing by what calls take; shm_trials.h says how. */
#include "transport/shm/shm_trials.h"

/* By so many parts of a hundred the other way must be better; is one way much better than the other; is a time so far
 * from what it was that something has changed. */
enum { GAIN = 5, MUCH = 25, FAR = 33 };

static bool gains(uint32_t other, uint32_t taken, unsigned parts)
{
	return (uint64_t)other * 100 <= (uint64_t)taken * (100 - parts);
}

/* Calls of which each lasts, and the first ones of which have touched all pages there are. */
static bool is_clear_at_once(const struct shm_way *way)
{
	return way->group_calls == 1 && (gains(way->other, way->taken, MUCH) || gains(way->taken, way->other, MUCH));
}

/* A burst's first calls, which do not count: what the other way has left in the caches they pay for, and what the other
 * end tells may be of the call before. */
static uint32_t settling_calls(const struct shm_way *way)
{
	return way->group_calls == 1 ? SHM_WAY_HUGE_SETTLING : way->group_calls;
}

static uint32_t burst_calls(const struct shm_way *way)
{
	return settling_calls(way) + way->group_calls * (uint32_t)SHM_WAY_GROUPS;
}

static bool is_of_other(const struct shm_way *way)
{
	return way->burst % 2 == 1;
}

/* Until the calls of the trial that went the worse way are less than a hundredth. */
static uint32_t far_enough(const struct shm_way *way, uint32_t before)
{
	const uint64_t better = way->other < way->taken ? way->other : way->taken;
	const uint64_t lost = (uint64_t)way->other + way->taken - 2 * better;
	const uint64_t least = 100 * lost * way->tried / (better ? better : 1);
	const uint64_t rest = least > 2 * (uint64_t)before ? least : 2 * (uint64_t)before;
	return rest < SHM_WAY_REST_LEAST ? SHM_WAY_REST_LEAST :
		rest > SHM_WAY_REST_MOST ? SHM_WAY_REST_MOST : (uint32_t)rest;
}

static void begin_group(struct shm_way *way)
{
	way->mine = way->theirs = 0;
}

static void end_trial(struct shm_way *way, bool change)
{
	way->rest = change && way->learnt ? SHM_WAY_REST_LEAST : far_enough(way, way->rest);
	if (change) {
		const uint32_t price = way->taken;
		way->taken = way->other;
		way->other = price;
		way->reads = !way->reads;
	}
	way->learnt = true;
	way->given_up = way->changed = false;
	way->burst = SHM_WAY_BURSTS;
	way->calls = 0;
	way->least = UINT32_MAX;
}

static void end_burst(struct shm_way *way)
{
	const bool of_other = is_of_other(way);
	uint32_t *const price = of_other ? &way->other : &way->taken;
	/* Pages may still be new: so at first each way has its better burst. */
	const bool keeps = !way->learnt && way->burst >= 2 && *price < way->least;
	*price = keeps ? *price : way->least;
	way->burst++;
	way->calls = 0;
	const bool clear = !way->learnt && of_other && is_clear_at_once(way);
	if (of_other && (way->burst == SHM_WAY_BURSTS || way->learnt || clear)) {
		const bool gained = gains(way->other, way->taken, GAIN);
		if (!gained || clear || way->burst == SHM_WAY_BURSTS)
			end_trial(way, gained);
	}
}

/* A call's times are added to its group. True: that was the last, and this the group's mean at the end where it was
 * longer. */
static bool ends_group(struct shm_way *way, uint32_t mine, uint32_t theirs, uint32_t *mean)
{
	way->mine += mine;
	way->theirs += theirs;
	if (++way->calls % way->group_calls)
		return false;
	const uint64_t longer = way->mine > way->theirs ? way->mine : way->theirs;
	*mean = (uint32_t)(longer / way->group_calls);
	begin_group(way);
	return true;
}

static uint8_t group_calls_of(uint64_t bytes)
{
	return bytes < SHM_WAY_LARGE_BYTES ? SHM_WAY_GROUP_CALLS :
		bytes < SHM_WAY_HUGE_BYTES ? SHM_WAY_GROUP_CALLS / 2 : 1;
}

/* Is the ring too new for calls of so many bytes to show what it takes? Huge ones touch all of it at once. */
static bool is_warming(const struct shm_way *way, uint64_t bytes)
{
	const uint32_t group_calls = group_calls_of(bytes);
	return !way->learnt && group_calls > 1 &&
		way->age <= SHM_WAY_WARM_BURSTS * group_calls * (SHM_WAY_GROUPS + 1);
}

static void add(struct shm_way *way, uint32_t mine, uint32_t theirs, uint64_t bytes)
{
	if (!way->calls) {
		way->group_calls = group_calls_of(bytes);
		way->least = UINT32_MAX;
		/* A burst of huge ones is nearly over when that is known. */
		way->dear = is_of_other(way) && way->group_calls > 1;
	}
	way->tried += is_of_other(way) && !way->given_up;
	way->dear = way->dear && gains(way->taken, mine > theirs ? mine : theirs, MUCH);
	uint32_t mean;
	if (!ends_group(way, mine, theirs, &mean))
		return;
	if (way->calls > settling_calls(way) && mean < way->least)
		way->least = mean;
	if (way->dear && way->calls == settling_calls(way) + way->group_calls) {
		way->other = mean;
		way->given_up = true;
	} else if (way->calls == burst_calls(way)) {
		if (way->given_up)
			end_trial(way, false);
		else
			end_burst(way);
	}
}

static void begin_trial(struct shm_way *way)
{
	way->burst = 0;
	way->calls = 0;
	way->tried = 0;
	begin_group(way);
}

/* Do the last calls of the rest say that something is not as it was? */
static bool has_changed(struct shm_way *way, uint32_t mine, uint32_t theirs)
{
	uint32_t mean;
	if (!ends_group(way, mine, theirs, &mean))
		return false;
	way->least = mean < way->least ? mean : way->least;
	if (way->calls % (way->group_calls * (uint32_t)SHM_WAY_GROUPS))
		return false;
	const uint32_t least = way->least;
	way->least = UINT32_MAX;
	return gains(least, way->taken, FAR) || gains(way->taken, least, FAR);
}

void collet_shm_way_went(struct shm_way *way, bool read, uint32_t mine, uint32_t theirs, uint64_t bytes)
{
	if (read != collet_shm_way_reads(way))
		return;
	way->age++;
	if (is_warming(way, bytes))
		return;
	if (way->burst < SHM_WAY_BURSTS) {
		add(way, mine, theirs, bytes);
		return;
	}
	way->changed |= has_changed(way, mine, theirs);
	const bool due = way->calls >= way->rest || (way->changed && way->calls >= way->rest / 4);
	if (due && way->age % (way->group_calls * (uint32_t)SHM_WAY_STEP_GROUPS) == 0)
		begin_trial(way);
}
