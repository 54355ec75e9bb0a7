/* Finds the table of kernels of an instruction set. */
#include "reduce/reduce_kernels.h"

const struct collet_kernels *collet_kernels_for(enum collet_isa isa)
{
	switch (isa == COLLET_ISA_AUTO ? collet_isa_best() : isa) {
	case COLLET_ISA_PLAIN:
		return &collet_kernels_plain;
#if defined(__x86_64__)
	case COLLET_ISA_AVX2:
		return &collet_kernels_avx2;
	case COLLET_ISA_AVX512:
		return &collet_kernels_avx512;
	case COLLET_ISA_AVX512_FP16:
		return &collet_kernels_avx512_fp16;
#endif
	default:
		return NULL;
	}
}
