#include "cuda/cudnn/kernels.h"
#include "cuda/cudnn/kernels_common.h"

namespace {

template <typename T> __global__ void round_all(T *to, const float *from, float scale, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride())
		to[i] = rounded<T>(from[i] * scale);
}

template <typename T> __global__ void widen_all(float *to, const T *from, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride())
		to[i] = widened(from[i]);
}

template <typename T> __global__ void add_bias(T *values, const float *bias, uint32_t channels, uint32_t pixels,
	uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride())
		values[i] = rounded<T>(widened(values[i]) + bias[i / pixels % channels]);
}

/* A block a channel. */
template <typename T> __global__ void sum_channels(float *gradient, const T *values, uint32_t images,
	uint32_t channels, uint32_t pixels)
{
	const uint32_t channel = blockIdx.x;
	const uint64_t count = (uint64_t)images * pixels;
	float mine = 0;
	for (uint64_t i = threadIdx.x; i < count; i += THREADS)
		mine += widened(values[(i / pixels * channels + channel) * pixels + i % pixels]);
	const float sum = sum_block(mine);
	if (threadIdx.x == 0)
		gradient[channel] = sum;
}

template <typename T> __global__ void relu_all(T *to, const T *from, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const float x = widened(from[i]);
		to[i] = rounded<T>(x > 0 ? x : 0);
	}
}

template <typename T> __global__ void relu_back(T *to, const T *output, const T *gradient, int first, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const float flow = widened(output[i]) > 0 ? widened(gradient[i]) : 0;
		to[i] = rounded<T>(first ? flow : widened(to[i]) + flow);
	}
}

template <typename T> __global__ void add_all(T *to, const T *a, const T *b, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride())
		to[i] = rounded<T>(widened(a[i]) + widened(b[i]));
}

template <typename T> __global__ void gather_all(T *to, const T *from, int first, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride())
		to[i] = first ? from[i] : rounded<T>(widened(to[i]) + widened(from[i]));
}

/* One block: a batch has a few hundred images. */
__global__ void cross_entropy(const float *outputs, const uint8_t *labels, uint32_t images, uint32_t classes,
	float *gradient, double *loss, unsigned long long *correct)
{
	double my_loss = 0;
	unsigned long long my_correct = 0;
	for (uint32_t i = threadIdx.x; i < images; i += THREADS) {
		const float *row = outputs + (uint64_t)i * classes;
		uint32_t best = 0;
		for (uint32_t c = 1; c < classes; c++)
			if (row[c] > row[best])
				best = c;
		double sum = 0;  /* at least 1: the largest output is subtracted */
		for (uint32_t c = 0; c < classes; c++)
			sum += exp((double)row[c] - (double)row[best]);
		const double log_sum = log(sum) + (double)row[best];
		my_loss += log_sum - (double)row[labels[i]];
		my_correct += best == labels[i];
		for (uint32_t c = 0; gradient && c < classes; c++)
			gradient[(uint64_t)i * classes + c] =
				(float)((exp((double)row[c] - log_sum) - (c == labels[i])) / images);
	}
	const double losses = sum_block(my_loss);
	__syncthreads();
	const unsigned long long right = sum_block(my_correct);
	if (threadIdx.x == 0) {
		*loss = losses;
		*correct = right;
	}
}

__global__ void step_sgd(float *value, float *velocity, const float *gradient, uint64_t count,
	struct kernels_sgd how)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const float slope = how.weight_decay > 0 ? gradient[i] + how.weight_decay * value[i] : gradient[i];
		velocity[i] = how.momentum * velocity[i] + slope;
		value[i] -= how.rate * (how.nesterov ? slope + how.momentum * velocity[i] : velocity[i]);
	}
}

__global__ void step_adamw(float *value, float *mean, float *square, const float *gradient, uint64_t count,
	struct kernels_adamw how)
{
	const float mean_keeps = 0.9F, square_keeps = 0.999F, epsilon = 1e-8F;
	for (uint64_t i = first_element(); i < count; i += stride()) {
		mean[i] = mean_keeps * mean[i] + (1 - mean_keeps) * gradient[i];
		square[i] = square_keeps * square[i] + (1 - square_keeps) * gradient[i] * gradient[i];
		value[i] = value[i] * how.shrink - how.rate * mean[i] / (sqrtf(square[i]) / how.root + epsilon);
	}
}

__global__ void combine_all(float *to, const float *a, const float *b, double scale, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const float sum = b ? a[i] + b[i] : a[i];
		to[i] = (float)((double)sum * scale);
	}
}

__global__ void square_parts(const float *from, uint64_t count, double *partials)
{
	double mine = 0;
	for (uint64_t i = first_element(); i < count; i += stride())
		mine += (double)from[i] * (double)from[i];
	const double sum = sum_block(mine);
	if (threadIdx.x == 0)
		partials[blockIdx.x] = sum;
}

__global__ void sum_parts(const double *partials, double *sum)
{
	const double all = sum_block(partials[threadIdx.x]);
	if (threadIdx.x == 0)
		*sum = all;
}

__global__ void unscale_all(float *values, float factor, uint64_t count, uint32_t *wrong)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		if (!isfinite(values[i]))
			*wrong = 1;  /* whoever writes it, writes 1 */
		values[i] *= factor;
	}
}

}  // namespace

int kernels_round(enum kernels_type type, void *to, const float *from, float scale, uint64_t count,
	struct CUstream_st *stream)
{
	FOR_TYPE(type, (round_all<TYPE><<<blocks_for(count), THREADS, 0, stream>>>((TYPE *)to, from, scale, count)));
	return cudaGetLastError();
}

int kernels_widen(enum kernels_type type, float *to, const void *from, uint64_t count, struct CUstream_st *stream)
{
	FOR_TYPE(type, (widen_all<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(to, (const TYPE *)from, count)));
	return cudaGetLastError();
}

int kernels_bias(enum kernels_type type, void *values, const float *bias, uint32_t images, uint32_t channels,
	uint32_t pixels, struct CUstream_st *stream)
{
	const uint64_t count = (uint64_t)images * channels * pixels;
	FOR_TYPE(type, (add_bias<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)values, bias, channels, pixels, count)));
	return cudaGetLastError();
}

int kernels_bias_gradient(enum kernels_type type, float *gradient, const void *values, uint32_t images,
	uint32_t channels, uint32_t pixels, struct CUstream_st *stream)
{
	FOR_TYPE(type, (sum_channels<TYPE><<<channels, THREADS, 0, stream>>>(
		gradient, (const TYPE *)values, images, channels, pixels)));
	return cudaGetLastError();
}

int kernels_relu(enum kernels_type type, void *to, const void *from, uint64_t count, struct CUstream_st *stream)
{
	FOR_TYPE(type, (relu_all<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)to, (const TYPE *)from, count)));
	return cudaGetLastError();
}

int kernels_relu_gradient(enum kernels_type type, void *to, const void *output, const void *gradient, int first,
	uint64_t count, struct CUstream_st *stream)
{
	FOR_TYPE(type, (relu_back<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)to, (const TYPE *)output, (const TYPE *)gradient, first, count)));
	return cudaGetLastError();
}

int kernels_add(enum kernels_type type, void *to, const void *a, const void *b, uint64_t count,
	struct CUstream_st *stream)
{
	FOR_TYPE(type, (add_all<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)to, (const TYPE *)a, (const TYPE *)b, count)));
	return cudaGetLastError();
}

int kernels_gather(enum kernels_type type, void *to, const void *from, int first, uint64_t count,
	struct CUstream_st *stream)
{
	FOR_TYPE(type, (gather_all<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)to, (const TYPE *)from, first, count)));
	return cudaGetLastError();
}

int kernels_loss(const float *outputs, const uint8_t *labels, uint32_t images, uint32_t classes, float *gradient,
	double *loss, unsigned long long *correct, struct CUstream_st *stream)
{
	cross_entropy<<<1, THREADS, 0, stream>>>(outputs, labels, images, classes, gradient, loss, correct);
	return cudaGetLastError();
}

int kernels_sgd(float *value, float *velocity, const float *gradient, uint64_t count, struct kernels_sgd how,
	struct CUstream_st *stream)
{
	step_sgd<<<blocks_for(count), THREADS, 0, stream>>>(value, velocity, gradient, count, how);
	return cudaGetLastError();
}

int kernels_adamw(float *value, float *mean, float *square, const float *gradient, uint64_t count,
	struct kernels_adamw how, struct CUstream_st *stream)
{
	step_adamw<<<blocks_for(count), THREADS, 0, stream>>>(value, mean, square, gradient, count, how);
	return cudaGetLastError();
}

int kernels_combine(float *to, const float *a, const float *b, double scale, uint64_t count,
	struct CUstream_st *stream)
{
	combine_all<<<blocks_for(count), THREADS, 0, stream>>>(to, a, b, scale, count);
	return cudaGetLastError();
}

static_assert((int)KERNELS_PARTIALS == (int)THREADS, "sum_parts() reads one a thread");

int kernels_squares(const float *from, uint64_t count, double *partials, double *sum, struct CUstream_st *stream)
{
	square_parts<<<KERNELS_PARTIALS, THREADS, 0, stream>>>(from, count, partials);
	sum_parts<<<1, THREADS, 0, stream>>>(partials, sum);
	return cudaGetLastError();
}

int kernels_unscale(float *values, float factor, uint64_t count, uint32_t *wrong, struct CUstream_st *stream)
{
	unscale_all<<<blocks_for(count), THREADS, 0, stream>>>(values, factor, count, wrong);
	return cudaGetLastError();
}

const char *kernels_words(int error)
{
	return cudaGetErrorString((cudaError_t)error);
}
