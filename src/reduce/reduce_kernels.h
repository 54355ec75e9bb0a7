/* Tables of kernels, one for each instruction set. All are compiled from reduce_kernels.inc.h. */
#ifndef COLLET_REDUCE_REDUCE_KERNELS_H
#define COLLET_REDUCE_REDUCE_KERNELS_H

#include "reduce/reduce.h"

struct collet_kernels {
	/* Indexed by dtype and op; NULL if the pair does not exist. The kernel of COLLET_AVERAGE also divides floats:
	 * it is for the last step, and earlier steps of an average use COLLET_SUM. Kernels are called in the mode of
	 * fpmode.h, with at least one operand. */
	collet_kernel *reduce[COLLET_DTYPE_COUNT][COLLET_OP_COUNT];
	/* Convert 16-bit and 8-bit floats to f32 and back; NULL for other dtypes. Called in the same mode. The arrays
	 * must not overlap. */
	void (*widen[COLLET_DTYPE_COUNT])(float *to, const void *from, size_t count);
	void (*narrow[COLLET_DTYPE_COUNT])(void *to, const float *from, size_t count);
};

extern const struct collet_kernels collet_kernels_plain;
#if defined(__x86_64__)
extern const struct collet_kernels collet_kernels_avx2;
extern const struct collet_kernels collet_kernels_avx512;
extern const struct collet_kernels collet_kernels_avx512_fp16;
#endif

/* Returns the table of an instruction set, which must be available; for AUTO that of the best one. Returns NULL if this
 * build lacks it. */
const struct collet_kernels *collet_kernels_for(enum collet_isa isa);

#endif
