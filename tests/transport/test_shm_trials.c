/* Tests the protocol trials of shm with made-up times: no clock, no copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "transport/shm/shm_trials.h"

enum { SMALL = 128 << 10, LARGE = 1 << 20, HUGE = 64 << 20,
	TRIAL = SHM_TRIAL_BURSTS * SHM_TRIAL_GROUP_CALLS * (SHM_TRIAL_GROUPS + 1),
	FIRST_TRIAL = TRIAL + SHM_TRIAL_WARMUP_BURSTS * SHM_TRIAL_GROUP_CALLS * (SHM_TRIAL_GROUPS + 1) };

/* The times of calls by protocol. The first call after a change of the protocol, or the first two huge ones, takes
 * `wake` more. */
struct costs {
	uint32_t ring, cma, wake;
	uint32_t ahead;  /* how much less a call through the ring takes at this end, which is ahead of the other */
};

struct world {
	struct shm_trials trials;
	unsigned calls, read, changes;
	bool was_cma;
	unsigned since;  /* calls since the last change of the protocol */
	uint32_t noise; /* added to each fifth call */
	uint64_t bytes;
};

static void call(struct world *world, struct costs costs)
{
	const bool is_cma = collet_shm_trials_next_is_cma(&world->trials);
	uint32_t cost = is_cma ? costs.cma : costs.ring;
	world->since = is_cma != world->was_cma ? 0 : world->since + 1;
	if (world->since < (world->bytes >= SHM_TRIAL_HUGE_BYTES ? SHM_TRIAL_HUGE_WARMUP : 1))
		cost += costs.wake;
	if (world->calls % 5 == 0)
		cost += world->noise;
	world->changes += is_cma != world->was_cma;
	world->was_cma = is_cma;
	world->read += is_cma;
	world->calls++;
	collet_shm_trials_add(&world->trials, is_cma, is_cma ? cost : cost - costs.ahead, cost,
		world->bytes ? world->bytes : SMALL);
}

static void calls(struct world *world, struct costs costs, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		call(world, costs);
}

/* Bounds the cost too: ten thousand calls after the first trial take less than a hundredth more than with the better
 * protocol only. */
static void the_better_protocol_is_chosen(void **state)
{
	static const struct {
		const char *what;
		struct costs costs;
		uint32_t noise;
		uint64_t bytes;
		bool is_cma;
	} rows[] = {
		{ "reads take half", { 1000, 500, 0, 0 }, 0, SMALL, true },
		{ "reads take half, of large calls", { 1000, 500, 0, 0 }, 0, LARGE, true },
		{ "reads take half, of huge calls", { 1000, 500, 0, 0 }, 0, HUGE, true },
		{ "likewise, after expensive changes", { 1000, 500, 2000, 0 }, 0, HUGE, true },
		{ "reads take a quarter", { 4000, 1000, 0, 0 }, 0, SMALL, true },
		{ "reads take three times as long", { 1000, 3000, 0, 0 }, 0, SMALL, false },
		{ "level", { 1000, 1000, 0, 0 }, 0, SMALL, false },
		{ "reads gain too little", { 1000, 970, 0, 0 }, 0, SMALL, false },
		{ "reads gain enough", { 1000, 940, 0, 0 }, 0, SMALL, true },
		{ "and each first one after a change is expensive", { 1000, 900, 5000, 0 }, 0, SMALL, true },
		{ "likewise, of large calls", { 1000, 900, 5000, 0 }, 0, LARGE, true },
		{ "a sender through the ring is ahead of its receiver", { 1000, 900, 0, 700 }, 0, SMALL, true },
		{ "some are disturbed", { 1000, 800, 0, 0 }, 90000, SMALL, true },
		{ "some are disturbed, and reads are worse", { 1000, 1200, 0, 0 }, 90000, SMALL, false },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { .noise = rows[row].noise, .bytes = rows[row].bytes };
		calls(&world, rows[row].costs, FIRST_TRIAL);
		if (world.trials.is_cma_chosen != rows[row].is_cma || !world.trials.is_trained)
			fail_msg("%s: otherwise after %u calls", rows[row].what, world.calls);
		world.calls = world.read = world.changes = 0;
		calls(&world, rows[row].costs, 10000);
		if (world.trials.is_cma_chosen != rows[row].is_cma)
			fail_msg("%s: it has changed", rows[row].what);
		const unsigned worse = rows[row].is_cma ? world.calls - world.read : world.read;
		const uint32_t better = rows[row].is_cma ? rows[row].costs.cma : rows[row].costs.ring;
		const uint32_t other = rows[row].is_cma ? rows[row].costs.ring : rows[row].costs.cma;
		const uint64_t lost = other > better ? (uint64_t)worse * (other - better) : 0;
		if (lost * 100 > (uint64_t)world.calls * better)
			fail_msg("%s: %u of %u calls used the worse protocol", rows[row].what, worse, world.calls);
	}
}

static void changes_are_noticed(void **state)
{
	const struct costs apart = { 1000, 400, 0, 0 }, together = { 300, 500, 0, 0 };
	struct world world = { 0 };
	calls(&world, apart, FIRST_TRIAL);
	assert_true(world.trials.is_cma_chosen);
	calls(&world, together, 2 * SHM_TRIAL_INTERVAL_MAX);
	assert_false(world.trials.is_cma_chosen);
	calls(&world, apart, 2 * SHM_TRIAL_INTERVAL_MAX);
	assert_true(world.trials.is_cma_chosen);
}

/* A change that the times show starts a trial long before the next one is due. */
static void visible_changes_are_noticed_soon(void **state)
{
	const struct {
		const char *what;
		struct costs before, after;
		bool is_cma;
	} rows[] = {
		{ "cores move apart", { 1000, 3000, 0, 0 }, { 6000, 3000, 0, 0 }, true },
		{ "cores move together", { 6000, 3000, 0, 0 }, { 1000, 1500, 0, 0 }, false },
		{ "both faster, the other more so", { 6000, 12000, 0, 0 }, { 3000, 1000, 0, 0 }, true },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { 0 };
		calls(&world, rows[row].before, FIRST_TRIAL);
		while (world.trials.interval < SHM_TRIAL_INTERVAL_MAX)
			call(&world, rows[row].before);
		assert_int_equal(world.trials.is_cma_chosen, !rows[row].is_cma);
		calls(&world, rows[row].before, SHM_TRIAL_INTERVAL_MAX / 4);
		const unsigned soon = SHM_TRIAL_GROUP_CALLS * (2 * SHM_TRIAL_GROUPS + SHM_TRIAL_STEP_GROUPS) + TRIAL;
		calls(&world, rows[row].after, soon);
		if (world.trials.is_cma_chosen != rows[row].is_cma)
			fail_msg("%s: not noticed in %u calls", rows[row].what, soon);
	}
}

/* A burst that turns out expensive is abandoned after few calls. */
static void expensive_bursts_are_abandoned(void **state)
{
	const struct costs dear = { 1000, 10000, 0, 0 };
	struct world world = { 0 };
	calls(&world, dear, FIRST_TRIAL);
	assert_true(world.trials.is_trained && !world.trials.is_cma_chosen);
	assert_int_equal(world.read, 2 * SHM_TRIAL_GROUP_CALLS);
}

/* Pairs that see the same calls start trials at the same time, whatever each has found before. */
static void trials_begin_in_step(void **state)
{
	const struct costs rows[] = { { 1000, 10000, 0, 0 }, { 1000, 1100, 0, 0 }, { 1000, 500, 0, 0 } };
	const unsigned step = SHM_TRIAL_GROUP_CALLS * SHM_TRIAL_STEP_GROUPS;
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { 0 };
		unsigned begun = 0;
		for (unsigned i = 0; i < 100000; i++) {
			const bool rests = world.trials.burst == SHM_TRIAL_BURSTS;
			call(&world, rows[row]);
			if (!rests || world.trials.burst == SHM_TRIAL_BURSTS)
				continue;
			assert_int_equal(world.calls % step, 0);
			begun++;
		}
		assert_true(begun > 0);
	}
}

/* A first trial of huge calls takes two bursts if the difference is clear. */
static void a_clear_winner_is_chosen_early(void **state)
{
	enum { TWO_BURSTS = 2 * (SHM_TRIAL_GROUPS + SHM_TRIAL_HUGE_WARMUP) };
	const struct {
		struct costs costs;
		bool learnt;
	} rows[] = { { { 1000, 500, 0, 0 }, true }, { { 500, 1000, 0, 0 }, true }, { { 1000, 900, 0, 0 }, false } };
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { .bytes = HUGE };
		calls(&world, rows[row].costs, TWO_BURSTS - 1);
		assert_false(world.trials.is_trained);
		calls(&world, rows[row].costs, 1);
		assert_int_equal(world.trials.is_trained, rows[row].learnt);
		calls(&world, rows[row].costs, TWO_BURSTS);
		assert_true(world.trials.is_trained);
		assert_int_equal(world.trials.is_cma_chosen, rows[row].costs.cma < rows[row].costs.ring);
	}
	struct world small = { 0 };
	calls(&small, rows[0].costs, FIRST_TRIAL - 1);
	assert_false(small.trials.is_trained);
}

/* A single lucky burst does not change the choice. */
static void one_burst_decides_nothing(void **state)
{
	const struct costs truth = { 1000, 1500, 0, 0 }, luck = { 1000, 500, 0, 0 };
	struct world world = { 0 };
	calls(&world, truth, FIRST_TRIAL);
	assert_false(world.trials.is_cma_chosen);
	while (!collet_shm_trials_next_is_cma(&world.trials))
		call(&world, truth);
	while (collet_shm_trials_next_is_cma(&world.trials))
		call(&world, luck);
	calls(&world, truth, FIRST_TRIAL);
	assert_false(world.trials.is_cma_chosen);
}

/* Equal protocols and noisy times do not make the choice alternate. */
static void equal_protocols_do_not_alternate(void **state)
{
	struct world world = { 0 };
	uint32_t random = 1;
	bool before = false;
	unsigned changes = 0;
	for (unsigned i = 0; i < 100000; i++) {
		random = random * 1664525 + 1013904223;
		const uint32_t cost = 1000 + (random >> 16) % 300;
		call(&world, (struct costs){ cost, cost, 0, 0 });
		changes += world.trials.is_cma_chosen != before;
		before = world.trials.is_cma_chosen;
	}
	assert_true(changes <= 1);
}

/* A call that could not use the wanted protocol is not a sample. */
static void calls_without_choice_are_ignored(void **state)
{
	struct shm_trials trials = { 0 };
	for (unsigned i = 0; i < FIRST_TRIAL; i++)
		collet_shm_trials_add(&trials, false, 1000, 1000, SMALL);
	assert_true(collet_shm_trials_next_is_cma(&trials) && !trials.is_trained);
	for (unsigned i = 0; i < 1000; i++)
		collet_shm_trials_add(&trials, false, 1, 1, SMALL);
	assert_true(collet_shm_trials_next_is_cma(&trials) && !trials.is_trained);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_better_protocol_is_chosen),
		cmocka_unit_test(changes_are_noticed),
		cmocka_unit_test(visible_changes_are_noticed_soon),
		cmocka_unit_test(expensive_bursts_are_abandoned),
		cmocka_unit_test(trials_begin_in_step),
		cmocka_unit_test(a_clear_winner_is_chosen_early),
		cmocka_unit_test(one_burst_decides_nothing),
		cmocka_unit_test(equal_protocols_do_not_alternate),
		cmocka_unit_test(calls_without_choice_are_ignored),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
