/* Kernels for any machine. */
#define COLLET_VECTOR_BYTES 16
#define COLLET_KERNELS collet_kernels_plain
#include "reduce/reduce_kernels.inc.h"
