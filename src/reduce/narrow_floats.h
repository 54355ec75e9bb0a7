/* Converts between f32 and the codes of 16-bit and 8-bit floats, one element in each 32-bit lane. Needs the
 * floating-point mode of fpmode.h: round to nearest, denormals kept. reduce_kernels.inc.h includes this file after
 * vector.h. */

/* Replaces any NaN by the canonical one; reduce.h says why. */
VECTOR_INLINE vec nan_canonical_f32(vec x)
{
	const vec_i32 nan = (vec_f32)x != (vec_f32)x;
	return vec_select((vec)nan, (vec)((vec_u32){ 0 } + 0x7fc00000u), x);
}

/* Returns true if either vector has a NaN. One unordered comparison tests both. */
VECTOR_INLINE bool nan_any_f32(vec a, vec b)
{
#if defined(VECTOR_AVX512)
	return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q) != 0;
#elif defined(VECTOR_AVX2)
	return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q)) != 0;
#else
	const vec_i64 nan = (vec_i64)(((vec_f32)a != (vec_f32)a) | ((vec_f32)b != (vec_f32)b));
	return (nan[0] | nan[1]) != 0; /* a plain vector has 16 bytes, so these are all lanes */
#endif
}

VECTOR_INLINE vec nan_canonical_f64(vec x)
{
	const vec_i64 nan = (vec_f64)x != (vec_f64)x;
	return vec_select((vec)nan, (vec)((vec_u64){ 0 } + 0x7ff8000000000000u), x);
}

/* ---- bf16: a code is the upper half of an f32 ---- */

VECTOR_INLINE vec bf16_widen(vec code)
{
	return (vec)((vec_u32)code << 16);
}

/* Rounds to nearest even by carry: adds half a unit minus one, plus the last bit that is kept. The code is the upper
 * half of the result. The addition may overflow for a NaN, except for the canonical one. */
VECTOR_INLINE vec_u32 bf16_round(vec x)
{
	const vec_u32 bits = (vec_u32)x;
	return bits + 0x7fff + ((bits >> 16) & 1);
}

VECTOR_INLINE vec bf16_narrow(vec x)
{
	return (vec)(bf16_round(nan_canonical_f32(x)) >> 16);
}

/* ---- f16, f8e4m3, f8e5m2 ---- */

/* A format with sign, exponent and mantissa in 16 or 8 bits. */
struct narrow_float {
	int mantissa_bits;
	int bias;
	int sign_bit;          /* index of the sign bit, the topmost bit */
	int32_t special_from;  /* codes from this one on, without sign, are infinity or NaN */
	int32_t largest;       /* bits of an f32: magnitudes are clamped to it before rounding */
	int32_t infinity;      /* code of an infinite f32; 0 if infinity is clamped like any other value */
	int32_t nan;           /* code of the canonical NaN */
};

/* largest of f16 is 65536. The arithmetic below turns it into the code of infinity, so values that round to it
 * overflow. */
static const struct narrow_float f16_format = { 10, 15, 15, 0x7c00, 0x47800000, 0, 0x7e00 };
static const struct narrow_float f8e4m3_format = { 3, 7, 7, 0x7f, 0x43e00000, 0, 0x7f };
static const struct narrow_float f8e5m2_format = { 2, 15, 7, 0x7c, 0x47600000, 0x7c, 0x7e };

/* Widens codes. The exponent of a normal code is shifted to its position in f32, and its bias is changed. A denormal
 * with mantissa m is 2^(1-bias) * (1 + m/2^mantissa_bits) - 2^(1-bias), an exact subtraction. */
VECTOR_INLINE vec narrow_float_widen(vec code, const struct narrow_float format)
{
	const int shift = 23 - format.mantissa_bits;
	const int32_t least_normal = (128 - format.bias) << 23;
	const vec_i32 sign = ((vec_i32)code >> format.sign_bit) << 31;
	const int32_t below_sign = (1 << format.sign_bit) - 1, first_normal = 1 << format.mantissa_bits;
	const vec_i32 magnitude = (vec_i32)code & below_sign;
	const vec_i32 moved = magnitude << shift;
	const vec denormal = (vec)((vec_f32)(moved + least_normal) - (vec_f32)((vec_i32){ 0 } + least_normal));
	vec bits = (vec)(moved + ((127 - format.bias) << 23));
	bits = vec_select((vec)(magnitude < first_normal), denormal, bits);
	bits |= (vec)((magnitude >= format.special_from) & 0x7f800000);
	return bits | (vec)sign;
}

/* Narrows f32 lanes. Normal results are rounded by carry, as for bf16. Denormal results are rounded by an f32 addition:
 * it adds a power of two whose last place is the format's smallest denormal. */
VECTOR_INLINE vec narrow_float_narrow(vec x, const struct narrow_float format)
{
	const int shift = 23 - format.mantissa_bits;
	const int32_t least_normal = (128 - format.bias) << 23;
	const int32_t rounder = (127 + 24 - format.bias - format.mantissa_bits) << 23;
	const vec sign = (vec)(((vec_u32)x >> 31) << format.sign_bit);
	const vec_i32 whole = (vec_i32)x & 0x7fffffff;
	const vec_i32 magnitude = (vec_i32)vec_select((vec)(whole < format.largest), (vec)whole,
		(vec)((vec_i32){ 0 } + format.largest));
	const vec_i32 denormal = (vec_i32)((vec_f32)magnitude + (vec_f32)((vec_i32){ 0 } + rounder)) - rounder;
	const int32_t under_half = (1 << (shift - 1)) - 1, bias = (127 - format.bias) << format.mantissa_bits;
	const vec_i32 odd = (magnitude >> shift) & 1;
	const vec_i32 normal = ((magnitude + under_half + odd) >> shift) - bias;
	vec code = vec_select((vec)(magnitude < least_normal), (vec)denormal, (vec)normal);
	if (format.infinity)
		code = vec_select((vec)(whole == 0x7f800000), (vec)((vec_i32){ 0 } + format.infinity), code);
	return vec_select((vec)(whole > 0x7f800000), (vec)((vec_i32){ 0 } + format.nan), code | sign);
}
