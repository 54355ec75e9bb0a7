/* Kernels for AVX-512 (F, BW, DQ, VL). */
#define COLLET_VECTOR_BYTES 64
#define COLLET_KERNELS collet_kernels_avx512
#include "reduce/reduce_kernels.inc.h"
