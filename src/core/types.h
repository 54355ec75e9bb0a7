/* Describes dtypes and operations, without their kernels. */
#ifndef COLLET_CORE_TYPES_H
#define COLLET_CORE_TYPES_H

#include <collet/collet.h>

/* Both are false for bool. */
bool collet_dtype_is_integer(collet_dtype dtype);
bool collet_dtype_is_float(collet_dtype dtype);
/* True for floats of 16 and 8 bits. They are reduced in f32 and rounded once when stored. */
bool collet_dtype_is_narrow_float(collet_dtype dtype);
/* True if the result has the same bits for every order of the operands. This holds for integers, which wrap, for bool,
 * for min and max, and for collectives that only move data (COLLET_OP_COUNT). */
bool collet_op_is_exact(collet_op op, collet_dtype dtype);
/* True for an average of narrow floats. Its sums are kept in f32 until they are divided, between ranks too. */
bool collet_op_averages_narrow(collet_op op, collet_dtype dtype);
/* True if op exists for dtype. False for values out of range. */
bool collet_op_supports(collet_op op, collet_dtype dtype);

#endif
