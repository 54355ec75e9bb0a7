/* Which limits follow from times on either side. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "tune/tune_limits.h"

enum { SIZES = 5 };

/* Times of one call at all sizes, from `least` on: at once they take so many times as long as otherwise. */
static size_t add(struct tune_limit_point *points, size_t count, const char *call, const double ratio[SIZES])
{
	uint64_t bytes = TUNE_LIMIT_LEAST;
	for (size_t i = 0; i < SIZES; i++, bytes *= 2) {
		struct tune_limit_point *p = &points[count++];
		*p = (struct tune_limit_point){ .bytes = bytes, .otherwise_ns = 1000, .once_ns = 1000 * ratio[i],
			.runs = 1 };
		snprintf(p->call, sizeof(p->call), "%s", call);
	}
	return count;
}

static void the_limit_lies_where_times_cross(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		double ratio[SIZES];   /* at 16, 32, 64, 128 and 256 KiB */
		uint32_t limit;
	} rows[] = {
		{ "at once is always better", { 0.8, 0.8, 0.8, 0.8, 0.8 }, 256 << 10 },
		{ "never", { 1.2, 1.2, 1.2, 1.2, 1.2 }, 8 << 10 },
		{ "up to 128 KiB", { 0.7, 0.8, 0.9, 0.9, 1.1 }, 128 << 10 },
		{ "up to 16 KiB", { 0.9, 1.1, 1.1, 1.2, 1.1 }, 16 << 10 },
		{ "one is worse amid better ones", { 0.7, 0.7, 0.7, 1.05, 0.7 }, 256 << 10 },
		{ "level: the usual one", { 1.01, 0.99, 1.01, 0.98, 0.99 }, 64 << 10 },
		{ "a gain too small to be one", { 0.98, 0.98, 0.98, 0.97, 0.97 }, 64 << 10 },
		{ "disturbed at one size", { 0.9, 0.9, 0.9, 20, 0.6 }, 64 << 10 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tune_limit_point points[TUNE_LIMIT_POINTS];
		const size_t count = add(points, 0, "sendrecv", rows[i].ratio);
		const uint32_t limit = tune_limit_choose(points, count, TUNE_EAGER);
		if (limit != rows[i].limit)
			fail_msg("%s: %u", rows[i].name, limit);
		assert_int_equal(tune_limit_choose(points, count, TUNE_INLINE), 0);
	}
}

/* Of many calls what they take together counts; messages have a limit of their own. */
static void calls_count_together(void **state)
{
	(void)state;
	static const double good[SIZES] = { 0.9, 0.9, 0.9, 0.8, 0.8 }, bad[SIZES] = { 1, 1, 1, 1.1, 1.6 },
			    worst[SIZES] = { 2, 2, 2, 2, 2 };
	struct tune_limit_point points[TUNE_LIMIT_POINTS];
	size_t count = add(points, 0, "allreduce", good);
	count = add(points, count, "sendrecv", worst);
	count = add(points, count, "reduce", bad);
	assert_int_equal(tune_limit_choose(points, count, TUNE_INLINE), 128 << 10);
	assert_int_equal(tune_limit_choose(points, count, TUNE_EAGER), 8 << 10);
	assert_true(fabs(tune_limit_between(points, count, TUNE_INLINE, 64 << 10, 128 << 10) - sqrt(0.88)) < 1e-9);
	assert_true(fabs(tune_limit_between(points, count, TUNE_INLINE, 128 << 10, 64 << 10) - 1 / sqrt(0.88)) < 1e-9);
	assert_true(tune_limit_between(points, count, TUNE_INLINE, 64 << 10, 64 << 10) == 1);
	assert_true(tune_limit_between(points, 0, TUNE_INLINE, 8 << 10, 64 << 10) == 1);
}

static void runs_are_averaged(void **state)
{
	(void)state;
	struct tune_limit_point points[2], more;
	assert_true(tune_limit_read("limit reduce 65536 100.00 400.00\n", &more));
	assert_int_equal(tune_limit_merge(points, 0, 2, &more), 1);
	assert_true(tune_limit_read("limit reduce 65536 400.00 100.00\n", &more));
	assert_int_equal(tune_limit_merge(points, 1, 2, &more), 1);
	assert_true(fabs(points[0].once_ns - 200) < 1e-9 && fabs(points[0].otherwise_ns - 200) < 1e-9);
	assert_true(tune_limit_read("limit reduce 65536 1600 1600", &more));
	assert_int_equal(tune_limit_merge(points, 1, 2, &more), 1);
	assert_true(fabs(points[0].once_ns - 400) < 1e-9);
	assert_true(tune_limit_read("limit reduce 32768 1 1", &more));
	assert_int_equal(tune_limit_merge(points, 1, 2, &more), 2);
	assert_true(tune_limit_read("limit scatter 32768 1 1", &more));
	assert_int_equal(tune_limit_merge(points, 2, 2, &more), 2);
}

static void other_lines_are_no_points(void **state)
{
	(void)state;
	static const char *const rows[] = { "", "cores 2", "limit reduce 65536 1", "limit reduce 0 1 1",
		"limit reduce 65536 0 1", "limit reduce 65536 1 -1", "limit reduce 65536 nan 1",
		"point reduce tree 0 8 1 1 1.0 1.0 0" };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tune_limit_point point = { .runs = 77 };
		if (tune_limit_read(rows[i], &point) || point.runs != 77)
			fail_msg("'%s' was taken for a point", rows[i]);
	}
}

/* What is measured is what a tuning can say. */
static void limits_can_be_written(void **state)
{
	(void)state;
	assert_true(TUNE_LIMIT_MOST <= (int)COLLET_EAGER_BYTES_MAX);
	assert_true(TUNE_LIMIT_MOST <= (int)COLLET_FAST_PATH_BYTES_MAX);
	assert_true(TUNE_LIMIT_NONE >= 1024 && TUNE_LIMIT_NONE < TUNE_LIMIT_LEAST / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_limit_lies_where_times_cross),
		cmocka_unit_test(calls_count_together),
		cmocka_unit_test(runs_are_averaged),
		cmocka_unit_test(other_lines_are_no_points),
		cmocka_unit_test(limits_can_be_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
