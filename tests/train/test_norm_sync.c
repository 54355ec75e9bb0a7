/* The kernels of batch norm over all ranks, in their host form: what they give is what batch norm of all ranks' values
 * together is by its definition, for any way of sharing the images out, and in every type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host_round.h"

enum { CHANNELS = 3, RANKS_MOST = 3, IMAGES_MOST = 5, PIXELS_MOST = 49 };
enum { MOST = RANKS_MOST * IMAGES_MOST * CHANNELS * PIXELS_MOST };

static const float epsilon = 1e-5F, momentum = 0.1F;

struct row {
	const char *name;
	enum kernels_type type;
	uint32_t ranks, images[RANKS_MOST], pixels;
	int first;
};

/* All ranks' values, image by image; as the type has them, and as f32. */
struct values {
	uint16_t codes[MOST];
	float floats[MOST];
};

struct body {
	const struct row *row;
	uint32_t count, seen;        /* values in all; of a channel */
	struct values input, gradient, output, back;
	float means[CHANNELS], variances[CHANNELS], inverse[CHANNELS];
	double seen_by_kernels, sums[2 * CHANNELS];
};

static const float scale[CHANNELS] = { 1, 0.5F, -2 }, shift[CHANNELS] = { 0, 1, -0.25F };

static void *at(const struct body *body, struct values *values, uint32_t first)
{
	return body->row->type == KERNELS_F32 ? (void *)(values->floats + first) : (void *)(values->codes + first);
}

/* Rounds what is there to the type. */
static void narrow(const struct body *body, struct values *values)
{
	if (body->row->type == KERNELS_F32)
		return;
	host_round(body->row->type, values->codes, values->floats, body->count);
	host_widen(body->row->type, values->floats, values->codes, body->count);
}

static void widen(const struct body *body, struct values *values)
{
	if (body->row->type != KERNELS_F32)
		host_widen(body->row->type, values->floats, values->codes, body->count);
}

static void fill(struct body *body)
{
	const struct row *row = body->row;
	uint32_t mixed = 12345;
	for (uint32_t r = 0; r < row->ranks; r++)
		body->seen += row->images[r] * row->pixels;
	body->count = body->seen * CHANNELS;
	for (uint32_t i = 0; i < body->count; i++) {
		const uint32_t channel = i / row->pixels % CHANNELS;
		mixed = mixed * 1664525 + 1013904223;
		/* Off zero by more than they vary, where sums of squares would cancel. */
		body->input.floats[i] = (float)(mixed >> 16) / 65536 * (1 + (float)channel) + 8 * (float)channel;
		mixed = mixed * 1664525 + 1013904223;
		body->gradient.floats[i] = (float)(mixed >> 16) / 65536 - 0.25F;
		mixed = mixed * 1664525 + 1013904223;
		body->back.floats[i] = (float)(mixed >> 16) / 65536;
	}
	narrow(body, &body->input);
	narrow(body, &body->gradient);
	narrow(body, &body->back);
}

/* As norm_sync.c has it, rank by rank. */
static void run(struct body *body)
{
	const struct row *row = body->row;
	const enum kernels_type type = row->type;
	float rows[RANKS_MOST * (2 * CHANNELS + 1)];
	uint32_t first[RANKS_MOST] = { 0 };
	for (uint32_t r = 0; r < row->ranks; r++) {
		first[r] = r ? first[r - 1] + row->images[r - 1] * row->pixels * CHANNELS : 0;
		assert_int_equal(kernels_norm_statistics(type, rows + r * (2 * CHANNELS + 1),
					 at(body, &body->input, first[r]), row->images[r], CHANNELS, row->pixels, NULL),
			0);
	}
	assert_int_equal(kernels_norm_join(rows, row->ranks, CHANNELS, epsilon, body->means, body->variances,
				 body->inverse, &body->seen_by_kernels, NULL),
		0);
	for (uint32_t r = 0; r < row->ranks; r++) {
		assert_int_equal(kernels_norm(type, at(body, &body->output, first[r]), at(body, &body->input, first[r]),
					 body->means, body->inverse, scale, shift, row->images[r], CHANNELS,
					 row->pixels, NULL),
			0);
		assert_int_equal(kernels_norm_sums(type, rows + r * 2 * CHANNELS, at(body, &body->input, first[r]),
					 at(body, &body->gradient, first[r]), body->means, body->inverse,
					 row->images[r], CHANNELS, row->pixels, NULL),
			0);
	}
	assert_int_equal(kernels_norm_add(rows, row->ranks, CHANNELS, body->sums, NULL), 0);
	for (uint32_t r = 0; r < row->ranks; r++)
		assert_int_equal(kernels_norm_gradient(type, at(body, &body->back, first[r]),
					 at(body, &body->input, first[r]), at(body, &body->gradient, first[r]),
					 body->means, body->inverse, scale, body->sums, &body->seen_by_kernels,
					 row->first, row->images[r], CHANNELS, row->pixels, NULL),
			0);
	widen(body, &body->output);
	widen(body, &body->back);
}

static void near(const struct row *row, const char *what, uint32_t i, double got, double expected, double within)
{
	if (!(fabs(got - expected) <= within * (1 + fabs(expected))))
		fail_msg("%s: %s %u is %.9g, not %.9g", row->name, what, i, got, expected);
}

/* By the definition, over all ranks' values, in double. before: what the gradient was added to. */
static void check_channel(const struct body *body, uint32_t c, const float *before)
{
	const struct row *row = body->row;
	const double within = row->type == KERNELS_F32 ? 2e-6 : row->type == KERNELS_F16 ? 1e-3 : 8e-3;
	double mean = 0, variance = 0, of_scale = 0, of_shift = 0;
	for (uint32_t i = 0; i < body->count; i++)
		mean += i / row->pixels % CHANNELS == c ? (double)body->input.floats[i] / body->seen : 0;
	for (uint32_t i = 0; i < body->count; i++)
		if (i / row->pixels % CHANNELS == c)
			variance += pow((double)body->input.floats[i] - mean, 2) / body->seen;
	const double deviation = sqrt(variance + (double)epsilon);
	near(row, "mean", c, (double)body->means[c], mean, 1e-6);
	near(row, "variance", c, (double)body->variances[c], variance, 1e-6);
	near(row, "inverse deviation", c, (double)body->inverse[c], 1 / deviation, 1e-6);
	for (uint32_t i = 0; i < body->count; i++) {
		if (i / row->pixels % CHANNELS != c)
			continue;
		const double normal = ((double)body->input.floats[i] - mean) / deviation;
		near(row, "output", i, (double)body->output.floats[i], normal * (double)scale[c] + (double)shift[c],
			20 * within);
		of_scale += (double)body->gradient.floats[i] * normal;
		of_shift += (double)body->gradient.floats[i];
	}
	near(row, "gradient of scale", c, body->sums[c], of_scale, 1e-4);
	near(row, "gradient of shift", c, body->sums[CHANNELS + c], of_shift, 1e-5);
	for (uint32_t i = 0; i < body->count; i++) {
		if (i / row->pixels % CHANNELS != c)
			continue;
		const double normal = ((double)body->input.floats[i] - mean) / deviation;
		const double back = (double)scale[c] / deviation *
			((double)body->gradient.floats[i] - (of_shift + normal * of_scale) / body->seen);
		near(row, "gradient", i, (double)body->back.floats[i], back + (row->first ? 0 : (double)before[i]),
			20 * within);
	}
}

static void all_ranks_normalise_as_one(void **state)
{
	static const struct row rows[] = {
		{ "one rank", KERNELS_F32, 1, { 4 }, 7, 1 },
		{ "two alike", KERNELS_F32, 2, { 2, 2 }, 49, 1 },
		{ "ragged", KERNELS_F32, 3, { 5, 1, 2 }, 7, 1 },
		{ "ragged, added", KERNELS_F32, 3, { 1, 4, 2 }, 9, 0 },
		{ "a value each", KERNELS_F32, 3, { 1, 1, 1 }, 1, 1 },
		{ "f16", KERNELS_F16, 2, { 3, 2 }, 13, 1 },
		{ "f16, added", KERNELS_F16, 3, { 2, 3, 1 }, 4, 0 },
		{ "bf16", KERNELS_BF16, 2, { 2, 3 }, 13, 1 },
		{ "bf16, added", KERNELS_BF16, 2, { 5, 2 }, 4, 0 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct body *body = calloc(1, sizeof(*body));
		float before[MOST];
		assert_non_null(body);
		body->row = &rows[i];
		fill(body);
		memcpy(before, body->back.floats, sizeof(before));
		run(body);
		near(body->row, "values of a channel", 0, body->seen_by_kernels, body->seen, 0);
		for (uint32_t c = 0; c < CHANNELS; c++)
			check_channel(body, c, before);
		free(body);
	}
}

/* The running variance takes in the unbiased one; of a single value there is none. */
static void running_statistics_follow(void **state)
{
	static const double seen[] = { 1, 2, 10 };
	for (int i = 0; i < 3; i++) {
		const float mean[CHANNELS] = { 1, -2, 3 }, variance[CHANNELS] = { 0, 1, 4 };
		float means[CHANNELS] = { 0, 1, 1 }, variances[CHANNELS] = { 1, 1, 2 };
		assert_int_equal(
			kernels_norm_follow(means, variances, mean, variance, &seen[i], momentum, CHANNELS, NULL), 0);
		for (uint32_t c = 0; c < CHANNELS; c++) {
			const double before[2][CHANNELS] = { { 0, 1, 1 }, { 1, 1, 2 } };
			const double unbiased = (double)variance[c] * (seen[i] > 1 ? seen[i] / (seen[i] - 1) : 1);
			const struct row row = { .name = "running" };
			near(&row, "mean", c, (double)means[c], 0.9 * before[0][c] + 0.1 * (double)mean[c], 1e-6);
			near(&row, "variance", c, (double)variances[c], 0.9 * before[1][c] + 0.1 * unbiased, 1e-6);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_normalise_as_one),
		cmocka_unit_test(running_statistics_follow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
