/* Which way long messages go over shm, decided by made-up prices: no clock, no copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "transport/shm/way.h"

static const uint64_t MIB_BYTES = 1 << 20;

static void a_price_is_the_least_of_the_last_ones(void **state)
{
	static const struct {
		const char *what;
		uint32_t ns[8], count, price;
	} rows[] = {
		{ "none", { 0 }, 0, 0 },
		{ "too few", { 5, 5, 5 }, 3, 0 },
		{ "just enough", { 5, 6, 7, 8 }, 4, 5 },
		{ "three of four disturbed", { 900, 50, 70000, 800 }, 4, 50 },
		{ "the first is forgotten", { 5, 60, 70, 80, 90 }, 5, 60 },
		{ "no time at all", { 0, 0, 0, 0 }, 4, 1 },
		{ "longer than can be said", { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX }, 4, UINT32_MAX / 16 },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct shm_price price = { 0 };
		for (unsigned i = 0; i < rows[row].count; i++)
			collet_shm_price_add(&price, rows[row].ns[i], MIB_BYTES);
		if (collet_shm_price(&price) != rows[row].price)
			fail_msg("%s: %u", rows[row].what, collet_shm_price(&price));
	}
}

/* A pair whose copies take so long: the sender's into the ring, the receiver's by its kernel. */
struct costs {
	uint32_t writes, reads;
};

struct world {
	struct shm_way way;
	struct shm_price reads;
	enum shm_exchanges other;
	unsigned pulled, sent;
};

static void send(struct world *world, struct costs costs, bool mutual)
{
	const bool pulls = collet_shm_way_pulls(&world->way, mutual);
	if (pulls)
		collet_shm_price_add(&world->reads, costs.reads, MIB_BYTES);
	else
		collet_shm_price_add(&world->way.writes, costs.writes, MIB_BYTES);
	const uint32_t reads = collet_shm_price(&world->reads);
	const struct shm_told told = { .reads = reads, .writes = collet_shm_price(&world->way.writes),
		.exchanges = world->other };
	(void)collet_shm_way_went(&world->way, mutual, pulls, told, reads);
	world->pulled += pulls;
	world->sent++;
}

static void the_cheaper_way_is_taken(void **state)
{
	static const struct {
		const char *what;
		struct costs costs;
		bool mutual, pulls;
	} rows[] = {
		{ "reads take half, one way", { 100, 50 }, false, true },
		{ "reads take half, both ways", { 100, 50 }, true, true },
		{ "level, one way", { 100, 100 }, false, true },
		{ "reads take half as much again, one way", { 100, 150 }, false, false },
		{ "level, both ways", { 100, 100 }, true, true },
		{ "reads take half as much again, both ways", { 100, 150 }, true, true },
		{ "reads take nearly twice as long, both ways", { 100, 190 }, true, false },
		{ "reads take four times as long", { 100, 400 }, true, false },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { 0 };
		if (collet_shm_way_pulls(&world.way, rows[row].mutual))
			fail_msg("%s: the very first is read", rows[row].what);
		while (world.sent < 2 * SHM_WAY_SAMPLES)
			send(&world, rows[row].costs, rows[row].mutual);
		if (world.pulled != SHM_WAY_SAMPLES)
			fail_msg("%s: %u of the first were read", rows[row].what, world.pulled);
		while (world.sent < 10000)
			send(&world, rows[row].costs, rows[row].mutual);
		/* The other way is tried now and then, and ever less. */
		const unsigned other = rows[row].pulls ? world.sent - world.pulled : world.pulled;
		if (other > SHM_WAY_SAMPLES + 16)
			fail_msg("%s: %u went the other way", rows[row].what, other);
		assert_true(other > SHM_WAY_SAMPLES);
	}
}

static void what_changes_is_noticed(void **state)
{
	struct world world = { 0 };
	const struct costs apart = { 100, 40 }, together = { 30, 120 };
	for (unsigned i = 0; i < 1000; i++)
		send(&world, apart, true);
	assert_true(world.way.pulls[true]);
	for (unsigned i = 0; i < 1000 && world.way.pulls[true]; i++)
		send(&world, together, true);
	assert_false(world.way.pulls[true]);
	for (unsigned i = 0; i < 5 * SHM_WAY_TRIAL_MOST && !world.way.pulls[true]; i++)
		send(&world, apart, true);
	assert_true(world.way.pulls[true]);
}

/* Two ends that exchange go the same way, whatever each finds cheaper. */
static void one_end_decides_for_both(void **state)
{
	static const struct {
		const char *what;
		enum shm_exchanges decided;
		struct costs costs;
		bool pulls;
	} rows[] = {
		{ "reads, though the ring is cheaper here", SHM_EXCHANGES_READS, { 100, 400 }, true },
		{ "the ring, though reads are cheaper here", SHM_EXCHANGES_RING, { 100, 50 }, false },
		{ "reads, and the other end sends nothing", SHM_EXCHANGES_UNKNOWN, { 100, 50 }, true },
		{ "the ring, and the other end sends nothing", SHM_EXCHANGES_UNKNOWN, { 100, 400 }, false },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct world world = { .way = { .follows = true }, .other = rows[row].decided };
		for (unsigned i = 0; i < 100; i++)
			send(&world, rows[row].costs, true);
		if (world.way.pulls[true] != rows[row].pulls)
			fail_msg("%s", rows[row].what);
		world.other = rows[row].pulls ? SHM_EXCHANGES_RING : SHM_EXCHANGES_READS;
		send(&world, rows[row].costs, true);
		assert_int_equal(world.way.pulls[true], !rows[row].pulls);
		/* What goes one way is this end's own business. */
		assert_int_equal(world.way.pulls[false], rows[row].costs.reads < rows[row].costs.writes);
	}
}

/* The prices of both ends count: one whose reads are dear does not outweigh one whose reads cost nothing. */
static void both_ends_prices_count(void **state)
{
	struct shm_way way = { 0 };
	for (unsigned i = 0; i < SHM_WAY_SAMPLES; i++)
		collet_shm_price_add(&way.writes, 100, MIB_BYTES);
	const struct shm_told dear = { .reads = 300, .writes = 100 };
	(void)collet_shm_way_went(&way, true, true, dear, 10);
	assert_true(way.pulls[true]);
	(void)collet_shm_way_went(&way, true, true, dear, 300);
	assert_false(way.pulls[true]);
}

/* Where all that is sent has no choice, being gathered in the arena, one message is asked for to try. */
static void what_passes_leads_to_a_trial(void **state)
{
	struct world world = { 0 };
	const struct costs costs = { 100, 400 };
	assert_true(collet_shm_way_wants(&world.way, false));
	while (world.sent < 2 * SHM_WAY_SAMPLES)
		send(&world, costs, false);
	assert_false(collet_shm_way_wants(&world.way, false));
	for (unsigned i = 0; i < SHM_WAY_TRIAL_LEAST; i++)
		collet_shm_way_passed(&world.way);
	assert_true(collet_shm_way_wants(&world.way, false) && collet_shm_way_pulls(&world.way, false));
	send(&world, costs, false);
	assert_false(collet_shm_way_wants(&world.way, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_price_is_the_least_of_the_last_ones),
		cmocka_unit_test(the_cheaper_way_is_taken),
		cmocka_unit_test(what_changes_is_noticed),
		cmocka_unit_test(one_end_decides_for_both),
		cmocka_unit_test(both_ends_prices_count),
		cmocka_unit_test(what_passes_leads_to_a_trial),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
