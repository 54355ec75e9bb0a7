/* Runs forward and backward on the stream, layer by layer. In backward, a layer's gradient starts as that of one
 * layer after it; gradients of others are added. It is complete when the layer's turn comes. */
#include "cuda/cudnn/plan.h"

static const float one = 1, zero = 0;

static uint32_t pixels_of(const struct shape *shape)
{
	return shape->height * shape->width;
}

static const void *input_of(const struct layers *layers, const struct plan *plan, uint32_t layer)
{
	const uint32_t source = layers->setup.model->sources[layer];
	if (source != MODEL_INPUT)
		return plan->units[source].output;
	return plan->input ? plan->input : (const void *)layers->last_images;
}

/* Weights as layers multiply them. */
static const void *weights_of(const struct layers *layers, uint32_t l)
{
	const uint32_t p = plan_weights(layers->setup.model, l);
	return layers->rounded[p] ? layers->rounded[p] : (const void *)layers->setup.values[p];
}

static bool add_bias(const struct layers *layers, const struct plan *plan, uint32_t l, enum kernels_type type)
{
	const struct model *model = layers->setup.model;
	const struct shape *out = &model->outputs[l];
	return !plan_has_bias(&model->layers[l]) ||
		layers_check_cuda(kernels_bias(type, plan->units[l].output,
			layers->setup.values[plan_weights(model, l) + 1], plan->batch_count, out->channels,
			pixels_of(out), layers->setup.stream), "a bias");
}

/* ---- Forward ------------------------------------------------------------------------------------------------ */

static bool forward_convolution(struct layers *layers, const struct plan *plan, uint32_t l)
{
	const struct unit *unit = &plan->units[l];
	return layers_check_cudnn(cudnnConvolutionForward(layers->cudnn, &one, unit->in, input_of(layers, plan, l),
		unit->filter, weights_of(layers, l), unit->convolution, unit->forward, layers->workspace,
		layers->workspace_bytes, &zero, unit->out, unit->output), "a convolution") &&
		add_bias(layers, plan, l, layers->type);
}

/* Rows are columns to cuBLAS: outputs' = weights x inputs', all of them transposed as they lie. */
static bool forward_linear(struct layers *layers, const struct plan *plan, uint32_t l)
{
	const struct model *model = layers->setup.model;
	const struct shape *in = plan_shape_into(model, l);
	const bool last = l + 1 == model->layer_count;
	const int outputs = (int)model->outputs[l].channels, inputs = (int)(in->channels * pixels_of(in));
	return layers_check_cublas(cublasGemmEx(layers->cublas, CUBLAS_OP_T, CUBLAS_OP_N, outputs,
		(int)plan->batch_count, inputs, &one, weights_of(layers, l), layers->cublas_type, inputs,
		input_of(layers, plan, l), layers->cublas_type, inputs, &zero, plan->units[l].output,
		last ? CUDA_R_32F : layers->cublas_type, outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		"a linear layer") &&
		add_bias(layers, plan, l, last ? KERNELS_F32 : layers->type);
}

/* torch.nn.BatchNorm2d's defaults; the running variance takes in the unbiased one, as there. */
static const double norm_epsilon = 1e-5, norm_momentum = 0.1;

static bool forward_norm(struct layers *layers, const struct plan *plan, uint32_t l, enum layers_pass pass)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const uint32_t p = plan_weights(model, l), s = model->first_statistics[l];
	const float *scale = layers->setup.values[p], *shift = layers->setup.values[p + 1];
	float *mean = layers->setup.means[s], *variance = layers->setup.variances[s];
	const void *input = input_of(layers, plan, l);
	if (pass == LAYERS_EVALUATE)
		return layers_check_cudnn(cudnnBatchNormalizationForwardInference(layers->cudnn,
			CUDNN_BATCHNORM_SPATIAL, &one, &zero, unit->in, input, unit->out, unit->output, unit->channels,
			scale, shift, mean, variance, norm_epsilon), "batch norm");
	const bool follow = pass == LAYERS_TRAIN_AND_FOLLOW;
	if (layers->setup.sync)
		return norm_sync_forward(layers, plan, l, input, follow);
	return layers_check_cudnn(cudnnBatchNormalizationForwardTraining(layers->cudnn, CUDNN_BATCHNORM_SPATIAL, &one,
		&zero, unit->in, input, unit->out, unit->output, unit->channels, scale, shift,
		follow ? norm_momentum : 0, follow ? mean : NULL, follow ? variance : NULL, norm_epsilon, unit->mean,
		unit->inverse_deviation), "batch norm");
}

static bool forward_layer(struct layers *layers, const struct plan *plan, uint32_t l, enum layers_pass pass)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const void *input = input_of(layers, plan, l);
	struct CUstream_st *stream = layers->setup.stream;
	switch (model->layers[l].kind) {
	case LAYER_CONVOLUTION: return forward_convolution(layers, plan, l);
	case LAYER_LINEAR: return forward_linear(layers, plan, l);
	case LAYER_BATCH_NORM: return forward_norm(layers, plan, l, pass);
	case LAYER_RELU:
		return layers_check_cuda(
			kernels_relu(layers->type, unit->output, input, unit->out_count, stream), "a ReLU");
	case LAYER_MAX_POOL: case LAYER_MEAN_POOL:
		return layers_check_cudnn(cudnnPoolingForward(layers->cudnn, unit->pooling, &one, unit->in, input,
			&zero, unit->out, unit->output), "pooling");
	case LAYER_ADD: {
		const uint32_t addend = model->addends[l];
		const void *other = addend != MODEL_INPUT ? plan->units[addend].output :
			plan->input			  ? plan->input :
							    (const void *)layers->last_images;
		return layers_check_cuda(
			kernels_add(layers->type, unit->output, input, other, unit->out_count, stream), "a sum");
	}
	case LAYER_FORK: case LAYER_SHORTCUT: break;
	}
	return true;
}

/* Values have changed since the last pass. */
static bool round_weights(struct layers *layers)
{
	const struct model *model = layers->setup.model;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		if (layers->rounded[p] &&
			!layers_check_cuda(kernels_round(layers->type, layers->rounded[p], layers->setup.values[p], 1,
				model->parameters[p].count, layers->setup.stream), "rounding weights"))
			return false;
	return true;
}

bool pass_forward(struct layers *layers, struct plan *plan, const float *images, enum layers_pass pass)
{
	const struct model *model = layers->setup.model;
	const struct shape *in = &model->input;
	layers->last_images = images;
	bool fine = round_weights(layers);
	if (fine && plan->input)
		fine = layers_check_cuda(kernels_round(layers->type, plan->input, images, 1,
			(uint64_t)plan->batch_count * in->channels * pixels_of(in), layers->setup.stream),
			"rounding images");
	for (uint32_t l = 0; fine && l < model->layer_count; l++)
		fine = forward_layer(layers, plan, l, pass);
	return fine;
}

/* ---- Backward ----------------------------------------------------------------------------------------------- */

/* Returns where the gradient of a layer's input goes. *keep is 0 or 1, the factor of what is already there. NULL:
 * the gradient of the images is not needed. */
static void *reach(const struct layers *layers, struct plan *plan, uint32_t source, const float **keep)
{
	if (source == MODEL_INPUT)
		return NULL;
	struct unit *unit = &plan->units[source];
	*keep = unit->reached ? &one : &zero;
	unit->reached = true;
	return unit->gradient;
}

static bool bias_gradient(struct layers *layers, const struct plan *plan, uint32_t l, gradient_ready ready,
	void *context)
{
	const struct model *model = layers->setup.model;
	const struct shape *out = &model->outputs[l];
	const uint32_t p = plan_weights(model, l) + 1;
	if (!plan_has_bias(&model->layers[l]))
		return true;
	return layers_check_cuda(kernels_bias_gradient(layers->type, layers->setup.gradients[p],
		plan->units[l].gradient, plan->batch_count, out->channels, pixels_of(out), layers->setup.stream),
		"a bias' gradient") &&
		ready(context, p);
}

static bool backward_convolution(struct layers *layers, struct plan *plan, uint32_t l, gradient_ready ready,
	void *context)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const uint32_t p = plan_weights(model, l);
	float *gradient = layers->setup.gradients[p];
	const bool narrow = layers->type != KERNELS_F32;
	const float *keep = &zero;
	if (!bias_gradient(layers, plan, l, ready, context) ||
		!layers_check_cudnn(cudnnConvolutionBackwardFilter(layers->cudnn, &one, unit->in,
			input_of(layers, plan, l), unit->out, unit->gradient, unit->convolution, unit->back_filter,
			layers->workspace, layers->workspace_bytes, &zero, unit->filter,
			narrow ? layers->weights_gradient : gradient), "a gradient of weights") ||
		(narrow && !layers_check_cuda(kernels_widen(layers->type, gradient, layers->weights_gradient,
			model->parameters[p].count, layers->setup.stream), "a gradient of weights")) ||
		!ready(context, p))
		return false;
	void *back = reach(layers, plan, model->sources[l], &keep);
	return !back ||
		layers_check_cudnn(cudnnConvolutionBackwardData(layers->cudnn, &one, unit->filter,
			weights_of(layers, l), unit->out, unit->gradient, unit->convolution, unit->back_data,
			layers->workspace, layers->workspace_bytes, keep, unit->in, back), "a gradient of images");
}

static bool backward_linear(struct layers *layers, struct plan *plan, uint32_t l, gradient_ready ready, void *context)
{
	const struct model *model = layers->setup.model;
	const struct shape *in = plan_shape_into(model, l);
	const struct unit *unit = &plan->units[l];
	const uint32_t p = plan_weights(model, l);
	const int outputs = (int)model->outputs[l].channels, inputs = (int)(in->channels * pixels_of(in)),
		  batch = (int)plan->batch_count;
	const float *keep = &zero;
	if (!bias_gradient(layers, plan, l, ready, context) ||
		!layers_check_cublas(cublasGemmEx(layers->cublas, CUBLAS_OP_N, CUBLAS_OP_T, inputs, outputs, batch,
			&one, input_of(layers, plan, l), layers->cublas_type, inputs, unit->gradient,
			layers->cublas_type, outputs, &zero, layers->setup.gradients[p], CUDA_R_32F, inputs,
			CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT), "a gradient of weights") ||
		!ready(context, p))
		return false;
	void *back = reach(layers, plan, model->sources[l], &keep);
	return !back ||
		layers_check_cublas(cublasGemmEx(layers->cublas, CUBLAS_OP_N, CUBLAS_OP_N, inputs, batch, outputs,
			&one, weights_of(layers, l), layers->cublas_type, inputs, unit->gradient, layers->cublas_type,
			outputs, keep, back, layers->cublas_type, inputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
			"a gradient of a linear layer's input");
}

static bool backward_norm(struct layers *layers, struct plan *plan, uint32_t l, gradient_ready ready, void *context)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const uint32_t p = plan_weights(model, l);
	const float *keep = &zero;
	void *back = reach(layers, plan, model->sources[l], &keep);
	if (!back)
		return layers_check_cudnn(CUDNN_STATUS_NOT_SUPPORTED, "batch norm of the images themselves");
	if (layers->setup.sync)
		return norm_sync_backward(layers, plan, l, input_of(layers, plan, l), back, keep == &zero) &&
			ready(context, p + 1) && ready(context, p);
	return layers_check_cudnn(cudnnBatchNormalizationBackward(layers->cudnn, CUDNN_BATCHNORM_SPATIAL, &one, keep,
		&one, &zero, unit->in, input_of(layers, plan, l), unit->out, unit->gradient, unit->in, back,
		unit->channels, layers->setup.values[p], layers->setup.gradients[p], layers->setup.gradients[p + 1],
		norm_epsilon, unit->mean, unit->inverse_deviation), "the gradient of batch norm") &&
		ready(context, p + 1) && ready(context, p);
}

static bool gather(struct layers *layers, struct plan *plan, uint32_t l, uint32_t source)
{
	const struct unit *unit = &plan->units[l];
	const float *keep = &zero;
	void *back = reach(layers, plan, source, &keep);
	return !back || layers_check_cuda(kernels_gather(layers->type, back, unit->gradient, keep == &zero,
		unit->out_count, layers->setup.stream), "a sum of gradients");
}

static bool backward_layer(struct layers *layers, struct plan *plan, uint32_t l, gradient_ready ready, void *context)
{
	const struct model *model = layers->setup.model;
	const struct unit *unit = &plan->units[l];
	const float *keep = &zero;
	void *back;
	switch (model->layers[l].kind) {
	case LAYER_CONVOLUTION: return backward_convolution(layers, plan, l, ready, context);
	case LAYER_LINEAR: return backward_linear(layers, plan, l, ready, context);
	case LAYER_BATCH_NORM: return backward_norm(layers, plan, l, ready, context);
	case LAYER_RELU:
		back = reach(layers, plan, model->sources[l], &keep);
		return !back || layers_check_cuda(kernels_relu_gradient(layers->type, back, unit->output,
			unit->gradient, keep == &zero, unit->out_count, layers->setup.stream),
			"the gradient of a ReLU");
	case LAYER_MAX_POOL: case LAYER_MEAN_POOL:
		back = reach(layers, plan, model->sources[l], &keep);
		return !back || layers_check_cudnn(cudnnPoolingBackward(layers->cudnn, unit->pooling, &one, unit->out,
			unit->output, unit->out, unit->gradient, unit->in, input_of(layers, plan, l), keep, unit->in,
			back), "the gradient of pooling");
	case LAYER_ADD:
		return gather(layers, plan, l, model->sources[l]) && gather(layers, plan, l, model->addends[l]);
	case LAYER_FORK: case LAYER_SHORTCUT: break;
	}
	return true;
}

bool pass_backward(struct layers *layers, struct plan *plan, float scale, gradient_ready ready, void *context)
{
	const struct model *model = layers->setup.model;
	const uint32_t last = model->layer_count - 1;
	for (uint32_t l = 0; l < model->layer_count; l++)
		plan->units[l].reached = false;
	bool fine = layers_check_cuda(kernels_round(layers->type, plan->units[last].gradient, plan->loss_gradient,
		scale, plan->units[last].out_count, layers->setup.stream), "the gradient of the loss");
	for (uint32_t l = model->layer_count; fine && l-- > 0;)
		fine = backward_layer(layers, plan, l, ready, context);
	return fine;
}
