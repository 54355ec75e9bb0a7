/* Copies memory by memcpy(), which moves strings by whole lines where the processor can; with flags, on x86-64
 * processors with AVX2, by vectors of 32 bytes. */
#include "core/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE_BYTES = 64, BLOCK_BYTES = 2 * LINE_BYTES };

static inline void touch(unsigned char *lines, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		*(volatile uint32_t *)(void *)(lines + at) = 0;
}

void collet_touch(void *lines, size_t bytes)
{
	touch(lines, bytes);
}

static void copy_plainly(unsigned char *to, unsigned char *from, size_t bytes, unsigned flags)
{
	memcpy(to, from, bytes);
	if (flags & COLLET_COPY_TOUCH)
		touch(from, bytes);
}

#if defined(__x86_64__)

#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2")))

AVX2_INLINE void store(unsigned char *to, __m256i value, unsigned flags)
{
	if (flags & COLLET_COPY_NONTEMPORAL)
		_mm256_stream_si256((__m256i *)(void *)to, value);
	else
		_mm256_storeu_si256((__m256i *)(void *)to, value);
}

AVX2_INLINE __m256i load(const unsigned char *from)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

AVX2_INLINE void copy_avx2(unsigned char *to, unsigned char *from, size_t bytes, unsigned flags)
{
	size_t head = 0; /* bytes before the destination's first whole line */
	if (flags & COLLET_COPY_NONTEMPORAL) {
		head = -(uintptr_t)to % LINE_BYTES;
		head = head < bytes ? head : bytes;
		memcpy(to, from, head);
	}
	size_t at = head;
	for (; at + BLOCK_BYTES <= bytes; at += BLOCK_BYTES) {
		const __m256i a = load(from + at), b = load(from + at + 32), c = load(from + at + 64),
			      d = load(from + at + 96);
		store(to + at, a, flags);
		store(to + at + 32, b, flags);
		store(to + at + 64, c, flags);
		store(to + at + 96, d, flags);
		if (flags & COLLET_COPY_TOUCH)
			touch(from + at - head, BLOCK_BYTES);
	}
	memcpy(to + at, from + at, bytes - at);
	if (flags & COLLET_COPY_TOUCH)
		touch(from + at - head, bytes - at + head);
	if (flags & COLLET_COPY_NONTEMPORAL)
		_mm_sfence();
}

/* The flags are constant in each case, so that each gets a loop of its own. */
__attribute__((target("avx2"))) static void copy_by_avx2(
	unsigned char *to, unsigned char *from, size_t bytes, unsigned flags)
{
	switch (flags) {
	case COLLET_COPY_NONTEMPORAL:
		copy_avx2(to, from, bytes, COLLET_COPY_NONTEMPORAL);
		break;
	case COLLET_COPY_TOUCH:
		copy_avx2(to, from, bytes, COLLET_COPY_TOUCH);
		break;
	default:
		copy_avx2(to, from, bytes, COLLET_COPY_NONTEMPORAL | COLLET_COPY_TOUCH);
		break;
	}
}

#endif

void collet_copy(void *to, const void *from, size_t bytes, unsigned flags)
{
	unsigned char *source = (unsigned char *)(uintptr_t)from; /* written only with COLLET_COPY_TOUCH */
#if defined(__x86_64__)
	if (flags && __builtin_cpu_supports("avx2")) {
		copy_by_avx2(to, source, bytes, flags);
		return;
	}
#endif
	copy_plainly(to, source, bytes, flags);
}
