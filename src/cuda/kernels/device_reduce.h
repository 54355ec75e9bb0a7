/* Reduces spans: every element of the results becomes ((source 0 op source 1) op source 2) ..., bit-equal to
 * collet_reduction_run(). A thread reads all sources of an element before it writes the element, so a result may be one
 * of the sources. device_copy.h handles a single source without arithmetic. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_REDUCE_H
#define COLLET_CUDA_KERNELS_DEVICE_REDUCE_H

#include "cuda/kernels/device_numbers.h"

/* The arguments of one reduction; this thread is the `worker`th of `workers`. */
struct reduction {
	const uint64_t *sources, *results, *scales;     /* doubles; NULL if nothing is scaled */
	uint32_t source_count, result_count;
	uint64_t count;
	uint64_t worker, workers;
	uint32_t op, divisor;
	float inverse_f32, shrunk_f32; /* shrunk_f32: the greatest power of two that is at most 1/divisor */
	double inverse_f64;
};

DEVICE void reduction_set_divisor(struct reduction *reduction, uint32_t divisor)
{
	float power = 1;
	reduction->divisor = divisor;
	reduction->inverse_f32 = divisor > 1 ? 1.0f / (float)divisor : 1.0f;
	reduction->inverse_f64 = divisor > 1 ? 1.0 / divisor : 1.0;
	for (uint64_t n = 1; n < divisor; n *= 2)
		power *= 0.5f;
	reduction->shrunk_f32 = power;
}

/* Returns how many elements precede the first 16-byte pack. If all sources and results have the same alignment modulo
 * 16, they are accessed in packs, except for this head and the rest at the end. Otherwise the head is everything. */
DEVICE uint64_t reduce_head(const struct reduction *reduction, uint32_t element_bytes)
{
	const uint64_t first = reduction->sources[0] % 16;
	uint64_t differs = 0;
	for (uint32_t k = 1; k < reduction->source_count; k++)
		differs |= (reduction->sources[k] ^ first) % 16;
	for (uint32_t k = 0; k < reduction->result_count; k++)
		differs |= (reduction->results[k] ^ first) % 16;
	const uint64_t head = (16 - first) % 16 / element_bytes;
	return differs || first % element_bytes || head > reduction->count ? reduction->count : head;
}

/* shrink: multiplies an operand of an average, if that type needs it. average: divides the finished sum. */
#define AVERAGE_LANES(name, type, divide)                                                                              \
	DEVICE type shrink_##name(const struct reduction *reduction, type x)                                           \
	{                                                                                                              \
		return x;                                                                                              \
	}                                                                                                              \
	DEVICE type average_##name(const struct reduction *reduction, type x)                                          \
	{                                                                                                              \
		return divide(reduction, x);                                                                           \
	}

/* unpack: converts element i of a pack to the type it is combined in. repack: the opposite, rounded, with a NaN in
 * canonical form. */
#define FLOAT_LANES(name, type, view, bits, canonical)                                                                 \
	DEVICE type unpack_##name(const union pack *pack, uint32_t i)                                                  \
	{                                                                                                              \
		return pack->view[i];                                                                                  \
	}                                                                                                              \
	DEVICE void repack_##name(union pack *pack, uint32_t i, type x)                                                \
	{                                                                                                              \
		pack->bits[i] = x != x ? (canonical) : name##_bits(x);                                                 \
	}
FLOAT_LANES(f32, float, f32, u32, 0x7fc00000u)
FLOAT_LANES(f64, double, f64, u64, 0x7ff8000000000000u)
#undef FLOAT_LANES

#define SMALL_LANES(name, view, type, widened, narrowed)                                                               \
	DEVICE float unpack_##name(const union pack *pack, uint32_t i)                                                 \
	{                                                                                                              \
		const uint32_t code = pack->view[i];                                                                   \
		return widened;                                                                                        \
	}                                                                                                              \
	DEVICE void repack_##name(union pack *pack, uint32_t i, float x)                                               \
	{                                                                                                              \
		pack->view[i] = (type)(narrowed);                                                                      \
	}
SMALL_LANES(f16, u16, uint16_t, f16_widen(code), f16_narrow(x))
SMALL_LANES(bf16, u16, uint16_t, bf16_widen(code), bf16_narrow(x))
SMALL_LANES(f8e4m3, u8, uint8_t, small_widen(code, f8e4m3_format()), small_narrow(x, f8e4m3_format()))
SMALL_LANES(f8e5m2, u8, uint8_t, small_widen(code, f8e5m2_format()), small_narrow(x, f8e5m2_format()))
#undef SMALL_LANES

/* C's division truncates. Through 64 bits the divisor keeps its value for every world size. */
#define INTEGER_LANES(name, type, view, stored, wide)                                                                  \
	DEVICE type unpack_##name(const union pack *pack, uint32_t i)                                                  \
	{                                                                                                              \
		return (type)pack->view[i];                                                                            \
	}                                                                                                              \
	DEVICE void repack_##name(union pack *pack, uint32_t i, type x)                                                \
	{                                                                                                              \
		pack->view[i] = (stored)x;                                                                             \
	}                                                                                                              \
	DEVICE type divide_##name(const struct reduction *reduction, type x)                                           \
	{                                                                                                              \
		return (type)((wide)x / (wide)reduction->divisor);                                                     \
	}                                                                                                              \
	DEVICE type scale_##name(type x, uint64_t scale)                                                               \
	{                                                                                                              \
		return x;                                                                                              \
	} /* premul_sum has no integers */                                                                            \
	AVERAGE_LANES(name, type, divide_##name)
INTEGER_LANES(i8, int8_t, u8, uint8_t, int64_t)
INTEGER_LANES(u8, uint8_t, u8, uint8_t, uint64_t)
INTEGER_LANES(i16, int16_t, u16, uint16_t, int64_t)
INTEGER_LANES(u16, uint16_t, u16, uint16_t, uint64_t)
INTEGER_LANES(i32, int32_t, u32, uint32_t, int64_t)
INTEGER_LANES(u32, uint32_t, u32, uint32_t, uint64_t)
INTEGER_LANES(i64, int64_t, u64, uint64_t, int64_t)
INTEGER_LANES(u64, uint64_t, u64, uint64_t, uint64_t)
#undef INTEGER_LANES

/* Every byte but 0 is true. */
DEVICE uint8_t unpack_truth(const union pack *pack, uint32_t i)
{
	return pack->u8[i] != 0;
}
DEVICE void repack_truth(union pack *pack, uint32_t i, uint8_t x)
{
	pack->u8[i] = x;
}
DEVICE uint8_t scale_truth(uint8_t x, uint64_t scale)
{
	return x;
}
DEVICE uint8_t divide_truth(const struct reduction *reduction, uint8_t x)
{
	return x;
}
AVERAGE_LANES(truth, uint8_t, divide_truth)

DEVICE float divide_f32(const struct reduction *reduction, float x)
{
	return x * reduction->inverse_f32;
}

DEVICE float scale_f32(float x, uint64_t scale)
{
	return x * (float)f64_of_bits(scale);
}

DEVICE double scale_f64(double x, uint64_t scale)
{
	return x * f64_of_bits(scale);
}

DEVICE double divide_f64(const struct reduction *reduction, double x)
{
	return x * reduction->inverse_f64;
}

AVERAGE_LANES(f16, float, divide_f32)
AVERAGE_LANES(f32, float, divide_f32)
AVERAGE_LANES(f64, double, divide_f64)
AVERAGE_LANES(f8e4m3, float, divide_f32)
AVERAGE_LANES(f8e5m2, float, divide_f32)
#undef AVERAGE_LANES

/* bf16 has the range of f32, where sums would overflow. */
DEVICE float shrink_bf16(const struct reduction *reduction, float x)
{
	return reduction->divisor > 1 ? x * reduction->shrunk_f32 : x;
}

DEVICE float divide_shrunk(const struct reduction *reduction, float x)
{
	return x * (reduction->inverse_f32 / reduction->shrunk_f32);
}

DEVICE float average_bf16(const struct reduction *reduction, float x)
{
	return divide_shrunk(reduction, x);
}

#define REDUCE_PASTE(a, b) a##b
#define REDUCE_EXPAND(a, b) REDUCE_PASTE(a, b)

/* Defines reduce_i8(), ...: the text of device_reduce.inc.h for each dtype. */
#define REDUCE_NAME i8
#define REDUCE_IN i8
#define REDUCE_TYPE int8_t
#define REDUCE_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME u8
#define REDUCE_IN u8
#define REDUCE_TYPE uint8_t
#define REDUCE_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME i32
#define REDUCE_IN i32
#define REDUCE_TYPE int32_t
#define REDUCE_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME u32
#define REDUCE_IN u32
#define REDUCE_TYPE uint32_t
#define REDUCE_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME i64
#define REDUCE_IN i64
#define REDUCE_TYPE int64_t
#define REDUCE_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME u64
#define REDUCE_IN u64
#define REDUCE_TYPE uint64_t
#define REDUCE_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME f16
#define REDUCE_IN f32
#define REDUCE_TYPE float
#define REDUCE_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME bf16
#define REDUCE_IN f32
#define REDUCE_TYPE float
#define REDUCE_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME f32
#define REDUCE_IN f32
#define REDUCE_TYPE float
#define REDUCE_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME f64
#define REDUCE_IN f64
#define REDUCE_TYPE double
#define REDUCE_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME f8e4m3
#define REDUCE_IN f32
#define REDUCE_TYPE float
#define REDUCE_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME f8e5m2
#define REDUCE_IN f32
#define REDUCE_TYPE float
#define REDUCE_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME i16
#define REDUCE_IN i16
#define REDUCE_TYPE int16_t
#define REDUCE_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME u16
#define REDUCE_IN u16
#define REDUCE_TYPE uint16_t
#define REDUCE_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define REDUCE_NAME truth
#define REDUCE_IN truth
#define REDUCE_TYPE uint8_t
#define REDUCE_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"

#endif
