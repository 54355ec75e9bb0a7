/* The compiled kernels, for cuModuleLoadData(). */
#ifndef COLLET_CUDA_KERNELS_IMAGE_H
#define COLLET_CUDA_KERNELS_IMAGE_H

#include <stdbool.h>

/* The image of a build without nvcc. Real drivers refuse it; the fake driver of the tests accepts it. */
#define COLLET_KERNELS_MISSING "collet was built without nvcc: no kernels"

/* A fat binary, or COLLET_KERNELS_MISSING. */
extern const unsigned char collet_kernels_image[];
extern const bool collet_kernels_built;

#endif
