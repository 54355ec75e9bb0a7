/* The layers of a GPU for the stand-in of the driver, which cannot compute any: copied to the host, computed there by
 * the CPU's back end, and copied back, all by the stream, so that whoever does not wait for it gets what was there
 * before. (Batch norm over all ranks waits for other ranks within a layer: there the caller waits for the stream, and
 * computes.) Takes the place of the module (train/cuda/module.c) in the tests that it is linked into. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/layers.h"
#include "gpu.h"
#include "model/arithmetic.h"
#include "model/half.h"
#include "model/scaling.h"

typedef gpu_result launch_host_function(gpu_stream stream, void (*function)(void *data), void *data);

struct layers {
	struct layers_setup setup;
	struct gpu gpu;
	launch_host_function *launch;
	struct model model;              /* the same, in the host's memory */
	struct network *network;         /* made by the thread that computes, which it belongs to */
	float *images;
	uint8_t *labels;
	uint32_t largest;
	struct outcome outcome;
	struct layers_outcome told;
	/* What the stream is to do; one of each is under way at most. */
	struct batch batch;
	enum layers_pass pass;
	float scale, factor;
	uint32_t wrong;
};

static void must(bool fine, const char *what)
{
	if (!fine) {
		fprintf(stderr, "layers_host: %s\n", what);
		abort();
	}
}

static void *allocate(uint64_t count)
{
	void *memory = backend_onednn.memory_allocate(count * sizeof(float));
	must(memory != NULL, "no memory");
	return memory;
}

static struct layers *host_create(const struct layers_setup *setup)
{
	struct layers *layers = calloc(1, sizeof(*layers));
	char why[GPU_WHY_BYTES];
	must(layers && gpu_open(&layers->gpu, why), "no driver");
	void *address = dlsym(layers->gpu.library, "cuLaunchHostFunc");
	memcpy(&layers->launch, &address, sizeof(address));
	must(address != NULL, "no cuLaunchHostFunc");
	layers->setup = *setup;
	layers->model = *setup->model;
	for (uint32_t p = 0; p < layers->model.parameter_count; p++) {
		struct parameter *parameter = &layers->model.parameters[p];
		parameter->value = allocate(parameter->count);
		parameter->gradient = allocate(parameter->count);
	}
	for (uint32_t s = 0; s < layers->model.statistics_count; s++) {
		layers->model.statistics[s].mean = allocate(layers->model.statistics[s].channels);
		layers->model.statistics[s].variance = allocate(layers->model.statistics[s].channels);
	}
	return layers;
}

static void host_destroy(struct layers *layers)
{
	if (!layers)
		return;
	backend_onednn.destroy(layers->network);
	for (uint32_t p = 0; p < layers->model.parameter_count; p++) {
		free(layers->model.parameters[p].value);
		free(layers->model.parameters[p].gradient);
	}
	for (uint32_t s = 0; s < layers->model.statistics_count; s++) {
		free(layers->model.statistics[s].mean);
		free(layers->model.statistics[s].variance);
	}
	free(layers->images);
	free(layers->labels);
	gpu_close(&layers->gpu);
	free(layers);
}

static bool host_prepare(struct layers *layers, uint32_t batch_count, bool training)
{
	const struct shape *shape = &layers->model.input;
	if (batch_count <= layers->largest)
		return true;
	free(layers->images);
	free(layers->labels);
	layers->largest = batch_count;
	layers->images = allocate((uint64_t)batch_count * shape->channels * shape->height * shape->width);
	layers->labels = calloc(batch_count, 1);
	return layers->labels != NULL;
}

/* ---- By the stream ------------------------------------------------------------------------------------------ */

static bool copy(struct layers *layers, void *to, const void *from, uint64_t bytes)
{
	return layers->gpu.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, layers->setup.stream) == GPU_OK;
}

static bool copy_floats(struct layers *layers, float *to, const float *from, uint64_t count)
{
	return copy(layers, to, from, count * sizeof(float));
}

/* By the stream; a function of the stream's cannot wait for other ranks. */
static bool compute(struct layers *layers, void (*function)(void *))
{
	if (!layers->setup.sync)
		return layers->launch(layers->setup.stream, function, layers) == GPU_OK;
	if (layers->gpu.cuStreamSynchronize(layers->setup.stream) != GPU_OK)
		return false;
	function(layers);
	return true;
}

enum { VALUES = 1, GRADIENTS = 2, STATISTICS = 4 };

/* There: to the GPU; else from it. */
static bool bring(struct layers *layers, unsigned what, bool there)
{
	bool fine = true;
	for (uint32_t p = 0; fine && p < layers->model.parameter_count; p++) {
		const struct parameter *parameter = &layers->model.parameters[p];
		const struct {
			unsigned what;
			float *here, *there;
		} rows[] = { { VALUES, parameter->value, layers->setup.values[p] },
			{ GRADIENTS, parameter->gradient, layers->setup.gradients[p] } };
		for (int i = 0; fine && i < 2; i++)
			if (what & rows[i].what)
				fine = copy_floats(layers, there ? rows[i].there : rows[i].here,
					there ? rows[i].here : rows[i].there, parameter->count);
	}
	for (uint32_t s = 0; fine && (what & STATISTICS) && s < layers->model.statistics_count; s++) {
		const struct statistics *statistics = &layers->model.statistics[s];
		float *const mean = layers->setup.means[s], *const variance = layers->setup.variances[s];
		fine = there ? copy_floats(layers, mean, statistics->mean, statistics->channels) &&
				copy_floats(layers, variance, statistics->variance, statistics->channels) :
			copy_floats(layers, statistics->mean, mean, statistics->channels) &&
				copy_floats(layers, statistics->variance, variance, statistics->channels);
	}
	return fine;
}

static void compute_forward(void *context)
{
	struct layers *layers = context;
	if (!layers->network)
		layers->network = backend_onednn.create(&layers->model, layers->setup.precision, layers->setup.sync);
	must(layers->network != NULL, "no network");
	must(layers->pass == LAYERS_EVALUATE ?
		backend_onednn.evaluate(layers->network, &layers->batch, &layers->outcome) :
		backend_onednn.forward(layers->network, &layers->batch, layers->pass == LAYERS_TRAIN_AND_FOLLOW,
			&layers->outcome), "forward");
	layers->told = (struct layers_outcome){ layers->outcome.loss, layers->outcome.correct };
}

static bool host_forward(struct layers *layers, const float *images, const uint8_t *labels, uint32_t batch_count,
	enum layers_pass pass, struct layers_outcome *outcome)
{
	const struct shape *shape = &layers->model.input;
	layers->batch = (struct batch){ layers->images, layers->labels, batch_count };
	layers->pass = pass;
	return bring(layers, VALUES | STATISTICS, false) &&
		copy_floats(layers, layers->images, images,
			(uint64_t)batch_count * shape->channels * shape->height * shape->width) &&
		copy(layers, layers->labels, labels, batch_count) &&
		compute(layers, compute_forward) &&
		bring(layers, STATISTICS, true) && copy(layers, outcome, &layers->told, sizeof(layers->told));
}

static bool nobody(void *context, uint32_t parameter)
{
	return true;
}

static void compute_backward(void *context)
{
	struct layers *layers = context;
	must(backend_onednn.backward(layers->network, layers->scale, nobody, NULL), "backward");
}

static bool host_backward(struct layers *layers, float scale, gradient_ready ready, void *context)
{
	layers->scale = scale;
	bool fine = compute(layers, compute_backward);
	for (uint32_t p = layers->model.parameter_count; fine && p-- > 0;)
		fine = copy_floats(layers, layers->setup.gradients[p], layers->model.parameters[p].gradient,
			       layers->model.parameters[p].count) &&
			ready(context, p);
	return fine;
}

static void compute_unscale(void *context)
{
	struct layers *layers = context;
	layers->wrong = 0;
	for (uint32_t p = 0; p < layers->model.parameter_count; p++)
		layers->wrong |= !scaling_multiply(layers->model.parameters[p].gradient,
			layers->model.parameters[p].count, layers->factor);
}

static bool host_unscale(struct layers *layers, float factor, uint32_t *wrong)
{
	layers->factor = factor;
	return bring(layers, GRADIENTS, false) &&
		layers->launch(layers->setup.stream, compute_unscale, layers) == GPU_OK &&
		bring(layers, GRADIENTS, true) && copy(layers, wrong, &layers->wrong, sizeof(layers->wrong));
}

/* ---- Arrays ------------------------------------------------------------------------------------------------- */

enum { OPERANDS = 4 };

/* An operation, with what it works on in the host's memory until the stream has come past it. */
struct operation {
	float *data[OPERANDS];
	uint64_t count;
	double scale, sum;
	enum precision precision;
	struct optimiser_inputs inputs;
};

static struct operation *operation_begin(struct layers *layers, const float *const operands[OPERANDS], uint64_t count)
{
	struct operation *operation = calloc(1, sizeof(*operation));
	must(operation != NULL, "no memory");
	operation->count = count;
	for (int i = 0; i < OPERANDS; i++) {
		if (!operands[i])
			continue;
		operation->data[i] = allocate(count);
		must(copy_floats(layers, operation->data[i], operands[i], count), "copying an array");
	}
	return operation;
}

static void operation_free(void *context)
{
	struct operation *operation = context;
	for (int i = 0; i < OPERANDS; i++)
		free(operation->data[i]);
	free(operation);
}

static bool operation_end(struct layers *layers, struct operation *operation)
{
	return layers->launch(layers->setup.stream, operation_free, operation) == GPU_OK;
}

static void compute_descend(void *context)
{
	struct operation *operation = context;
	const struct element_range range = { operation->data[0], operation->data[1], operation->data[2],
		operation->data[3], operation->count };
	optimiser_update_range(&range, &operation->inputs);
}

static bool host_descend(
	struct layers *layers, const struct element_range *range, const struct optimiser_inputs *inputs)
{
	const float *const operands[OPERANDS] = { range->value, range->velocity, range->squares,
		range->gradient };
	struct operation *operation = operation_begin(layers, operands, range->count);
	operation->inputs = *inputs;
	return layers->launch(layers->setup.stream, compute_descend, operation) == GPU_OK &&
		copy_floats(layers, range->value, operation->data[0], range->count) &&
		copy_floats(layers, range->velocity, operation->data[1], range->count) &&
		(!range->squares || copy_floats(layers, range->squares, operation->data[2], range->count)) &&
		operation_end(layers, operation);
}

static void compute_add(void *context)
{
	struct operation *operation = context;
	arithmetic_add(operation->data[0], operation->data[0], operation->data[1], operation->scale, operation->count);
}

static bool host_add(struct layers *layers, float *to, const float *a, const float *b, double scale, uint64_t count)
{
	const float *const operands[OPERANDS] = { a, b };
	struct operation *operation = operation_begin(layers, operands, count);
	operation->scale = scale;
	return layers->launch(layers->setup.stream, compute_add, operation) == GPU_OK &&
		copy_floats(layers, to, operation->data[0], count) && operation_end(layers, operation);
}

static void compute_squares(void *context)
{
	struct operation *operation = context;
	const struct array array = { operation->data[0], operation->count };
	operation->sum = arithmetic_squares(&array, 1);
}

static bool host_squares(struct layers *layers, const float *from, uint64_t count, double *sum)
{
	const float *const operands[OPERANDS] = { from };
	struct operation *operation = operation_begin(layers, operands, count);
	return layers->launch(layers->setup.stream, compute_squares, operation) == GPU_OK &&
		copy(layers, sum, &operation->sum, sizeof(*sum)) && operation_end(layers, operation);
}

/* ---- Images ------------------------------------------------------------------------------------------------- */

struct making {
	struct shape shape;
	struct normal normals[IMAGE_CHANNELS];
	uint32_t count;
	uint8_t *pixels;
	struct placement *places;
	float *images;
};

static void compute_images(void *context)
{
	struct making *making = context;
	const size_t bytes = (size_t)making->shape.channels * making->shape.height * making->shape.width;
	for (uint32_t i = 0; i < making->count; i++)
		pixels_to_image(making->images + i * bytes, making->pixels + i * bytes, &making->shape,
			&making->places[i], making->normals);
}

static void making_free(void *context)
{
	struct making *making = context;
	free(making->pixels);
	free(making->places);
	free(making->images);
	free(making);
}

static bool host_make_images(struct layers *layers, float *images, const uint8_t *pixels,
	const struct placement *places, uint32_t batch_count, gpu_stream stream)
{
	struct making *making = calloc(1, sizeof(*making));
	must(making != NULL, "no memory");
	making->shape = layers->model.input;
	making->count = batch_count;
	memcpy(making->normals, layers->setup.normals, sizeof(making->normals));
	const size_t bytes = (size_t)batch_count * making->shape.channels * making->shape.height * making->shape.width;
	making->pixels = malloc(bytes);
	making->places = calloc(batch_count, sizeof(*making->places));
	making->images = malloc(bytes * sizeof(float));
	must(making->pixels && making->places && making->images, "no memory");
	const struct gpu *gpu = &layers->gpu;
	return gpu->cuMemcpyAsync((uintptr_t)making->pixels, (uintptr_t)pixels, bytes, stream) == GPU_OK &&
		gpu->cuMemcpyAsync((uintptr_t)making->places, (uintptr_t)places, batch_count * sizeof(*places),
			stream) == GPU_OK &&
		layers->launch(stream, compute_images, making) == GPU_OK &&
		gpu->cuMemcpyAsync((uintptr_t)images, (uintptr_t)making->images, bytes * sizeof(float), stream) ==
			GPU_OK &&
		layers->launch(stream, making_free, making) == GPU_OK;
}

/* ---- 16 bits ------------------------------------------------------------------------------------------------ */

/* Of a value that an f16 holds. */
static uint16_t f16_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	const int exponent = (int)(bits >> 23 & 0xff) - 127;
	const uint32_t fraction = (bits & 0x7fffff) | 0x800000;
	if (exponent == 128)
		return (uint16_t)(sign | 0x7c00 | (bits & 0x7fffff ? 0x200 : 0));
	if (exponent < -24)
		return sign;
	if (exponent < -14)
		return (uint16_t)(sign | fraction >> (-1 - exponent));
	return (uint16_t)(sign | (uint32_t)(exponent + 15) << 10 | (bits >> 13 & 0x3ff));
}

static float of_f16(uint16_t half)
{
	const uint32_t fraction = half & 0x3ff;
	const int exponent = half >> 10 & 0x1f;
	const float sign = half & 0x8000 ? -1 : 1;
	if (exponent == 31)
		return fraction ? NAN : sign * INFINITY;
	return sign * (exponent ? ldexpf((float)(fraction | 0x400), exponent - 25) : ldexpf((float)fraction, -24));
}

/* To nearest even; no NaN becomes infinite. */
static uint16_t bf16_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t half)
{
	const uint32_t bits = (uint32_t)half << 16;
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Both ways; the halves lie in the second operand's memory, which has room for more. */
static void compute_narrow(void *context)
{
	struct operation *operation = context;
	uint16_t *halves = (uint16_t *)(void *)operation->data[1];
	if (operation->precision == PRECISION_F16)
		half_round(operation->data[0], operation->count);
	for (uint64_t i = 0; i < operation->count; i++)
		halves[i] = operation->precision == PRECISION_F16 ? f16_of(operation->data[0][i]) :
			bf16_of(operation->data[0][i]);
}

static void compute_widen(void *context)
{
	struct operation *operation = context;
	const uint16_t *halves = (const uint16_t *)(const void *)operation->data[1];
	for (uint64_t i = 0; i < operation->count; i++)
		operation->data[0][i] =
			operation->precision == PRECISION_F16 ? of_f16(halves[i]) : of_bf16(halves[i]);
}

static bool host_narrow(struct layers *layers, enum precision to_type, void *to, const float *from, uint64_t count)
{
	const float *const operands[OPERANDS] = { from };
	struct operation *operation = operation_begin(layers, operands, count);
	operation->precision = to_type;
	operation->data[1] = allocate(count);
	return layers->launch(layers->setup.stream, compute_narrow, operation) == GPU_OK &&
		copy(layers, to, operation->data[1], count * sizeof(uint16_t)) && operation_end(layers, operation);
}

static bool host_widen(struct layers *layers, enum precision from_type, float *to, const void *from, uint64_t count)
{
	const float *const operands[OPERANDS] = { NULL };
	struct operation *operation = operation_begin(layers, operands, count);
	operation->precision = from_type;
	operation->data[0] = allocate(count);
	operation->data[1] = allocate(count);
	return copy(layers, operation->data[1], from, count * sizeof(uint16_t)) &&
		layers->launch(layers->setup.stream, compute_widen, operation) == GPU_OK &&
		copy_floats(layers, to, operation->data[0], count) && operation_end(layers, operation);
}

const struct layers_table *layers_open(char why[LAYERS_WHY_BYTES])
{
	static const struct layers_table table = { host_create, host_destroy, host_prepare, host_make_images,
		host_forward, host_backward, host_descend, host_add, host_squares, host_narrow, host_widen,
		host_unscale };
	if (!getenv("TEST_LAYERS_ABSENT"))
		return &table;
	snprintf(why, LAYERS_WHY_BYTES, "libcudnn.so.9 cannot be opened: as the test has it");
	return NULL;
}
