/* The image of the kernels, for cuModuleLoadData(). */
#ifndef COLLET_CUDA_KERNELS_IMAGE_H
#define COLLET_CUDA_KERNELS_IMAGE_H

#include <stdbool.h>

/* What a build without nvcc has for an image. Drivers refuse it; the tests' stand-in takes it for a real one. */
#define COLLET_KERNELS_MISSING "collet was built without nvcc: no kernels"

/* A fat binary, or COLLET_KERNELS_MISSING. */
extern const unsigned char collet_kernels_image[];
extern const bool collet_kernels_built;

#endif
