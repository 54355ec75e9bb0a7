/* Builds the rows of primitives of a plan.
 *
 * Activations keep whatever blocked layout oneDNN prefers from one end of the network to the other; parameters and
 * gradients are dense at rest (model.h), and a reorder stands in the row where a primitive wants them otherwise. ReLU
 * is fused into the batch norm, convolution or linear layer before it.
 *
 * A mistake is printed and remembered in the plan, and everything after it does nothing: so that building reads as the
 * list of layers it is. */
#include "onednn_plan.h"

#include <stdlib.h>

#include "error.h"

/* torch.nn.BatchNorm2d's default. */
static const float norm_epsilon = 1e-5F;

static bool check(struct plan *plan, dnnl_status_t status, const char *what)
{
	if (status != dnnl_success && !plan->failed)
		plan->failed = !train_fail("model %s, batch %u: oneDNN %d.%d.%d refuses %s (status %d)",
			plan->model->name, plan->batch_count, dnnl_version()->major, dnnl_version()->minor,
			dnnl_version()->patch, what, (int)status);
	return !plan->failed;
}

static struct owned *own(struct plan *plan, enum owned_kind kind)
{
	struct owned *owned = plan->failed ? NULL : calloc(1, sizeof(*owned));
	if (!owned) {
		check(plan, dnnl_out_of_memory, "memory");
		return NULL;
	}
	owned->kind = kind;
	owned->next = plan->owned;
	plan->owned = owned;
	return owned;
}

/* A layout of f32 with these dimensions; dnnl_format_tag_any leaves it to the primitive. */
static dnn_md layout(struct plan *plan, int rank, const dnnl_dim_t *dims, dnnl_format_tag_t tag)
{
	struct owned *owned = own(plan, OWNED_LAYOUT);
	if (!owned || !check(plan, dnn_md_create(&owned->layout, rank, dims, tag), "a layout")) {
		if (owned) {
			plan->owned = owned->next;
			free(owned);
		}
		return NULL;
	}
	return dnn_md_of(&owned->layout);
}

/* data: DNNL_MEMORY_ALLOCATE, DNNL_MEMORY_NONE (given later) or the caller's. */
static dnnl_memory_t memory(struct plan *plan, dnn_md md, void *data)
{
	struct owned *owned = own(plan, OWNED_MEMORY);
	if (!owned || !check(plan, dnnl_memory_create(&owned->memory, md, plan->engine, data), "a tensor"))
		return NULL;
	return owned->memory;
}

static dnnl_memory_t vector(struct plan *plan, uint64_t count, float *data)
{
	const dnnl_dims_t dims = { (dnnl_dim_t)count };
	dnn_md md = layout(plan, 1, dims, dnnl_a);
	return memory(plan, md, data ? data : DNNL_MEMORY_ALLOCATE);
}

/* The layout of a tensor; the plan must not have failed. */
static dnn_md md_of(dnnl_memory_t tensor)
{
	dnn_md md = NULL;
	dnnl_memory_get_memory_desc(tensor, &md);
	return md;
}

static dnn_md queried(dnnl_primitive_desc_t descriptor, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(descriptor, what, 0);
}

/* Takes a new primitive descriptor into the plan; NULL after a failure. */
static dnnl_primitive_desc_t keep(struct plan *plan, dnnl_status_t status, dnnl_primitive_desc_t descriptor,
	const char *what)
{
	if (!check(plan, status, what))
		return NULL;
	struct owned *owned = own(plan, OWNED_DESCRIPTOR);
	if (!owned) {
		dnnl_primitive_desc_destroy(descriptor);
		return NULL;
	}
	return owned->descriptor = descriptor;
}

/* Appends a primitive to a row. Arguments whose memory is NULL are left out. */
static void append(struct plan *plan, struct row *row, dnnl_primitive_desc_t descriptor,
	const dnnl_exec_arg_t *arguments, int argument_count)
{
	if (plan->failed)
		return;
	if (row->count == ROW_STEPS) {
		check(plan, dnnl_invalid_arguments, "so long a row of primitives");
		return;
	}
	struct step *step = &row->steps[row->count];
	*step = (struct step){ 0 };
	if (!check(plan, dnnl_primitive_create(&step->primitive, descriptor), "a primitive"))
		return;
	for (int i = 0; i < argument_count; i++)
		if (arguments[i].memory)
			step->arguments[step->argument_count++] = arguments[i];
	row->count++;
}

static void append_reorder(struct plan *plan, struct row *row, dnnl_memory_t from, dnnl_memory_t to)
{
	if (plan->failed)
		return;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status =
		dnnl_reorder_primitive_desc_create(&made, md_of(from), plan->engine, md_of(to), plan->engine, NULL);
	dnnl_primitive_desc_t reorder = keep(plan, status, made, "a reorder");
	append(plan, row, reorder, (dnnl_exec_arg_t[]){ { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } }, 2);
}

/* The tensor in this layout: itself, or a copy that the row makes each time. */
static dnnl_memory_t in_layout(struct plan *plan, struct row *row, dnnl_memory_t tensor, dnn_md md)
{
	if (plan->failed || dnnl_memory_desc_equal(md_of(tensor), md))
		return tensor;
	dnnl_memory_t copy = memory(plan, md, DNNL_MEMORY_ALLOCATE);
	append_reorder(plan, row, tensor, copy);
	return copy;
}

/* A place for a gradient in this layout: the bucket itself if it is dense, else one that settle() copies from. */
static dnnl_memory_t gradient_place(struct plan *plan, dnnl_memory_t dense, dnn_md md)
{
	if (plan->failed || dnnl_memory_desc_equal(md_of(dense), md))
		return dense;
	return memory(plan, md, DNNL_MEMORY_ALLOCATE);
}

/* The last steps of a layer's backward pass: its two gradients are where they belong, and said to be. */
static void settle(struct plan *plan, dnnl_memory_t place, dnnl_memory_t dense, uint32_t first_parameter)
{
	if (place != dense)
		append_reorder(plan, &plan->backward, place, dense);
	if (plan->failed)
		return;
	struct step *last = &plan->backward.steps[plan->backward.count - 1];
	last->ready_first = first_parameter;
	last->ready_count = 2;
}

/* ---- Convolution and linear layers -------------------------------------------------------------------------- */

static struct dnn_window window_of(const struct layer *layer)
{
	const dnnl_dim_t kernel = layer->kernel, padding = layer->padding;
	const dnnl_dim_t stride = layer->kind == LAYER_MAX_POOL ? kernel : 1;
	return (struct dnn_window){ { kernel, kernel }, { stride, stride }, { padding, padding } };
}

/* A layer's weights as its primitive sees them: a linear layer's columns are the pixels and channels before it. */
static dnn_md weights_layout(struct plan *plan, uint32_t l, dnnl_format_tag_t tag)
{
	const struct parameter *weights = &plan->model->parameters[plan->model->first_parameter[l]];
	const struct shape *in = l > 0 ? &plan->model->outputs[l - 1] : &plan->model->input;
	dnnl_dims_t dims = { (dnnl_dim_t)weights->shape[0], in->channels, in->height, in->width };
	if (plan->model->layers[l].kind == LAYER_CONVOLUTION)
		dims[2] = dims[3] = plan->model->layers[l].kernel;
	return layout(plan, 4, dims, tag);
}

static dnn_md image_layout(struct plan *plan, const struct shape *shape, dnnl_format_tag_t tag)
{
	const dnnl_dims_t dims = { plan->batch_count, shape->channels, shape->height, shape->width };
	return layout(plan, 4, dims, tag);
}

/* A linear layer's primitive has outputs of two dimensions; the next layer sees channels of one pixel. */
static dnn_md flat_layout(struct plan *plan, const struct shape *shape)
{
	const dnnl_dims_t dims = { plan->batch_count, shape->channels };
	return layout(plan, 2, dims, dnnl_ab);
}

static dnnl_memory_t viewed(struct plan *plan, dnnl_memory_t tensor, dnn_md md)
{
	void *data = NULL;
	if (plan->failed || !check(plan, dnnl_memory_get_data_handle(tensor, &data), "a view"))
		return NULL;
	return memory(plan, md, data);
}

static dnnl_primitive_attr_t relu_attribute(struct plan *plan, bool relu)
{
	dnnl_primitive_attr_t attribute = NULL;
	dnnl_post_ops_t ops = NULL;
	if (!relu || plan->failed || !check(plan, dnnl_primitive_attr_create(&attribute), "attributes"))
		return NULL;
	dnnl_status_t status = dnnl_post_ops_create(&ops);
	if (status == dnnl_success)
		status = dnn_append_relu(ops);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(attribute, ops);
	check(plan, status, "a fused ReLU");
	dnnl_post_ops_destroy(ops);
	return attribute;
}

static dnnl_memory_t weights_forward(struct plan *plan, uint32_t l, dnnl_memory_t input)
{
	const struct model *model = plan->model;
	const struct parameter *weights = &model->parameters[model->first_parameter[l]], *bias = weights + 1;
	const bool convolution = model->layers[l].kind == LAYER_CONVOLUTION;
	const dnnl_prop_kind_t kind = plan->training ? dnnl_forward_training : dnnl_forward_inference;
	const struct dnn_window window = window_of(&model->layers[l]);
	struct trace *trace = &plan->traces[l];

	dnnl_memory_t dense = memory(plan, weights_layout(plan, l, dnnl_abcd), weights->value);
	dnnl_memory_t bias_memory = vector(plan, bias->count, bias->value);
	dnn_md any_weights = weights_layout(plan, l, dnnl_format_tag_any);
	dnn_md result = convolution ? image_layout(plan, &model->outputs[l], dnnl_format_tag_any) :
		flat_layout(plan, &model->outputs[l]);
	/* The images are what they are; everything later is laid out as the next primitive likes it best. */
	dnn_md any_input = l > 0 ? image_layout(plan, &model->outputs[l - 1], dnnl_format_tag_any) :
		image_layout(plan, &model->input, dnnl_abcd);
	dnnl_primitive_attr_t attribute = relu_attribute(plan, trace->relu);
	if (plan->failed) {
		dnnl_primitive_attr_destroy(attribute);
		return NULL;
	}
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = convolution ? dnn_convolution(&made, plan->engine, kind, &window, any_input, any_weights,
						     md_of(bias_memory), result, attribute)
					   : dnn_linear(&made, plan->engine, kind, any_input, any_weights,
						     md_of(bias_memory), result, attribute);
	dnnl_primitive_attr_destroy(attribute);
	trace->forward = keep(plan, status, made, convolution ? "a convolution" : "a linear layer");
	if (plan->failed)
		return NULL;
	trace->input = in_layout(plan, &plan->forward, input, queried(trace->forward, dnnl_query_src_md));
	dnnl_memory_t laid_out = in_layout(plan, &plan->forward, dense, queried(trace->forward, dnnl_query_weights_md));
	trace->output = memory(plan, queried(trace->forward, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input },
		{ DNNL_ARG_WEIGHTS, laid_out }, { DNNL_ARG_BIAS, bias_memory }, { DNNL_ARG_DST, trace->output } }, 4);
	if (convolution || plan->failed)
		return trace->output;
	return viewed(plan, trace->output, image_layout(plan, &model->outputs[l], dnnl_abcd));
}

/* The gradient of the ReLU that was fused into this layer. */
static dnnl_memory_t relu_backward(struct plan *plan, dnnl_memory_t output, dnnl_memory_t gradient)
{
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_relu(&made, plan->engine, dnnl_forward_training, md_of(output));
	dnnl_primitive_desc_t hint = keep(plan, status, made, "a ReLU");
	if (plan->failed)
		return NULL;
	status = dnn_relu_backward(&made, plan->engine, md_of(output), hint);
	dnnl_primitive_desc_t backward = keep(plan, status, made, "the gradient of a ReLU");
	gradient = in_layout(plan, &plan->backward, gradient, md_of(output));
	append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DST, output },
		{ DNNL_ARG_DIFF_DST, gradient }, { DNNL_ARG_DIFF_SRC, gradient } }, 3);
	return gradient;
}

/* Gradients of weights and bias. */
static void weights_gradient(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const struct model *model = plan->model;
	const struct parameter *weights = &model->parameters[model->first_parameter[l]], *bias = weights + 1;
	const bool convolution = model->layers[l].kind == LAYER_CONVOLUTION;
	const struct dnn_window window = window_of(&model->layers[l]);
	struct trace *trace = &plan->traces[l];

	dnnl_memory_t dense = memory(plan, weights_layout(plan, l, dnnl_abcd), weights->gradient);
	dnnl_memory_t bias_memory = vector(plan, bias->count, bias->gradient);
	dnn_md any_weights = weights_layout(plan, l, dnnl_format_tag_any);
	dnn_md any_gradient = convolution ? image_layout(plan, &model->outputs[l], dnnl_format_tag_any) :
		flat_layout(plan, &model->outputs[l]);
	if (plan->failed)
		return;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = convolution ? dnn_convolution_weights(&made, plan->engine, &window, md_of(trace->input),
						     any_weights, md_of(bias_memory), any_gradient, trace->forward)
					   : dnn_linear_weights(&made, plan->engine, md_of(trace->input), any_weights,
						     md_of(bias_memory), any_gradient, trace->forward);
	dnnl_primitive_desc_t backward = keep(plan, status, made, "the gradient of weights");
	if (plan->failed)
		return;
	gradient = in_layout(plan, &plan->backward, gradient, queried(backward, dnnl_query_diff_dst_md));
	dnnl_memory_t place = gradient_place(plan, dense, queried(backward, dnnl_query_diff_weights_md));
	append(plan, &plan->backward, backward,
		(dnnl_exec_arg_t[]){{DNNL_ARG_SRC, trace->input}, {DNNL_ARG_DIFF_DST, gradient},
			{DNNL_ARG_DIFF_WEIGHTS, place}, {DNNL_ARG_DIFF_BIAS, bias_memory}},
		4);
	settle(plan, place, dense, model->first_parameter[l]);
}

/* The gradient of a layer's input. */
static dnnl_memory_t input_gradient(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const struct model *model = plan->model;
	const struct parameter *weights = &model->parameters[model->first_parameter[l]];
	const bool convolution = model->layers[l].kind == LAYER_CONVOLUTION;
	const struct dnn_window window = window_of(&model->layers[l]);

	dnnl_memory_t dense = memory(plan, weights_layout(plan, l, dnnl_abcd), weights->value);
	dnn_md any_weights = weights_layout(plan, l, dnnl_format_tag_any);
	dnn_md any_gradient = convolution ? image_layout(plan, &model->outputs[l], dnnl_format_tag_any) :
		flat_layout(plan, &model->outputs[l]);
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnn_md result = md_of(plan->traces[l].input);
	dnnl_status_t status = convolution ? dnn_convolution_data(&made, plan->engine, &window, result, any_weights,
						     any_gradient, plan->traces[l].forward)
					   : dnn_linear_data(&made, plan->engine, result, any_weights, any_gradient,
						     plan->traces[l].forward);
	dnnl_primitive_desc_t backward = keep(plan, status, made, "the gradient of a layer's input");
	if (plan->failed)
		return NULL;
	gradient = in_layout(plan, &plan->backward, gradient, queried(backward, dnnl_query_diff_dst_md));
	dnnl_memory_t laid_out = in_layout(plan, &plan->backward, dense, queried(backward, dnnl_query_weights_md));
	dnnl_memory_t input = memory(plan, result, DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DIFF_DST, gradient },
		{ DNNL_ARG_WEIGHTS, laid_out }, { DNNL_ARG_DIFF_SRC, input } }, 3);
	return input;
}

static dnnl_memory_t weights_backward(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const bool linear = plan->model->layers[l].kind == LAYER_LINEAR;
	if (linear) {
		dnn_md dense = image_layout(plan, &plan->model->outputs[l], dnnl_abcd);
		gradient = in_layout(plan, &plan->backward, gradient, dense);
		gradient = viewed(plan, gradient, flat_layout(plan, &plan->model->outputs[l]));
	}
	if (plan->traces[l].relu)
		gradient = relu_backward(plan, plan->traces[l].output, gradient);
	weights_gradient(plan, l, gradient);
	return l > 0 ? input_gradient(plan, l, gradient) : NULL;
}

/* ---- Layers without weights --------------------------------------------------------------------------------- */

static unsigned norm_flags(const struct plan *plan, const struct trace *trace)
{
	return dnnl_use_scale | dnnl_use_shift | (trace->relu ? dnnl_fuse_norm_relu : 0) |
		(plan->training ? 0 : dnnl_use_global_stats);
}

static dnnl_memory_t norm_forward(struct plan *plan, uint32_t l, dnnl_memory_t input)
{
	const struct model *model = plan->model;
	const struct parameter *scale = &model->parameters[model->first_parameter[l]], *shift = scale + 1;
	const struct statistics *statistics = &model->statistics[model->first_statistics[l]];
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_batch_norm(&made, plan->engine,
		plan->training ? dnnl_forward_training : dnnl_forward_inference, md_of(input), norm_epsilon,
		norm_flags(plan, trace));
	trace->forward = keep(plan, status, made, "batch norm");
	trace->input = input;
	trace->mean = vector(plan, statistics->channels, plan->training ? NULL : statistics->mean);
	trace->variance = vector(plan, statistics->channels, plan->training ? NULL : statistics->variance);
	if (plan->failed)
		return NULL;
	if (plan->training && trace->relu)
		trace->workspace = memory(plan, queried(trace->forward, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE);
	trace->output = memory(plan, md_of(input), DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, input },
		{ DNNL_ARG_SCALE, vector(plan, scale->count, scale->value) },
		{ DNNL_ARG_SHIFT, vector(plan, shift->count, shift->value) }, { DNNL_ARG_MEAN, trace->mean },
		{ DNNL_ARG_VARIANCE, trace->variance }, { DNNL_ARG_WORKSPACE, trace->workspace },
		{ DNNL_ARG_DST, trace->output } }, 7);
	return trace->output;
}

static dnnl_memory_t norm_backward(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const struct model *model = plan->model;
	const struct parameter *scale = &model->parameters[model->first_parameter[l]], *shift = scale + 1;
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_batch_norm_backward(&made, plan->engine, md_of(trace->input), norm_epsilon,
		norm_flags(plan, trace), trace->forward);
	dnnl_primitive_desc_t backward = keep(plan, status, made, "the gradient of batch norm");
	if (plan->failed)
		return NULL;
	gradient = in_layout(plan, &plan->backward, gradient, md_of(trace->input));
	append(plan, &plan->backward, backward,
		(dnnl_exec_arg_t[]){{DNNL_ARG_SRC, trace->input}, {DNNL_ARG_MEAN, trace->mean},
			{DNNL_ARG_VARIANCE, trace->variance},
			{DNNL_ARG_SCALE, vector(plan, scale->count, scale->value)},
			{DNNL_ARG_SHIFT,
				dnn_batch_norm_backward_takes_shift ? vector(plan, shift->count, shift->value) : NULL},
			{DNNL_ARG_WORKSPACE, trace->workspace}, {DNNL_ARG_DIFF_DST, gradient},
			{DNNL_ARG_DIFF_SRC, gradient},
			{DNNL_ARG_DIFF_SCALE, vector(plan, scale->count, scale->gradient)},
			{DNNL_ARG_DIFF_SHIFT, vector(plan, shift->count, shift->gradient)}},
		10);
	settle(plan, NULL, NULL, model->first_parameter[l]);
	return gradient;
}

static dnnl_memory_t pool_forward(struct plan *plan, uint32_t l, dnnl_memory_t input)
{
	const struct dnn_window window = window_of(&plan->model->layers[l]);
	struct trace *trace = &plan->traces[l];
	dnn_md result = image_layout(plan, &plan->model->outputs[l], dnnl_format_tag_any);
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_max_pool(&made, plan->engine,
		plan->training ? dnnl_forward_training : dnnl_forward_inference, &window, md_of(input), result);
	trace->forward = keep(plan, status, made, "max pooling");
	trace->input = input;
	if (plan->failed)
		return NULL;
	if (plan->training)
		trace->workspace = memory(plan, queried(trace->forward, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE);
	trace->output = memory(plan, queried(trace->forward, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, input },
		{ DNNL_ARG_WORKSPACE, trace->workspace }, { DNNL_ARG_DST, trace->output } }, 3);
	return trace->output;
}

static dnnl_memory_t pool_backward(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const struct dnn_window window = window_of(&plan->model->layers[l]);
	struct trace *trace = &plan->traces[l];
	if (plan->failed || l == 0)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_max_pool_backward(&made, plan->engine, &window, md_of(trace->input),
		md_of(trace->output), trace->forward);
	dnnl_primitive_desc_t backward = keep(plan, status, made, "the gradient of max pooling");
	if (plan->failed)
		return NULL;
	gradient = in_layout(plan, &plan->backward, gradient, md_of(trace->output));
	dnnl_memory_t input = memory(plan, md_of(trace->input), DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DIFF_DST, gradient },
		{ DNNL_ARG_WORKSPACE, trace->workspace }, { DNNL_ARG_DIFF_SRC, input } }, 3);
	return input;
}

/* A ReLU that nothing before it could take in. In place, unless these are the caller's images. */
static dnnl_memory_t relu_forward(struct plan *plan, uint32_t l, dnnl_memory_t input)
{
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_relu(&made, plan->engine, dnnl_forward_training, md_of(input));
	trace->forward = keep(plan, status, made, "a ReLU");
	trace->output = memory(plan, md_of(input), DNNL_MEMORY_ALLOCATE);
	append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, input },
		{ DNNL_ARG_DST, trace->output } }, 2);
	return trace->output;
}



static bool takes_in_relu(enum layer_kind kind)
{
	return kind == LAYER_CONVOLUTION || kind == LAYER_BATCH_NORM || kind == LAYER_LINEAR;
}

static void build_forward(struct plan *plan)
{
	const struct model *model = plan->model;
	dnnl_memory_t x = plan->input = memory(plan, image_layout(plan, &model->input, dnnl_abcd), DNNL_MEMORY_NONE);
	for (uint32_t l = 0; l < model->layer_count; l++) {
		plan->traces[l].relu = takes_in_relu(model->layers[l].kind) && l + 1 < model->layer_count &&
			model->layers[l + 1].kind == LAYER_RELU;
		switch (model->layers[l].kind) {
		case LAYER_CONVOLUTION: case LAYER_LINEAR: x = weights_forward(plan, l, x); break;
		case LAYER_BATCH_NORM: x = norm_forward(plan, l, x); break;
		case LAYER_MAX_POOL: x = pool_forward(plan, l, x); break;
		case LAYER_RELU:
			if (l == 0 || !plan->traces[l - 1].relu)
				x = relu_forward(plan, l, x);
			break;
		}
	}
	plan->output = x;  /* dense: the last layer is linear */
}

static void build_backward(struct plan *plan)
{
	const struct model *model = plan->model;
	if (plan->failed)
		return;
	dnnl_memory_t d = plan->output_gradient = memory(plan, md_of(plan->output), DNNL_MEMORY_ALLOCATE);
	for (uint32_t l = model->layer_count; l-- > 0;) {
		switch (model->layers[l].kind) {
		case LAYER_CONVOLUTION: case LAYER_LINEAR: d = weights_backward(plan, l, d); break;
		case LAYER_BATCH_NORM: d = norm_backward(plan, l, d); break;
		case LAYER_MAX_POOL: d = pool_backward(plan, l, d); break;
		case LAYER_RELU:
			if (plan->traces[l].output)
				d = relu_backward(plan, plan->traces[l].output, d);
			break;
		}
	}
}

static void row_deinit(struct row *row)
{
	for (uint32_t s = 0; s < row->count; s++)
		dnnl_primitive_destroy(row->steps[s].primitive);
}

void plan_destroy(struct plan *plan)
{
	if (!plan)
		return;
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

struct plan *plan_create(const struct model *model, dnnl_engine_t engine, uint32_t batch_count, bool training)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	if (!plan) {
		train_fail("no memory for a plan");
		return NULL;
	}
	*plan = (struct plan){ .model = model, .engine = engine, .batch_count = batch_count, .training = training };
	build_forward(plan);
	if (training)
		build_backward(plan);
	if (plan->failed) {
		plan_destroy(plan);
		return NULL;
	}
	return plan;
}
