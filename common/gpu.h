/* The CUDA driver as programs use it, opened at run time: one binary runs with and without. The library has its own
 * table of what it needs (src/cuda/api.h), which is none of a program's business; names and numbers here are the
 * driver's, too. */
#ifndef COLLET_COMMON_GPU_H
#define COLLET_COMMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int gpu_result;      /* 0: it went */
typedef int gpu_device;
typedef struct CUctx_st *gpu_context;

enum { GPU_OK = 0, GPU_NO_DEVICE = 100 };

/* CUDA 12.0, as the library. */
enum { GPU_OLDEST = 12000 };

/* F(name, arguments), by the name that cuGetProcAddress() knows. */
#define GPU_FUNCTIONS(F)                                                                                               \
	F(cuInit, (unsigned int flags))                                                                                \
	F(cuGetErrorName, (gpu_result result, const char **name))                                                      \
	F(cuGetErrorString, (gpu_result result, const char **sentence))                                                \
	F(cuDeviceGetCount, (int *count))

/* Zeroed: no driver. Read-only once opened. */
struct gpu {
	void *library;
#define GPU_SLOT(name, arguments) gpu_result(*name) arguments;
	GPU_FUNCTIONS(GPU_SLOT)
#undef GPU_SLOT
};

enum { GPU_WHY_BYTES = 256 };

/* Opens and initialises the driver (cuInit, which takes long). False: why says, in half a sentence, what is missing. */
bool gpu_open(struct gpu *gpu, char why[GPU_WHY_BYTES]);
void gpu_close(struct gpu *gpu);  /* a zeroed one is fine */

/* The driver's own words for an error. */
const char *gpu_words(const struct gpu *gpu, gpu_result result, char words[GPU_WHY_BYTES]);

/* How many GPUs a process started from this one would see: all of the host's, or those of CUDA_VISIBLE_DEVICES. Asked in
 * a child, as what the driver keeps (threads, files, memory) is no good to a process that is about to fork. 0: why says
 * what is missing. */
unsigned gpu_count(char why[GPU_WHY_BYTES]);

#endif
