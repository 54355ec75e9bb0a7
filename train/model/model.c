/* Builds a model from a table of layers. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/random.h"
#include "error.h"

static void add_parameter(struct model *model, const char *layer, const char *role, uint32_t dimensions,
	const uint64_t *shape, float bound, float constant)
{
	struct parameter *parameter = &model->parameters[model->parameter_count++];
	*parameter = (struct parameter){ .dimensions = dimensions, .count = 1, .bound = bound, .constant = constant };
	snprintf(parameter->name, sizeof(parameter->name), "%s.%s", layer, role);
	for (uint32_t d = 0; d < dimensions; d++) {
		parameter->shape[d] = shape[d];
		parameter->count *= shape[d];
	}
}

/* Weights (and bias) of a layer whose outputs each see fan_in inputs. */
static void add_weights(struct model *model, const struct layer *layer, uint32_t dimensions, const uint64_t *shape,
	uint64_t fan_in)
{
	const float bound = (float)(1 / sqrt((double)fan_in));
	add_parameter(model, layer->name, "weight", dimensions, shape, bound, 0);
	if (!layer->no_bias)
		add_parameter(model, layer->name, "bias", 1, shape, bound, 0);
}

static void add_norm(struct model *model, const struct layer *layer, uint32_t channels)
{
	const uint64_t shape = channels;
	add_parameter(model, layer->name, "weight", 1, &shape, 0, 1);
	add_parameter(model, layer->name, "bias", 1, &shape, 0, 0);
	struct statistics *statistics = &model->statistics[model->statistics_count++];
	*statistics = (struct statistics){ .channels = channels };
	snprintf(statistics->name, sizeof(statistics->name), "%s", layer->name);
}

/* ---- Rows --------------------------------------------------------------------------------------------------- */

/* The state of reading a table: the current tensor; and between FORK and ADD the input of FORK, and the end of the
 * first branch. */
struct reading {
	uint32_t at, fork, aside;
	bool forked, shortcut;
};

static const struct shape *shape_of(const struct model *model, uint32_t layer)
{
	return layer == MODEL_INPUT ? &model->input : &model->outputs[layer];
}

static bool shape_convolution(struct model *model, const struct layer *layer, struct shape *shape)
{
	const uint32_t in = shape->channels, kernel = layer->kernel, stride = layer->stride ? layer->stride : 1;
	if (kernel == 0 || shape->height + 2 * layer->padding < kernel || shape->width + 2 * layer->padding < kernel)
		return train_fail("model %s: %s: the kernel is larger than the image", model->name, layer->name);
	add_weights(model, layer, 4, (uint64_t[]){ layer->channels, in, kernel, kernel },
		(uint64_t)in * kernel * kernel);
	shape->channels = layer->channels;
	shape->height = (shape->height + 2 * layer->padding - kernel) / stride + 1;
	shape->width = (shape->width + 2 * layer->padding - kernel) / stride + 1;
	return true;
}

static bool shape_max_pool(struct model *model, const struct layer *layer, struct shape *shape)
{
	if (layer->kernel == 0 || shape->height < layer->kernel || shape->width < layer->kernel)
		return train_fail("model %s: layer %u pools more than there is", model->name, model->layer_count);
	shape->height /= layer->kernel;
	shape->width /= layer->kernel;
	return true;
}

static bool shape_add(struct model *model, const struct reading *reading, struct shape *shape)
{
	if (!reading->forked)
		return train_fail("model %s: layer %u adds, and nothing has forked", model->name, model->layer_count);
	const uint32_t addend = reading->shortcut ? reading->aside : reading->fork;
	const struct shape *other = shape_of(model, addend);
	if (other->channels != shape->channels || other->height != shape->height || other->width != shape->width)
		return train_fail("model %s: layer %u adds %u x %u x %u to %u x %u x %u", model->name,
			model->layer_count, other->channels, other->height, other->width, shape->channels,
			shape->height, shape->width);
	model->addends[model->layer_count] = addend;
	return true;
}

/* Adds one layer that computes; *shape is what comes in, then what goes out. */
static bool shape_layer(struct model *model, const struct layer *layer, const struct reading *reading,
	struct shape *shape)
{
	const uint64_t everything = (uint64_t)shape->channels * shape->height * shape->width;
	switch (layer->kind) {
	case LAYER_CONVOLUTION: return shape_convolution(model, layer, shape);
	case LAYER_BATCH_NORM: add_norm(model, layer, shape->channels); return true;
	case LAYER_MAX_POOL: return shape_max_pool(model, layer, shape);
	case LAYER_MEAN_POOL: shape->height = shape->width = 1; return true;
	case LAYER_LINEAR:
		add_weights(model, layer, 2, (uint64_t[]){ layer->channels, everything }, everything);
		*shape = (struct shape){ layer->channels, 1, 1 };
		return true;
	case LAYER_ADD: return shape_add(model, reading, shape);
	case LAYER_RELU: case LAYER_FORK: case LAYER_SHORTCUT: break;
	}
	return true;
}

static bool add_layer(struct model *model, const struct layer *layer, struct reading *reading)
{
	const uint32_t l = model->layer_count;
	if (l == MODEL_LAYERS || model->parameter_count + 2 > MODEL_PARAMETERS ||
		model->statistics_count == MODEL_STATISTICS)
		return train_fail("model %s: more layers than %d", model->name, MODEL_LAYERS);
	struct shape shape = *shape_of(model, reading->at);
	model->first_parameter[l] = model->parameter_count;
	model->first_statistics[l] = model->statistics_count;
	if (!shape_layer(model, layer, reading, &shape))
		return false;
	model->layers[l] = *layer;
	model->sources[l] = reading->at;
	model->outputs[l] = shape;
	model->layer_count++;
	reading->at = l;
	return true;
}

/* The rows between which a network forks. */
static bool read_fork(struct model *model, enum layer_kind kind, struct reading *reading)
{
	if (kind == LAYER_FORK && reading->forked)
		return train_fail("model %s: a fork before layer %u within another", model->name, model->layer_count);
	if (kind == LAYER_SHORTCUT && (!reading->forked || reading->shortcut))
		return train_fail("model %s: a shortcut before layer %u, and nothing has forked", model->name,
			model->layer_count);
	if (kind == LAYER_FORK) {
		reading->fork = reading->at;
		reading->forked = true;
	} else {
		reading->aside = reading->at;
		reading->at = reading->fork;
		reading->shortcut = true;
	}
	return true;
}

static bool read_row(struct model *model, const struct layer *layer, struct reading *reading)
{
	if (layer->kind == LAYER_FORK || layer->kind == LAYER_SHORTCUT)
		return read_fork(model, layer->kind, reading);
	if (!add_layer(model, layer, reading))
		return false;
	if (layer->kind == LAYER_ADD)
		reading->forked = reading->shortcut = false;
	return true;
}

bool model_build(struct model *model, const char *name, const struct layer *layers, uint32_t layer_count,
	struct shape input, bool batch_norm)
{
	struct reading reading = { .at = MODEL_INPUT };
	*model = (struct model){ .name = name, .input = input };
	for (uint32_t i = 0; i < layer_count; i++) {
		if (layers[i].kind == LAYER_BATCH_NORM && !batch_norm)
			continue;
		if (!read_row(model, &layers[i], &reading))
			return false;
	}
	if (reading.forked)
		return train_fail("model %s: what has forked is not added", name);
	if (model->layer_count == 0 || model->layers[model->layer_count - 1].kind != LAYER_LINEAR)
		return train_fail("model %s: the last layer is not linear", name);
	return true;
}

const struct shape *model_input_shape(const struct model *model, uint32_t layer)
{
	return shape_of(model, model->sources[layer]);
}

uint32_t model_layer_parameters(const struct layer *layer)
{
	switch (layer->kind) {
	case LAYER_CONVOLUTION: case LAYER_LINEAR: return layer->no_bias ? 1 : 2;
	case LAYER_BATCH_NORM: return 2;
	default: return 0;
	}
}

uint32_t model_classes(const struct model *model)
{
	return model->outputs[model->layer_count - 1].channels;
}

void model_initialise(struct model *model, uint64_t seed)
{
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		struct parameter *parameter = &model->parameters[p];
		struct random random = random_stream(seed, p);
		for (uint64_t i = 0; i < parameter->count; i++)
			parameter->value[i] = parameter->bound > 0 ?
				random_between(&random, -parameter->bound, parameter->bound) : parameter->constant;
	}
	for (uint32_t s = 0; s < model->statistics_count; s++) {
		for (uint32_t c = 0; c < model->statistics[s].channels; c++) {
			model->statistics[s].mean[c] = 0;
			model->statistics[s].variance[c] = 1;
		}
	}
}

uint64_t model_checksum(const struct model *model)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const unsigned char *bytes = (const unsigned char *)model->parameters[p].value;
		for (size_t i = 0; i < model->parameters[p].count * sizeof(float); i++)
			hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	}
	return hash;
}
