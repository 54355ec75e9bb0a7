/* Walks a table of layers, forward and backward, and makes a plan.
 *
 * Activations keep oneDNN's preferred blocked layout throughout the network. Parameters and gradients are stored
 * dense (model.h). ReLU is fused into the layer before it. */
#include "onednn/plan.h"

#include <stdlib.h>

#include "error.h"
#include "onednn/build.h"

static uint32_t readers_of(const struct model *model, uint32_t layer)
{
	uint32_t readers = 0;
	for (uint32_t l = 0; l < model->layer_count; l++) {
		readers += model->sources[l] == layer;
		readers += model->layers[l].kind == LAYER_ADD && model->addends[l] == layer;
	}
	return readers;
}

/* Nobody but a ReLU sees what this layer gives. */
static bool takes_in_relu(const struct model *model, uint32_t l)
{
	const enum layer_kind kind = model->layers[l].kind;
	return (kind == LAYER_CONVOLUTION || kind == LAYER_BATCH_NORM || kind == LAYER_LINEAR || kind == LAYER_ADD) &&
		l + 1 < model->layer_count && model->layers[l + 1].kind == LAYER_RELU && model->sources[l + 1] == l &&
		readers_of(model, l) == 1;
}

/* Done by the layer before it. */
static bool is_taken_in(const struct plan *plan, uint32_t l)
{
	return plan->model->layers[l].kind == LAYER_RELU && plan->model->sources[l] != MODEL_INPUT &&
		plan->traces[plan->model->sources[l]].relu;
}

static void layer_forward(struct plan *plan, uint32_t l)
{
	switch (plan->model->layers[l].kind) {
	case LAYER_CONVOLUTION: case LAYER_LINEAR: plan_weights_forward(plan, l); break;
	case LAYER_BATCH_NORM: plan_norm_forward(plan, l); break;
	case LAYER_MAX_POOL: case LAYER_MEAN_POOL: plan_pool_forward(plan, l); break;
	case LAYER_ADD: plan_add_forward(plan, l); break;
	case LAYER_RELU: plan_relu_forward(plan, l); break;
	case LAYER_FORK: case LAYER_SHORTCUT: break;  /* not in a built model */
	}
}

static void build_forward(struct plan *plan)
{
	const struct model *model = plan->model;
	const dnnl_dims_t images = {plan->batch_count, model->input.channels, model->input.height, model->input.width};
	plan->input = plan_memory(plan, plan_layout(plan, 4, images, dnnl_f32, dnnl_abcd), DNNL_MEMORY_NONE);
	for (uint32_t l = 0; l < model->layer_count; l++) {
		struct trace *trace = &plan->traces[l];
		const uint32_t source = model->sources[l];
		trace->input = source == MODEL_INPUT ? plan->input : plan->traces[source].result;
		trace->relu = takes_in_relu(model, l);
		if (is_taken_in(plan, l))
			trace->result = trace->input;
		else
			layer_forward(plan, l);
		if (!is_taken_in(plan, l) && l + 1 < model->layer_count)
			plan_round(plan, &plan->forward, trace->output);
	}
	plan->output = plan->traces[model->layer_count - 1].result;  /* dense f32: the last layer is linear */
}

static void layer_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	switch (plan->model->layers[l].kind) {
	case LAYER_CONVOLUTION: case LAYER_LINEAR: plan_weights_backward(plan, l, gradient); break;
	case LAYER_BATCH_NORM: plan_norm_backward(plan, l, gradient); break;
	case LAYER_MAX_POOL: case LAYER_MEAN_POOL: plan_pool_backward(plan, l, gradient); break;
	case LAYER_ADD: plan_add_backward(plan, l, gradient); break;
	case LAYER_RELU:
		gradient = plan_relu_backward(plan, plan->traces[l].output, gradient);
		plan_pass_back(plan, plan->model->sources[l], gradient);
		break;
	case LAYER_FORK: case LAYER_SHORTCUT: break;
	}
}

/* Whatever reads a layer's result comes after it: so its gradient is complete when its turn comes. */
static void build_backward(struct plan *plan)
{
	const struct model *model = plan->model;
	if (plan->failed)
		return;
	plan->output_gradient = plan_memory(plan, plan_md_of(plan->output), DNNL_MEMORY_ALLOCATE);
	plan_pass_back(plan, model->layer_count - 1, (struct flow){ plan->output_gradient, false });
	for (uint32_t l = model->layer_count; l-- > 0;) {
		if (is_taken_in(plan, l))
			plan_pass_back(plan, model->sources[l], plan->traces[l].gradient);
		else
			layer_backward(plan, l, plan->traces[l].gradient);
		plan_passed(plan, l);
	}
}

static void row_deinit(struct row *row)
{
	for (uint32_t s = 0; s < row->count; s++)
		if (row->steps[s].primitive)
			dnnl_primitive_destroy(row->steps[s].primitive);
}

void plan_destroy(struct plan *plan)
{
	if (!plan)
		return;
	free(plan->mine);
	free(plan->all);
	for (uint32_t b = 0; b < plan->buffer_count; b++)
		backend_onednn.memory_free(plan->buffers[b].data);
	row_deinit(&plan->forward);
	row_deinit(&plan->backward);
	while (plan->owned) {
		struct owned *owned = plan->owned;
		plan->owned = owned->next;
		switch (owned->kind) {
		case OWNED_MEMORY: dnnl_memory_destroy(owned->memory); break;
		case OWNED_LAYOUT: dnn_md_destroy(&owned->layout); break;
		case OWNED_DESCRIPTOR: dnnl_primitive_desc_destroy(owned->descriptor); break;
		}
		free(owned);
	}
	free(plan);
}

/* Two numbers a channel, and how many values they are of. */
static void prepare_sync(struct plan *plan)
{
	uint32_t most = 0;
	for (uint32_t s = 0; s < plan->model->statistics_count; s++)
		if (plan->model->statistics[s].channels > most)
			most = plan->model->statistics[s].channels;
	plan->mine = calloc(2 * (size_t)most + 1, sizeof(float));
	plan->all = calloc(plan->sync->ranks * (2 * (size_t)most + 1), sizeof(float));
	plan_check(plan, plan->mine && plan->all ? dnnl_success : dnnl_out_of_memory, "memory for all ranks' sums");
}

struct plan *plan_create(const struct model *model, enum precision precision, const struct norm_sync *sync,
	dnnl_engine_t engine, uint32_t batch_count, bool training)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	if (!plan) {
		train_fail("no memory for a plan");
		return NULL;
	}
	*plan = (struct plan){ .model = model, .type = precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32,
		.rounds = precision == PRECISION_F16, .sync = training ? sync : NULL, .engine = engine,
		.batch_count = batch_count, .training = training };
	if (plan->sync)
		prepare_sync(plan);
	build_forward(plan);
	if (training)
		build_backward(plan);
	if (plan->failed) {
		plan_destroy(plan);
		return NULL;
	}
	return plan;
}
