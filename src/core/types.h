/* What is known of dtypes and operations without their kernels. */
#ifndef COLLET_CORE_TYPES_H
#define COLLET_CORE_TYPES_H

#include <collet/collet.h>

bool collet_dtype_is_integer(collet_dtype dtype);
bool collet_dtype_is_float(collet_dtype dtype);
/* 16 and 8 bit floats: combined in f32 and rounded once where stored. */
bool collet_dtype_is_narrow_float(collet_dtype dtype);
/* Whatever the order of the operands, the same bits: integers wrap, the greatest is the greatest, and moves
 * (COLLET_OP_COUNT) combine nothing. */
bool collet_op_is_exact(collet_op op, collet_dtype dtype);
/* Does op exist for dtype? False for values out of range. */
bool collet_op_supports(collet_op op, collet_dtype dtype);

#endif
