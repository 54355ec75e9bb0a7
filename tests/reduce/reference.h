/* What the kernels must compute, written a second time: slowly, in plain scalar C, one element at a time, on
 * representations (tables of all values, sorted) instead of bit tricks. Shares no code with src/reduce. */
#ifndef COLLET_TESTS_REDUCE_REFERENCE_H
#define COLLET_TESTS_REDUCE_REFERENCE_H

#include <collet/collet.h>

/* A 16 or 8 bit format, described by its fields. */
struct reference_format {
	int exponent_bits, mantissa_bits;
	bool has_infinity;         /* all exponent ones: infinity and NaN; else only the topmost code is NaN */
	bool saturates;
	uint32_t nan;              /* the canonical NaN */
};

const struct reference_format *reference_format(collet_dtype dtype);

/* The exact value of a code; NaN for a NaN. */
double reference_decode(collet_dtype dtype, uint32_t code);
/* The code nearest to value, ties to the even one; found by search among all codes. */
uint32_t reference_encode(collet_dtype dtype, double value);

/* One element: operands given as pointers to one element each. */
struct reference_case {
	collet_dtype dtype;
	collet_op op;
	uint32_t operand_count;
	const void *const *operands;
	const bool *scaled;        /* which operands premul_sum scales */
	double scale;
	uint32_t world_size;
	bool finish;
};

/* Writes one element of the dtype. The caller's thread is in the default floating-point mode. */
void reference_reduce(const struct reference_case *c, void *result);

#endif
