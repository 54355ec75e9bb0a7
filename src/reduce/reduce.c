/* Chooses reduction kernels and runs them. Also handles what kernels do not: plain copies, the division of integer
 * averages, user-defined operations, and the floating-point mode. */
#include "reduce/reduce.h"

#include "core/status.h"
#include "core/types.h"
#include "reduce/fpmode.h"
#include "reduce/reduce_kernels.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

/* Size of a block that stays in the L1 cache while it is accessed more than once. */
enum { BLOCK_BYTES = 4096 };

double collet_average_shrunk(uint32_t n)
{
	uint64_t power = 1;
	while (power < n)
		power *= 2;
	return 1.0 / (double)power;
}

/* Computes the factors in the mode of kernels. volatile keeps the roundings between enter and leave, because compilers
 * assume that the mode never changes. Kernels need no such care: they are called through pointers. */
static struct collet_scaling make_scaling(double scale, uint32_t world_size)
{
	const uint64_t mode = collet_fpmode_enter();
	const volatile double scale_given = scale, world_size_given = world_size;
	const volatile float scale_f32 = (float)scale_given, inverse_f32 = 1.0f / (float)world_size_given;
	const volatile double inverse_f64 = 1.0 / world_size_given;
	const volatile float shrunk_f32 = (float)collet_average_shrunk(world_size);
	const volatile float share_f32 = inverse_f32 / shrunk_f32;
	collet_fpmode_leave(mode);
	return (struct collet_scaling){ scale_f32, inverse_f32, shrunk_f32, share_f32, scale, inverse_f64 };
}

collet_status collet_reduction_init(struct collet_reduction *r, collet_dtype dtype, collet_op op,
	const collet_user_op *user_op, double scale, uint32_t world_size, enum collet_isa isa)
{
	const struct collet_kernels *kernels = collet_kernels_for(isa);
	if (!kernels)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "reduction: this build has no instruction set %d",
			(int)isa);
	if (!collet_op_supports(op, dtype)) {
		const char *op_name = collet_op_name(op), *dtype_name = collet_dtype_name(dtype);
		return collet_fail(COLLET_ERR_UNSUPPORTED, "reduction: there is no operation %s (%d) for %s (%d)",
			op_name ? op_name : "?", (int)op, dtype_name ? dtype_name : "?", (int)dtype);
	}
	if (op == COLLET_USER && (!user_op || !user_op->combine))
		return collet_fail(COLLET_ERR_ARGUMENT,
			"reduction: a user-defined operation needs how.user_op with its combine set");
	assert(world_size > 0);
	*r = (struct collet_reduction){
		.dtype = dtype,
		.op = op,
		.element_bytes = collet_dtype_bytes(dtype),
		.is_integer = collet_dtype_is_integer(dtype),
		.is_truth = dtype == COLLET_BOOL && op != COLLET_USER,
		.is_rounded = collet_dtype_is_narrow_float(dtype) && op != COLLET_MIN && op != COLLET_MAX &&
			op != COLLET_USER,
		.divisor = op == COLLET_AVERAGE ? world_size : 1,
		.user_op = op == COLLET_USER ? user_op : NULL,
		.scaling = make_scaling(scale, world_size),
		.combine = kernels->reduce[dtype][op == COLLET_AVERAGE ? COLLET_SUM : op],
		.finish = kernels->reduce[dtype][op],
	};
	return COLLET_OK;
}

/* ---- Integer averages ---- */

#define DEFINE_DIVIDE(type, wide) \
	static void divide_##type(void *data, size_t count, uint32_t divisor) \
	{ \
		unsigned char *at = data; \
		for (size_t i = 0; i < count; i++, at += sizeof(type)) { \
			type value; \
			memcpy(&value, at, sizeof(value)); \
			value = (type)((wide)value / (wide)divisor); \
			memcpy(at, &value, sizeof(value)); \
		} \
	}

/* Division truncates, as in C. It is computed in i64 and u64, which hold the divisor for every world size. */
DEFINE_DIVIDE(int8_t, int64_t)
DEFINE_DIVIDE(uint8_t, uint64_t)
DEFINE_DIVIDE(int16_t, int64_t)
DEFINE_DIVIDE(uint16_t, uint64_t)
DEFINE_DIVIDE(int32_t, int64_t)
DEFINE_DIVIDE(uint32_t, uint64_t)
DEFINE_DIVIDE(int64_t, int64_t)
DEFINE_DIVIDE(uint64_t, uint64_t)

static void divide(collet_dtype dtype, void *data, size_t count, uint32_t divisor)
{
	switch (dtype) {
	case COLLET_I8:
		divide_int8_t(data, count, divisor);
		break;
	case COLLET_U8:
		divide_uint8_t(data, count, divisor);
		break;
	case COLLET_I16:
		divide_int16_t(data, count, divisor);
		break;
	case COLLET_U16:
		divide_uint16_t(data, count, divisor);
		break;
	case COLLET_I32:
		divide_int32_t(data, count, divisor);
		break;
	case COLLET_U32:
		divide_uint32_t(data, count, divisor);
		break;
	case COLLET_I64:
		divide_int64_t(data, count, divisor);
		break;
	case COLLET_U64:
		divide_uint64_t(data, count, divisor);
		break;
	default:
		assert(false); /* callers pass integer types only */
	}
}

/* ---- User-defined operations ---- */

/* Reduces a block from left to right, with the partial result in result. A later operand that lies in result is read
 * from a copy. */
static void reduce_user_block(const collet_user_op *op, unsigned char *result, const struct collet_operand *operands,
	uint32_t operand_count, size_t at, size_t count, size_t bytes, collet_dtype dtype)
{
	alignas(64) unsigned char saved[BLOCK_BYTES];
	bool is_saved = false;
	for (uint32_t k = 2; k < operand_count && !is_saved; k++)
		is_saved = operands[k].data == result;
	if (is_saved)
		memcpy(saved, result + at, bytes);
	op->combine(result + at, (const unsigned char *)operands[0].data + at,
		(const unsigned char *)operands[1].data + at, count,
		dtype, op->context);
	for (uint32_t k = 2; k < operand_count; k++) {
		const unsigned char *right = operands[k].data == result ? saved :
			(const unsigned char *)operands[k].data + at;
		op->combine(result + at, result + at, right, count, dtype, op->context);
	}
}

_Thread_local bool collet_reduction_in_user_op;

/* Passes two operands to the user's function in one call. More operands are reduced in blocks, so that the partial
 * result stays in cache. */
static void reduce_user(const struct collet_reduction *r, void *result, const struct collet_operand *operands,
	uint32_t operand_count, size_t count)
{
	const size_t block_count = operand_count == 2 ? count : BLOCK_BYTES / r->element_bytes;
	collet_reduction_in_user_op = true;
	for (size_t at = 0; at < count; at += block_count) {
		const size_t count_now = count - at < block_count ? count - at : block_count;
		reduce_user_block(r->user_op, result, operands, operand_count, at * r->element_bytes, count_now,
			count_now * r->element_bytes, r->dtype);
	}
	collet_reduction_in_user_op = false;
}

/* ---- Running a reduction ---- */

static void copy_elements(void *to, const void *from, size_t bytes)
{
	if (to != from)
		memcpy(to, from, bytes);
}

static void combine(const struct collet_reduction *r, const struct collet_reduction_target *target,
	const struct collet_operand *operands, uint32_t operand_count, size_t count, bool is_divided)
{
	const uint64_t mode = collet_fpmode_enter();
	if (r->user_op)
		reduce_user(r, target->result, operands, operand_count, count);
	else
		(is_divided ? r->finish : r->combine)(target, operands, operand_count, count, &r->scaling);
	collet_fpmode_leave(mode);
}

void collet_reduction_run_to(const struct collet_reduction *r, const struct collet_reduction_target *target,
	const struct collet_operand *operands, uint32_t operand_count, size_t count, bool is_last,
	uint64_t *rounded_count)
{
	void *const result = target->result;
	assert(operand_count > 0);
	if (count == 0)
		return;
	const bool is_divided = is_last && r->divisor > 1;
	const bool is_scaled = r->op == COLLET_PREMUL_SUM && operands[0].is_scaled;
	const bool is_plain_copy =
		operand_count == 1 && !is_scaled && !r->is_truth && (r->is_integer || !is_divided);
	/* Integers are divided, and user-defined operations run, before the result is copied. */
	const bool is_copied_last = is_plain_copy || r->user_op || (r->is_integer && is_divided);
	if (is_plain_copy) {
		copy_elements(result, operands[0].data, count * r->element_bytes);
	} else {
		const struct collet_reduction_target first = { .result = result };
		combine(r, is_copied_last ? &first : target, operands, operand_count, count, is_divided);
		if (rounded_count && r->is_rounded)
			*rounded_count += count;
	}
	if (r->is_integer && is_divided)
		divide(r->dtype, result, count, r->divisor);
	if (target->copy && is_copied_last)
		copy_elements(target->copy, result, count * r->element_bytes);
}

void collet_reduction_run(const struct collet_reduction *r, void *result, const struct collet_operand *operands,
	uint32_t operand_count, size_t count, bool is_last, uint64_t *rounded_count)
{
	const struct collet_reduction_target target = { .result = result };
	collet_reduction_run_to(r, &target, operands, operand_count, count, is_last, rounded_count);
}
