/* Shared by the kernels' files: types, thread indices, sums of a block. For nvcc alone. */
#ifndef TRAIN_CUDA_CUDNN_KERNELS_COMMON_H
#define TRAIN_CUDA_CUDNN_KERNELS_COMMON_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

enum { THREADS = 256, BLOCKS_MOST = 65535 };

unsigned blocks_for(uint64_t count)
{
	const uint64_t blocks = (count + THREADS - 1) / THREADS;
	return (unsigned)(blocks < 1 ? 1 : blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks);
}

__device__ float widened(float x) { return x; }
__device__ float widened(__half x) { return __half2float(x); }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __device__ T rounded(float x);
template <> __device__ float rounded<float>(float x) { return x; }
template <> __device__ __half rounded<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __nv_bfloat16 rounded<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

__device__ uint64_t first_element() { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ uint64_t stride() { return (uint64_t)gridDim.x * blockDim.x; }

/* Sums a value of each thread, in the same order always; thread 0 has the sum. */
template <typename S> __device__ S sum_block(S mine)
{
	__shared__ S parts[THREADS];
	parts[threadIdx.x] = mine;
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			parts[threadIdx.x] += parts[threadIdx.x + half];
	}
	__syncthreads();
	return parts[0];
}

}  // namespace

/* One call for each type that values may have; TYPE is that type within. */
#define FOR_TYPE(type, call)                                                                                           \
	switch (type) {                                                                                                \
	case KERNELS_F32: { using TYPE = float; call; break; }                                                         \
	case KERNELS_F16: { using TYPE = __half; call; break; }                                                        \
	case KERNELS_BF16: { using TYPE = __nv_bfloat16; call; break; }                                                \
	}

#endif
