/* What neither cuDNN nor cuBLAS has, or has not for every type: conversions, biases, ReLUs, sums, the loss, the
 * optimisers. All is enqueued on the stream; every sum is in an order that depends on sizes alone. The result is a
 * cudaError_t, 0 when it went. */
#ifndef TRAIN_CUDA_CUDNN_KERNELS_H
#define TRAIN_CUDA_CUDNN_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* What activations are kept in. */
enum kernels_type { KERNELS_F32, KERNELS_F16, KERNELS_BF16 };

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
/* values x factor; *wrong = 1 if one of them was infinite or not a number. */
int kernels_unscale(float *values, float factor, uint64_t count, uint32_t *wrong, struct CUstream_st *stream);

const char *kernels_words(int error);

#ifdef __cplusplus
}
#endif
#endif
