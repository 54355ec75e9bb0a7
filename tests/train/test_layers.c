/* Every kind of layer against finite differences: the gradient that backward() writes is the slope of the loss.
 *
 * Each row is a small network with the layer in the middle, so that both what it gives back to the layer before it and
 * its own parameters' gradients are seen. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "data/random.h"

enum { BATCH = 6, CLASSES = 4 };

static const struct backend *const backend = &backend_onednn;

static float *floats(uint64_t count)
{
	float *memory = backend->memory_allocate(count * sizeof(float));
	assert_non_null(memory);
	return memory;
}

static void allocate(struct model *model)
{
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		model->parameters[p].value = floats(model->parameters[p].count);
		model->parameters[p].gradient = floats(model->parameters[p].count);
		model->parameters[p].velocity = floats(model->parameters[p].count);
	}
	for (uint32_t s = 0; s < model->statistics_count; s++) {
		model->statistics[s].mean = floats(model->statistics[s].channels);
		model->statistics[s].variance = floats(model->statistics[s].channels);
	}
}

static void release(struct model *model)
{
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		backend->memory_free(model->parameters[p].value);
		backend->memory_free(model->parameters[p].gradient);
		backend->memory_free(model->parameters[p].velocity);
	}
	for (uint32_t s = 0; s < model->statistics_count; s++) {
		backend->memory_free(model->statistics[s].mean);
		backend->memory_free(model->statistics[s].variance);
	}
}

static float *random_images(uint64_t count)
{
	float *images = floats(count);
	struct random random = random_stream(7, 0);
	for (uint64_t i = 0; i < count; i++)
		images[i] = random_between(&random, -1, 1);
	return images;
}

/* Last to first, as the buckets of collet_ddp lie: the trainer does not let it lay them out anew. */
static bool note_ready(void *context, uint32_t parameter)
{
	uint32_t *seen = context;
	seen[parameter]++;
	for (uint32_t p = 0; p < parameter; p++)
		if (seen[p] > 0)
			return false;
	return true;
}

static double loss_of(struct network *network, const struct batch *batch)
{
	struct outcome outcome;
	assert_true(backend->forward(network, batch, false, &outcome));
	return outcome.loss / batch->count;
}

#define LINEAR { LAYER_LINEAR, "linear", .channels = CLASSES }
#define CONVOLUTION { LAYER_CONVOLUTION, "conv", .channels = 5, .kernel = 3, .padding = 1 }
#define SAME { LAYER_CONVOLUTION, "same", .channels = 5, .kernel = 3, .padding = 1 }

static void gradients_are_the_slope_of_the_loss(void **state)
{
	static const struct {
		const char *name;
		struct layer layers[12];
		uint32_t layer_count;
	} rows[] = {
		{"linear", {LINEAR}, 1},
		{"linear relu linear", {{LAYER_LINEAR, "hidden", .channels = 9}, {LAYER_RELU}, LINEAR}, 3},
		{"conv", {CONVOLUTION, LINEAR}, 2},
		{"conv conv, even kernel, no padding",
			{CONVOLUTION, {LAYER_CONVOLUTION, "conv2", .channels = 3, .kernel = 2}, LINEAR}, 3},
		{"conv relu", {CONVOLUTION, {LAYER_RELU}, LINEAR}, 3},
		{"conv pool", {CONVOLUTION, {LAYER_MAX_POOL, .kernel = 2}, LINEAR}, 3},
		{"conv pool relu: not fused", {CONVOLUTION, {LAYER_MAX_POOL, .kernel = 3}, {LAYER_RELU}, LINEAR}, 4},
		{"conv norm", {CONVOLUTION, {LAYER_BATCH_NORM, "norm"}, LINEAR}, 3},
		{"conv norm relu pool",
			{CONVOLUTION, {LAYER_BATCH_NORM, "norm"}, {LAYER_RELU}, {LAYER_MAX_POOL, .kernel = 2}, LINEAR},
			5},
		{"conv, stride 2, no bias",
			{{LAYER_CONVOLUTION, "conv", .channels = 5, .kernel = 3, .padding = 1, .stride = 2,
				 .no_bias = true},
				{LAYER_CONVOLUTION, "conv2", .channels = 3, .kernel = 1, .stride = 2}, LINEAR},
			3},
		{"conv, mean of all pixels", {CONVOLUTION, {LAYER_MEAN_POOL}, LINEAR}, 3},
		{"what came in is added", {CONVOLUTION, {LAYER_FORK}, SAME, {LAYER_ADD}, LINEAR}, 5},
		{"and ReLU", {CONVOLUTION, {LAYER_FORK}, SAME, {LAYER_ADD}, {LAYER_RELU}, LINEAR}, 6},
		{"ReLU that two read", {CONVOLUTION, {LAYER_RELU}, {LAYER_FORK}, SAME, {LAYER_ADD}, LINEAR}, 6},
		{"ReLU that must not be taken in",
			{CONVOLUTION, {LAYER_FORK}, {LAYER_RELU}, SAME, {LAYER_ADD}, {LAYER_RELU}, LINEAR}, 7},
		{"residual block with a shortcut",
			{CONVOLUTION, {LAYER_FORK}, SAME, {LAYER_BATCH_NORM, "norm"}, {LAYER_SHORTCUT},
				{LAYER_CONVOLUTION, "shortcut", .channels = 5, .kernel = 1, .no_bias = true},
				{LAYER_BATCH_NORM, "norm2"}, {LAYER_ADD}, {LAYER_RELU}, LINEAR},
			10},
		{"two blocks",
			{CONVOLUTION, {LAYER_FORK}, SAME, {LAYER_ADD}, {LAYER_RELU}, {LAYER_FORK},
				{LAYER_BATCH_NORM, "norm"}, {LAYER_RELU}, {LAYER_ADD}, LINEAR},
			10},
		{"the images themselves are added",
			{{LAYER_FORK}, {LAYER_CONVOLUTION, "conv", .channels = 2, .kernel = 3, .padding = 1},
				{LAYER_ADD}, LINEAR},
			4},
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct model *model = calloc(1, sizeof(*model));
		assert_true(model_build(
			model, rows[row].name, rows[row].layers, rows[row].layer_count,
			(struct shape){ 2, 7, 7 }, true));
		allocate(model);
		model_initialise(model, 3);
		float *images = random_images(BATCH * 2 * 7 * 7);
		const struct batch batch = { images, (const uint8_t[]){ 0, 1, 2, 3, 1, 0 }, BATCH };
		struct network *network = backend->create(model, PRECISION_F32, NULL);
		assert_non_null(network);
		assert_true(backend->prepare(network, BATCH, true));
		loss_of(network, &batch);
		uint32_t seen[MODEL_PARAMETERS] = { 0 };
		assert_true(backend->backward(network, 1, note_ready, seen));
		for (uint32_t p = 0; p < model->parameter_count; p++) {
			struct parameter *parameter = &model->parameters[p];
			assert_int_equal(seen[p], 1);
			/* The slope along the gradient itself: what single elements have in f32's noise, their sum has
			 * not. */
			double squares = 0, along = 0;
			for (uint64_t i = 0; i < parameter->count; i++)
				squares += (double)parameter->gradient[i] * (double)parameter->gradient[i];
			float *kept = floats(parameter->count);
			memcpy(kept, parameter->value, parameter->count * sizeof(float));
			const double reach = 2e-3 / (sqrt(squares) + 1e-3);
			for (int side = -1; side <= 1; side += 2) {
				for (uint64_t i = 0; i < parameter->count; i++)
					parameter->value[i] = kept[i] + (float)(side * reach) * parameter->gradient[i];
				along += side * loss_of(network, &batch);
			}
			memcpy(parameter->value, kept, parameter->count * sizeof(float));
			backend->memory_free(kept);
			const double slope = along / (2 * reach);
			if (fabs(slope - squares) > 0.02 * squares + 2e-6)
				fail_msg("%s: %s: slope %g, gradient says %g", rows[row].name, parameter->name, slope,
					squares);
		}
		backend->destroy(network);
		backend->memory_free(images);
		release(model);
		free(model);
	}
}

/* A gradient of the right length in the wrong place is found out here. Without ReLU and pooling, whose kinks single
 * elements would feel. */
static void single_elements_have_their_own_slope(void **state)
{
	static const struct layer layers[] = { CONVOLUTION, { LAYER_BATCH_NORM, "norm" }, { LAYER_FORK },
		SAME, { LAYER_BATCH_NORM, "norm2" }, { LAYER_ADD },
		{ LAYER_CONVOLUTION, "conv2", .channels = 3, .kernel = 3 }, LINEAR };
	struct model *model = calloc(1, sizeof(*model));
	assert_true(model_build(model, "smooth", layers, 8, (struct shape){ 2, 7, 7 }, true));
	allocate(model);
	model_initialise(model, 5);
	float *images = random_images(BATCH * 2 * 7 * 7);
	const struct batch batch = { images, (const uint8_t[]){ 3, 1, 2, 0, 2, 0 }, BATCH };
	struct network *network = backend->create(model, PRECISION_F32, NULL);
	loss_of(network, &batch);
	uint32_t seen[MODEL_PARAMETERS] = { 0 };
	assert_true(backend->backward(network, 1, note_ready, seen));
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		struct parameter *parameter = &model->parameters[p];
		for (uint64_t i = 0; i < parameter->count; i += parameter->count / 7 + 1) {
			const float kept = parameter->value[i], reach = 4e-3F;
			parameter->value[i] = kept + reach;
			double slope = loss_of(network, &batch);
			parameter->value[i] = kept - reach;
			slope = (slope - loss_of(network, &batch)) / (2 * (double)reach);
			parameter->value[i] = kept;
			const double expected = (double)parameter->gradient[i];
			if (fabs(slope - expected) > 1e-3 + 0.02 * fabs(expected))
				fail_msg(
					"%s[%u]: slope %g, gradient %g", parameter->name, (unsigned)i, slope, expected);
		}
	}
	backend->destroy(network);
	backend->memory_free(images);
	release(model);
	free(model);
}

/* Batch norm trains on the batch and evaluates on what it remembers: 0.9 of the old, 0.1 of the new. */
static void statistics_move_only_when_told(void **state)
{
	static const struct layer layers[] = { CONVOLUTION, { LAYER_BATCH_NORM, "norm" }, LINEAR };
	struct model *model = calloc(1, sizeof(*model));
	assert_true(model_build(model, "norm", layers, 3, (struct shape){ 2, 7, 7 }, true));
	allocate(model);
	model_initialise(model, 5);
	memset(model->parameters[0].value, 0, model->parameters[0].count * sizeof(float));
	for (uint32_t c = 0; c < 5; c++)
		model->parameters[1].value[c] = (float)c;  /* the convolution gives its bias: mean c, variance 0 */
	float *images = random_images(BATCH * 2 * 7 * 7);
	const struct batch batch = { images, (const uint8_t[]){ 3, 1, 2, 0, 2, 0 }, BATCH };
	struct network *network = backend->create(model, PRECISION_F32, NULL);
	struct outcome outcome;
	for (int update = 0; update <= 1; update++) {
		assert_true(backend->forward(network, &batch, update, &outcome));
		for (uint32_t c = 0; c < 5; c++) {
			assert_float_equal(model->statistics[0].mean[c], (update ? 0.1F * (float)c : 0), 1e-6);
			assert_float_equal(model->statistics[0].variance[c], (update ? 0.9F : 1), 1e-6);
		}
	}
	assert_true(backend->evaluate(network, &batch, &outcome));
	assert_float_equal(model->statistics[0].mean[4], 0.4F, 1e-6);
	backend->destroy(network);
	backend->memory_free(images);
	release(model);
	free(model);
}

static void models_that_do_not_fit_are_refused(void **state)
{
	static const struct layer too_large[] = { { LAYER_CONVOLUTION, "conv", .channels = 1, .kernel = 9 }, LINEAR };
	static const struct layer pooled_away[] = { { LAYER_MAX_POOL, .kernel = 8 }, LINEAR };
	static const struct layer no_end[] = { CONVOLUTION };
	static const struct layer nothing_to_add[] = { CONVOLUTION, { LAYER_ADD }, LINEAR };
	static const struct layer other_channels[] = { { LAYER_FORK }, CONVOLUTION, { LAYER_ADD }, LINEAR };
	static const struct layer no_sum[] = { { LAYER_FORK }, CONVOLUTION, LINEAR };
	static const struct layer nested[] = { { LAYER_FORK }, { LAYER_FORK }, { LAYER_ADD }, { LAYER_ADD }, LINEAR };
	static const struct layer lone_shortcut[] = { { LAYER_SHORTCUT }, CONVOLUTION, LINEAR };
	struct model *model = calloc(1, sizeof(*model));
	const struct shape images = { 2, 7, 7 };
	assert_false(model_build(model, "nothing to add", nothing_to_add, 3, images, true));
	assert_false(model_build(model, "other channels", other_channels, 4, images, true));
	assert_false(model_build(model, "no sum", no_sum, 3, images, true));
	assert_false(model_build(model, "nested", nested, 5, images, true));
	assert_false(model_build(model, "lone shortcut", lone_shortcut, 3, images, true));
	assert_false(model_build(model, "too large", too_large, 2, images, true));
	assert_false(model_build(model, "pooled away", pooled_away, 2, images, true));
	assert_false(model_build(model, "no end", no_end, 1, images, true));
	uint32_t count;
	assert_null(model_table("transformer", &count));
	const struct layer *table = model_table("convnet", &count);
	assert_true(model_build(model, "convnet", table, count, (struct shape){ 1, 28, 28 }, true));
	assert_int_equal(model->parameter_count, 10);
	assert_int_equal(model->parameters[8].count, 7 * 7 * 32 * 10);
	assert_string_equal(model->parameters[4].name, "conv2.weight");
	assert_true(model_build(model, "convnet", table, count, (struct shape){ 1, 28, 28 }, false));
	assert_int_equal(model->parameter_count, 6);
	/* As published: 0.27 million numbers, and two shortcuts of 1 x 1 with their norms. */
	table = model_table("resnet20", &count);
	assert_true(model_build(model, "resnet20", table, count, (struct shape){ 3, 32, 32 }, true));
	uint64_t numbers = 0;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		numbers += model->parameters[p].count;
	assert_int_equal(numbers, 269722 + 16 * 32 + 64 + 32 * 64 + 128);
	assert_int_equal(model->outputs[model->layer_count - 3].height, 8);
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_the_slope_of_the_loss),
		cmocka_unit_test(single_elements_have_their_own_slope),
		cmocka_unit_test(statistics_move_only_when_told),
		cmocka_unit_test(models_that_do_not_fit_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
