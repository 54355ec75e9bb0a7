/* Layers without parameters: pooling, sums of two, and ReLUs that stand alone. */
#include "onednn/build.h"

static dnnl_alg_kind_t how_of(const struct layer *layer)
{
	return layer->kind == LAYER_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
}

static struct dnn_window window_of(const struct plan *plan, uint32_t l)
{
	const struct layer *layer = &plan->model->layers[l];
	const struct shape *in = model_input_shape(plan->model, l);
	const bool all = layer->kind == LAYER_MEAN_POOL;
	const dnnl_dim_t height = all ? in->height : layer->kernel, width = all ? in->width : layer->kernel;
	return (struct dnn_window){ { height, width }, { height, width }, { 0, 0 } };
}

void plan_pool_forward(struct plan *plan, uint32_t l)
{
	const struct dnn_window window = window_of(plan, l);
	const dnnl_alg_kind_t how = how_of(&plan->model->layers[l]);
	struct trace *trace = &plan->traces[l];
	dnn_md result = plan_image_layout(plan, &plan->model->outputs[l], dnnl_format_tag_any);
	if (plan->failed)
		return;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status =
		dnn_pool(&made, plan->engine, plan_kind(plan), how, &window, plan_md_of(trace->input), result);
	trace->forward = plan_keep(plan, status, made, "pooling");
	if (plan->failed)
		return;
	if (plan->training && how == dnnl_pooling_max)
		trace->workspace =
			plan_memory(plan, plan_queried(trace->forward, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE);
	trace->result = trace->output =
		plan_memory(plan, plan_queried(trace->forward, dnnl_query_dst_md), DNNL_MEMORY_ALLOCATE);
	plan_append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input },
		{ DNNL_ARG_WORKSPACE, trace->workspace }, { DNNL_ARG_DST, trace->output } }, 3);
}

void plan_pool_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	const struct dnn_window window = window_of(plan, l);
	const struct trace *trace = &plan->traces[l];
	if (plan->failed || plan->model->sources[l] == MODEL_INPUT)
		return;
	dnn_md input = plan_md_of(trace->input), output = plan_md_of(trace->output);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_pool_backward(
		&made, plan->engine, how_of(&plan->model->layers[l]), &window, input, output, trace->forward);
	dnnl_primitive_desc_t backward = plan_keep(plan, status, made, "the gradient of pooling");
	gradient = plan_flow_in_layout(plan, gradient, output);
	dnnl_memory_t back = plan_passing(plan, input);
	plan_append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DIFF_DST, gradient.tensor },
		{ DNNL_ARG_WORKSPACE, trace->workspace }, { DNNL_ARG_DIFF_SRC, back } }, 3);
	plan_pass_back(plan, plan->model->sources[l], (struct flow){ back, false });
}

static dnnl_memory_t result_of(const struct plan *plan, uint32_t layer)
{
	return layer == MODEL_INPUT ? plan->input : plan->traces[layer].result;
}

void plan_add_forward(struct plan *plan, uint32_t l)
{
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(trace->input);
	dnnl_memory_t addend = plan_in_layout(plan, &plan->forward, result_of(plan, plan->model->addends[l]), md);
	trace->result = trace->output = plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
	plan_append_sum(plan, &plan->forward, trace->input, addend, trace->output, trace->relu);
}

/* Both inputs get the same gradient, so it must not be written any more. */
void plan_add_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	if (plan->traces[l].relu)
		gradient = plan_relu_backward(plan, plan->traces[l].output, gradient);
	gradient.shared = true;
	plan_pass_back(plan, plan->model->sources[l], gradient);
	plan_pass_back(plan, plan->model->addends[l], gradient);
}

void plan_relu_forward(struct plan *plan, uint32_t l)
{
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(trace->input);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_relu(&made, plan->engine, dnnl_forward_training, md);
	trace->forward = plan_keep(plan, status, made, "a ReLU");
	trace->result = trace->output = plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
	plan_append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input },
		{ DNNL_ARG_DST, trace->output } }, 2);
}

struct flow plan_relu_backward(struct plan *plan, dnnl_memory_t output, struct flow gradient)
{
	if (plan->failed)
		return gradient;
	dnn_md md = plan_md_of(output);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_relu(&made, plan->engine, dnnl_forward_training, md);
	dnnl_primitive_desc_t hint = plan_keep(plan, status, made, "a ReLU");
	if (plan->failed)
		return gradient;
	status = dnn_relu_backward(&made, plan->engine, md, hint);
	dnnl_primitive_desc_t backward = plan_keep(plan, status, made, "the gradient of a ReLU");
	gradient = plan_flow_in_layout(plan, gradient, md);
	dnnl_memory_t back = plan_flow_place(plan, gradient);
	plan_append(plan, &plan->backward, backward, (dnnl_exec_arg_t[]){ { DNNL_ARG_DST, output },
		{ DNNL_ARG_DIFF_DST, gradient.tensor }, { DNNL_ARG_DIFF_SRC, back } }, 3);
	return (struct flow){ back, false };
}
