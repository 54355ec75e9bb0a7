/* Kernels for AVX2 and F16C. */
#define COLLET_VECTOR_BYTES 32
#define COLLET_KERNELS collet_kernels_avx2
#include "reduce/reduce_kernels.inc.h"
