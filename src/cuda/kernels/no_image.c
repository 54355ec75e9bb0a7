/* Replaces the kernels in a build without nvcc. */
#include "cuda/kernels/image.h"

const unsigned char collet_kernels_image[] = COLLET_KERNELS_MISSING;
const bool collet_kernels_built = false;
