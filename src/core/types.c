#include "core/types.h"

/* Indexed by collet_dtype and collet_op. The designators keep each row with its enumerator. */
static const struct {
	const char *name;
	size_t bytes;
	enum { INTEGER, FLOAT, TRUTH } kind;
} dtypes[COLLET_DTYPE_COUNT] = {
	[COLLET_I8] = { "i8", 1, INTEGER },          [COLLET_U8] = { "u8", 1, INTEGER },
	[COLLET_I32] = { "i32", 4, INTEGER },        [COLLET_U32] = { "u32", 4, INTEGER },
	[COLLET_I64] = { "i64", 8, INTEGER },        [COLLET_U64] = { "u64", 8, INTEGER },
	[COLLET_F16] = { "f16", 2, FLOAT },       [COLLET_BF16] = { "bf16", 2, FLOAT },
	[COLLET_F32] = { "f32", 4, FLOAT },       [COLLET_F64] = { "f64", 8, FLOAT },
	[COLLET_F8E4M3] = { "f8e4m3", 1, FLOAT }, [COLLET_F8E5M2] = { "f8e5m2", 1, FLOAT },
	[COLLET_I16] = { "i16", 2, INTEGER },       [COLLET_U16] = { "u16", 2, INTEGER },
	[COLLET_BOOL] = { "bool", 1, TRUTH },
};

static const char *const ops[COLLET_OP_COUNT] = {
	[COLLET_SUM] = "sum", [COLLET_PRODUCT] = "product", [COLLET_MIN] = "min", [COLLET_MAX] = "max",
	[COLLET_AVERAGE] = "average", [COLLET_PREMUL_SUM] = "premul_sum", [COLLET_AND] = "and", [COLLET_OR] = "or",
	[COLLET_XOR] = "xor", [COLLET_USER] = "user",
};

static bool is_dtype(collet_dtype dtype)
{
	return (unsigned)dtype < COLLET_DTYPE_COUNT;
}

const char *collet_version(void)
{
	return COLLET_VERSION_TEXT;
}

size_t collet_dtype_bytes(collet_dtype dtype)
{
	return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *collet_dtype_name(collet_dtype dtype)
{
	return is_dtype(dtype) ? dtypes[dtype].name : NULL;
}

const char *collet_op_name(collet_op op)
{
	return (unsigned)op < COLLET_OP_COUNT ? ops[op] : NULL;
}

bool collet_dtype_is_integer(collet_dtype dtype)
{
	return is_dtype(dtype) && dtypes[dtype].kind == INTEGER;
}

bool collet_dtype_is_float(collet_dtype dtype)
{
	return is_dtype(dtype) && dtypes[dtype].kind == FLOAT;
}

bool collet_dtype_is_narrow_float(collet_dtype dtype)
{
	return collet_dtype_is_float(dtype) && dtypes[dtype].bytes < 4;
}

bool collet_op_averages_narrow(collet_op op, collet_dtype dtype)
{
	return op == COLLET_AVERAGE && collet_dtype_is_narrow_float(dtype);
}

bool collet_op_supports(collet_op op, collet_dtype dtype)
{
	if (!is_dtype(dtype))
		return false;
	switch (op) {
	case COLLET_SUM: case COLLET_PRODUCT: case COLLET_MIN: case COLLET_MAX: case COLLET_USER:
		return true;
	case COLLET_AVERAGE:
		return dtype != COLLET_BOOL;
	case COLLET_PREMUL_SUM:
		return collet_dtype_is_float(dtype);
	case COLLET_AND: case COLLET_OR: case COLLET_XOR:
		return !collet_dtype_is_float(dtype);
	case COLLET_OP_COUNT:
		break;
	}
	return false;
}

bool collet_op_is_exact(collet_op op, collet_dtype dtype)
{
	switch (op) {
	case COLLET_OP_COUNT:
	case COLLET_MIN:
	case COLLET_MAX:
	case COLLET_AND:
	case COLLET_OR:
	case COLLET_XOR: return true;
	case COLLET_SUM:
	case COLLET_PRODUCT:
	case COLLET_AVERAGE: return !collet_dtype_is_float(dtype);
	default: return false;
	}
}
