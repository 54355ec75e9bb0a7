/* Batch norm: over the batch and its pixels, one scale and shift a channel.
 *
 * Over all ranks' batches (--sync-batch-norm), every rank computes its own mean and variance, all are gathered and put
 * together, in the order of ranks, and the layer is run with those. oneDNN takes given statistics for constants: its
 * gradient is then
 *
 *     dx = scale / deviation x dy
 *
 * while mean and variance do depend on every x of every rank. What is missing is linear in the normalised input x':
 *
 *     - scale / deviation x (sum of dy / N + x' x sum of (dy x') / N)
 *
 * and the two sums over all ranks and N values are what the ranks' gradients of shift and scale add up to. So this is
 * one more batch norm, of the same input with other scale and shift, and is added. */
#include "onednn/build.h"

#include <math.h>

/* torch.nn.BatchNorm2d's default. */
static const float epsilon = 1e-5F;

static const struct parameter *scale_of(const struct plan *plan, uint32_t l)
{
	return &plan->model->parameters[plan->model->first_parameter[l]];
}

static uint32_t channels_of(const struct plan *plan, uint32_t l)
{
	return plan->model->outputs[l].channels;
}

/* Values of a channel on this rank. */
static double own_count(const struct plan *plan, uint32_t l)
{
	return (double)plan->batch_count * plan->model->outputs[l].height * plan->model->outputs[l].width;
}

double plan_norm_count(const struct plan *plan, uint32_t layer)
{
	return plan->sync ? plan->traces[layer].seen : own_count(plan, layer);
}

static bool gather(struct plan *plan, uint32_t count)
{
	return plan->sync->gather(plan->sync->context, plan->mine, plan->all, count);
}

/* This rank's mean and variance become all ranks'. As sums of squares about the common mean, without cancellation:
 * Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979. */
static bool join_statistics(struct plan *plan, const struct step *step)
{
	const uint32_t l = step->layer;
	struct trace *trace = &plan->traces[l];
	const uint32_t channels = channels_of(plan, l), each = 2 * channels + 1, ranks = plan->sync->ranks;
	float *mean = plan_data(trace->mean), *variance = plan_data(trace->variance);
	for (uint32_t c = 0; c < channels; c++) {
		plan->mine[c] = mean[c];
		plan->mine[channels + c] = variance[c];
	}
	plan->mine[2 * channels] = (float)own_count(plan, l);
	if (!gather(plan, each))
		return false;
	trace->seen = 0;
	for (uint32_t r = 0; r < ranks; r++)
		trace->seen += (double)plan->all[r * each + 2 * channels];
	for (uint32_t c = 0; c < channels; c++) {
		double sum = 0, squares = 0;
		for (uint32_t r = 0; r < ranks; r++)
			sum += (double)plan->all[r * each + 2 * channels] * (double)plan->all[r * each + c];
		const double common = sum / trace->seen;
		for (uint32_t r = 0; r < ranks; r++) {
			const float *rank = plan->all + r * each;
			const double off = (double)rank[c] - common;
			squares += (double)rank[2 * channels] * ((double)rank[channels + c] + off * off);
		}
		mean[c] = (float)common;
		variance[c] = (float)(squares / trace->seen);
	}
	return true;
}

/* All ranks' gradients of scale and shift become the slope and offset of what is missing. */
static bool join_gradients(struct plan *plan, const struct step *step)
{
	const uint32_t l = step->layer;
	struct trace *trace = &plan->traces[l];
	const struct parameter *scale = scale_of(plan, l), *shift = scale + 1;
	const uint32_t channels = channels_of(plan, l), each = 2 * channels;
	const float *variance = plan_data(trace->variance);
	float *slope = plan_data(trace->slope), *offset = plan_data(trace->offset);
	for (uint32_t c = 0; c < channels; c++) {
		plan->mine[c] = scale->gradient[c];
		plan->mine[channels + c] = shift->gradient[c];
	}
	if (!gather(plan, each))
		return false;
	for (uint32_t c = 0; c < channels; c++) {
		double scales = 0, shifts = 0;
		for (uint32_t r = 0; r < plan->sync->ranks; r++) {
			scales += (double)plan->all[r * each + c];
			shifts += (double)plan->all[r * each + channels + c];
		}
		const double factor =
			-(double)scale->value[c] / sqrt((double)variance[c] + (double)epsilon) / trace->seen;
		slope[c] = (float)(factor * scales);
		offset[c] = (float)(factor * shifts);
	}
	return true;
}

/* Appends a forward pass to a row; its descriptor. */
static dnnl_primitive_desc_t append_forward(struct plan *plan, struct row *row, uint32_t l, unsigned flags,
	dnnl_memory_t scale, dnnl_memory_t shift, dnnl_memory_t output)
{
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return NULL;
	dnnl_memory_t workspace = NULL;
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_batch_norm(&made, plan->engine, plan_kind(plan), plan_md_of(trace->input), epsilon,
		dnnl_use_scale | dnnl_use_shift | flags);
	dnnl_primitive_desc_t forward = plan_keep(plan, status, made, "batch norm");
	if (!plan->failed && plan->training && (flags & dnnl_fuse_norm_relu))
		workspace = trace->workspace =
			plan_memory(plan, plan_queried(forward, dnnl_query_workspace_md), DNNL_MEMORY_ALLOCATE);
	plan_append(plan, row, forward, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, trace->input }, { DNNL_ARG_SCALE, scale },
		{ DNNL_ARG_SHIFT, shift }, { DNNL_ARG_MEAN, trace->mean }, { DNNL_ARG_VARIANCE, trace->variance },
		{ DNNL_ARG_WORKSPACE, workspace }, { DNNL_ARG_DST, output } }, 7);
	return forward;
}

static unsigned flags_of(const struct plan *plan, uint32_t l)
{
	return (plan->traces[l].relu ? dnnl_fuse_norm_relu : 0) |
		(plan->training && !plan->sync ? 0 : dnnl_use_global_stats);
}

void plan_norm_forward(struct plan *plan, uint32_t l)
{
	const struct parameter *scale = scale_of(plan, l), *shift = scale + 1;
	const struct statistics *statistics = &plan->model->statistics[plan->model->first_statistics[l]];
	struct trace *trace = &plan->traces[l];
	dnnl_memory_t scales = plan_vector(plan, scale->count, scale->value),
		      shifts = plan_vector(plan, shift->count, shift->value);
	trace->mean = plan_vector(plan, statistics->channels, plan->training ? NULL : statistics->mean);
	trace->variance = plan_vector(plan, statistics->channels, plan->training ? NULL : statistics->variance);
	if (plan->failed)
		return;
	trace->result = trace->output = plan_memory(plan, plan_md_of(trace->input), DNNL_MEMORY_ALLOCATE);
	if (plan->sync) {  /* for its mean and variance alone */
		append_forward(plan, &plan->forward, l, 0, scales, shifts, trace->output);
		plan_append_call(plan, &plan->forward, join_statistics, l, NULL);
	}
	trace->forward = append_forward(
		plan, &plan->forward, l, flags_of(plan, l), scales, shifts, trace->output);
}

/* Adds the part of the gradient that constant statistics leave out. */
static void append_correction(struct plan *plan, uint32_t l, dnnl_memory_t gradient)
{
	struct trace *trace = &plan->traces[l];
	dnnl_memory_t missing =
		plan->failed ? NULL : plan_passing(plan, plan_md_of(trace->input));
	append_forward(plan, &plan->backward, l, dnnl_use_global_stats, trace->slope, trace->offset, missing);
	plan_append_sum(plan, &plan->backward, gradient, missing, gradient, false);
}

void plan_norm_backward(struct plan *plan, uint32_t l, struct flow gradient)
{
	const struct parameter *scale = scale_of(plan, l), *shift = scale + 1;
	struct trace *trace = &plan->traces[l];
	if (plan->failed)
		return;
	dnn_md md = plan_md_of(trace->input);
	dnnl_primitive_desc_t made = NULL;
	dnnl_status_t status = dnn_batch_norm_backward(&made, plan->engine, md, epsilon,
		dnnl_use_scale | dnnl_use_shift | flags_of(plan, l), trace->forward);
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
	if (plan->sync) {
		trace->slope = plan_vector(plan, scale->count, NULL);
		trace->offset = plan_vector(plan, shift->count, NULL);
		plan_append_call(plan, &plan->backward, join_gradients, l, NULL);
	}
	plan_finish_gradient(plan, NULL, NULL, l);  /* from now on they may be sent, and change */
	if (plan->sync)
		append_correction(plan, l, back);
	plan_pass_back(plan, plan->model->sources[l], (struct flow){ back, false });
}
