/* Kernels for AVX-512 (F, BW, DQ, VL, FP16). */
#define COLLET_VECTOR_BYTES 64
#define COLLET_VECTOR_FP16
#define COLLET_KERNELS collet_kernels_avx512_fp16
#include "reduce/reduce_kernels.inc.h"
