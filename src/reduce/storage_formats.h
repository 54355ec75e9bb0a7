/* Storage formats: load elements into accumulators and pack them again, for the blocks of reduce_kernels.inc.h. One
 * vector of storage fills `accumulators` accumulators. Each format assigns elements to lanes as it likes: operands and
 * result use the same order, and lanes are independent. Packing makes vectors of storage, which the blocks store:
 * narrow stores to a buffer would stall the wide load that follows them. Included after narrow_floats.h. */

struct storage_format {
	size_t element_bytes;
	uint32_t accumulators;
	void (*load)(vec *to, const unsigned char *from, uint32_t accumulators);
	void (*pack)(vec *to, const vec *from, uint32_t accumulators);
};

VECTOR_INLINE void load_raw(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = vec_load(from + i * sizeof(vec));
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

#if defined(COLLET_VECTOR_BF16)
/* Returns true if a vector has a denormal or a NaN. The processor's conversion rounds like bf16_round(), but it flushes
 * denormals to zero and does not make NaNs canonical. */
VECTOR_INLINE bool bf16_is_special(vec a, vec b)
{
	enum { QUIET_NAN = 0x01, DENORMAL = 0x20, SIGNALLING_NAN = 0x80 };
	return (_mm512_fpclass_ps_mask((__m512)a, QUIET_NAN | DENORMAL | SIGNALLING_NAN) |
		_mm512_fpclass_ps_mask((__m512)b, QUIET_NAN | DENORMAL | SIGNALLING_NAN)) != 0;
}

/* Rounds two vectors and interleaves their codes. The conversion puts all lower codes first and then all upper ones, so
 * words 0, 32, 1, 33, ... give the order of storage. */
VECTOR_INLINE vec bf16_round_both(vec lower, vec upper)
{
	const __m512i pairs = _mm512_add_epi32(_mm512_set1_epi32(0x00100000),
		_mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
			_mm512_set1_epi32(0x00010001)));
	return (vec)_mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower));
}
#endif

VECTOR_INLINE void pack_bf16(vec *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		vec lower = from[i], upper = from[i + 1];
#if defined(COLLET_VECTOR_BF16)
		if (__builtin_expect(!bf16_is_special(lower, upper), true)) {
			to[i / 2] = bf16_round_both(lower, upper);
			continue;
		}
#endif
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

static const struct storage_format bytes_1 = { 1, 1, load_raw, pack_raw };
static const struct storage_format bytes_4 = { 4, 1, load_raw, pack_raw };
static const struct storage_format bytes_8 = { 8, 1, load_raw, pack_raw };
static const struct storage_format f32 = { 4, 1, load_raw, pack_f32 };
static const struct storage_format f64 = { 8, 1, load_raw, pack_f64 };
static const struct storage_format f16 = { 2, 2, load_f16, pack_f16 };
static const struct storage_format bf16 = { 2, 2, load_bf16, pack_bf16 };
static const struct storage_format f8e4m3 = { 1, 4, load_f8e4m3, pack_f8e4m3 };
static const struct storage_format f8e5m2 = { 1, 4, load_f8e5m2, pack_f8e5m2 };
