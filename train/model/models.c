/* The networks as tables. */
#include "model/model.h"

#include <string.h>

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

/* The convolution of the residual networks; batch norm makes a bias useless. */
#define CONVOLUTION(name, norm, width, step)                                                                           \
	{ LAYER_CONVOLUTION, name, .channels = (width), .kernel = 3, .padding = 1, .stride = (step),                   \
		.no_bias = true },                                                                                     \
	{ LAYER_BATCH_NORM, norm }

/* Two convolutions of 3 x 3 whose result is added to what came in. */
#define RESIDUAL(name, width)                                                                                          \
	{ LAYER_FORK },                                                                                                \
	CONVOLUTION(name ".conv1", name ".norm1", width, 1),                                                           \
	{ LAYER_RELU },                                                                                                \
	CONVOLUTION(name ".conv2", name ".norm2", width, 1),                                                           \
	{ LAYER_ADD },                                                                                                 \
	{ LAYER_RELU }

/* The same, for an image of half the side: a 1 x 1 convolution fits the shortcut. */
#define RESIDUAL_HALVING(name, width)                                                                                  \
	{ LAYER_FORK },                                                                                                \
	CONVOLUTION(name ".conv1", name ".norm1", width, 2),                                                           \
	{ LAYER_RELU },                                                                                                \
	CONVOLUTION(name ".conv2", name ".norm2", width, 1),                                                           \
	{ LAYER_SHORTCUT },                                                                                            \
	{ LAYER_CONVOLUTION, name ".shortcut", .channels = (width), .kernel = 1, .stride = 2, .no_bias = true },       \
	{ LAYER_BATCH_NORM, name ".norm3" },                                                                           \
	{ LAYER_ADD },                                                                                                 \
	{ LAYER_RELU }

/* ResNet-20 (He et al., "Deep Residual Learning for Image Recognition", 2016, section 4.2). Shortcuts are
 * convolutions where the image shrinks. */
static const struct layer resnet20[] = {
	CONVOLUTION("conv", "norm", 16, 1),
	{ LAYER_RELU },
	RESIDUAL("block1", 16),
	RESIDUAL("block2", 16),
	RESIDUAL("block3", 16),
	RESIDUAL_HALVING("block4", 32),
	RESIDUAL("block5", 32),
	RESIDUAL("block6", 32),
	RESIDUAL_HALVING("block7", 64),
	RESIDUAL("block8", 64),
	RESIDUAL("block9", 64),
	{ LAYER_MEAN_POOL },
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
		{ "resnet20", resnet20, COUNT(resnet20) },
	};
	for (size_t i = 0; i < COUNT(tables); i++) {
		if (strcmp(tables[i].name, name) == 0) {
			*layer_count = tables[i].count;
			return tables[i].layers;
		}
	}
	return NULL;
}

const char *const model_names[] = { "convnet", "lenet", "linear", "resnet20", NULL };
