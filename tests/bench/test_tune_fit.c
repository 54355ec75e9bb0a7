/* The fit of a tuning: from times that a known link would give, with noise, it finds the link again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tune/tune.h"
#include "tune/tune_fit.h"
#include "tune/tune_points.h"

enum { MOST = 2048, SIZES = 9 };

static const uint64_t sizes[SIZES] = { 8, 512, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20 };

static collet_link_cost link_with(uint32_t ranks, double latency, double message, double byte, double long_byte,
	double far_byte, double reduce)
{
	collet_link_cost link = { .transport = "shm",
		.ranks = ranks,
		.cores = ranks,
		.latency_ns = latency,
		.overhead_ns = message,
		.segment_ns = message / 2,
		.byte_ns = { byte, byte, long_byte, long_byte },
		.uncached_byte_ns = far_byte,
		.reduce_byte_ns = reduce,
		.cached_bytes = 2 << 20,
		.min_segment_bytes = 16384,
		.max_segment_bytes = 262144,
		.channel_ratios = { 1 },
		.size_count = SIZES };
	memcpy(link.size_bytes, sizes, sizeof(sizes));
	return link;
}

static double random_part(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (double)(*seed >> 8) / (1 << 24);
}

/* Every algorithm at every size as the link has it, up to so much off either way; of `wild` of them, many times off. */
static size_t synthesise(const collet_link_cost *link, double noise, double wild, uint32_t seed,
	struct tune_point *points)
{
	collet_algorithm_info rows[COLLET_TUNING_ALGORITHMS];
	size_t there, count = 0;
	assert_int_equal(collet_algorithm_list(NULL, rows, COLLET_TUNING_ALGORITHMS, &there), COLLET_OK);
	for (size_t c = 0, end; c < there; c = end) {
		for (end = c; end < there && strcmp(rows[end].collective, rows[c].collective) == 0;)
			end++;
		for (uint32_t s = 0; s < (strcmp(rows[c].collective, "barrier") == 0 ? 1 : SIZES); s++) {
			for (size_t a = c; a < end; a++) {
				struct tune_point *p = &points[count];
				memset(p, 0, sizeof(*p));
				strcpy(p->collective, rows[a].collective);
				strcpy(p->algorithm, rows[a].name);
				p->bytes = sizes[s];
				p->size = s;
				p->segment_bytes = (uint32_t)16384 << (seed + s) % 6;
				p->channels = 1;
				const collet_call_shape shape = { .collective = p->collective, .ranks = link->ranks,
					.cores = link->cores, .dtype = COLLET_F32, .segment_bytes = p->segment_bytes };
				if (collet_cost_predict(&shape, p->algorithm, NULL, link, p->bytes, &p->ns)
					!= COLLET_OK)
					continue;
				p->ns *= 1 + noise * (2 * random_part(&seed) - 1);
				if (random_part(&seed) < wild)
					p->ns *= 1 + 9 * random_part(&seed);
				count++;
			}
		}
	}
	assert_true(count > 100 && count < MOST);
	return count;
}

static void near(const char *row, const char *what, double value, double wanted, double tolerance, double scale)
{
	if (fabs(value - wanted) > tolerance * (wanted > 0 ? wanted : scale))
		fail_msg("%s: %s is %g, not %g", row, what, value, wanted);
}

static void known_links_are_found_again(void **state)
{
	static struct tune_point points[MOST];
	static const struct {
		const char *name;
		uint32_t ranks;
		double latency, message, byte, long_byte, far_byte, reduce, noise, wild, tolerance;
	} rows[] = {
		{ "shared memory", 2, 200, 60, 0.12, 0.08, 0, 0.05, 0, 0, 0.02 },
		{ "with noise", 2, 200, 60, 0.12, 0.08, 0, 0.05, 0.05, 0, 0.25 },
		{ "four ranks", 4, 400, 90, 0.2, 0.1, 0, 0.06, 0.05, 0, 0.25 },
		{ "a slow network", 4, 20000, 3000, 0.8, 0.8, 0, 0.05, 0.05, 0, 0.6 },
		{ "cheap while it stays in a cache", 4, 300, 80, 0.1, 0.1, 0.2, 0.05, 0.03, 0, 0.3 },
		{ "no latency", 4, 0, 500, 0.2, 0.2, 0, 0.05, 0.05, 0, 0.35 },
		{ "outliers", 4, 400, 90, 0.2, 0.1, 0, 0.06, 0.05, 0.1, 0.35 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const collet_link_cost truth = link_with(rows[i].ranks, rows[i].latency, rows[i].message, rows[i].byte,
			rows[i].long_byte, rows[i].far_byte, rows[i].reduce);
		const size_t count = synthesise(&truth, rows[i].noise, rows[i].wild, (uint32_t)(7 + i), points);
		collet_link_cost found = truth;
		found.latency_ns = found.overhead_ns = found.reduce_byte_ns = 123;
		assert_int_equal(tune_fit(&found, points, count), COLLET_OK);
		const double t = rows[i].tolerance;
		/* Noise may pass from the one to the other; together they are a message's time. */
		const double shared = t > 0.1 ? 3 * t : t;
		/* Between two ranks there is hardly a latency without a message. */
		if (rows[i].ranks > 2) {
			near(rows[i].name, "latency", found.latency_ns, truth.latency_ns, shared, truth.overhead_ns);
			near(rows[i].name, "message", found.overhead_ns, truth.overhead_ns, shared, 1);
		}
		if (rows[i].noise == 0)
			near(rows[i].name, "piece", found.segment_ns, truth.segment_ns, t, 1);
		near(rows[i].name, "latency and message", found.latency_ns + found.overhead_ns,
			truth.latency_ns + truth.overhead_ns, t, 1);
		for (int b = 0; b < 4; b++)
			near(rows[i].name, "byte", found.byte_ns[b], truth.byte_ns[b], t, 1);
		near(rows[i].name, "far byte", found.uncached_byte_ns, truth.uncached_byte_ns, t, truth.byte_ns[0]);
		near(rows[i].name, "reduce byte", found.reduce_byte_ns, truth.reduce_byte_ns, t + 0.2, 1);
		/* However the numbers share the noise, what they predict is right. */
		assert_int_equal(tune_predict(&found, points, count), COLLET_OK);
		const struct tune_quality q = tune_judge(points, count);
		if (q.median_error > rows[i].noise + 0.02)
			fail_msg("%s: a median error of %.3f", rows[i].name, q.median_error);
	}
}

/* Times that no formula fits: one algorithm takes three times its own. Its factors say so, others' do not. */
static void factors_take_up_the_rest(void **state)
{
	static struct tune_point points[MOST];
	collet_link_cost link = link_with(4, 300, 80, 0.1, 0.1, 0, 0.05);
	const size_t count = synthesise(&link, 0.02, 0, 3, points);
	for (size_t i = 0; i < count; i++)
		if (strcmp(points[i].collective, "allreduce") == 0 && strcmp(points[i].algorithm, "two_shot") == 0)
			points[i].ns *= 3;
	assert_int_equal(tune_fit(&link, points, count), COLLET_OK);
	assert_int_equal(tune_set_factors(&link, points, count), COLLET_OK);
	assert_int_equal(tune_predict(&link, points, count), COLLET_OK);
	const struct tune_quality q = tune_judge(points, count);
	assert_true(q.median_error < 0.01 && q.worst_error < 0.01);
	assert_int_equal(q.bad_choices, 0);
	assert_int_equal(q.choices, 8 * SIZES + 1);
	for (size_t i = 0; i < count; i++)
		assert_false(points[i].chosen && strcmp(points[i].collective, "allreduce") == 0
			&& strcmp(points[i].algorithm, "two_shot") == 0);
}

static struct tune_point point(const char *collective, const char *algorithm, uint32_t size, double ns,
	double predicted, bool chosen)
{
	struct tune_point p = { .size = size, .ns = ns, .sweeps = 1, .predicted_ns = predicted, .chosen = chosen };
	strcpy(p.collective, collective);
	strcpy(p.algorithm, algorithm);
	return p;
}

static void choices_are_judged_call_by_call(void **state)
{
	const struct tune_point points[] = {
		point("allreduce", "ring", 0, 100, 110, true), point("allreduce", "tree", 0, 96, 120, false),
		point("allreduce", "ring", 1, 300, 300, true), point("allreduce", "tree", 1, 200, 400, false),
		point("barrier", "direct", 0, 50, 100, false), point("barrier", "dissemination", 0, 60, 60, true),
		point("gather", "tree", 0, 50, 45, true),
	};
	const struct tune_quality q = tune_judge(points, 7);
	assert_int_equal(q.choices, 4);
	assert_int_equal(q.bad_choices, 2);
	assert_int_equal(q.worst_choice_at, 2);
	assert_true(fabs(q.worst_choice - 1.5) < 1e-9);
	assert_true(fabs(q.worst_error - 1) < 1e-9);
	assert_true(q.worst_error_at == 3 || q.worst_error_at == 4);
	assert_true(fabs(q.median_error - 0.1) < 1e-9);
}

static void sweeps_are_averaged(void **state)
{
	struct tune_point points[4] = { point("allreduce", "ring", 0, 100, 110, true),
		point("allreduce", "tree", 0, 400, 120, false) };
	const struct tune_point second[] = { point("allreduce", "ring", 0, 400, 0, true),
		point("allreduce", "tree", 0, 100, 0, false) };
	const struct tune_point third[] = { point("allreduce", "ring", 0, 200, 0, true),
		point("allreduce", "tree", 0, 1600, 0, false) };
	const struct tune_point other[] = { point("allreduce", "ring", 0, 200, 0, true),
		point("allreduce", "direct", 0, 1600, 0, false) };
	const struct tune_point longer[] = { point("allreduce", "ring", 1, 800, 0, true),
		point("barrier", "direct", 0, 90, 0, false) };
	assert_int_equal(tune_merge(points, 0, 4, points, 2), 2);
	assert_int_equal(tune_merge(points, 2, 4, second, 2), 2);
	assert_int_equal(tune_merge(points, 2, 4, third, 2), 2);
	assert_true(fabs(points[0].ns - 200) < 1e-9);
	assert_true(fabs(points[1].ns - 400) < 1e-9);
	assert_true(points[0].predicted_ns > 109 && points[0].chosen);
	/* Of a call what both have; calls that only one has are left as they are. */
	assert_int_equal(tune_merge(points, 2, 4, other, 2), 1);
	assert_string_equal(points[0].algorithm, "ring");
	assert_int_equal(tune_merge(points, 1, 4, longer, 2), 3);
	assert_true(points[0].sweeps == 4 && points[1].sweeps == 1 && fabs(points[1].ns - 800) < 1e-9);
	assert_string_equal(points[2].collective, "barrier");
	/* There is no more room. */
	points[2].size = 1;
	assert_int_equal(tune_merge(points, 3, 3, longer, 2), 3);
}

static void lines_are_read(void **state)
{
	static const struct {
		const char *line;
		bool good;
	} rows[] = {
		{ "point allreduce ring 3 4096 65536 2 812.50 900.00 1\n", true },
		{ "point allreduce ring 3 4096 65536 2 812.50 900.00\n", false },
		{ "point allreduce ring 3 4096 65536 1 0 900.00 1\n", false },
		{ "collet-bench: something went wrong\n", false },
		{ "", false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tune_point p;
		if (tune_point_read(rows[i].line, &p) != rows[i].good)
			fail_msg("%s", rows[i].line);
		if (rows[i].good)
			assert_true(p.size == 3 && p.bytes == 4096 && p.segment_bytes == 65536 && p.channels == 2
				&& p.chosen && fabs(p.ns - 812.5) < 1e-9 && strcmp(p.algorithm, "ring") == 0);
	}
}

/* Sweeps of two worlds in one file: each world's are merged; a file that was cut off is refused. */
static void sweeps_are_kept(void **state)
{
	char path[] = "/tmp/collet-test-points-XXXXXX";
	const int fd = mkstemp(path);
	assert_true(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
	static struct tune_point points[TUNE_POINTS_MAX];
	struct tune_point first[] = { point("allreduce", "ring", 0, 100, 110, true),
		point("allreduce", "tree", 0, 400, 120, false) }, other = point("barrier", "direct", 0, 7, 7, true);
	first[0].segment_bytes = first[1].segment_bytes = other.segment_bytes = 65536;
	first[0].channels = first[1].channels = other.channels = 1;
	size_t count;
	assert_int_equal(tune_points_read(path, "tcp", 4, points, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(tune_points_add(path, "shm", 4, &other, 1), 0);
	assert_int_equal(tune_points_add(path, "tcp", 4, first, 2), 0);
	assert_int_equal(tune_points_add(path, "tcp", 8, &other, 1), 0);
	first[0].ns = 400;
	assert_int_equal(tune_points_add(path, "tcp", 4, first, 2), 0);
	assert_int_equal(tune_points_read(path, "tcp", 4, points, &count), 0);
	assert_true(count == 2 && points[0].sweeps == 2);
	assert_true(fabs(points[0].ns - 200) < 1e-6 && fabs(points[1].ns - 400) < 1e-6);
	assert_int_equal(truncate(path, 60), 0);
	assert_int_equal(tune_points_read(path, "tcp", 4, points, &count), 1);
	unlink(path);
}

/* Times in which further channels make bytes cheaper or dearer, and one algorithm is the fastest in short pieces: that
 * is what the link says then, of channels for all and of pieces for that one, and what it chooses. */
static void ways_to_cut_are_found(void **state)
{
	static struct tune_point points[3 * 8];
	static const struct {
		const char *algorithm;
		uint32_t segment_bytes, channels;
		double ns;
	} ways[] = {
		{ "halving_doubling", 262144, 1, 3000e3 }, { "halving_doubling", 65536, 1, 2500e3 },
		{ "ring", 262144, 1, 2000e3 }, { "ring", 65536, 1, 2900e3 }, { "ring", 262144, 2, 1980e3 },
		{ "ring", 262144, 4, 2800e3 },
	};
	collet_link_cost link = link_with(4, 1000, 1000, 0.1, 0.1, 0, 0.05);
	const size_t count = sizeof(ways) / sizeof(ways[0]);
	for (size_t i = 0; i < count; i++) {
		points[i] = point("allreduce", ways[i].algorithm, 8, ways[i].ns, 0, false);
		points[i].bytes = sizes[8];
		points[i].segment_bytes = ways[i].segment_bytes;
		points[i].channels = ways[i].channels;
	}
	assert_int_equal(tune_fit_channels(&link, points, count), COLLET_OK);
	assert_true(link.channel_ratios[0] == 1 && link.channel_ratios[3] == 0);
	assert_true(link.channel_ratios[1] > 0.9 && link.channel_ratios[1] < 1);
	assert_true(link.channel_ratios[2] > 1.2);
	assert_int_equal(tune_set_factors(&link, points, count), COLLET_OK);
	assert_int_equal(tune_predict(&link, points, count), COLLET_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(points[i].chosen, i == 2);   /* 1 % less with two channels is no gain */
	assert_true(fabs(points[1].predicted_ns / points[1].ns - 1) < 1e-3);
	for (size_t i = 0; i < count; i++)
		points[i].ns *= strcmp(points[i].algorithm, "ring") == 0 ? 3 : 1;
	assert_int_equal(tune_set_factors(&link, points, count), COLLET_OK);
	assert_int_equal(tune_predict(&link, points, count), COLLET_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(points[i].chosen, i == 1);
}

/* Half as long as long as that helps, or twice as long; of the usual pieces both are tried, so nothing follows them. */
static void segments_are_tried_one_after_the_other(void **state)
{
	static const struct {
		uint32_t segment, most, next;
	} rows[] = {
		{ TUNE_USUAL_SEGMENT, 4 << 20, 0 }, { TUNE_USUAL_SEGMENT / 2, 4 << 20, TUNE_USUAL_SEGMENT / 4 },
		{ TUNE_MIN_SEGMENT, 4 << 20, 0 }, { 2 * TUNE_USUAL_SEGMENT, 4 << 20, 4 * TUNE_USUAL_SEGMENT },
		{ 512 << 10, 1 << 20, 1 << 20 }, { 512 << 10, 800 << 10, 0 }, { TUNE_MAX_SEGMENT, 4 << 20, 0 },
		{ TUNE_USUAL_SEGMENT / 2, TUNE_USUAL_SEGMENT / 2 + 1, TUNE_USUAL_SEGMENT / 4 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(tune_further_segment(rows[i].segment, rows[i].most), rows[i].next);
}

/* Formulas choose among the pieces that have won somewhere by as much as a way must. */
static void segments_that_won_are_the_formulas(void **state)
{
	static const struct {
		double shorter_ns, longer_ns;
		uint32_t least, most;
	} rows[] = {
		{ 1200, 1100, TUNE_USUAL_SEGMENT, TUNE_USUAL_SEGMENT },
		{ 980, 990, TUNE_USUAL_SEGMENT, TUNE_USUAL_SEGMENT },
		{ 900, 1100, TUNE_MIN_SEGMENT, TUNE_USUAL_SEGMENT },
		{ 1100, 900, TUNE_USUAL_SEGMENT, 2 * TUNE_USUAL_SEGMENT },
	};
	static const uint32_t segments[] = { TUNE_USUAL_SEGMENT, TUNE_MIN_SEGMENT, 2 * TUNE_USUAL_SEGMENT };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		collet_link_cost link = link_with(4, 1000, 1000, 0.1, 0.1, 0, 0.05);
		struct tune_point points[3];
		const double ns[3] = { 1000, rows[i].shorter_ns, rows[i].longer_ns };
		for (uint32_t k = 0; k < 3; k++) {
			points[k] = point("allreduce", "ring", 8, ns[k], 0, false);
			points[k].segment_bytes = segments[k];
		}
		tune_fit_segments(&link, points, 3);
		assert_int_equal(link.min_segment_bytes, rows[i].least);
		assert_int_equal(link.max_segment_bytes, rows[i].most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ways_to_cut_are_found),
		cmocka_unit_test(segments_are_tried_one_after_the_other),
		cmocka_unit_test(segments_that_won_are_the_formulas),
		cmocka_unit_test(sweeps_are_kept),
		cmocka_unit_test(known_links_are_found_again),
		cmocka_unit_test(factors_take_up_the_rest),
		cmocka_unit_test(choices_are_judged_call_by_call),
		cmocka_unit_test(sweeps_are_averaged),
		cmocka_unit_test(lines_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
