/* Floating-point formats, one 32-bit lane an element: f32 lanes to and from the codes of 16 and 8 bit floats. Needs
 * round-to-nearest and denormals (fpmode.h). Included by reduce_kernels.inc.h after vector.h. */

/* Any NaN becomes the canonical one (reduce.h says why). */
VECTOR_INLINE vec nan_canonical_f32(vec x)
{
	const vec_i32 nan = (vec_f32)x != (vec_f32)x;
	return vec_select((vec)nan, (vec)((vec_u32){ 0 } + 0x7fc00000u), x);
}

/* Is there a NaN in either? One comparison sees both. */
VECTOR_INLINE bool nan_any_f32(vec a, vec b)
{
#if defined(VECTOR_AVX512)
	return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q) != 0;
#elif defined(VECTOR_AVX2)
	return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q)) != 0;
#else
	const vec_i64 nan = (vec_i64)(((vec_f32)a != (vec_f32)a) | ((vec_f32)b != (vec_f32)b));
	return (nan[0] | nan[1]) != 0; /* all of it: 16 bytes */
#endif
}

VECTOR_INLINE vec nan_canonical_f64(vec x)
{
	const vec_i64 nan = (vec_f64)x != (vec_f64)x;
	return vec_select((vec)nan, (vec)((vec_u64){ 0 } + 0x7ff8000000000000u), x);
}

/* ---- bf16: the upper half of an f32 ---- */

VECTOR_INLINE vec bf16_widen(vec code)
{
	return (vec)((vec_u32)code << 16);
}

/* Rounds by carry: adding half a unit less one, plus the last kept bit, ties to even. A NaN may overflow, so it has
 * to be canonical. The code is the upper half of what comes out. */
VECTOR_INLINE vec_u32 bf16_round(vec x)
{
	const vec_u32 bits = (vec_u32)x;
	return bits + 0x7fff + ((bits >> 16) & 1);
}

VECTOR_INLINE vec bf16_narrow(vec x)
{
	return (vec)(bf16_round(nan_canonical_f32(x)) >> 16);
}

/* ---- f16, f8e4m3, f8e5m2: sign, exponent and mantissa in fewer bits ---- */

struct narrow_float {
	int mantissa_bits;
	int bias;
	int sign_bit;          /* number of the code's topmost bit */
	int32_t special_from;  /* codes from here on, the sign aside, have f32's exponent of infinity and NaN */
	int32_t largest;       /* f32 bits: magnitudes are cut to this before rounding */
	int32_t infinity;      /* code of an infinite f32; 0: cut like any other */
	int32_t nan;           /* the canonical code */
};

/* largest of f16 is 65536, which the arithmetic below makes infinity's code, so that what rounds to it becomes it. */
static const struct narrow_float f16_format = { 10, 15, 15, 0x7c00, 0x47800000, 0, 0x7e00 };
static const struct narrow_float f8e4m3_format = { 3, 7, 7, 0x7f, 0x43e00000, 0, 0x7f };
static const struct narrow_float f8e5m2_format = { 2, 15, 7, 0x7c, 0x47600000, 0x7c, 0x7e };

/* A normal code's exponent is moved to f32's place and re-biased. A denormal m is 2^(1-bias) * (1 + m/2^mantissa_bits)
 * less 2^(1-bias), an exact subtraction. */
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

/* Normal results round by carry as bf16's. For denormal ones, adding a power of two whose last place is the format's
 * smallest denormal makes the f32 addition round to it. */
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
