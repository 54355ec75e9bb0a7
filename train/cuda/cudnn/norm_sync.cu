/* Batch norm over all ranks (kernels.h): its arithmetic is the CPU's (onednn/norm.c), written out. */
#include "cuda/cudnn/kernels.h"
#include "cuda/cudnn/kernels_common.h"

namespace {

/* Returns the index of value i of a channel's images x pixels. */
__device__ uint64_t place_of(uint64_t i, uint32_t channel, uint32_t channels, uint32_t pixels)
{
	return (i / pixels * channels + channel) * pixels + i % pixels;
}

/* A block a channel; the mean first, then squares about it, so that nothing cancels. */
template <typename T> __global__ void statistics(float *row, const T *values, uint32_t images, uint32_t channels,
	uint32_t pixels)
{
	const uint32_t channel = blockIdx.x;
	const uint64_t count = (uint64_t)images * pixels;
	double sum = 0, squares = 0;
	for (uint64_t i = threadIdx.x; i < count; i += THREADS)
		sum += (double)widened(values[place_of(i, channel, channels, pixels)]);
	const double mean = sum_block(sum) / (double)count;
	__syncthreads();
	for (uint64_t i = threadIdx.x; i < count; i += THREADS) {
		const double off = (double)widened(values[place_of(i, channel, channels, pixels)]) - mean;
		squares += off * off;
	}
	const double variance = sum_block(squares) / (double)count;
	if (threadIdx.x == 0) {
		row[channel] = (float)mean;
		row[channels + channel] = (float)variance;
		if (channel == 0)
			row[2 * channels] = (float)count;
	}
}

__global__ void join(const float *rows, uint32_t ranks, uint32_t channels, float epsilon, float *mean, float *variance,
	float *inverse_deviation, double *seen)
{
	const uint32_t each = 2 * channels + 1;
	double all = 0;
	for (uint32_t r = 0; r < ranks; r++)
		all += (double)rows[r * each + 2 * channels];
	if (first_element() == 0)
		*seen = all;
	for (uint64_t c = first_element(); c < channels; c += stride()) {
		double sum = 0, squares = 0;
		for (uint32_t r = 0; r < ranks; r++)
			sum += (double)rows[r * each + 2 * channels] * (double)rows[r * each + c];
		const double common = sum / all;
		for (uint32_t r = 0; r < ranks; r++) {
			const float *row = rows + r * each;
			const double off = (double)row[c] - common;
			squares += (double)row[2 * channels] * ((double)row[channels + c] + off * off);
		}
		mean[c] = (float)common;
		variance[c] = (float)(squares / all);
		inverse_deviation[c] = (float)(1 / sqrt(squares / all + (double)epsilon));
	}
}

/* The running variance takes in the unbiased one. */
__global__ void follow(float *running_mean, float *running_variance, const float *mean, const float *variance,
	const double *seen, float momentum, uint32_t channels)
{
	const float unbiased = (float)(*seen > 1 ? *seen / (*seen - 1) : 1);
	for (uint64_t c = first_element(); c < channels; c += stride()) {
		running_mean[c] += momentum * (mean[c] - running_mean[c]);
		running_variance[c] += momentum * (variance[c] * unbiased - running_variance[c]);
	}
}

template <typename T>
__global__ void normalise(T *to, const T *values, const float *mean, const float *inverse_deviation, const float *scale,
	const float *shift, uint32_t channels, uint32_t pixels, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const uint32_t c = (uint32_t)(i / pixels % channels);
		to[i] = rounded<T>((widened(values[i]) - mean[c]) * inverse_deviation[c] * scale[c] + shift[c]);
	}
}

template <typename T>
__global__ void sums_of_channels(float *row, const T *values, const T *gradient, const float *mean,
	const float *inverse_deviation, uint32_t images, uint32_t channels, uint32_t pixels)
{
	const uint32_t channel = blockIdx.x;
	const uint64_t count = (uint64_t)images * pixels;
	double of_scale = 0, of_shift = 0;
	for (uint64_t i = threadIdx.x; i < count; i += THREADS) {
		const uint64_t at = place_of(i, channel, channels, pixels);
		const float flow = widened(gradient[at]);
		of_shift += (double)flow;
		of_scale += (double)flow * (double)((widened(values[at]) - mean[channel]) * inverse_deviation[channel]);
	}
	const double scales = sum_block(of_scale);
	__syncthreads();
	const double shifts = sum_block(of_shift);
	if (threadIdx.x == 0) {
		row[channel] = (float)scales;
		row[channels + channel] = (float)shifts;
	}
}

__global__ void add_rows(const float *rows, uint32_t ranks, uint32_t channels, double *sums)
{
	for (uint64_t i = first_element(); i < 2 * channels; i += stride()) {
		double sum = 0;
		for (uint32_t r = 0; r < ranks; r++)
			sum += (double)rows[(uint64_t)r * 2 * channels + i];
		sums[i] = sum;
	}
}

template <typename T> __global__ void gradient_back(T *to, const T *values, const T *gradient, const float *mean,
	const float *inverse_deviation, const float *scale, const double *sums, const double *seen, int first,
	uint32_t channels, uint32_t pixels, uint64_t count)
{
	for (uint64_t i = first_element(); i < count; i += stride()) {
		const uint32_t c = (uint32_t)(i / pixels % channels);
		const float at = (widened(values[i]) - mean[c]) * inverse_deviation[c];
		const float common = (float)((sums[channels + c] + (double)at * sums[c]) / *seen);
		const float flow = scale[c] * inverse_deviation[c] * (widened(gradient[i]) - common);
		to[i] = rounded<T>(first ? flow : widened(to[i]) + flow);
	}
}

}  // namespace

int kernels_norm_statistics(enum kernels_type type, float *row, const void *values, uint32_t images,
	uint32_t channels, uint32_t pixels, struct CUstream_st *stream)
{
	FOR_TYPE(type, (statistics<TYPE><<<channels, THREADS, 0, stream>>>(
		row, (const TYPE *)values, images, channels, pixels)));
	return cudaGetLastError();
}

int kernels_norm_join(const float *rows, uint32_t ranks, uint32_t channels, float epsilon, float *mean, float *variance,
	float *inverse_deviation, double *seen, struct CUstream_st *stream)
{
	join<<<blocks_for(channels), THREADS, 0, stream>>>(
		rows, ranks, channels, epsilon, mean, variance, inverse_deviation, seen);
	return cudaGetLastError();
}

int kernels_norm_follow(float *running_mean, float *running_variance, const float *mean, const float *variance,
	const double *seen, float momentum, uint32_t channels, struct CUstream_st *stream)
{
	follow<<<blocks_for(channels), THREADS, 0, stream>>>(
		running_mean, running_variance, mean, variance, seen, momentum, channels);
	return cudaGetLastError();
}

int kernels_norm(enum kernels_type type, void *to, const void *values, const float *mean,
	const float *inverse_deviation, const float *scale, const float *shift, uint32_t images, uint32_t channels,
	uint32_t pixels, struct CUstream_st *stream)
{
	const uint64_t count = (uint64_t)images * channels * pixels;
	FOR_TYPE(type, (normalise<TYPE><<<blocks_for(count), THREADS, 0, stream>>>(
		(TYPE *)to, (const TYPE *)values, mean, inverse_deviation, scale, shift, channels, pixels, count)));
	return cudaGetLastError();
}

int kernels_norm_sums(enum kernels_type type, float *row, const void *values, const void *gradient, const float *mean,
	const float *inverse_deviation, uint32_t images, uint32_t channels, uint32_t pixels, struct CUstream_st *stream)
{
	FOR_TYPE(type, (sums_of_channels<TYPE><<<channels, THREADS, 0, stream>>>(row, (const TYPE *)values,
		(const TYPE *)gradient, mean, inverse_deviation, images, channels, pixels)));
	return cudaGetLastError();
}

int kernels_norm_add(const float *rows, uint32_t ranks, uint32_t channels, double *sums, struct CUstream_st *stream)
{
	add_rows<<<blocks_for(2 * (uint64_t)channels), THREADS, 0, stream>>>(rows, ranks, channels, sums);
	return cudaGetLastError();
}

int kernels_norm_gradient(enum kernels_type type, void *to, const void *values, const void *gradient, const float *mean,
	const float *inverse_deviation, const float *scale, const double *sums, const double *seen, int first,
	uint32_t images, uint32_t channels, uint32_t pixels, struct CUstream_st *stream)
{
	const uint64_t count = (uint64_t)images * channels * pixels;
	FOR_TYPE(type, (gradient_back<TYPE><<<blocks_for(count), THREADS, 0, stream>>>((TYPE *)to, (const TYPE *)values,
		(const TYPE *)gradient, mean, inverse_deviation, scale, sums, seen, first, channels, pixels, count)));
	return cudaGetLastError();
}
