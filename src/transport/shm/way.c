/* Choosing by what calls take; way.h says how. */
#include "transport/shm/way.h"

/* By so many parts of a hundred the other way must be better; and is it much better. */
enum { GAIN = 5, MUCH = 25 };

static bool gains(uint32_t other, uint32_t taken, unsigned parts)
{
	return (uint64_t)other * 100 <= (uint64_t)taken * (100 - parts);
}

/* Calls of which each lasts, and the first one of which has touched all pages there are. */
static bool is_clear_at_once(const struct shm_way *way)
{
	return way->group_calls == 1 && (gains(way->other, way->taken, MUCH) || gains(way->taken, way->other, MUCH));
}

static uint32_t burst_calls(const struct shm_way *way)
{
	return way->group_calls * (SHM_WAY_GROUPS + 1u);
}

/* Until the calls of the trial that went the worse way are less than a hundredth. */
static uint32_t far_enough(const struct shm_way *way, uint32_t before)
{
	const uint64_t better = way->other < way->taken ? way->other : way->taken;
	const uint64_t lost = (uint64_t)way->other + way->taken - 2 * better;
	const uint64_t least = 100 * lost * burst_calls(way) / (better ? better : 1);
	const uint64_t rest = least > 2 * (uint64_t)before ? least : 2 * (uint64_t)before;
	return rest < SHM_WAY_REST_LEAST ? SHM_WAY_REST_LEAST :
		rest > SHM_WAY_REST_MOST ? SHM_WAY_REST_MOST : (uint32_t)rest;
}

static void end_trial(struct shm_way *way, bool change)
{
	way->rest = change && way->learnt ? SHM_WAY_REST_LEAST : far_enough(way, way->rest);
	way->reads ^= change;
	way->learnt = true;
	way->burst = SHM_WAY_BURSTS;
}

static void end_burst(struct shm_way *way)
{
	const bool of_other = way->burst % 2 == 1;
	uint32_t *const price = of_other ? &way->other : &way->taken;
	/* The first calls of all have pages to touch: there each way has its better burst. */
	const bool keeps = !way->learnt && way->burst >= 2 && *price < way->least;
	*price = keeps ? *price : way->least;
	way->burst++;
	const bool clear = !way->learnt && of_other && is_clear_at_once(way);
	if (of_other && (way->burst == SHM_WAY_BURSTS || way->learnt || clear)) {
		const bool gained = gains(way->other, way->taken, GAIN);
		if (!gained || clear || way->burst == SHM_WAY_BURSTS)
			end_trial(way, gained);
	}
	way->calls = 0;
}

static void begin_group(struct shm_way *way)
{
	way->mine = way->theirs = 0;
}

static void add(struct shm_way *way, uint32_t mine, uint32_t theirs, uint64_t bytes)
{
	if (!way->calls) {
		way->group_calls = bytes < SHM_WAY_LARGE_BYTES ? SHM_WAY_GROUP_CALLS :
			bytes < SHM_WAY_HUGE_BYTES             ? SHM_WAY_GROUP_CALLS / 2 : 1;
		way->least = UINT32_MAX;
		begin_group(way);
	}
	way->mine += mine;
	way->theirs += theirs;
	if (++way->calls % way->group_calls)
		return;
	const uint64_t longer = way->mine > way->theirs ? way->mine : way->theirs;
	const uint32_t mean = (uint32_t)(longer / way->group_calls);
	if (way->calls > way->group_calls && mean < way->least)
		way->least = mean;
	begin_group(way);
	if (way->calls == burst_calls(way))
		end_burst(way);
}

static void begin_trial(struct shm_way *way)
{
	way->burst = 0;
	way->calls = 0;
}

void collet_shm_way_went(struct shm_way *way, bool read, uint32_t mine, uint32_t theirs, uint64_t bytes)
{
	if (read != collet_shm_way_reads(way))
		return;
	if (way->burst < SHM_WAY_BURSTS)
		add(way, mine, theirs, bytes);
	else if (++way->calls >= way->rest)
		begin_trial(way);
}
