/* Tests the order of ranks that bindings on described machines give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topology/host_topology.h"
#include "topology/order.h"

enum { MOST = 16, ALL = -1 };

/* A rank of a row: its host, and the hardware threads that it is bound to. ALL: not bound. */
struct bound {
	int host, first, last;
};

#define ON(thread) { 0, thread, thread }
#define FREE { 0, ALL, ALL }

static const struct row {
	const char *name, *machine;
	uint32_t size;
	struct bound ranks[MOST];
	const char *near, *by_host;   /* hosts' descriptions */
} rows[] = {
#define SOCKETS "pack:2 numa:2 l3:1 core:4 pu:1"
	{"one rank", SOCKETS, 1, {ON(3)}, "0", "0"},
	{"numbered along the machine", SOCKETS, 4, {ON(0), ON(4), ON(8), ON(12)}, "0 | 1 || 2 | 3", "0 | 1 || 2 | 3"},
	{"dealt to sockets in turn", SOCKETS, 8, {ON(0), ON(8), ON(1), ON(9), ON(4), ON(12), ON(5), ON(13)},
		"0 2 | 4 6 || 1 3 | 5 7", "0 || 1 || 2 || 3 || 4 || 5 || 6 || 7"},
	{"backwards", SOCKETS, 4, {ON(15), ON(11), ON(7), ON(3)}, "0 | 1 || 2 | 3", "0 | 1 || 2 | 3"},
	{"scattered: groups come as their lowest ranks do", SOCKETS, 6, {ON(9), ON(2), ON(13), ON(6), ON(8), ON(1)},
		"0 4 | 2 || 1 5 | 3", "0 || 1 || 2 || 3 || 4 || 5"},
	{"nobody bound", SOCKETS, 5, {FREE, FREE, FREE, FREE, FREE}, "0-4", "0-4"},
	{"bound to sockets", SOCKETS, 4, {{0, 0, 7}, {0, 8, 15}, {0, 0, 7}, {0, 8, 15}}, "0 2 || 1 3",
		"0 || 1 || 2 || 3"},
	{"some bound, some not", SOCKETS, 4, {ON(8), FREE, ON(9), ON(0)}, "0 2 || 1 || 3", "0 || 1 || 2 || 3"},
	{"two on one core stand together", SOCKETS, 4, {ON(0), ON(1), ON(2), ON(0)}, "0 3 1-2", "0-3"},
#define CACHES "pack:1 numa:1 l3:4 core:4 pu:1"
	{"an L3 for four cores", CACHES, 8, {ON(0), ON(4), ON(8), ON(12), ON(1), ON(5), ON(9), ON(13)},
		"0 4 / 1 5 / 2 6 / 3 7", "0 / 1 / 2 / 3 / 4 / 5 / 6 / 7"},
#define THREADS "pack:1 numa:1 l3:1 core:4 pu:2"
	{"threads of a core", THREADS, 4, {ON(0), ON(2), ON(1), ON(3)}, "0 2 1 3", "0-3"},
#define WIDE "pack:1 l3:2 numa:2 core:2 pu:1"
	{"caches of several nodes", WIDE, 4, {ON(0), ON(4), ON(2), ON(6)}, "0 / 2 | 1 / 3", "0 | 1 | 2 | 3"},
	{"hosts in turn", SOCKETS, 6, {{0, 0, 0}, {1, 0, 0}, {0, 8, 8}, {1, 8, 8}, {0, 1, 1}, {1, 1, 1}},
		"0 4 || 2; 1 5 || 3", "0 || 2 || 4; 1 || 3 || 5"},
	{"ragged hosts", SOCKETS, 6,
		{{1, ALL, ALL}, {1, ALL, ALL}, {0, ALL, ALL}, {1, ALL, ALL}, {2, ALL, ALL}, {2, ALL, ALL}},
		"0-1 3; 2; 4-5", "0-1 3; 2; 4-5"},
};

static void locate(const struct row *row, struct collet_rank_locality *locations)
{
	struct collet_host_topology machine;
	if (collet_host_topology_read(&machine, row->machine) != COLLET_OK)
		fail_msg("%s: %s", row->name, collet_last_error());
	for (uint32_t r = 0; r < row->size; r++) {
		const struct bound *b = &row->ranks[r];
		uint8_t mask[COLLET_BINDING_BYTES] = { 0 };
		for (uint32_t i = 0; i < machine.cpu_count; i++)
			if (b->first == ALL || ((int)i >= b->first && (int)i <= b->last))
				mask[i / 8] |= (uint8_t)(1 << i % 8);
		locations[r].host = (uint64_t)b->host * 0x9e3779b97f4a7c15;  /* a hash, so hosts have no order */
		locations[r].locality = collet_host_topology_locality(&machine, mask, sizeof(mask));
	}
	collet_host_topology_deinit(&machine);
}

static void check(const struct row *row, const struct collet_rank_locality *locations, enum collet_ordering nearness,
	const char *wanted)
{
	uint32_t order[MOST], host_first[MOST + 1], hosts;
	bool seen[MOST] = { false };
	char text[512] = "", one[256];
	assert_int_equal(collet_order_find(locations, row->size, nearness, order, host_first, &hosts), COLLET_OK);
	assert_in_range(hosts, 1, row->size);
	assert_int_equal(host_first[0], 0);
	assert_int_equal(host_first[hosts], row->size);
	for (uint32_t h = 0; h < hosts; h++) {
		for (uint32_t p = host_first[h]; p < host_first[h + 1]; p++) {
			assert_false(seen[order[p]]);
			seen[order[p]] = true;
			assert_true(locations[order[p]].host == locations[order[host_first[h]]].host);
		}
		collet_order_describe(locations, order, host_first[h], host_first[h + 1], one, sizeof(one));
		strcat(text, h ? "; " : "");
		strcat(text, one);
	}
	if (strcmp(text, wanted) != 0)
		fail_msg("%s: %s, but %s was expected", row->name, text, wanted);
}

static void orders(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_rank_locality locations[MOST];
		locate(&rows[i], locations);
		check(&rows[i], locations, COLLET_ORDER_BY_LOCALITY, rows[i].near);
		check(&rows[i], locations, COLLET_ORDER_BY_HOST, rows[i].by_host);
	}
}

/* Along the order, a rank's group of a level does not appear again after another group of that level. */
static void each_boundary_is_crossed_once(void **state)
{
	enum { SIZE = 96 };
	static struct collet_rank_locality locations[SIZE];
	uint32_t order[SIZE], host_first[SIZE + 1], hosts;
	uint64_t seed = 20240229;
	struct collet_host_topology machine;
	assert_int_equal(collet_host_topology_read(&machine, "pack:2 numa:2 l3:2 core:2 pu:2"), COLLET_OK);
	for (uint32_t round = 0; round < 200; round++) {
		for (uint32_t r = 0; r < SIZE; r++) {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			uint8_t mask[COLLET_BINDING_BYTES] = { 0 };
			const uint32_t cpu = (uint32_t)(seed >> 40) % machine.cpu_count;
			mask[cpu / 8] = (uint8_t)(1 << cpu % 8);
			locations[r].host = seed >> 62;
			locations[r].locality = collet_host_topology_locality(&machine, mask, sizeof(mask));
		}
		assert_int_equal(
			collet_order_find(locations, SIZE, COLLET_ORDER_BY_LOCALITY, order, host_first, &hosts),
			COLLET_OK);
		for (uint32_t h = 0; h < hosts; h++) {
			for (int level = 0; level < COLLET_LEVEL_COUNT; level++) {
				bool left[64] = { false };
				for (uint32_t p = host_first[h] + 1; p < host_first[h + 1]; p++) {
					const uint16_t before = locations[order[p - 1]].locality.ids[level];
					const uint16_t now = locations[order[p]].locality.ids[level];
					if (before != now)
						left[before] = true;
					assert_false(left[now]);
				}
			}
		}
	}
	collet_host_topology_deinit(&machine);
}

static void long_orders_are_cut_short(void **state)
{
	struct collet_rank_locality locations[64];
	uint32_t order[64];
	char text[32];
	for (uint32_t i = 0; i < 64; i++) {
		locations[i] = (struct collet_rank_locality){ .locality = collet_locality_any() };
		order[i] = i * 29 % 64;
	}
	collet_order_describe(locations, order, 0, 64, text, sizeof(text));
	assert_string_equal(text, "0 29 58 23 52 17 46 11 40 5 ...");
	collet_order_describe(locations, order, 0, 64, text, 3);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders),
		cmocka_unit_test(each_boundary_is_crossed_once),
		cmocka_unit_test(long_orders_are_cut_short),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
