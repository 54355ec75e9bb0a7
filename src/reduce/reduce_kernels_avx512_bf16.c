/* Kernels for AVX-512 with BF16. */
#define COLLET_VECTOR_BYTES 64
#define COLLET_VECTOR_BF16
#define COLLET_KERNELS collet_kernels_avx512_bf16
#include "reduce/reduce_kernels.inc.h"
