/* Storage formats: load elements into accumulators and pack them again, for the blocks of reduce_kernels.inc.h. One
 * vector of storage fills `accumulators` accumulators. Each format assigns elements to lanes as it likes: operands and
 * result use the same order, and lanes are independent. Packing makes vectors of storage, which the blocks store:
 * narrow stores to a buffer would stall the wide load that follows them. Included after narrow_floats.h. */

struct storage_format {
	size_t element_bytes;
	uint32_t accumulators;
	void (*load)(vec *to, const unsigned char *from, uint32_t accumulators);
	void (*pack)(vec *to, const vec *from, uint32_t accumulators);
	/* The format is not for codes from this one on, without sign: blocks that have one need another format. 0: it
	 * is for all. Only for elements of one byte. */
	uint8_t special_from;
};

VECTOR_INLINE void load_raw(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = vec_load(from + i * sizeof(vec));
}

/* All bytes but 0 are true, which is 1 from here on. */
VECTOR_INLINE void load_truth(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = (vec)(vec_load(from + i * sizeof(vec)) != 0) & 1;
}

VECTOR_INLINE void pack_raw(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = from[i];
}

VECTOR_INLINE void pack_f32(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = nan_canonical_f32(from[i]);
}

VECTOR_INLINE void pack_f64(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = nan_canonical_f64(from[i]);
}

/* A 32-bit lane of storage holds two codes. One accumulator takes the lower codes and the next the upper codes, so no
 * shuffling is needed. Packing tests both accumulators for NaN at once. */
VECTOR_INLINE void load_bf16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 both = (vec_u32)vec_load(from + i / 2 * sizeof(vec));
		to[i] = (vec)(both << 16);
		to[i + 1] = (vec)(both & 0xffff0000u);
	}
}

VECTOR_INLINE void pack_bf16(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		vec lower = from[i], upper = from[i + 1];
		if (__builtin_expect(nan_any_f32(lower, upper), false)) {
			lower = nan_canonical_f32(lower);
			upper = nan_canonical_f32(upper);
		}
		to[i / 2] = (vec)(bf16_round(lower) >> 16 | (bf16_round(upper) & 0xffff0000u));
	}
}

/* The processor's f16 conversions keep denormals in any mode. They keep the upper payload bits of a NaN, so the
 * canonical NaN stays canonical. */
#if defined(VECTOR_AVX512)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

VECTOR_INLINE vec_half f16_narrow_no_nan(vec x)
{
	return (vec_half)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VECTOR_INLINE vec vec_join(vec_half first, vec_half second)
{
	return (vec)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)first), (__m256i)second, 1);
}
#elif defined(VECTOR_F16C)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

VECTOR_INLINE vec_half f16_narrow_no_nan(vec x)
{
	return (vec_half)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
}

VECTOR_INLINE vec vec_join(vec_half first, vec_half second)
{
	return (vec)_mm256_set_m128i((__m128i)second, (__m128i)first);
}
#else
VECTOR_INLINE vec f16_widen(vec code)
{
	return narrow_float_widen(code, f16_format);
}

VECTOR_INLINE vec f16_narrow(vec x)
{
	return narrow_float_narrow(x, f16_format);
}
#endif

#if defined(VECTOR_F16C)
VECTOR_INLINE void f16_narrow_in_order(unsigned char *to, vec x)
{
	const vec_half codes = f16_narrow_no_nan(nan_canonical_f32(x));
	memcpy(to, &codes, sizeof(codes));
}

VECTOR_INLINE void load_f16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = f16_widen_in_order(from + i * (sizeof(vec) / 2));
}

VECTOR_INLINE void pack_f16(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		vec first = from[i], second = from[i + 1];
		if (__builtin_expect(nan_any_f32(first, second), false)) {
			first = nan_canonical_f32(first);
			second = nan_canonical_f32(second);
		}
		to[i / 2] = vec_join(f16_narrow_no_nan(first), f16_narrow_no_nan(second));
	}
}
#else
/* Handles lanes in pairs, as for bf16. */
VECTOR_INLINE void load_f16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 both = (vec_u32)vec_load(from + i / 2 * sizeof(vec));
		to[i] = f16_widen((vec)(both & 0xffff));
		to[i + 1] = f16_widen((vec)(both >> 16));
	}
}

VECTOR_INLINE void pack_f16(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 lower = (vec_u32)f16_narrow(from[i]), upper = (vec_u32)f16_narrow(from[i + 1]);
		to[i / 2] = (vec)(lower | upper << 16);
	}
}
#endif

/* A 32-bit lane holds four codes, which go to four accumulators. */
VECTOR_INLINE void load_f8(vec *to, const unsigned char *from, uint32_t accumulators,
	const struct narrow_float format)
{
	for (uint32_t i = 0; i < accumulators; i++) {
		const vec_u32 four = (vec_u32)vec_load(from + i / 4 * sizeof(vec));
		to[i] = narrow_float_widen((vec)(four >> (i % 4 * 8) & 0xff), format);
	}
}

VECTOR_INLINE void pack_f8(vec *to, const vec *from, uint32_t accumulators,
	const struct narrow_float format)
{
	for (uint32_t i = 0; i < accumulators; i += 4) {
		vec_u32 four = (vec_u32)narrow_float_narrow(from[i], format);
		for (uint32_t k = 1; k < 4; k++)
			four |= (vec_u32)narrow_float_narrow(from[i + k], format) << (k * 8);
		to[i / 4] = (vec)four;
	}
}

VECTOR_INLINE void load_f8e4m3(vec *to, const unsigned char *from, uint32_t accumulators)
{
	load_f8(to, from, accumulators, f8e4m3_format);
}

VECTOR_INLINE void pack_f8e4m3(vec *to, const vec *from, uint32_t accumulators)
{
	pack_f8(to, from, accumulators, f8e4m3_format);
}

VECTOR_INLINE void load_f8e5m2(vec *to, const unsigned char *from, uint32_t accumulators)
{
	load_f8(to, from, accumulators, f8e5m2_format);
}

VECTOR_INLINE void pack_f8e5m2(vec *to, const vec *from, uint32_t accumulators)
{
	pack_f8(to, from, accumulators, f8e5m2_format);
}

/* ---- Sums, minima and maxima of 8-bit floats without infinities and NaNs ----
 *
 * The exponent field of a code becomes the lower bits of the exponent field of a wider float, and the upper ones are
 * zero. This scales all values by one power of two, and denormals of both formats coincide. So widening is a shift, and
 * one rounding by carry is right for normal and denormal results. `gap` is the number of upper exponent bits. The
 * scale would show in products, in averages and in scaled sums, which use the general formats. */

/* Splits codes into 16-bit lanes: those at even and at odd places. */
VECTOR_INLINE vec_u16 f8_even(vec raw, const int gap)
{
	return (vec_u16)((vec_i16)((vec_u16)raw << 8) >> gap) & (uint16_t)(0x8000 | 0x7f00 >> gap);
}

VECTOR_INLINE vec_u16 f8_odd(vec raw, const int gap)
{
	return (vec_u16)((vec_i16)raw >> gap) & (uint16_t)(0x8000 | 0x7f00 >> gap);
}

/* Joins such lanes again, whose lower bits are ignored. */
VECTOR_INLINE vec f8_join(vec even, vec odd, const int gap)
{
	const vec sign = (vec)((vec_u16){ 0 } + 0x8000), upper_byte = (vec)((vec_u16){ 0 } + 0xff00);
	const vec_u16 even_codes = (vec_u16)vec_select_bits(sign, even, (vec)((vec_u16)even << gap));
	const vec odd_codes = vec_select_bits(sign, odd, (vec)((vec_u16)odd << gap));
	return vec_select(upper_byte, odd_codes, (vec)(even_codes >> 8));
}

/* The lanes are the upper halves of f32. Their sums round as those at full scale, which are at least 2^8 of the least
 * denormal of f32. Four accumulators get the even lanes, then the odd ones. */
VECTOR_INLINE void load_f8_in_f32(vec *to, const unsigned char *from, uint32_t accumulators, const int gap)
{
	for (uint32_t i = 0; i < accumulators; i += 4) {
		const vec raw = vec_load(from + i / 4 * sizeof(vec));
		const vec_u32 even = (vec_u32)f8_even(raw, gap), odd = (vec_u32)f8_odd(raw, gap);
		to[i] = (vec)(even << 16);
		to[i + 1] = (vec)(even & 0xffff0000u);
		to[i + 2] = (vec)(odd << 16);
		to[i + 3] = (vec)(odd & 0xffff0000u);
	}
}

/* Clamps magnitudes to the f32 with the bits `largest`. */
VECTOR_INLINE vec clamp_f32(vec x, int32_t largest)
{
#if defined(VECTOR_AVX512)
	enum { LESSER_MAGNITUDE_WITH_FIRST_SIGN = 2 };
	return (vec)_mm512_range_ps((__m512)x, (__m512)_mm512_set1_epi32(largest), LESSER_MAGNITUDE_WITH_FIRST_SIGN);
#elif defined(VECTOR_AVX2)
	const __m256 most = (__m256)_mm256_set1_epi32(largest), least = (__m256)_mm256_set1_epi32(largest | INT32_MIN);
	return (vec)_mm256_max_ps(_mm256_min_ps((__m256)x, most), least);
#else
	const vec_i32 magnitude = (vec_i32)x & INT32_MAX;
	return vec_select((vec)(magnitude < largest), x, (vec)(((vec_i32)x & INT32_MIN) | largest));
#endif
}

VECTOR_INLINE vec_u32 round_f8_in_f32(vec x, const int gap, int32_t largest_code)
{
	const int shift = 24 - gap;
	const vec_u32 bits = (vec_u32)clamp_f32(x, largest_code << shift);
	return bits + ((1u << (shift - 1)) - 1) + ((bits >> shift) & 1);
}

VECTOR_INLINE void pack_f8_in_f32(
	vec *to, const vec *from, uint32_t accumulators, const int gap, int32_t largest_code)
{
	const vec upper_half = (vec)((vec_u32){ 0 } + 0xffff0000u);
	for (uint32_t i = 0; i < accumulators; i += 4) {
		vec_u32 sum[4];
		for (uint32_t k = 0; k < 4; k++)
			sum[k] = round_f8_in_f32(from[i + k], gap, largest_code);
		to[i / 4] = f8_join(vec_select(upper_half, (vec)sum[1], (vec)(sum[0] >> 16)),
			vec_select(upper_half, (vec)sum[3], (vec)(sum[2] >> 16)), gap);
	}
}

#define DEFINE_F8_IN_F32(name, gap, largest_code, special_from) \
	VECTOR_INLINE void load_##name##_in_f32(vec *to, const unsigned char *from, uint32_t accumulators) \
	{ \
		load_f8_in_f32(to, from, accumulators, gap); \
	} \
	VECTOR_INLINE void pack_##name##_in_f32(vec *to, const vec *from, uint32_t accumulators) \
	{ \
		pack_f8_in_f32(to, from, accumulators, gap, largest_code); \
	} \
	static const struct storage_format name##_in_f32 = { \
		1, 4, load_##name##_in_f32, pack_##name##_in_f32, special_from \
	};

DEFINE_F8_IN_F32(f8e4m3, 4, 0x7e, 0x7f)
DEFINE_F8_IN_F32(f8e5m2, 3, 0x7b, 0x7c)

/* ---- Sums of two operands in f16 ----
 *
 * The sum of two f16, rounded once to f16, is the same as that rounded to f32 first: f32 has twice as many bits of
 * precision and two more. The same holds for two f8 that are added in f16. */
#if defined(VECTOR_FP16)
VECTOR_INLINE void pack_f16_lanes(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++) {
		const __m512i magnitude = (__m512i)((vec_u16)from[i] & 0x7fff);
		const __mmask32 nan = _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(0x7c00));
		to[i] = (vec)_mm512_mask_blend_epi16(nan, (__m512i)from[i], _mm512_set1_epi16(0x7e00));
	}
}

VECTOR_INLINE void load_f8_in_f16(vec *to, const unsigned char *from, uint32_t accumulators, const int gap)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec raw = vec_load(from + i / 2 * sizeof(vec));
		to[i] = (vec)f8_even(raw, gap);
		to[i + 1] = (vec)f8_odd(raw, gap);
	}
}

/* Clamps and rounds. A sum that overflows f16 is an infinity here, and is clamped too. */
VECTOR_INLINE vec round_f8_in_f16(vec x, const int gap, int16_t largest_code)
{
	const int shift = 8 - gap;
	const __m512h most = (__m512h)_mm512_set1_epi16((int16_t)(largest_code << shift)),
		      least = (__m512h)_mm512_set1_epi16((int16_t)(largest_code << shift | INT16_MIN));
	const vec_u16 bits = (vec_u16)_mm512_max_ph(_mm512_min_ph((__m512h)x, most), least);
	return (vec)(bits + (uint16_t)((1 << (shift - 1)) - 1) + ((bits >> shift) & 1));
}

VECTOR_INLINE void pack_f8_in_f16(
	vec *to, const vec *from, uint32_t accumulators, const int gap, int16_t largest_code)
{
	for (uint32_t i = 0; i < accumulators; i += 2)
		to[i / 2] = f8_join(round_f8_in_f16(from[i], gap, largest_code),
			round_f8_in_f16(from[i + 1], gap, largest_code), gap);
}

#define DEFINE_F8_IN_F16(name, gap, largest_code, special_from) \
	VECTOR_INLINE void load_##name##_in_f16(vec *to, const unsigned char *from, uint32_t accumulators) \
	{ \
		load_f8_in_f16(to, from, accumulators, gap); \
	} \
	VECTOR_INLINE void pack_##name##_in_f16(vec *to, const vec *from, uint32_t accumulators) \
	{ \
		pack_f8_in_f16(to, from, accumulators, gap, largest_code); \
	} \
	static const struct storage_format name##_in_f16 = { \
		1, 2, load_##name##_in_f16, pack_##name##_in_f16, special_from \
	};

DEFINE_F8_IN_F16(f8e4m3, 1, 0x7e, 0x7f)
DEFINE_F8_IN_F16(f8e5m2, 0, 0x7b, 0x7c)

static const struct storage_format f16_lanes = { 2, 1, load_raw, pack_f16_lanes, 0 };
#endif

static const struct storage_format bytes_1 = { 1, 1, load_raw, pack_raw, 0 };
static const struct storage_format bytes_2 = { 2, 1, load_raw, pack_raw, 0 };
static const struct storage_format truth = { 1, 1, load_truth, pack_raw, 0 };
static const struct storage_format bytes_4 = { 4, 1, load_raw, pack_raw, 0 };
static const struct storage_format bytes_8 = { 8, 1, load_raw, pack_raw, 0 };
static const struct storage_format f32 = { 4, 1, load_raw, pack_f32, 0 };
static const struct storage_format f64 = { 8, 1, load_raw, pack_f64, 0 };
static const struct storage_format f16 = { 2, 2, load_f16, pack_f16, 0 };
static const struct storage_format bf16 = { 2, 2, load_bf16, pack_bf16, 0 };
static const struct storage_format f8e4m3 = { 1, 4, load_f8e4m3, pack_f8e4m3, 0 };
static const struct storage_format f8e5m2 = { 1, 4, load_f8e5m2, pack_f8e5m2, 0 };
