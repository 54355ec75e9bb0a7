/* Layers with weights: convolution and linear.
 *
 * Weights are dense at rest (model.h); a reorder stands in the row where a primitive wants them otherwise. A linear
 * layer takes an image and gives two dimensions; the next layer sees channels of one pixel. */
#include "onednn/build.h"

#include <string.h>

static bool is_convolution(const struct plan *plan, uint32_t l)
{
	return plan->model->layers[l].kind == LAYER_CONVOLUTION;
}

static struct dnn_window window_of(const struct layer *layer)
{
	const dnnl_dim_t kernel = layer->kernel, padding = layer->padding, stride = layer->stride ? layer->stride : 1;
	return (struct dnn_window){ { kernel, kernel }, { stride, stride }, { padding, padding } };
}

static const struct parameter *weights_of(const struct plan *plan, uint32_t l)
{
	return &plan->model->parameters[plan->model->first_parameter[l]];
}

static const struct parameter *bias_of(const struct plan *plan, uint32_t l)
{
	return plan->model->layers[l].no_bias ? NULL : weights_of(plan, l) + 1;
}

/* A layer's weights as its primitive sees them: a linear layer's columns are the pixels and channels before it. */
static dnn_md weights_layout(struct plan *plan, uint32_t l, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	const struct shape *in = model_input_shape(plan->model, l);
	dnnl_dims_t dims = { (dnnl_dim_t)weights_of(plan, l)->shape[0], in->channels, in->height, in->width };
	if (is_convolution(plan, l))
		dims[2] = dims[3] = plan->model->layers[l].kernel;
	return plan_layout(plan, 4, dims, type, tag);
}

static dnn_md flat_layout(struct plan *plan, uint32_t l, dnnl_data_type_t type)
{
	const dnnl_dims_t dims = { plan->batch_count, plan->model->outputs[l].channels };
	return plan_layout(plan, 2, dims, type, dnnl_ab);
}

/* Returns the layout of a layer's output: f32 if the loss reads it. */
static dnn_md output_layout(struct plan *plan, uint32_t l)
{
	if (is_convolution(plan, l))
		return plan_image_layout(plan, &plan->model->outputs[l], dnnl_format_tag_any);
	return flat_layout(plan, l, l + 1 == plan->model->layer_count ? dnnl_f32 : plan->type);
}

/* Returns the layout of the output's gradient. */
static dnn_md gradient_layout(struct plan *plan, uint32_t l)
{
	return is_convolution(plan, l) ? output_layout(plan, l) : flat_layout(plan, l, plan->type);
}

/* The weights as a primitive wants them; where they are rounded, that must not be the parameter itself. */
static dnnl_memory_t weights_in(struct plan *plan, struct row *row, uint32_t l, dnn_md md)
{
	dnnl_memory_t dense = plan_memory(
		plan, weights_layout(plan, l, dnnl_f32, dnnl_abcd), weights_of(plan, l)->value);
	dnnl_memory_t laid_out = plan_in_layout(plan, row, dense, md);
	if (plan->rounds && laid_out == dense && !plan->failed) {
		laid_out = plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
		plan_append_copy(plan, row, dense, laid_out);
	}
	plan_round(plan, row, laid_out);
	return laid_out;
}

static dnnl_primitive_desc_t describe_forward(struct plan *plan, uint32_t l, dnnl_memory_t bias)
{
	const bool convolution = is_convolution(plan, l);
	const struct dnn_window window = window_of(&plan->model->layers[l]);
	/* The images are what they are; everything later is laid out as the next primitive likes it best. */
	dnn_md input = plan_image_layout(plan, model_input_shape(plan->model, l),
		plan->model->sources[l] == MODEL_INPUT ? dnnl_abcd : dnnl_format_tag_any);
	dnn_md weights = weights_layout(plan, l, plan->type, dnnl_format_tag_any), output = output_layout(plan, l);
	dnnl_primitive_attr_t attribute = plan_relu_attribute(plan, plan->traces[l].relu);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnnl_success;
	if (!plan->failed && convolution)
		status = dnn_convolution(&made, plan->engine, plan_kind(plan), &window, input, weights,
			bias ? plan_md_of(bias) : NULL, output, attribute);
	else if (!plan->failed)
		status = dnn_linear(&made, plan->engine, plan_kind(plan), input, weights,
			bias ? plan_md_of(bias) : NULL, output, attribute);
	dnnl_primitive_attr_destroy(attribute);
	return plan_keep(plan, status, made, convolution ? "a convolution" : "a linear layer");
}

void plan_weights_forward(struct plan *plan, uint32_t l)
{
	const struct parameter *bias = bias_of(plan, l);
	struct trace *trace = &plan->traces[l];
	dnnl_memory_t bias_memory = bias ? plan_vector(plan, bias->count, bias->value) : NULL;
	trace->forward = describe_forward(plan, l, bias_memory);
	if (plan->failed)
		return;
	trace->input =
		plan_in_layout(plan, &plan->forward, trace->input, plan_queried(trace->forward, dnnl_query_src_md));
	dnnl_memory_t weights =
		weights_in(plan, &plan->forward, l, plan_queried(trace->forward, dnnl_query_weights_md));
	trace->result = trace->output =
		plan_memory(plan, plan_queried(trace->forward, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE);
	plan_append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input },
		{ DNNL_ARG_WEIGHTS, weights }, { DNNL_ARG_BIAS, bias_memory }, { DNNL_ARG_DST, trace->output } }, 4);
	const bool last = l + 1 == plan->model->layer_count;  /* flat, for the loss */
	if (!is_convolution(plan, l))
		trace->result = last ? trace->output : plan_view(
			plan, trace->output, plan_image_layout(plan, &plan->model->outputs[l], dnnl_abcd));
}

/* ---- Backward ----------------------------------------------------------------------------------------------- */

/* Describes the primitive of the gradient of weights and bias (bias: its layout, or NULL), or of the input. */
static dnnl_status_t describe_backward(struct plan *plan, uint32_t l, bool of_weights, dnn_md bias, dnn_md input,
	dnn_md output, dnnl_primitive_desc_t *made)
{
	const struct dnn_window window = window_of(&plan->model->layers[l]);
	const_dnnl_primitive_desc_t forward = plan->traces[l].forward;
	dnnl_engine_t engine = plan->engine;
	dnn_md weights = weights_layout(plan, l, of_weights ? dnnl_f32 : plan->type, dnnl_format_tag_any);
	if (plan->failed)
		return dnnl_out_of_memory;
	if (of_weights)
		return is_convolution(plan, l)
			? dnn_convolution_weights(made, engine, &window, input, weights, bias, output, forward)
			: dnn_linear_weights(made, engine, input, weights, bias, output, forward);
	return is_convolution(plan, l) ? dnn_convolution_data(made, engine, &window, input, weights, output, forward)
				       : dnn_linear_data(made, engine, input, weights, output, forward);
}

/* A convolution that is done by unrolling it into a matrix, or one number after the other. */
static bool unrolls(dnnl_primitive_desc_t descriptor)
{
	const char *how = "";
	dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &how);
	return (strstr(how, "gemm") && !strstr(how, "brgemm")) || strstr(how, "ref");
}

/* Pads channels to whole vectors. Otherwise oneDNN unrolls, which takes longer although it computes less. (lenet,
 * whose second convolution has 6 channels: 1.28 x the images/s.) */
static void avoid_unrolling(struct plan *plan, uint32_t l, bool of_weights, dnn_md bias, dnnl_primitive_desc_t *made)
{
	static const dnnl_format_tag_t blocked[] = { dnnl_aBcd16b, dnnl_aBcd8b, dnnl_acdb };
	for (int i = 0; i < 3 && unrolls(*made); i++) {
		dnn_md input = plan_image_layout(plan, model_input_shape(plan->model, l), blocked[i]),
		       output = plan_image_layout(plan, &plan->model->outputs[l], blocked[i]);
		dnnl_primitive_desc_t other = NULL;
		if (plan->failed || describe_backward(plan, l, of_weights, bias, input, output, &other) != dnnl_success)
			continue;
		dnnl_primitive_desc_t worse = unrolls(other) ? other : *made;
		*made = worse == other ? *made : other;
		dnnl_primitive_desc_destroy(worse);
	}
}

static dnnl_primitive_desc_t choose_backward(struct plan *plan, uint32_t l, bool of_weights, dnn_md bias,
	const char *what)
{
	dnn_md output = gradient_layout(plan, l);
	if (plan->failed)
		return NULL;
	dnnl_primitive_desc_t made = NULL;
	const dnnl_status_t status =
		describe_backward(plan, l, of_weights, bias, plan_md_of(plan->traces[l].input), output, &made);
	if (status == dnnl_success && is_convolution(plan, l))
		avoid_unrolling(plan, l, of_weights, bias, &made);
	return plan_keep(plan, status, made, what);
}

/* Returns the input in this layout; the layer before may already use it. */
static dnnl_memory_t input_in(struct plan *plan, uint32_t l, dnn_md md)
{
	const uint32_t source = plan->model->sources[l];
	if (source != MODEL_INPUT && dnnl_memory_desc_equal(plan_md_of(plan->traces[source].result), md))
		return plan->traces[source].result;
	return plan_in_layout(plan, &plan->backward, plan->traces[l].input, md);
}

static void parameters_gradient(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	const struct parameter *bias = bias_of(plan, l);
	dnnl_memory_t dense =
		plan_memory(plan, weights_layout(plan, l, dnnl_f32, dnnl_abcd), weights_of(plan, l)->gradient);
	dnnl_memory_t bias_memory = bias ? plan_vector(plan, bias->count, bias->gradient) : NULL;
	if (plan->failed)
		return;
	dnnl_primitive_desc_t backward = choose_backward(
		plan, l, true, bias ? plan_md_of(bias_memory) : NULL, "the gradient of weights");
	if (plan->failed)
		return;
	dnnl_memory_t input = input_in(plan, l, plan_queried(backward, dnnl_query_src_md));
	gradient = plan_in_layout(plan, &plan->backward, gradient, plan_queried(backward, dnnl_query_diff_dst_md));
	dnnl_memory_t place = plan_gradient_place(plan, dense, plan_queried(backward, dnnl_query_diff_weights_md));
	plan_append(plan, &plan->backward, backward,
		(dnnl_exec_arg_t[]){{DNNL_ARG_SRC, input}, {DNNL_ARG_DIFF_DST, gradient},
			{DNNL_ARG_DIFF_WEIGHTS, place}, {DNNL_ARG_DIFF_BIAS, bias_memory}},
		4);
	plan_finish_gradient(plan, place, dense, l);
}

static dnnl_memory_t input_gradient(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	dnnl_primitive_desc_t backward = choose_backward(plan, l, false, NULL, "the gradient of a layer's input");
	if (plan->failed)
		return NULL;
	gradient = plan_in_layout(plan, &plan->backward, gradient, plan_queried(backward, dnnl_query_diff_dst_md));
	dnnl_memory_t weights =
		weights_in(plan, &plan->backward, l, plan_queried(backward, dnnl_query_weights_md));
	dnnl_memory_t back = plan_passing(plan, plan_queried(backward, dnnl_query_diff_src_md));
	plan_append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DIFF_DST, gradient },
		{ DNNL_ARG_WEIGHTS, weights }, { DNNL_ARG_DIFF_SRC, back } }, 3);
	return back;
}

void plan_weights_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	const uint32_t source = plan->model->sources[l];
	if (l + 1 == plan->model->layer_count) {
		gradient = plan_flow_in_layout(plan, gradient, flat_layout(plan, l, plan->type));
	} else if (!is_convolution(plan, l)) {
		gradient = plan_flow_in_layout(
			plan, gradient, plan_image_layout(plan, &plan->model->outputs[l], dnnl_abcd));
		gradient.tensor = plan_view(plan, gradient.tensor, flat_layout(plan, l, plan->type));
	}
	if (plan->traces[l].relu)
		gradient = plan_relu_backward(plan, plan->traces[l].output, gradient);
	parameters_gradient(plan, l, gradient.tensor);
	if (source != MODEL_INPUT)
		plan_pass_back(plan, source, (struct flow){ input_gradient(plan, l, gradient.tensor), false });
}
