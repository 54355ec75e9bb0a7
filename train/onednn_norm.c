/* Batch norm: over the batch and its pixels, one scale and shift a channel. */
#include "onednn_build.h"

/* torch.nn.BatchNorm2d's default. */
static const float epsilon = 1e-5F;

static unsigned flags_of(const struct plan *plan, uint32_t l)
{
	return dnnl_use_scale | dnnl_use_shift | (plan->traces[l].relu ? dnnl_fuse_norm_relu : 0) |
		(plan->training ? 0 : dnnl_use_global_stats);
}

static const struct parameter *scale_of(const struct plan *plan, uint32_t l)
{
	return &plan->model->parameters[plan->model->first_parameter[l]];
}

void plan_norm_forward(struct plan *plan, uint32_t l)
{
	const struct parameter *scale = scale_of(plan, l), *shift = scale + 1;
	const struct statistics *statistics = &plan->model->statistics[plan->model->first_statistics[l]];
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(trace->input);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_batch_norm(&made, plan->engine, plan_kind(plan), md, epsilon, flags_of(plan, l));
	trace->forward = plan_keep(plan, status, made, "batch norm");
	trace->mean = plan_vector(plan, statistics->channels, plan->training ? NULL : statistics->mean);
	trace->variance = plan_vector(plan, statistics->channels, plan->training ? NULL : statistics->variance);
	if (plan->failed)
		return;
	if (plan->training && trace->relu)
		trace->workspace =
			plan_memory(plan, plan_queried(trace->forward, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE);
	trace->result = trace->output = plan_memory(plan, md, DNNL_MEMORY_ALLOCATE);
	plan_append(plan, &plan->forward, trace->forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input },
		{ DNNL_ARG_SCALE, plan_vector(plan, scale->count, scale->value) },
		{ DNNL_ARG_SHIFT, plan_vector(plan, shift->count, shift->value) }, { DNNL_ARG_MEAN, trace->mean },
		{ DNNL_ARG_VARIANCE, trace->variance }, { DNNL_ARG_WORKSPACE, trace->workspace },
		{ DNNL_ARG_DST, trace->output } }, 7);
}

void plan_norm_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	const struct parameter *scale = scale_of(plan, l), *shift = scale + 1;
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(trace->input);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status =
		dnn_batch_norm_backward(&made, plan->engine, md, epsilon, flags_of(plan, l), trace->forward);
	dnnl_primitive_desc_t backward = plan_keep(plan, status, made, "the gradient of batch norm");
	gradient = plan_flow_in_layout(plan, gradient, md);
	dnnl_memory_t back = plan_flow_place(plan, gradient);
	plan_append(plan, &plan->backward, backward,
		(dnnl_exec_arg_t[]){{DNNL_ARG_SRC, trace->input}, {DNNL_ARG_MEAN, trace->mean},
			{DNNL_ARG_VARIANCE, trace->variance},
			{DNNL_ARG_SCALE, plan_vector(plan, scale->count, scale->value)},
			{DNNL_ARG_SHIFT, dnn_batch_norm_backward_takes_shift ?
				plan_vector(plan, shift->count, shift->value) : NULL},
			{DNNL_ARG_WORKSPACE, trace->workspace}, {DNNL_ARG_DIFF_DST, gradient.tensor},
			{DNNL_ARG_DIFF_SRC, back},
			{DNNL_ARG_DIFF_SCALE, plan_vector(plan, scale->count, scale->gradient)},
			{DNNL_ARG_DIFF_SHIFT, plan_vector(plan, shift->count, shift->gradient)}},
		10);
	plan_settle(plan, NULL, NULL, l);
	plan_pass_back(plan, plan->model->sources[l], (struct flow){ back, false });
}
