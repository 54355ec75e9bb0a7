/* The table of kernels: one for each instruction set, all made from reduce_kernels.inc.h. */
#ifndef COLLET_REDUCE_REDUCE_KERNELS_H
#define COLLET_REDUCE_REDUCE_KERNELS_H

#include "reduce/reduce.h"

struct collet_kernels {
	/* Indexed by dtype and op; NULL where there is none. COLLET_AVERAGE holds the finishing kernel of floats;
	 * until then an average is a sum. Called in the fixed floating-point mode (fpmode.h) with at least one
	 * operand. */
	collet_kernel *reduce[COLLET_DTYPE_COUNT][COLLET_OP_COUNT];
	/* 16 and 8 bit floats to and from f32; NULL for other dtypes. In the fixed mode too; no overlap. */
	void (*widen[COLLET_DTYPE_COUNT])(float *to, const void *from, size_t count);
	void (*narrow[COLLET_DTYPE_COUNT])(void *to, const float *from, size_t count);
};

extern const struct collet_kernels collet_kernels_plain;
#if defined(__x86_64__)
extern const struct collet_kernels collet_kernels_avx2;
extern const struct collet_kernels collet_kernels_avx512;
extern const struct collet_kernels collet_kernels_avx512_bf16;
#endif

/* The table of an isa, which is taken to be available; AUTO: of the best one. NULL for one that this build lacks. */
const struct collet_kernels *collet_kernels_for(enum collet_isa isa);

#endif
