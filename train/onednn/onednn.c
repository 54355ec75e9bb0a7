/* The CPU back end: runs layers by oneDNN on the calling thread.
 *
 * For each batch size and purpose (training, evaluation) the table of layers becomes a plan, once (plan.c). A pass
 * executes a row of it. */
#include "backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "model/arithmetic.h"
#include "model/loss.h"
#include "model/scaling.h"
#include "onednn/plan.h"

/* torch.nn.BatchNorm2d's default. */
static const float norm_momentum = 0.1F;

struct network {
	const struct model *model;
	const struct norm_sync *sync;
	enum precision precision;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct plan *plans;
	struct plan *last;  /* of the last forward() */
};

/* The network's plan for such batches, made now if there is none. */
static struct plan *plan_for(struct network *network, uint32_t batch_count, bool training)
{
	for (struct plan *plan = network->plans; plan; plan = plan->next)
		if (plan->batch_count == batch_count && plan->training == training)
			return plan;
	struct plan *plan = plan_create(
		network->model, network->precision, network->sync, network->engine, batch_count, training);
	if (plan) {
		plan->next = network->plans;
		network->plans = plan;
	}
	return plan;
}

static bool run_step(struct network *network, struct plan *plan, const struct row *row, uint32_t s)
{
	const struct step *step = &row->steps[s];
	if (step->call) {
		dnnl_stream_wait(network->stream);
		return step->call(plan, step);
	}
	return dnnl_primitive_execute(step->primitive, network->stream, step->argument_count, step->arguments) ==
		dnnl_success || train_fail("model %s: step %u of the %s pass failed", plan->model->name, s,
			row == &plan->forward ? "forward" : "backward");
}

static bool run_forward(struct network *network, struct plan *plan, const struct batch *batch)
{
	union {
		const float *given;
		void *taken;  /* oneDNN has one pointer for tensors read and written; this one is only read */
	} images = { .given = batch->images };
	dnnl_memory_set_data_handle(plan->input, images.taken);
	for (uint32_t s = 0; s < plan->forward.count; s++)
		if (!run_step(network, plan, &plan->forward, s))
			return false;
	dnnl_stream_wait(network->stream);
	return true;
}

/* As torch: the running variance uses the unbiased one. */
static void update_statistics(const struct plan *plan)
{
	const struct model *model = plan->model;
	for (uint32_t l = 0; l < model->layer_count; l++) {
		if (model->layers[l].kind != LAYER_BATCH_NORM)
			continue;
		const struct statistics *statistics = &model->statistics[model->first_statistics[l]];
		const float *mean = plan_data(plan->traces[l].mean), *variance = plan_data(plan->traces[l].variance);
		const double seen = plan_norm_count(plan, l);
		const float unbiased = (float)(seen > 1 ? seen / (seen - 1) : 1);
		for (uint32_t c = 0; c < statistics->channels; c++) {
			statistics->mean[c] += norm_momentum * (mean[c] - statistics->mean[c]);
			statistics->variance[c] += norm_momentum * (variance[c] * unbiased - statistics->variance[c]);
		}
	}
}

/* One thread a rank, whatever OpenMP oneDNN was built with: the setting is the calling thread's own. (Built with TBB,
 * oneDNN keeps to the cores that the rank is bound to.) */
static void use_one_thread(void)
{
	union {
		void *found;
		void (*set)(int);
	} omp = { dlsym(RTLD_DEFAULT, "omp_set_num_threads") };
	if (omp.found)
		omp.set(1);
}

static void onednn_destroy(struct network *network)
{
	if (!network)
		return;
	while (network->plans) {
		struct plan *plan = network->plans;
		network->plans = plan->next;
		plan_destroy(plan);
	}
	if (network->stream)
		dnnl_stream_destroy(network->stream);
	if (network->engine)
		dnnl_engine_destroy(network->engine);
	free(network);
}

static struct network *onednn_create(
	const struct model *model, enum precision precision, const struct norm_sync *sync)
{
	use_one_thread();
	struct network *network = calloc(1, sizeof(*network));
	if (!network) {
		train_fail("no memory for a network");
		return NULL;
	}
	network->model = model;
	network->sync = sync;
	network->precision = precision;
	if (dnnl_engine_create(&network->engine, dnnl_cpu, 0) != dnnl_success ||
		dnnl_stream_create(&network->stream, network->engine, dnnl_stream_default_flags) != dnnl_success) {
		train_fail("oneDNN offers no CPU engine");
		onednn_destroy(network);
		return NULL;
	}
	return network;
}

static bool onednn_prepare(struct network *network, uint32_t batch_count, bool training)
{
	return plan_for(network, batch_count, training) != NULL;
}

static bool onednn_evaluate(struct network *network, const struct batch *batch, struct outcome *outcome)
{
	struct plan *plan = plan_for(network, batch->count, false);
	if (!plan || !run_forward(network, plan, batch))
		return false;
	loss_cross_entropy(
		plan_data(plan->output), batch->labels, batch->count, model_classes(network->model), outcome, NULL);
	return true;
}

static bool onednn_forward(struct network *network, const struct batch *batch, bool update, struct outcome *outcome)
{
	struct plan *plan = plan_for(network, batch->count, true);
	if (!plan || !run_forward(network, plan, batch))
		return false;
	loss_cross_entropy(plan_data(plan->output), batch->labels, batch->count, model_classes(network->model), outcome,
		plan_data(plan->output_gradient));
	if (update)
		update_statistics(plan);
	network->last = plan;
	return true;
}

static bool onednn_backward(struct network *network, float scale, gradient_ready ready, void *context)
{
	struct plan *plan = network->last;
	float *gradient = plan_data(plan->output_gradient);
	const uint32_t outputs = plan->batch_count * model_classes(network->model);
	for (uint32_t i = 0; scale != 1 && i < outputs; i++)
		gradient[i] *= scale;
	for (uint32_t s = 0; s < plan->backward.count; s++) {
		const struct step *step = &plan->backward.steps[s];
		if (!run_step(network, plan, &plan->backward, s))
			return false;
		if (step->ready_count == 0)
			continue;
		dnnl_stream_wait(network->stream);
		/* The bias after the weights: last first, as the buckets are filled. */
		for (uint32_t p = step->ready_count; p-- > 0;)
			if (!ready(context, step->ready_first + p))
				return false;
	}
	return true;
}

static void *onednn_memory_allocate(size_t bytes)
{
	size_t rounded = (bytes + 63) / 64 * 64;
	void *memory = bytes > SIZE_MAX - 63 ? NULL : aligned_alloc(64, rounded ? rounded : 64);
	if (memory)
		memset(memory, 0, rounded);
	return memory;
}

/* ---- Arrays, which are the host's --------------------------------------------------------------------------- */

static void *onednn_array_allocate(struct cuda_device *device, size_t bytes)
{
	return onednn_memory_allocate(bytes);
}

static void onednn_array_free(struct cuda_device *device, void *memory)
{
	free(memory);
}

static bool onednn_array_copy(struct cuda_device *device, float *to, const float *from, uint64_t count)
{
	memcpy(to, from, count * sizeof(*to));
	return true;
}

static bool onednn_update(struct network *network, const struct optimiser_inputs *inputs)
{
	optimiser_update(network->model, inputs);
	return true;
}

static bool onednn_update_range(
	struct network *network, const struct element_range *range, const struct optimiser_inputs *inputs)
{
	optimiser_update_range(range, inputs);
	return true;
}

static bool onednn_add(
	struct network *network, float *to, const float *a, const float *b, double scale, uint64_t count)
{
	arithmetic_add(to, a, b, scale, count);
	return true;
}

static bool onednn_squares(struct network *network, const struct array *arrays, uint32_t array_count, double *sum)
{
	*sum = arithmetic_squares(arrays, array_count);
	return true;
}

static bool onednn_unscale(struct network *network, float factor, bool *finite)
{
	*finite = true;
	for (uint32_t p = 0; p < network->model->parameter_count; p++) {
		const struct parameter *parameter = &network->model->parameters[p];
		*finite &= scaling_multiply(parameter->gradient, parameter->count, factor);
	}
	return true;
}

/* Nothing is ever under way. */
static bool onednn_wait(struct network *network)
{
	return true;
}

const struct backend backend_onednn = {
	.name = "onednn",
	.memory_allocate = onednn_memory_allocate,
	.memory_free = free,
	.array_allocate = onednn_array_allocate,
	.array_free = onednn_array_free,
	.array_get = onednn_array_copy,
	.array_put = onednn_array_copy,
	.create = onednn_create,
	.destroy = onednn_destroy,
	.prepare = onednn_prepare,
	.evaluate = onednn_evaluate,
	.forward = onednn_forward,
	.backward = onednn_backward,
	.update = onednn_update,
	.update_range = onednn_update_range,
	.add = onednn_add,
	.squares = onednn_squares,
	.unscale = onednn_unscale,
	.wait = onednn_wait,
	.fetch = onednn_wait,
};
