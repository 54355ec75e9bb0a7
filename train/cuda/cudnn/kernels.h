/* Kernels that cuDNN and cuBLAS lack, or lack for some types: images of pixels, conversions, biases, ReLUs, sums,
 * the loss, the optimisers. All work is enqueued on the stream, and the order of every sum depends on sizes alone.
 * The result is a cudaError_t, 0 on success. */
#ifndef TRAIN_CUDA_CUDNN_KERNELS_H
#define TRAIN_CUDA_CUDNN_KERNELS_H

#include <stdint.h>

#include "data/pixels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* The type of activations. */
enum kernels_type { KERNELS_F32, KERNELS_F16, KERNELS_BF16 };

/* Makes images from pixels and placements, with the bits of data/pixels.h. normals and all other fields of how are
 * in host memory. */
struct kernels_images {
	uint32_t images, channels, height, width;
	struct normal normals[IMAGE_CHANNELS];
};
int kernels_images(float *to, const uint8_t *pixels, const struct placement *places, struct kernels_images how,
	struct CUstream_st *stream);

/* to = from x scale, rounded to nearest even. */
int kernels_round(enum kernels_type type, void *to, const float *from, float scale, uint64_t count,
	struct CUstream_st *stream);
int kernels_widen(enum kernels_type type, float *to, const void *from, uint64_t count, struct CUstream_st *stream);
/* Image by image: channels times pixels. values += bias of the channel; and the bias' gradient. */
int kernels_bias(enum kernels_type type, void *values, const float *bias, uint32_t images, uint32_t channels,
	uint32_t pixels, struct CUstream_st *stream);
int kernels_bias_gradient(enum kernels_type type, float *gradient, const void *values, uint32_t images,
	uint32_t channels, uint32_t pixels, struct CUstream_st *stream);
int kernels_relu(enum kernels_type type, void *to, const void *from, uint64_t count, struct CUstream_st *stream);
/* to (first: =, else +=) gradient where the ReLU's output is above 0. */
int kernels_relu_gradient(enum kernels_type type, void *to, const void *output, const void *gradient, int first,
	uint64_t count, struct CUstream_st *stream);
int kernels_add(enum kernels_type type, void *to, const void *a, const void *b, uint64_t count,
	struct CUstream_st *stream);
/* to (first: =, else +=) from. */
int kernels_gather(enum kernels_type type, void *to, const void *from, int first, uint64_t count,
	struct CUstream_st *stream);

/* Batch norm over all ranks' batches, in parts between which ranks gather statistics (norm_sync.c). A row of
 * statistics is a rank's mean, variance and number of values a channel. A row of gradients is those of scale and
 * shift. */
int kernels_norm_statistics(enum kernels_type type, float *row, const void *values, uint32_t images,
	uint32_t channels, uint32_t pixels, struct CUstream_st *stream);
/* All ranks' rows, in the order of ranks: mean and 1 / deviation of all; *seen values of a channel. */
int kernels_norm_join(const float *rows, uint32_t ranks, uint32_t channels, float epsilon, float *mean, float *variance,
	float *inverse_deviation, double *seen, struct CUstream_st *stream);
/* Running statistics move towards these by momentum. */
int kernels_norm_follow(float *running_mean, float *running_variance, const float *mean, const float *variance,
	const double *seen, float momentum, uint32_t channels, struct CUstream_st *stream);
int kernels_norm(enum kernels_type type, void *to, const void *values, const float *mean,
	const float *inverse_deviation, const float *scale, const float *shift, uint32_t images, uint32_t channels,
	uint32_t pixels, struct CUstream_st *stream);
/* row: this rank's gradients of scale, then of shift. */
int kernels_norm_sums(enum kernels_type type, float *row, const void *values, const void *gradient, const float *mean,
	const float *inverse_deviation, uint32_t images, uint32_t channels, uint32_t pixels,
	struct CUstream_st *stream);
/* sums: all ranks' rows added up, in the order of ranks. */
int kernels_norm_add(const float *rows, uint32_t ranks, uint32_t channels, double *sums, struct CUstream_st *stream);
/* to (first: =, else +=) the gradient of the values. */
int kernels_norm_gradient(enum kernels_type type, void *to, const void *values, const void *gradient,
	const float *mean, const float *inverse_deviation, const float *scale, const double *sums, const double *seen,
	int first, uint32_t images, uint32_t channels, uint32_t pixels, struct CUstream_st *stream);

/* Cross-entropy of softmax, as the host's (model/loss.h): *loss and *correct over the batch; gradient of the mean, or
 * NULL. */
int kernels_loss(const float *outputs, const uint8_t *labels, uint32_t images, uint32_t classes, float *gradient,
	double *loss, unsigned long long *correct, struct CUstream_st *stream);

/* The host's steps (model/optimiser.h), operation by operation. */
struct kernels_sgd {
	float rate, momentum, weight_decay;
	int nesterov;
};
int kernels_sgd(float *value, float *velocity, const float *gradient, uint64_t count, struct kernels_sgd how,
	struct CUstream_st *stream);
struct kernels_adamw {
	float shrink, rate, root;
};
int kernels_adamw(float *value, float *mean, float *square, const float *gradient, uint64_t count,
	struct kernels_adamw how, struct CUstream_st *stream);
/* to = (a + b) x scale, rounded to f32 after each; b NULL: a x scale. */
int kernels_combine(float *to, const float *a, const float *b, double scale, uint64_t count,
	struct CUstream_st *stream);
/* *sum of the squares; partials: room for KERNELS_PARTIALS. */
enum { KERNELS_PARTIALS = 256 };
int kernels_squares(const float *from, uint64_t count, double *partials, double *sum, struct CUstream_st *stream);
/* values x factor; *wrong = 1 if one of them was infinite or not a number. */
int kernels_unscale(float *values, float factor, uint64_t count, uint32_t *wrong, struct CUstream_st *stream);

const char *kernels_words(int error);

#ifdef __cplusplus
}
#endif
#endif
