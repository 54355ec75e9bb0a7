/* Operations on lanes, and what happens at an element's first and last touch. Included by reduce_kernels.inc.h after
 * narrow_floats.h. */

#define LANES(name, type, expression) \
	VECTOR_INLINE vec name(vec left, vec right) \
	{ \
		const type a = (type)left, b = (type)right; \
		return (vec)(expression); \
	}

/* Unsigned lanes wrap, as two's complement does. */
LANES(sum_8, vec, a + b)
LANES(sum_32, vec_u32, a + b)
LANES(sum_64, vec_u64, a + b)
LANES(product_8, vec, a * b)
LANES(product_32, vec_u32, a * b)
LANES(product_64, vec_u64, a * b)
LANES(and_bits, vec, a & b)
LANES(or_bits, vec, a | b)
LANES(xor_bits, vec, a ^ b)

LANES(min_i8, vec_i8, vec_select((vec)(a < b), left, right))
LANES(min_u8, vec, vec_select((vec)(a < b), left, right))
LANES(min_i32, vec_i32, vec_select((vec)(a < b), left, right))
LANES(min_u32, vec_u32, vec_select((vec)(a < b), left, right))
LANES(min_i64, vec_i64, vec_select((vec)(a < b), left, right))
LANES(min_u64, vec_u64, vec_select((vec)(a < b), left, right))
LANES(max_i8, vec_i8, vec_select((vec)(a > b), left, right))
LANES(max_u8, vec, vec_select((vec)(a > b), left, right))
LANES(max_i32, vec_i32, vec_select((vec)(a > b), left, right))
LANES(max_u32, vec_u32, vec_select((vec)(a > b), left, right))
LANES(max_i64, vec_i64, vec_select((vec)(a > b), left, right))
LANES(max_u64, vec_u64, vec_select((vec)(a > b), left, right))

LANES(sum_f32, vec_f32, a + b)
LANES(sum_f64, vec_f64, a + b)
LANES(product_f32, vec_f32, a * b)
LANES(product_f64, vec_f64, a * b)

/* The smaller one keeps its bits and the larger one gives none. Neither is smaller: equal, then or-ing changes
 * nothing but makes -0 of two zeros if one is; or unordered, then something or-ed to a NaN stays one. The larger
 * one is the smaller one of the negated. */
LANES(min_f32, vec_f32, (left & ~(vec)(b < a)) | (right & ~(vec)(a < b)))
LANES(min_f64, vec_f64, (left & ~(vec)(b < a)) | (right & ~(vec)(a < b)))

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
VECTOR_INLINE vec scale_f32(vec v, bool scale, const struct collet_factors *factors)
{
	return (vec)((vec_f32)v * (scale ? factors->scale_f32 : 1.0f));
}

VECTOR_INLINE vec scale_f64(vec v, bool scale, const struct collet_factors *factors)
{
	return (vec)((vec_f64)v * (scale ? factors->scale_f64 : 1.0));
}

/* The result's last. */
VECTOR_INLINE vec divide_f32(vec v, const struct collet_factors *factors)
{
	return (vec)((vec_f32)v * factors->inverse_f32);
}

VECTOR_INLINE vec divide_f64(vec v, const struct collet_factors *factors)
{
	return (vec)((vec_f64)v * factors->inverse_f64);
}
