/* Vector types for the kernels: those of GNU C, with COLLET_VECTOR_BYTES bytes. gcc and clang compile them to the
 * instructions that the file's -m flags allow, or to scalar code. So every kernel is written once, and instruction sets
 * differ only in the size of a vector.
 *
 * A `vec` is untyped. A cast to another vector type changes how it is read, not its bits. Comparisons give lanes of all
 * ones or all zeros. */
#ifndef COLLET_VECTOR_BYTES
#error "define COLLET_VECTOR_BYTES before including reduce/vector.h"
#endif

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Selects intrinsics for the few cases where they are faster. They are selected by vector size and not by the
 * compiler's macros, because -march=native must not put AVX-512 into the plain kernels. */
#if COLLET_VECTOR_BYTES == 64
#define VECTOR_AVX512
#elif COLLET_VECTOR_BYTES == 32
#define VECTOR_AVX2
#endif
#if defined(COLLET_VECTOR_FP16) && defined(__AVX512FP16__)
#define VECTOR_FP16
#endif
#if defined(VECTOR_AVX512) || defined(VECTOR_AVX2)
#define VECTOR_F16C
#include <immintrin.h>
#endif

typedef uint8_t vec __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int8_t vec_i8 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int16_t vec_i16 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint8_t vec_half __attribute__((vector_size(COLLET_VECTOR_BYTES / 2)));
/* These have as many lanes as vec_u32. */
typedef uint16_t vec_half_u16 __attribute__((vector_size(COLLET_VECTOR_BYTES / 2)));
typedef uint8_t vec_quarter_u8 __attribute__((vector_size(COLLET_VECTOR_BYTES / 4)));

#define VECTOR_INLINE static inline __attribute__((always_inline))

VECTOR_INLINE vec vec_load(const void *from)
{
	vec v;
	memcpy(&v, from, sizeof(v));
	return v;
}

VECTOR_INLINE void vec_store(void *to, vec v)
{
	memcpy(to, &v, sizeof(v));
}

/* Stores a vector past the caches, at a multiple of its size. */
VECTOR_INLINE void vec_store_nontemporal(void *to, vec v)
{
#if defined(VECTOR_AVX512)
	_mm512_stream_si512((__m512i *)to, (__m512i)v);
#elif defined(VECTOR_AVX2)
	_mm256_stream_si256((__m256i *)to, (__m256i)v);
#else
	vec_store(to, v);
#endif
}

/* Orders streamed stores before all later ones. */
VECTOR_INLINE void vec_nontemporal_fence(void)
{
#if defined(VECTOR_AVX512) || defined(VECTOR_AVX2)
	_mm_sfence();
#endif
}

#if !defined(VECTOR_AVX512)
/* Loads the first bytes, at most 8, as a word. It assembles them in registers: a wide load after narrow stores to a
 * buffer would stall until the stores are done, which dominates the cost of a small message. */
VECTOR_INLINE uint64_t load_tail_word(const unsigned char *from, size_t bytes, size_t element_bytes)
{
	uint64_t word = 0;
	uint32_t low, high;
	uint16_t two;
	if (bytes >= 8 || element_bytes == 8) {
		memcpy(&word, from, 8);
	} else if (bytes >= 4 || element_bytes == 4) { /* two loads that overlap */
		memcpy(&low, from, 4);
		memcpy(&high, from + bytes - 4, 4);
		word = low | (uint64_t)high << (bytes - 4) * 8;
	} else if (element_bytes == 2) {
		memcpy(&two, from, 2);
		word = two;
	} else {
		for (size_t i = 0; i < bytes; i++)
			word |= (uint64_t)from[i] << i * 8;
	}
	return word;
}
#endif

/* Load and store the first bytes of a vector, at least one. The bytes of memory behind them are neither read nor
 * written, and are loaded as zero. element_bytes is a constant that divides bytes; it saves branches. */
VECTOR_INLINE vec vec_load_tail(const unsigned char *from, size_t bytes, size_t element_bytes)
{
#if defined(VECTOR_AVX2)
	if (element_bytes % 4 == 0) {
		const __m256i mask = _mm256_cmpgt_epi32(
			_mm256_set1_epi32((int)bytes), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
		return (vec)_mm256_maskload_epi32((const int *)(const void *)from, mask);
	}
#endif
#if defined(VECTOR_AVX512)
	return (vec)_mm512_maskz_loadu_epi8(UINT64_MAX >> (sizeof(vec) - bytes), from);
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	vec_u64 v = { 0 };
	if (bytes == sizeof(vec))
		return vec_load(from);
	for (size_t i = 0; i < sizeof(vec) / 8 && i * 8 < bytes; i++)
		v[i] = load_tail_word(from + i * 8, bytes - i * 8, element_bytes);
	return (vec)v;
#else
	vec v = { 0 };
	memcpy(&v, from, bytes);
	return v;
#endif
}

VECTOR_INLINE void vec_store_tail(unsigned char *to, vec v, size_t bytes, size_t element_bytes)
{
#if defined(VECTOR_AVX512)
	_mm512_mask_storeu_epi8(to, UINT64_MAX >> (sizeof(vec) - bytes), (__m512i)v);
#else
	const unsigned char *from = (const unsigned char *)&v;
	if (bytes == sizeof(vec)) {
		vec_store(to, v);
		return;
	}
	for (size_t part_bytes = sizeof(vec) / 2; part_bytes >= element_bytes; part_bytes /= 2) {
		if (!(bytes & part_bytes))
			continue;
		memcpy(to, from, part_bytes);
		to += part_bytes;
		from += part_bytes;
	}
#endif
}

/* Selects bit by bit: mask ? yes : no. */
VECTOR_INLINE vec vec_select_bits(vec mask, vec yes, vec no)
{
#if defined(VECTOR_AVX512)
	return (vec)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)yes, (__m512i)no, 0xca);
#else
	return (mask & yes) | (~mask & no);
#endif
}

/* Selects lane by lane, where all bits of a lane's mask are equal. */
VECTOR_INLINE vec vec_select(vec mask, vec yes, vec no)
{
#if defined(VECTOR_AVX2)
	return (vec)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)mask);
#else
	return vec_select_bits(mask, yes, no);
#endif
}

/* True if the topmost bit of any byte is set. */
VECTOR_INLINE bool vec_has_top_bits(vec v)
{
#if defined(VECTOR_AVX512)
	return _mm512_movepi8_mask((__m512i)v) != 0;
#elif defined(VECTOR_AVX2)
	return _mm256_movemask_epi8((__m256i)v) != 0;
#else
	const vec_u64 words = (vec_u64)v;  /* a plain vector has 16 bytes, so these are all */
	return ((words[0] | words[1]) & 0x8080808080808080u) != 0;
#endif
}
