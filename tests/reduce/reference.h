/* Reference implementation of the reductions: slow plain scalar C, one element at a time. It encodes by a search among
 * all values of a format instead of bit tricks, and shares no code with src/reduce. */
#ifndef COLLET_TESTS_REDUCE_REFERENCE_H
#define COLLET_TESTS_REDUCE_REFERENCE_H

#include <collet/collet.h>

/* A 16-bit or 8-bit float format, described by its fields. */
struct reference_format {
	int exponent_bits, mantissa_bits;
	bool has_infinity;         /* an exponent of all ones is infinity or NaN; else only the topmost code is NaN */
	bool saturates;
	uint32_t nan;              /* the canonical NaN */
};

const struct reference_format *reference_format(collet_dtype dtype);

/* Returns the exact value of a code; NaN for a NaN. */
double reference_decode(collet_dtype dtype, uint32_t code);
/* Returns the code nearest to value, ties to even, by a search among all codes. */
uint32_t reference_encode(collet_dtype dtype, double value);

/* A reduction of one element. Each operand is a pointer to one element. */
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

/* Computes the result, one element of the dtype. The calling thread must be in the default floating-point mode. */
void reference_reduce(const struct reference_case *c, void *result);

#endif
