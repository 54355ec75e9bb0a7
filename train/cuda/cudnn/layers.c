/* collet-train-cuda.so: layers by cuDNN, linear ones by cuBLAS, and the little that both lack by kernels of our own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cudnn/plan.h"

static bool say(const char *what, const char *words)
{
	fprintf(stderr, "collet-train: --device cuda: %s: %s\n", what, words);
	return false;
}

bool layers_check_cudnn(cudnnStatus_t status, const char *what)
{
	return status == CUDNN_STATUS_SUCCESS || say(what, cudnnGetErrorString(status));
}

bool layers_check_cublas(cublasStatus_t status, const char *what)
{
	return status == CUBLAS_STATUS_SUCCESS || say(what, cublasGetStatusString(status));
}

bool layers_check_cuda(int error, const char *what)
{
	return error == 0 || say(what, kernels_words(error));
}

bool layers_allocate(void **memory, size_t bytes)
{
	*memory = NULL;
	return layers_check_cuda((int)cudaMalloc(memory, bytes ? bytes : 1), "memory");
}

static void destroy(struct layers *layers)
{
	if (!layers)
		return;
	while (layers->plans) {
		struct plan *plan = layers->plans;
		layers->plans = plan->next;
		plan_destroy(plan);
	}
	for (uint32_t p = 0; p < MODEL_PARAMETERS; p++)
		(void)cudaFree(layers->rounded[p]);
	(void)cudaFree(layers->weights_gradient);
	(void)cudaFree(layers->partials);
	(void)cudaFree(layers->workspace);
	if (layers->cublas)
		(void)cublasDestroy(layers->cublas);
	if (layers->cudnn)
		(void)cudnnDestroy(layers->cudnn);
	free(layers);
}

/* Rounds the factors of products: weights of convolutions and linear layers. */
static bool allocate_rounded(struct layers *layers)
{
	const struct model *model = layers->setup.model;
	uint64_t most = 0;
	for (uint32_t l = 0; layers->type != KERNELS_F32 && l < model->layer_count; l++) {
		const enum layer_kind kind = model->layers[l].kind;
		if (kind != LAYER_CONVOLUTION && kind != LAYER_LINEAR)
			continue;
		const uint32_t p = plan_weights(model, l);
		const uint64_t count = model->parameters[p].count;
		most = most < count ? count : most;
		if (!layers_allocate(&layers->rounded[p], count * plan_type_bytes(layers)))
			return false;
	}
	return most == 0 || layers_allocate(&layers->weights_gradient, most * plan_type_bytes(layers));
}

static bool allocate_partials(struct layers *layers)
{
	void *memory;
	const bool fine = layers_allocate(&memory, KERNELS_PARTIALS * sizeof(*layers->partials));
	layers->partials = memory;
	return fine;
}

static bool open_libraries(struct layers *layers)
{
	const bool tf32 = layers->setup.tf32 && layers->type == KERNELS_F32;
	/* The libraries build on it, and not all of them say what they found missing. */
	return layers_check_cuda((int)cudaFree(NULL), "starting the CUDA runtime") &&
		layers_check_cudnn(cudnnCreate(&layers->cudnn), "starting cuDNN") &&
		layers_check_cudnn(cudnnSetStream(layers->cudnn, layers->setup.stream), "starting cuDNN") &&
		layers_check_cublas(cublasCreate(&layers->cublas), "starting cuBLAS") &&
		layers_check_cublas(cublasSetStream(layers->cublas, layers->setup.stream), "starting cuBLAS") &&
		layers_check_cublas(cublasSetMathMode(layers->cublas,
			tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH), "starting cuBLAS");
}

static struct layers *create(const struct layers_setup *setup)
{
	static const struct {
		enum kernels_type type;
		cudnnDataType_t cudnn;
		cudaDataType cublas;
	} types[] = { [PRECISION_F32] = { KERNELS_F32, CUDNN_DATA_FLOAT, CUDA_R_32F },
		[PRECISION_BF16] = { KERNELS_BF16, CUDNN_DATA_BFLOAT16, CUDA_R_16BF },
		[PRECISION_F16] = { KERNELS_F16, CUDNN_DATA_HALF, CUDA_R_16F } };
	struct layers *layers = calloc(1, sizeof(*layers));
	if (!layers) {
		say("layers", "no memory");
		return NULL;
	}
	layers->setup = *setup;
	layers->type = types[setup->precision].type;
	layers->cudnn_type = types[setup->precision].cudnn;
	layers->cublas_type = types[setup->precision].cublas;
	if (setup->model->layers[setup->model->layer_count - 1].kind != LAYER_LINEAR)
		say(setup->model->name, "the last layer is not linear");
	else if (open_libraries(layers) && allocate_rounded(layers) && allocate_partials(layers))
		return layers;
	destroy(layers);
	return NULL;
}

static bool prepare(struct layers *layers, uint32_t batch_count, bool training)
{
	return plan_for(layers, batch_count, training) != NULL;
}

static bool make_images(struct layers *layers, float *images, const uint8_t *pixels, const struct placement *places,
	uint32_t batch_count, struct CUstream_st *stream)
{
	const struct shape *input = &layers->setup.model->input;
	struct kernels_images how = { batch_count, input->channels, input->height, input->width, { { 0 } } };
	memcpy(how.normals, layers->setup.normals, sizeof(how.normals));
	return layers_check_cuda(kernels_images(images, pixels, places, how, stream), "making images");
}

static bool forward(struct layers *layers, const float *images, const uint8_t *labels, uint32_t batch_count,
	enum layers_pass pass, struct layers_outcome *outcome)
{
	const struct model *model = layers->setup.model;
	const uint32_t last = model->layer_count - 1;
	struct plan *plan = plan_for(layers, batch_count, pass != LAYERS_EVALUATE);
	_Static_assert(sizeof(outcome->correct) == sizeof(unsigned long long), "what the kernel writes");
	if (!plan || !pass_forward(layers, plan, images, pass))
		return false;
	layers->last = plan;
	/* Both are the GPU's addresses: nothing is read here. */
	double *loss = (double *)(void *)((char *)outcome + offsetof(struct layers_outcome, loss));
	unsigned long long *correct =
		(unsigned long long *)(void *)((char *)outcome + offsetof(struct layers_outcome, correct));
	return layers_check_cuda(kernels_loss(plan->units[last].output, labels, batch_count,
		model->outputs[last].channels, plan->loss_gradient, loss, correct, layers->setup.stream), "the loss");
}

static bool backward(struct layers *layers, float scale, gradient_ready ready, void *context)
{
	return pass_backward(layers, layers->last, scale, ready, context);
}

static bool update(struct layers *layers, const struct element_range *range, const struct optimiser_inputs *inputs)
{
	const struct kernels_sgd sgd = { inputs->rate, inputs->momentum, inputs->weight_decay, inputs->nesterov };
	const struct kernels_adamw adamw = { 1 - inputs->rate * inputs->weight_decay,
		(float)(inputs->rate / (1 - pow((double)0.9F, inputs->step))),
		(float)sqrt(1 - pow((double)0.999F, inputs->step)) };
	struct CUstream_st *stream = layers->setup.stream;
	return layers_check_cuda(inputs->optimiser == OPTIMISER_SGD ?
		kernels_sgd(range->value, range->velocity, range->gradient, range->count, sgd, stream) :
		kernels_adamw(range->value, range->velocity, range->squares, range->gradient, range->count,
			adamw, stream), "the optimiser's step");
}

static bool add(struct layers *layers, float *to, const float *a, const float *b, double scale, uint64_t count)
{
	return layers_check_cuda(kernels_combine(to, a, b, scale, count, layers->setup.stream), "a sum of arrays");
}

static bool squares(struct layers *layers, const float *from, uint64_t count, double *sum)
{
	return layers_check_cuda(
		kernels_squares(from, count, layers->partials, sum, layers->setup.stream), "a sum of squares");
}

static enum kernels_type type_of(enum precision precision)
{
	return precision == PRECISION_F16 ? KERNELS_F16 : KERNELS_BF16;
}

static bool narrow(struct layers *layers, enum precision to_type, void *to, const float *from, uint64_t count)
{
	return layers_check_cuda(kernels_round(type_of(to_type), to, from, 1, count, layers->setup.stream), "rounding");
}

static bool widen(struct layers *layers, enum precision from_type, float *to, const void *from, uint64_t count)
{
	return layers_check_cuda(kernels_widen(type_of(from_type), to, from, count, layers->setup.stream), "widening");
}

static bool unscale(struct layers *layers, float factor, uint32_t *wrong)
{
	const struct layers_setup *setup = &layers->setup;
	bool fine = true;
	for (uint32_t p = 0; fine && p < setup->model->parameter_count; p++)
		fine = layers_check_cuda(kernels_unscale(setup->gradients[p], factor, setup->model->parameters[p].count,
			wrong, setup->stream), "looking at gradients");
	return fine;
}

extern const struct layers_table collet_train_layers;
__attribute__((visibility("default"))) const struct layers_table collet_train_layers = {
	.create = create,
	.destroy = destroy,
	.prepare = prepare,
	.make_images = make_images,
	.forward = forward,
	.backward = backward,
	.update = update,
	.add = add,
	.squares = squares,
	.narrow = narrow,
	.widen = widen,
	.unscale = unscale,
};
