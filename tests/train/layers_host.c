/* The layers of a GPU for the stand-in of the driver, which cannot compute any: copied to the host, computed there by
 * the CPU's back end, and copied back, all by the stream, so that whoever does not wait for it gets what was there
 * before. Takes the place of the module (train/cuda/module.c) in the tests that it is linked into. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/layers.h"
#include "gpu.h"
#include "model/scaling.h"

typedef gpu_result launch_host_function(gpu_stream stream, void (*function)(void *data), void *data);

struct layers {
	struct layers_setup setup;
	struct gpu gpu;
	launch_host_function *launch;
	struct model model;              /* the same, in the host's memory */
	struct network *network;         /* made by the stream's thread, which it belongs to */
	float *images;
	uint8_t *labels;
	uint32_t largest;
	struct outcome outcome;
	struct layers_outcome told;
	/* What the stream is to do; one of each is under way at most. */
	struct batch batch;
	enum layers_pass pass;
	float scale, factor;
	struct descent descent;
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
		parameter->velocity = allocate(parameter->count);
		parameter->squares = setup->squares[p] ? allocate(parameter->count) : NULL;
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
		free(layers->model.parameters[p].velocity);
		free(layers->model.parameters[p].squares);
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

enum { VALUES = 1, GRADIENTS = 2, STATE = 4, STATISTICS = 8 };

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
			{ GRADIENTS, parameter->gradient, layers->setup.gradients[p] },
			{ STATE, parameter->velocity, layers->setup.velocities[p] },
			{ STATE, parameter->squares, layers->setup.squares[p] } };
		for (int i = 0; fine && i < 4; i++)
			if ((what & rows[i].what) && rows[i].here)
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
		layers->network = backend_onednn.create(&layers->model, layers->setup.precision, NULL);
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
		layers->launch(layers->setup.stream, compute_forward, layers) == GPU_OK &&
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
	bool fine = layers->launch(layers->setup.stream, compute_backward, layers) == GPU_OK;
	for (uint32_t p = layers->model.parameter_count; fine && p-- > 0;)
		fine = copy_floats(layers, layers->setup.gradients[p], layers->model.parameters[p].gradient,
			       layers->model.parameters[p].count) &&
			ready(context, p);
	return fine;
}

static void compute_descend(void *context)
{
	struct layers *layers = context;
	optimiser_descend(&layers->model, &layers->descent);
}

static bool host_descend(struct layers *layers, const struct descent *descent)
{
	layers->descent = *descent;
	return bring(layers, VALUES | GRADIENTS | STATE, false) &&
		layers->launch(layers->setup.stream, compute_descend, layers) == GPU_OK &&
		bring(layers, VALUES | STATE, true);
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

const struct layers_table *layers_open(char why[LAYERS_WHY_BYTES])
{
	static const struct layers_table table = { host_create, host_destroy, host_prepare, host_forward, host_backward,
		host_descend, host_unscale };
	if (!getenv("TEST_LAYERS_ABSENT"))
		return &table;
	snprintf(why, LAYERS_WHY_BYTES, "libcudnn.so.9 cannot be opened: as the test has it");
	return NULL;
}
