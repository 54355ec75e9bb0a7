/* The module's layers. A plan for each batch size and purpose has cuDNN's descriptors of every layer, and the memory
 * between layers. Images are channel by channel, row by row, as on the host. */
#ifndef TRAIN_CUDA_CUDNN_PLAN_H
#define TRAIN_CUDA_CUDNN_PLAN_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "cuda/cudnn/kernels.h"
#include "cuda/layers.h"

/* Additional state of batch norm over all ranks (norm_sync.c). */
struct norm_shared {
	float *variance;                        /* of all ranks' batches */
	float *row, *rows;                      /* what this rank tells, and what all do */
	double *sums, *seen;
};

/* One layer of a plan. */
struct unit {
	cudnnTensorDescriptor_t in, out;
	cudnnTensorDescriptor_t channels;       /* batch norm: of its parameters */
	cudnnFilterDescriptor_t filter;
	cudnnConvolutionDescriptor_t convolution;
	cudnnPoolingDescriptor_t pooling;
	cudnnConvolutionFwdAlgo_t forward;
	cudnnConvolutionBwdDataAlgo_t back_data;
	cudnnConvolutionBwdFilterAlgo_t back_filter;
	float *mean, *inverse_deviation;        /* batch norm: of the batch */
	struct norm_shared shared;
	void *output;                           /* f32 if the loss is of it */
	void *gradient;                         /* of output */
	uint64_t in_count, out_count;           /* elements, of the whole batch */
	bool reached;                           /* in this backward, a gradient has come */
};

struct plan {
	struct plan *next;
	uint32_t batch_count;
	bool training;
	void *input;                            /* the images as activations are; NULL: they are f32 */
	float *loss_gradient;                   /* of the last layer's output */
	struct unit units[MODEL_LAYERS];
};

struct layers {
	struct layers_setup setup;
	enum kernels_type type;
	cudnnDataType_t cudnn_type;
	cudaDataType cublas_type;
	cudnnHandle_t cudnn;
	cublasHandle_t cublas;
	void *rounded[MODEL_PARAMETERS];        /* weights as activations are; NULL: they are f32, or not multiplied */
	void *weights_gradient;                 /* likewise, of the largest: f32 it becomes where it belongs */
	double *partials;                       /* of a sum of squares */
	void *workspace;
	size_t workspace_bytes;
	struct plan *plans, *last;              /* last: of the last forward pass */
	const float *last_images;
};

/* All of these print why before they give false. */
bool layers_check_cudnn(cudnnStatus_t status, const char *what);
bool layers_check_cublas(cublasStatus_t status, const char *what);
bool layers_check_cuda(int error, const char *what);
bool layers_allocate(void **memory, size_t bytes);

/* The plan for such batches, made if there is none; NULL after a line on standard error. */
struct plan *plan_for(struct layers *layers, uint32_t batch_count, bool training);
void plan_destroy(struct plan *plan);

size_t plan_type_bytes(const struct layers *layers);
/* Return the input of a layer, its weights and its bias. */
const struct shape *plan_shape_into(const struct model *model, uint32_t l);
uint32_t plan_weights(const struct model *model, uint32_t l);
bool plan_has_bias(const struct layer *layer);

/* Used with setup.sync. For back and first see reach() in pass.c. */
bool norm_sync_plan(const struct layers *layers, struct norm_shared *shared, uint32_t channels);
void norm_sync_free(struct norm_shared *shared);
bool norm_sync_forward(struct layers *layers, const struct plan *plan, uint32_t l, const void *input, bool follow);
bool norm_sync_backward(struct layers *layers, const struct plan *plan, uint32_t l, const void *input, void *back,
	bool first);

bool pass_forward(struct layers *layers, struct plan *plan, const float *images, enum layers_pass pass);
bool pass_backward(struct layers *layers, struct plan *plan, float scale, gradient_ready ready, void *context);

#endif
