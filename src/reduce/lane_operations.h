/* Operations on the lanes of vectors: the reduction operations, the scaling of operands (premul_sum) and the division
 * of results (average). reduce_kernels.inc.h includes this file after storage_formats.h. */

#define DEFINE_LANE_OPERATION(name, type, expression) \
	VECTOR_INLINE vec name(vec left, vec right) \
	{ \
		const type a = (type)left, b = (type)right; \
		return (vec)(expression); \
	}

/* Computed on unsigned lanes, which wrap around as two's complement does. */
DEFINE_LANE_OPERATION(sum_8, vec, a + b)
DEFINE_LANE_OPERATION(sum_16, vec_u16, a + b)
DEFINE_LANE_OPERATION(sum_32, vec_u32, a + b)
DEFINE_LANE_OPERATION(sum_64, vec_u64, a + b)
DEFINE_LANE_OPERATION(product_8, vec, a * b)
DEFINE_LANE_OPERATION(product_16, vec_u16, a * b)
DEFINE_LANE_OPERATION(product_32, vec_u32, a * b)
DEFINE_LANE_OPERATION(product_64, vec_u64, a * b)
DEFINE_LANE_OPERATION(and_bits, vec, a & b)
DEFINE_LANE_OPERATION(or_bits, vec, a | b)
DEFINE_LANE_OPERATION(xor_bits, vec, a ^ b)

DEFINE_LANE_OPERATION(min_i8, vec_i8, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u8, vec, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_i16, vec_i16, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u16, vec_u16, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_i32, vec_i32, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u32, vec_u32, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_i64, vec_i64, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(min_u64, vec_u64, vec_select((vec)(a < b), left, right))
DEFINE_LANE_OPERATION(max_i8, vec_i8, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u8, vec, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_i16, vec_i16, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u16, vec_u16, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_i32, vec_i32, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u32, vec_u32, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_i64, vec_i64, vec_select((vec)(a > b), left, right))
DEFINE_LANE_OPERATION(max_u64, vec_u64, vec_select((vec)(a > b), left, right))

DEFINE_LANE_OPERATION(sum_f32, vec_f32, a + b)
DEFINE_LANE_OPERATION(sum_f64, vec_f64, a + b)
#if defined(VECTOR_FP16)
DEFINE_LANE_OPERATION(sum_f16, __m512h, _mm512_add_ph(a, b))
#endif
DEFINE_LANE_OPERATION(product_f32, vec_f32, a * b)
DEFINE_LANE_OPERATION(product_f64, vec_f64, a * b)

/* Minimum without branches: an operand that is greater is masked to zero, and the two are OR-ed. If they are equal, OR
 * changes nothing, except that +0 and -0 give -0. If one is NaN, none is masked, and OR keeps the result a NaN. The
 * maximum is the negated minimum of the negated operands. */
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

/* Scale an operand when it is first read. Multiplying by one changes nothing, so there is no branch. */
VECTOR_INLINE vec scale_f32(vec v, bool scale, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * (scale ? scaling->scale_f32 : 1.0f));
}

VECTOR_INLINE vec scale_f64(vec v, bool scale, const struct collet_scaling *scaling)
{
	return (vec)((vec_f64)v * (scale ? scaling->scale_f64 : 1.0));
}

/* Divide a finished sum, as a multiplication by 1/n. */
VECTOR_INLINE vec divide_f32(vec v, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * scaling->inverse_f32);
}

/* Do the same for bf16: operands are multiplied by a power of two, so that their sum cannot overflow. */
VECTOR_INLINE vec shrink_bf16(vec v, bool scale, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * scaling->shrunk_f32);
}

VECTOR_INLINE vec divide_shrunk(vec v, const struct collet_scaling *scaling)
{
	return (vec)((vec_f32)v * scaling->share_f32);
}

VECTOR_INLINE vec divide_f64(vec v, const struct collet_scaling *scaling)
{
	return (vec)((vec_f64)v * scaling->inverse_f64);
}
