/* Vectors as a language, for the kernels only: GNU C's vector types, COLLET_VECTOR_BYTES wide. gcc and clang turn them
 * into whatever the file's -m flags allow, and into scalar code where there is nothing. So every kernel is written once,
 * and instruction sets cannot differ but in width.
 *
 * A `vec` is untyped; a cast to one of the others changes how it is read, not its bits. Comparisons give lanes of all
 * ones or all zeros. */
#ifndef COLLET_VECTOR_BYTES
#error "define COLLET_VECTOR_BYTES before including reduce/vector.h"
#endif

#include <stdint.h>
#include <string.h>

typedef uint8_t vec __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int8_t vec_i8 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(COLLET_VECTOR_BYTES)));
/* As many lanes as a vec_u32 has. */
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

/* Lane by lane: mask ? yes : no. */
VECTOR_INLINE vec vec_select(vec mask, vec yes, vec no)
{
	return (mask & yes) | (~mask & no);
}
