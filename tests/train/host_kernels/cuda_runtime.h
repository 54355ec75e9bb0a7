/* What the trainer's kernels need of CUDA, for tests on the host: a block's threads are threads, and blocks follow each
 * other. Launches become calls of host_launch(), see translate. It proves arithmetic and barriers, never speed. */
#ifndef TESTS_TRAIN_HOST_KERNELS_CUDA_RUNTIME_H
#define TESTS_TRAIN_HOST_KERNELS_CUDA_RUNTIME_H

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__ static

struct host_place {
	unsigned x;
};
inline thread_local host_place threadIdx, blockIdx, blockDim, gridDim;
inline pthread_barrier_t host_barrier;

static inline void __syncthreads()
{
	pthread_barrier_wait(&host_barrier);
}

using cudaError_t = int;

static inline cudaError_t cudaGetLastError()
{
	return 0;
}

static inline const char *cudaGetErrorString(cudaError_t)
{
	return "none";
}

template <typename... P> struct host_launcher {
	unsigned blocks, threads;
	void (*kernel)(P...);

	void operator()(P... arguments) const
	{
		pthread_barrier_init(&host_barrier, nullptr, threads);
		const host_launcher self = *this;
		std::vector<std::thread> block;
		for (unsigned t = 0; t < threads; t++)
			block.emplace_back([=] {
				for (unsigned b = 0; b < self.blocks; b++) {
					threadIdx.x = t;
					blockIdx.x = b;
					blockDim.x = self.threads;
					gridDim.x = self.blocks;
					self.kernel(arguments...);
					__syncthreads();  /* what the next block's threads share is this one's */
				}
			});
		for (std::thread &thread : block)
			thread.join();
		pthread_barrier_destroy(&host_barrier);
	}
};

template <typename... P> host_launcher<P...> host_launch(unsigned blocks, unsigned threads, void (*kernel)(P...))
{
	return { blocks, threads, kernel };
}

#endif
