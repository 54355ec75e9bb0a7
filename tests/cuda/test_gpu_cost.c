/* The segment size for a buffer that is copied during its call: close to the best one, by the cost model itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/gpu_cost.h"

static const struct collet_gpu_link links[] = {
	{ .latency_s = 10e-6, .message_s = 2e-6, .copy_byte_s = 1 / 25e9 },
	{ .latency_s = 4e-6, .message_s = 0.5e-6, .copy_byte_s = 1 / 55e9 },
	{ .latency_s = 20e-6, .message_s = 9e-6, .copy_byte_s = 1 / 6e9 },
};
enum { LINKS = sizeof(links) / sizeof(links[0]), UNIT = 64 << 10 };

/* The time that copies add to a call: the first and the last segment, and the start of each. */
static double added(const struct collet_gpu_link *link, double bytes, double segment)
{
	segment = fmin(segment, bytes);
	return ceil(bytes / segment) * link->message_s + 2 * segment * link->copy_byte_s;
}

static void no_other_cut_is_much_better(void **state)
{
	for (size_t l = 0; l < LINKS; l++) {
		for (size_t bytes = 256 << 10; bytes <= (size_t)1 << 30; bytes = bytes * 5 / 3) {
			const size_t segment = collet_gpu_cell_bytes(&links[l], bytes);
			double least = INFINITY;
			for (size_t other = UNIT; other < bytes; other += UNIT)
				least = fmin(least, added(&links[l], (double)bytes, (double)other));
			assert_int_equal(segment % UNIT, 0);
			if (added(&links[l], (double)bytes, (double)segment) > 1.2 * least)
				fail_msg("link %zu: %zu bytes in segments of %zu add %g us, not %g", l, bytes, segment,
					added(&links[l], (double)bytes, (double)segment) * 1e6, least * 1e6);
		}
	}
}

static void segments_begin_where_they_halve_what_copies_add(void **state)
{
	for (size_t l = 0; l < LINKS; l++) {
		const size_t least = collet_gpu_pipelined_min(&links[l]);
		const double whole = 2 * (double)least * links[l].copy_byte_s;
		const double segment = (double)collet_gpu_cell_bytes(&links[l], least);
		/* Rounded to units, so not exactly. */
		assert_true(added(&links[l], (double)least, segment) < 0.65 * whole);
	}
}

/* A tuning may have measured no cost of a further copy. */
static void a_copy_that_costs_nothing_is_no_trouble(void **state)
{
	const struct collet_gpu_link link = { .latency_s = 1e-6, .copy_byte_s = 1e-10 };
	assert_int_equal(collet_gpu_cell_bytes(&link, 1 << 20), UNIT);
	assert_int_equal(collet_gpu_pipelined_min(&link), 2 * UNIT);
}

/* As many channels as saturate the link, each with what takes as long as an empty message. Invalid values are
 * bounded. */
static void channel_limits_follow_the_link(void **state)
{
	static const struct {
		const char *name;
		collet_link_cost link;
		struct collet_channel_limits limits;
	} rows[] = {
		{ "NVLink 3, as reasoned",
			{ .latency_ns = 1500, .overhead_ns = 300, .byte_ns = { 0.1, 0.05, 1 / 60., 0.005 } },
			{ 10, 36000 } },
		{ "PCIe: two fill it",
			{ .latency_ns = 3000, .overhead_ns = 1000, .byte_ns = { 0.1, 0.08, 0.05, 0.04 } },
			{ 2, 50000 } },
		{ "one fills it", { .latency_ns = 1000, .byte_ns = { 0.1, 0.05, 0.05, 0.05 } }, { 1, 20000 } },
		{ "nothing is known", { .latency_ns = 1000 }, { 32, 16 << 20 } },
		{ "no latency", { .byte_ns = { 1, 1, 1, 0.001 } }, { 32, 4096 } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct collet_channel_limits limits = collet_gpu_channel_limits(&rows[i].link);
		if (limits.max_per_part != rows[i].limits.max_per_part ||
			limits.bytes_per_channel != rows[i].limits.bytes_per_channel)
			fail_msg("%s: %u channels of %u bytes", rows[i].name, limits.max_per_part,
				limits.bytes_per_channel);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(channel_limits_follow_the_link),
		cmocka_unit_test(no_other_cut_is_much_better),
		cmocka_unit_test(segments_begin_where_they_halve_what_copies_add),
		cmocka_unit_test(a_copy_that_costs_nothing_is_no_trouble),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
