/* Operations on lanes, and what happens at an element's first and last touch. Included by reduce_kernels.inc.h after
 * narrow_floats.h. */

#define DEFINE_LANE_OPERATION(name, type, expression) \
	VECTOR_INLINE vec name(vec left, vec right) \
	{ \
		const type a = (type)left, b = (type)right; \
		return (vec)(expression); \
	}

/* Unsigned lanes wrap, as two's complement does. */
DEFINE_LANE_OPERATION(sum_8, vec, a + b)
DEFINE_LANE_OPERATION(sum_32, vec_u32, a + b)
DEFINE_LANE_OPERATION(sum_64, vec_u64, a + b)
DEFINE_LANE_OPERATION(product_8, vec, a * b)
DEFINE_LANE_OPERATION(product_32, vec_u32, a * b)
DEFINE_LANE_OPERATION(product_64, vec_u64, a * b)
DEFINE_LANE_OPERATION(and_bits, vec, a & b)
DEFINE_LANE_OPERATION(or_bits, vec, a | b)
DEFINE_LANE_OPERATION(xor_bits, vec, a ^ b)

DEFINE_LANE_OPERATION(min_i8, vec_i8, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u8, vec, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_i32, vec_i32, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u32, vec_u32, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_i64, vec_i64, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u64, vec_u64, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(max_i8, vec_i8, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u8, vec, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_i32, vec_i32, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u32, vec_u32, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_i64, vec_i64, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u64, vec_u64, vec_select((vec)(a > b), left, right))

DEFINE_LANE_OPERATION(sum_f32, vec_f32, a + b)
DEFINE_LANE_OPERATION(sum_f64, vec_f64, a + b)
DEFINE_LANE_OPERATION(product_f32, vec_f32, a * b)
DEFINE_LANE_OPERATION(product_f64, vec_f64, a * b)

/* The smaller one keeps its bits and the larger one gives none. Neither is smaller: equal, then or-ing changes
 * nothing but makes -0 of two zeros if one is; or unordered, then something or-ed to a NaN stays one. The larger
 * one is the smaller one of the negated. */
DEFINE_LANE_OPERATION(min_f32, vec_f32, (left & ~(vec)(b < a)) | (right & ~(vec)(a < b)))
DEFINE_LANE_OPERATION(min_f64, vec_f64, (left & ~(vec)(b < a)) | (right & ~(vec)(a < b)))

VECTOR_INLINE vec max_f32(vec a, vec b)
{
	const vec sign = (vec)((vec_u32){ 0 } + 0x80000000u);
	return sign ^ min_f32(a ^ sign, b ^ sign);
}

VECTOR_INLINE vec max_f64(vec a, vec b)
{
	const vec sign = (vec)((vec_u64){ 0 } + 0x8000000000000000u);
	return sign ^ min_f64(a ^ sign, b ^ sign);
}

/* An operand's first touch. Times one changes nothing, so there is no branch. */
VECTOR_INLINE vec scale_f32(vec v, bool scale, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * (scale ? scaling->scale_f32 : 1.0f));
}

VECTOR_INLINE vec scale_f64(vec v, bool scale, const struct collet_scaling *scaling)
{
	return (vec)((vec_f64)v * (scale ? scaling->scale_f64 : 1.0));
}

/* The result's last. */
VECTOR_INLINE vec divide_f32(vec v, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * scaling->inverse_f32);
}

VECTOR_INLINE vec divide_f64(vec v, const struct collet_scaling *scaling)
{
	return (vec)((vec_f64)v * scaling->inverse_f64);
}
