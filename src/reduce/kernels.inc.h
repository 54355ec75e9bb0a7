/* Every kernel of one instruction set. The file that includes this defines
 *   COLLET_VECTOR_BYTES  how wide a vector is: 16 (any machine), 32 (AVX2 and F16C) or 64 (AVX-512 F, BW, DQ)
 *   COLLET_KERNELS       the name of the table to define
 * and is compiled with the flags of its instruction set. Nothing here has external linkage but the table.
 *
 * A kernel walks the span in blocks of four accumulators: loads the block of operand 0, combines those of the others into
 * it, stores. A block is read from every operand before it is written, so the result may be any of them. Wide loads
 * of many operands at a time keep the memory busy; one pass is all there is. */

#include "reduce/kernels.h"

#include "reduce/vector.h"

#include "reduce/lanes.h"

enum { WIDE = 4 };

/* ---- Formats: between storage and accumulators. One vector of storage fills `spread` accumulators. Which element goes to
 * which lane is the format's own affair: operands and result agree, and lanes never meet. ---- */

struct format {
	size_t element_bytes;
	uint32_t spread;
	void (*load)(vec *to, const unsigned char *from, uint32_t accumulators);
	void (*store)(unsigned char *to, const vec *from, uint32_t accumulators);
};

VECTOR_INLINE void load_raw(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = vec_load(from + i * sizeof(vec));
}

VECTOR_INLINE void store_raw(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		vec_store(to + i * sizeof(vec), from[i]);
}

VECTOR_INLINE void store_f32(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		vec_store(to + i * sizeof(vec), nan_canonical_f32(from[i]));
}

VECTOR_INLINE void store_f64(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		vec_store(to + i * sizeof(vec), nan_canonical_f64(from[i]));
}

/* A 32-bit lane of storage holds two codes; one accumulator takes the lower ones, the next the upper: no shuffling. NaN is
 * looked for in both at once. */
VECTOR_INLINE void load_bf16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 both = (vec_u32)vec_load(from + i / 2 * sizeof(vec));
		to[i] = (vec)(both << 16);
		to[i + 1] = (vec)(both & 0xffff0000u);
	}
}

VECTOR_INLINE void store_bf16(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		vec lower = from[i], upper = from[i + 1];
		if (__builtin_expect(nan_any_f32(lower, upper), false)) {
			lower = nan_canonical_f32(lower);
			upper = nan_canonical_f32(upper);
		}
		vec_store(to + i / 2 * sizeof(vec), (vec)(bf16_round(lower) >> 16 | (bf16_round(upper) & 0xffff0000u)));
	}
}

/* The processor's own f16 conversions keep denormals whatever the mode, and put a NaN's payload where the canonical one
 * stays canonical. */
#if defined(VECTOR_AVX512)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

VECTOR_INLINE void f16_narrow_in_order(unsigned char *to, vec x)
{
	_mm256_storeu_si256((void *)to, _mm512_cvtps_ph((__m512)nan_canonical_f32(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(VECTOR_F16C)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

VECTOR_INLINE void f16_narrow_in_order(unsigned char *to, vec x)
{
	_mm_storeu_si128((void *)to, _mm256_cvtps_ph((__m256)nan_canonical_f32(x), _MM_FROUND_TO_NEAREST_INT));
}
#else
VECTOR_INLINE vec f16_widen(vec code)
{
	return small_widen(code, f16_format);
}

VECTOR_INLINE vec f16_narrow(vec x)
{
	return small_narrow(x, f16_format);
}
#endif

#if defined(VECTOR_F16C)
VECTOR_INLINE void load_f16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		to[i] = f16_widen_in_order(from + i * (sizeof(vec) / 2));
}

VECTOR_INLINE void store_f16(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i++)
		f16_narrow_in_order(to + i * (sizeof(vec) / 2), from[i]);
}
#else
/* In pairs, as bf16. */
VECTOR_INLINE void load_f16(vec *to, const unsigned char *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 both = (vec_u32)vec_load(from + i / 2 * sizeof(vec));
		to[i] = f16_widen((vec)(both & 0xffff));
		to[i + 1] = f16_widen((vec)(both >> 16));
	}
}

VECTOR_INLINE void store_f16(unsigned char *to, const vec *from, uint32_t accumulators)
{
	for (uint32_t i = 0; i < accumulators; i += 2) {
		const vec_u32 lower = (vec_u32)f16_narrow(from[i]), upper = (vec_u32)f16_narrow(from[i + 1]);
		vec_store(to + i / 2 * sizeof(vec), (vec)(lower | upper << 16));
	}
}
#endif

/* Likewise four codes in a lane. */
VECTOR_INLINE void load_quads(vec *to, const unsigned char *from, uint32_t accumulators, const struct small_float format)
{
	for (uint32_t i = 0; i < accumulators; i++) {
		const vec_u32 four = (vec_u32)vec_load(from + i / 4 * sizeof(vec));
		to[i] = small_widen((vec)(four >> (i % 4 * 8) & 0xff), format);
	}
}

VECTOR_INLINE void store_quads(unsigned char *to, const vec *from, uint32_t accumulators, const struct small_float format)
{
	for (uint32_t i = 0; i < accumulators; i += 4) {
		vec_u32 four = (vec_u32)small_narrow(from[i], format);
		for (uint32_t k = 1; k < 4; k++)
			four |= (vec_u32)small_narrow(from[i + k], format) << (k * 8);
		vec_store(to + i / 4 * sizeof(vec), (vec)four);
	}
}

VECTOR_INLINE void load_f8e4m3(vec *to, const unsigned char *from, uint32_t accumulators)
{
	load_quads(to, from, accumulators, f8e4m3_format);
}

VECTOR_INLINE void store_f8e4m3(unsigned char *to, const vec *from, uint32_t accumulators)
{
	store_quads(to, from, accumulators, f8e4m3_format);
}

VECTOR_INLINE void load_f8e5m2(vec *to, const unsigned char *from, uint32_t accumulators)
{
	load_quads(to, from, accumulators, f8e5m2_format);
}

VECTOR_INLINE void store_f8e5m2(unsigned char *to, const vec *from, uint32_t accumulators)
{
	store_quads(to, from, accumulators, f8e5m2_format);
}

static const struct format bytes_1 = { 1, 1, load_raw, store_raw };
static const struct format bytes_4 = { 4, 1, load_raw, store_raw };
static const struct format bytes_8 = { 8, 1, load_raw, store_raw };
static const struct format f32 = { 4, 1, load_raw, store_f32 };
static const struct format f64 = { 8, 1, load_raw, store_f64 };
static const struct format f16 = { 2, 2, load_f16, store_f16 };
static const struct format bf16 = { 2, 2, load_bf16, store_bf16 };
static const struct format f8e4m3 = { 1, 4, load_f8e4m3, store_f8e4m3 };
static const struct format f8e5m2 = { 1, 4, load_f8e5m2, store_f8e5m2 };

/* ---- Operations on lanes ---- */

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

/* The smaller one keeps its bits and the larger one gives none. Neither is smaller: equal, then or-ing changes nothing but
 * makes -0 of two zeros if one is; or unordered, then something or-ed to a NaN stays one. The larger one is the smaller
 * one of the negated. */
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

/* ---- The walk ---- */

/* What one kernel does. All of it constant, so that inlining leaves none of the indirection. */
struct recipe {
	const struct format *format;
	vec (*combine)(vec left, vec right);
	vec (*first)(vec v, bool scale, const struct collet_factors *factors); /* may be NULL */
	vec (*last)(vec v, const struct collet_factors *factors);              /* may be NULL */
};

/* The arguments of a kernel, by one name. */
struct job {
	unsigned char *result;
	const struct collet_operand *operands;
	uint32_t operand_count;
	const struct collet_factors *factors;
};

/* One operand's part of a block: bytes [at, at + accumulators' worth), or only `part` of them if that is not 0. */
VECTOR_INLINE void take(vec *to, const struct collet_operand *operand, size_t at, uint32_t accumulators, size_t part,
	const struct job *job, const struct recipe recipe)
{
	const unsigned char *from = (const unsigned char *)operand->data + at;
	unsigned char edge[sizeof(vec)];
	if (part) {
		vec_store(edge, vec_load_part(from, part));
		from = edge;
	}
	recipe.format->load(to, from, accumulators);
	for (uint32_t i = 0; recipe.first && i < accumulators; i++)
		to[i] = recipe.first(to[i], operand->scale, job->factors);
}

VECTOR_INLINE void block(const struct job *job, size_t at, uint32_t accumulators, size_t part, const struct recipe recipe)
{
	vec sum[WIDE], next[WIDE];
	take(sum, &job->operands[0], at, accumulators, part, job, recipe);
	for (uint32_t k = 1; k < job->operand_count; k++) {
		take(next, &job->operands[k], at, accumulators, part, job, recipe);
		for (uint32_t i = 0; i < accumulators; i++)
			sum[i] = recipe.combine(sum[i], next[i]);
	}
	for (uint32_t i = 0; recipe.last && i < accumulators; i++)
		sum[i] = recipe.last(sum[i], job->factors);
	if (part) {
		unsigned char edge[sizeof(vec)];
		recipe.format->store(edge, sum, accumulators);
		vec_store_part(job->result + at, vec_load(edge), part);
	} else {
		recipe.format->store(job->result + at, sum, accumulators);
	}
}

/* Wide blocks, then single vectors of storage, then what is left of one. */
VECTOR_INLINE void walk(const struct job *job, size_t count, const struct recipe recipe)
{
	const uint32_t spread = recipe.format->spread;
	const size_t bytes = count * recipe.format->element_bytes, wide_bytes = WIDE / spread * sizeof(vec);
	size_t at = 0;
	for (; bytes - at >= wide_bytes; at += wide_bytes)
		block(job, at, WIDE, 0, recipe);
	for (; bytes - at >= sizeof(vec); at += sizeof(vec))
		block(job, at, spread, 0, recipe);
	if (at < bytes)
		block(job, at, spread, bytes - at, recipe);
}

#define KERNEL(name, ...) \
	static void name(void *result, const struct collet_operand *operands, uint32_t operand_count, size_t count, \
		const struct collet_factors *factors) \
	{ \
		const struct job job = { result, operands, operand_count, factors }; \
		walk(&job, count, (struct recipe){ __VA_ARGS__ }); \
	}

/* ---- The kernels. Signed and unsigned integers share what does not care. ---- */

KERNEL(reduce_sum_8, &bytes_1, sum_8)
KERNEL(reduce_sum_32, &bytes_4, sum_32)
KERNEL(reduce_sum_64, &bytes_8, sum_64)
KERNEL(reduce_product_8, &bytes_1, product_8)
KERNEL(reduce_product_32, &bytes_4, product_32)
KERNEL(reduce_product_64, &bytes_8, product_64)
KERNEL(reduce_min_i8, &bytes_1, min_i8)
KERNEL(reduce_min_u8, &bytes_1, min_u8)
KERNEL(reduce_min_i32, &bytes_4, min_i32)
KERNEL(reduce_min_u32, &bytes_4, min_u32)
KERNEL(reduce_min_i64, &bytes_8, min_i64)
KERNEL(reduce_min_u64, &bytes_8, min_u64)
KERNEL(reduce_max_i8, &bytes_1, max_i8)
KERNEL(reduce_max_u8, &bytes_1, max_u8)
KERNEL(reduce_max_i32, &bytes_4, max_i32)
KERNEL(reduce_max_u32, &bytes_4, max_u32)
KERNEL(reduce_max_i64, &bytes_8, max_i64)
KERNEL(reduce_max_u64, &bytes_8, max_u64)
KERNEL(reduce_and_8, &bytes_1, and_bits)
KERNEL(reduce_and_32, &bytes_4, and_bits)
KERNEL(reduce_and_64, &bytes_8, and_bits)
KERNEL(reduce_or_8, &bytes_1, or_bits)
KERNEL(reduce_or_32, &bytes_4, or_bits)
KERNEL(reduce_or_64, &bytes_8, or_bits)
KERNEL(reduce_xor_8, &bytes_1, xor_bits)
KERNEL(reduce_xor_32, &bytes_4, xor_bits)
KERNEL(reduce_xor_64, &bytes_8, xor_bits)

/* lanes: what they are combined in, f32 or f64. */
#define FLOAT_KERNELS(name, lanes) \
	KERNEL(reduce_sum_##name, &name, sum_##lanes) \
	KERNEL(reduce_product_##name, &name, product_##lanes) \
	KERNEL(reduce_min_##name, &name, min_##lanes) \
	KERNEL(reduce_max_##name, &name, max_##lanes) \
	KERNEL(reduce_average_##name, &name, sum_##lanes, NULL, divide_##lanes) \
	KERNEL(reduce_premul_##name, &name, sum_##lanes, scale_##lanes)

FLOAT_KERNELS(f16, f32)
FLOAT_KERNELS(bf16, f32)
FLOAT_KERNELS(f32, f32)
FLOAT_KERNELS(f64, f64)
FLOAT_KERNELS(f8e4m3, f32)
FLOAT_KERNELS(f8e5m2, f32)

/* ---- Conversions of whole arrays, lanes in the elements' order ---- */

enum { LANES_PER_VEC = COLLET_VECTOR_BYTES / 4 };

VECTOR_INLINE vec codes_load_16(const unsigned char *from)
{
	vec_half_u16 codes;
	memcpy(&codes, from, sizeof(codes));
	return (vec)__builtin_convertvector(codes, vec_u32);
}

VECTOR_INLINE void codes_store_16(unsigned char *to, vec lanes)
{
	const vec_half_u16 codes = __builtin_convertvector((vec_u32)lanes, vec_half_u16);
	memcpy(to, &codes, sizeof(codes));
}

VECTOR_INLINE vec codes_load_8(const unsigned char *from)
{
	vec_quarter_u8 codes;
	memcpy(&codes, from, sizeof(codes));
	return (vec)__builtin_convertvector(codes, vec_u32);
}

VECTOR_INLINE void codes_store_8(unsigned char *to, vec lanes)
{
	const vec_quarter_u8 codes = __builtin_convertvector((vec_u32)lanes, vec_quarter_u8);
	memcpy(to, &codes, sizeof(codes));
}

VECTOR_INLINE vec bf16_widen_in_order(const unsigned char *from)
{
	return bf16_widen(codes_load_16(from));
}

VECTOR_INLINE void bf16_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_16(to, bf16_narrow(x));
}

#if !defined(VECTOR_F16C)
VECTOR_INLINE vec f16_widen_in_order(const unsigned char *from)
{
	return f16_widen(codes_load_16(from));
}

VECTOR_INLINE void f16_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_16(to, f16_narrow(x));
}
#endif

VECTOR_INLINE vec f8e4m3_widen_in_order(const unsigned char *from)
{
	return small_widen(codes_load_8(from), f8e4m3_format);
}

VECTOR_INLINE void f8e4m3_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_8(to, small_narrow(x, f8e4m3_format));
}

VECTOR_INLINE vec f8e5m2_widen_in_order(const unsigned char *from)
{
	return small_widen(codes_load_8(from), f8e5m2_format);
}

VECTOR_INLINE void f8e5m2_narrow_in_order(unsigned char *to, vec x)
{
	codes_store_8(to, small_narrow(x, f8e5m2_format));
}

VECTOR_INLINE void widen_array(float *to, const unsigned char *from, size_t count, size_t code_bytes, vec (*widen)(const unsigned char *))
{
	size_t i = 0;
	for (; count - i >= LANES_PER_VEC; i += LANES_PER_VEC)
		vec_store(to + i, nan_canonical_f32(widen(from + i * code_bytes)));
	if (i == count)
		return;
	unsigned char codes[2 * LANES_PER_VEC] = { 0 };
	memcpy(codes, from + i * code_bytes, (count - i) * code_bytes);
	const vec lanes = nan_canonical_f32(widen(codes));
	memcpy(to + i, &lanes, (count - i) * sizeof(float));
}

VECTOR_INLINE void narrow_array(unsigned char *to, const float *from, size_t count, size_t code_bytes, void (*narrow)(unsigned char *, vec))
{
	size_t i = 0;
	for (; count - i >= LANES_PER_VEC; i += LANES_PER_VEC)
		narrow(to + i * code_bytes, vec_load(from + i));
	if (i == count)
		return;
	vec lanes = { 0 };
	unsigned char codes[2 * LANES_PER_VEC];
	memcpy(&lanes, from + i, (count - i) * sizeof(float));
	narrow(codes, lanes);
	memcpy(to + i * code_bytes, codes, (count - i) * code_bytes);
}

#define CONVERSIONS(name, code_bytes) \
	static void widen_##name(float *to, const void *from, size_t count) \
	{ \
		widen_array(to, from, count, code_bytes, name##_widen_in_order); \
	} \
	static void narrow_##name(void *to, const float *from, size_t count) \
	{ \
		narrow_array(to, from, count, code_bytes, name##_narrow_in_order); \
	}

CONVERSIONS(f16, 2)
CONVERSIONS(bf16, 2)
CONVERSIONS(f8e4m3, 1)
CONVERSIONS(f8e5m2, 1)

/* ---- The table ---- */

/* Until its last touch an average is a sum, and integers are divided elsewhere, so theirs is the sum's. */
#define INTEGER_ROW(name, bits) \
	{ \
		[COLLET_SUM] = reduce_sum_##bits, [COLLET_PRODUCT] = reduce_product_##bits, \
		[COLLET_MIN] = reduce_min_##name, [COLLET_MAX] = reduce_max_##name, [COLLET_AVERAGE] = reduce_sum_##bits, \
		[COLLET_AND] = reduce_and_##bits, [COLLET_OR] = reduce_or_##bits, [COLLET_XOR] = reduce_xor_##bits, \
	}
#define FLOAT_ROW(name) \
	{ \
		[COLLET_SUM] = reduce_sum_##name, [COLLET_PRODUCT] = reduce_product_##name, \
		[COLLET_MIN] = reduce_min_##name, [COLLET_MAX] = reduce_max_##name, \
		[COLLET_AVERAGE] = reduce_average_##name, [COLLET_PREMUL_SUM] = reduce_premul_##name, \
	}

const struct collet_kernels COLLET_KERNELS = {
	.reduce = {
		[COLLET_I8] = INTEGER_ROW(i8, 8),
		[COLLET_U8] = INTEGER_ROW(u8, 8),
		[COLLET_I32] = INTEGER_ROW(i32, 32),
		[COLLET_U32] = INTEGER_ROW(u32, 32),
		[COLLET_I64] = INTEGER_ROW(i64, 64),
		[COLLET_U64] = INTEGER_ROW(u64, 64),
		[COLLET_F16] = FLOAT_ROW(f16),
		[COLLET_BF16] = FLOAT_ROW(bf16),
		[COLLET_F32] = FLOAT_ROW(f32),
		[COLLET_F64] = FLOAT_ROW(f64),
		[COLLET_F8E4M3] = FLOAT_ROW(f8e4m3),
		[COLLET_F8E5M2] = FLOAT_ROW(f8e5m2),
	},
	.widen = {
		[COLLET_F16] = widen_f16, [COLLET_BF16] = widen_bf16,
		[COLLET_F8E4M3] = widen_f8e4m3, [COLLET_F8E5M2] = widen_f8e5m2,
	},
	.narrow = {
		[COLLET_F16] = narrow_f16, [COLLET_BF16] = narrow_bf16,
		[COLLET_F8E4M3] = narrow_f8e4m3, [COLLET_F8E5M2] = narrow_f8e5m2,
	},
};
