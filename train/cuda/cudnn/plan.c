#include "cuda/cudnn/plan.h"

#include <stdlib.h>

/* More than this an algorithm does not get. */
static const size_t workspace_most = (size_t)512 << 20;

size_t plan_type_bytes(const struct layers *layers)
{
	return layers->type == KERNELS_F32 ? 4 : 2;
}

const struct shape *plan_shape_into(const struct model *model, uint32_t l)
{
	return model->sources[l] == MODEL_INPUT ? &model->input : &model->outputs[model->sources[l]];
}

uint32_t plan_weights(const struct model *model, uint32_t l)
{
	return model->first_parameter[l];
}

bool plan_has_bias(const struct layer *layer)
{
	return !layer->no_bias;
}

static uint64_t elements(const struct shape *shape, uint32_t batch_count)
{
	return (uint64_t)batch_count * shape->channels * shape->height * shape->width;
}

static bool describe(cudnnTensorDescriptor_t *made, const struct shape *shape, uint32_t batch_count,
	cudnnDataType_t type)
{
	return layers_check_cudnn(cudnnCreateTensorDescriptor(made), "a tensor") &&
		layers_check_cudnn(cudnnSetTensor4dDescriptor(*made, CUDNN_TENSOR_NCHW, type, (int)batch_count,
			(int)shape->channels, (int)shape->height, (int)shape->width), "a tensor's shape");
}

/* ---- Convolutions ------------------------------------------------------------------------------------------- */

/* The three kinds of answers have the same members, and no common type. */
#define CHOOSE(answers, count, algorithm, bytes)                                                                       \
	do {                                                                                                           \
		found = false;                                                                                         \
		for (int i = 0; i < (count) && !found; i++) {                                                          \
			found = (answers)[i].status == CUDNN_STATUS_SUCCESS &&                                         \
				(answers)[i].determinism == CUDNN_DETERMINISTIC &&                                     \
				(answers)[i].memory <= workspace_most;                                                 \
			if (found) {                                                                                   \
				*(algorithm) = (answers)[i].algo;                                                      \
				*(bytes) = *(bytes) < (answers)[i].memory ? (answers)[i].memory : *(bytes);            \
			}                                                                                              \
		}                                                                                                      \
	} while (0)

enum { ANSWERS = 10 };

static bool none_found(const char *what)
{
	return layers_check_cudnn(CUDNN_STATUS_NOT_SUPPORTED, what);
}

/* The fastest by cuDNN's own estimate that gives the same bits in every run. */
static bool choose_forward(const struct layers *layers, struct unit *unit, size_t *bytes)
{
	cudnnConvolutionFwdAlgoPerf_t answers[ANSWERS];
	int count = 0;
	bool found;
	if (!layers_check_cudnn(cudnnGetConvolutionForwardAlgorithm_v7(layers->cudnn, unit->in, unit->filter,
		    unit->convolution, unit->out, ANSWERS, &count, answers), "algorithms of a convolution"))
		return false;
	CHOOSE(answers, count, &unit->forward, bytes);
	return found || none_found("a convolution with the same bits in every run");
}

static bool choose_backward(const struct layers *layers, struct unit *unit, size_t *bytes)
{
	cudnnConvolutionBwdFilterAlgoPerf_t of_filter[ANSWERS];
	cudnnConvolutionBwdDataAlgoPerf_t of_data[ANSWERS];
	int count = 0;
	bool found;
	if (!layers_check_cudnn(cudnnGetConvolutionBackwardFilterAlgorithm_v7(layers->cudnn, unit->in, unit->out,
		    unit->convolution, unit->filter, ANSWERS, &count, of_filter), "algorithms of weights' gradients"))
		return false;
	CHOOSE(of_filter, count, &unit->back_filter, bytes);
	if (!found)
		return none_found("a gradient of weights with the same bits in every run");
	if (!layers_check_cudnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(layers->cudnn, unit->filter, unit->out,
		    unit->convolution, unit->in, ANSWERS, &count, of_data), "algorithms of images' gradients"))
		return false;
	CHOOSE(of_data, count, &unit->back_data, bytes);
	return found || none_found("a gradient of images with the same bits in every run");
}

static bool grow_workspace(struct layers *layers, size_t bytes)
{
	if (bytes <= layers->workspace_bytes)
		return true;
	if (layers->workspace && !layers_check_cuda((int)cudaFree(layers->workspace), "freeing memory"))
		return false;
	layers->workspace = NULL;
	layers->workspace_bytes = 0;
	if (!layers_allocate(&layers->workspace, bytes))
		return false;
	layers->workspace_bytes = bytes;
	return true;
}

static bool plan_convolution(struct layers *layers, const struct plan *plan, struct unit *unit, uint32_t l)
{
	const struct layer *layer = &layers->setup.model->layers[l];
	const int in = (int)plan_shape_into(layers->setup.model, l)->channels, kernel = (int)layer->kernel,
		  padding = (int)layer->padding, step = layer->stride ? (int)layer->stride : 1;
	const cudnnMathType_t math = layers->type != KERNELS_F32 ? CUDNN_TENSOR_OP_MATH :
		layers->setup.tf32					  ? CUDNN_DEFAULT_MATH :
									    CUDNN_FMA_MATH;
	size_t bytes = 0;
	return layers_check_cudnn(cudnnCreateFilterDescriptor(&unit->filter), "a filter") &&
	       layers_check_cudnn(cudnnSetFilter4dDescriptor(unit->filter, layers->cudnn_type, CUDNN_TENSOR_NCHW,
					  (int)layer->channels, in, kernel, kernel),
		       "a filter's shape") &&
	       layers_check_cudnn(cudnnCreateConvolutionDescriptor(&unit->convolution), "a convolution") &&
	       layers_check_cudnn(cudnnSetConvolution2dDescriptor(unit->convolution, padding, padding, step, step, 1, 1,
					  CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
		       "a convolution's shape") &&
	       layers_check_cudnn(cudnnSetConvolutionMathType(unit->convolution, math), "a convolution's arithmetic") &&
	       choose_forward(layers, unit, &bytes) && (!plan->training || choose_backward(layers, unit, &bytes)) &&
	       grow_workspace(layers, bytes);
}

/* ---- The others --------------------------------------------------------------------------------------------- */

static bool plan_norm(const struct layers *layers, const struct plan *plan, struct unit *unit, uint32_t channels)
{
	void *mean = NULL, *deviation = NULL;
	if (!layers_check_cudnn(cudnnCreateTensorDescriptor(&unit->channels), "a tensor") ||
		!layers_check_cudnn(cudnnDeriveBNTensorDescriptor(unit->channels, unit->in, CUDNN_BATCHNORM_SPATIAL),
			"batch norm's shape"))
		return false;
	if (!plan->training)
		return true;
	const bool fine = layers_allocate(&mean, channels * sizeof(float)) &&
		layers_allocate(&deviation, channels * sizeof(float));
	unit->mean = mean;
	unit->inverse_deviation = deviation;
	return fine && (!layers->setup.sync || norm_sync_plan(layers, &unit->shared, channels));
}

static bool plan_pool(const struct layers *layers, struct unit *unit, uint32_t l)
{
	const struct layer *layer = &layers->setup.model->layers[l];
	const struct shape *in = plan_shape_into(layers->setup.model, l);
	const bool all = layer->kind == LAYER_MEAN_POOL;
	const int height = (int)(all ? in->height : layer->kernel), width = (int)(all ? in->width : layer->kernel);
	return layers_check_cudnn(cudnnCreatePoolingDescriptor(&unit->pooling), "pooling") &&
		layers_check_cudnn(cudnnSetPooling2dDescriptor(unit->pooling, all ?
			CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING : CUDNN_POOLING_MAX_DETERMINISTIC,
			CUDNN_PROPAGATE_NAN, height, width, 0, 0, height, width), "pooling's shape");
}

static bool plan_unit(struct layers *layers, const struct plan *plan, struct unit *unit, uint32_t l)
{
	const struct model *model = layers->setup.model;
	const struct shape *in = plan_shape_into(model, l), *out = &model->outputs[l];
	const bool last = l + 1 == model->layer_count;
	const size_t bytes = plan_type_bytes(layers);
	unit->in_count = elements(in, plan->batch_count);
	unit->out_count = elements(out, plan->batch_count);
	if (!describe(&unit->in, in, plan->batch_count, layers->cudnn_type) ||
		!describe(&unit->out, out, plan->batch_count, layers->cudnn_type) ||
		!layers_allocate(&unit->output, unit->out_count * (last ? sizeof(float) : bytes)) ||
		(plan->training && !layers_allocate(&unit->gradient, unit->out_count * bytes)))
		return false;
	switch (model->layers[l].kind) {
	case LAYER_CONVOLUTION: return plan_convolution(layers, plan, unit, l);
	case LAYER_BATCH_NORM: return plan_norm(layers, plan, unit, out->channels);
	case LAYER_MAX_POOL: case LAYER_MEAN_POOL: return plan_pool(layers, unit, l);
	case LAYER_RELU: case LAYER_LINEAR: case LAYER_ADD: case LAYER_FORK: case LAYER_SHORTCUT: break;
	}
	return true;
}

static bool plan_all(struct layers *layers, struct plan *plan)
{
	const struct model *model = layers->setup.model;
	const uint64_t outputs = (uint64_t)plan->batch_count * model->outputs[model->layer_count - 1].channels;
	void *gradient = NULL;
	bool fine = !plan->training || layers_allocate(&gradient, outputs * sizeof(float));
	plan->loss_gradient = gradient;
	if (fine && layers->type != KERNELS_F32)
		fine = layers_allocate(
			&plan->input, elements(&model->input, plan->batch_count) * plan_type_bytes(layers));
	for (uint32_t l = 0; fine && l < model->layer_count; l++)
		fine = plan_unit(layers, plan, &plan->units[l], l);
	return fine;
}

struct plan *plan_for(struct layers *layers, uint32_t batch_count, bool training)
{
	for (struct plan *plan = layers->plans; plan; plan = plan->next)
		if (plan->batch_count == batch_count && plan->training == training)
			return plan;
	struct plan *plan = calloc(1, sizeof(*plan));
	if (!plan) {
		layers_check_cuda(cudaErrorMemoryAllocation, "a plan");
		return NULL;
	}
	plan->batch_count = batch_count;
	plan->training = training;
	if (!plan_all(layers, plan)) {
		plan_destroy(plan);
		return NULL;
	}
	plan->next = layers->plans;
	return layers->plans = plan;
}

void plan_destroy(struct plan *plan)
{
	for (uint32_t l = 0; l < MODEL_LAYERS; l++) {
		struct unit *unit = &plan->units[l];
		if (unit->in)
			(void)cudnnDestroyTensorDescriptor(unit->in);
		if (unit->out)
			(void)cudnnDestroyTensorDescriptor(unit->out);
		if (unit->channels)
			(void)cudnnDestroyTensorDescriptor(unit->channels);
		if (unit->filter)
			(void)cudnnDestroyFilterDescriptor(unit->filter);
		if (unit->convolution)
			(void)cudnnDestroyConvolutionDescriptor(unit->convolution);
		if (unit->pooling)
			(void)cudnnDestroyPoolingDescriptor(unit->pooling);
		(void)cudaFree(unit->mean);
		(void)cudaFree(unit->inverse_deviation);
		norm_sync_free(&unit->shared);
		(void)cudaFree(unit->output);
		(void)cudaFree(unit->gradient);
	}
	(void)cudaFree(plan->input);
	(void)cudaFree(plan->loss_gradient);
	free(plan);
}
