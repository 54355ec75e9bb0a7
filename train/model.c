/* The networks as tables, and what is computed from a table once. */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "random.h"

static const struct layer convnet[] = {
	{ LAYER_CONVOLUTION, "conv1", .channels = 16, .kernel = 5, .padding = 2 },
	{ LAYER_BATCH_NORM, "norm1" },
	{ LAYER_RELU },
	{ LAYER_MAX_POOL, .kernel = 2 },
	{ LAYER_CONVOLUTION, "conv2", .channels = 32, .kernel = 5, .padding = 2 },
	{ LAYER_BATCH_NORM, "norm2" },
	{ LAYER_RELU },
	{ LAYER_MAX_POOL, .kernel = 2 },
	{ LAYER_LINEAR, "linear", .channels = 10 },
};

/* The small network of PyTorch's CIFAR-10 tutorial, after LeNet-5. */
static const struct layer lenet[] = {
	{ LAYER_CONVOLUTION, "conv1", .channels = 6, .kernel = 5 },
	{ LAYER_RELU },
	{ LAYER_MAX_POOL, .kernel = 2 },
	{ LAYER_CONVOLUTION, "conv2", .channels = 16, .kernel = 5 },
	{ LAYER_RELU },
	{ LAYER_MAX_POOL, .kernel = 2 },
	{ LAYER_LINEAR, "fc1", .channels = 120 },
	{ LAYER_RELU },
	{ LAYER_LINEAR, "fc2", .channels = 84 },
	{ LAYER_RELU },
	{ LAYER_LINEAR, "fc3", .channels = 10 },
};

/* Logistic regression, to see what the convolutions are worth. */
static const struct layer linear[] = {
	{ LAYER_LINEAR, "linear", .channels = 10 },
};

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

const struct layer *model_table(const char *name, uint32_t *layer_count)
{
	static const struct {
		const char *name;
		const struct layer *layers;
		uint32_t count;
	} tables[] = {
		{ "convnet", convnet, COUNT(convnet) },
		{ "lenet", lenet, COUNT(lenet) },
		{ "linear", linear, COUNT(linear) },
	};
	for (size_t i = 0; i < COUNT(tables); i++) {
		if (strcmp(tables[i].name, name) == 0) {
			*layer_count = tables[i].count;
			return tables[i].layers;
		}
	}
	return NULL;
}

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

/* Weights and bias of a layer whose outputs each see fan_in inputs. */
static void add_weights(struct model *model, const struct layer *layer, uint32_t dimensions, const uint64_t *shape,
	uint64_t fan_in)
{
	const float bound = (float)(1 / sqrt((double)fan_in));
	add_parameter(model, layer->name, "weight", dimensions, shape, bound, 0);
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

/* Adds one layer behind what the model has; *shape is what comes in, then what goes out. */
static bool add_layer(struct model *model, const struct layer *layer, struct shape *shape)
{
	const uint32_t in = shape->channels, pixels = shape->height * shape->width;
	if (model->layer_count == MODEL_LAYERS || model->parameter_count + 2 > MODEL_PARAMETERS ||
		model->statistics_count == MODEL_STATISTICS)
		return train_fail("model %s: more layers than %d", model->name, MODEL_LAYERS);
	model->first_parameter[model->layer_count] = model->parameter_count;
	model->first_statistics[model->layer_count] = model->statistics_count;
	switch (layer->kind) {
	case LAYER_CONVOLUTION:
		if (layer->kernel == 0 || shape->height + 2 * layer->padding < layer->kernel ||
			shape->width + 2 * layer->padding < layer->kernel)
			return train_fail(
				"model %s: %s: the kernel is larger than the image", model->name, layer->name);
		add_weights(model, layer, 4, (uint64_t[]){ layer->channels, in, layer->kernel, layer->kernel },
			(uint64_t)in * layer->kernel * layer->kernel);
		shape->channels = layer->channels;
		shape->height += 2 * layer->padding + 1 - layer->kernel;
		shape->width += 2 * layer->padding + 1 - layer->kernel;
		break;
	case LAYER_BATCH_NORM:
		add_norm(model, layer, in);
		break;
	case LAYER_RELU:
		break;
	case LAYER_MAX_POOL:
		if (layer->kernel == 0 || shape->height < layer->kernel || shape->width < layer->kernel)
			return train_fail(
				"model %s: layer %u pools more than there is", model->name, model->layer_count);
		shape->height /= layer->kernel;
		shape->width /= layer->kernel;
		break;
	case LAYER_LINEAR:
		add_weights(
			model, layer, 2, (uint64_t[]){layer->channels, (uint64_t)in * pixels}, (uint64_t)in * pixels);
		*shape = (struct shape){ layer->channels, 1, 1 };
		break;
	}
	model->layers[model->layer_count] = *layer;
	model->outputs[model->layer_count++] = *shape;
	return true;
}

bool model_build(struct model *model, const char *name, const struct layer *layers, uint32_t layer_count,
	struct shape input, bool batch_norm)
{
	struct shape shape = input;
	*model = (struct model){ .name = name, .input = input };
	for (uint32_t i = 0; i < layer_count; i++) {
		if (layers[i].kind == LAYER_BATCH_NORM && !batch_norm)
			continue;
		if (!add_layer(model, &layers[i], &shape))
			return false;
	}
	if (model->layer_count == 0 || model->layers[model->layer_count - 1].kind != LAYER_LINEAR)
		return train_fail("model %s: the last layer is not linear", name);
	return true;
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
