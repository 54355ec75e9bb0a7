/* Folding: every element of the results becomes ((source 0 op source 1) op source 2) ..., as collet_reduction_run()
 * has it and to the same bits. All sources of an element are read before it is written, by the same thread, so a result
 * may be one of them. One source as it is, is the business of device_copy.h. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_REDUCE_H
#define COLLET_CUDA_KERNELS_DEVICE_REDUCE_H

#include "cuda/kernels/device_numbers.h"

/* What some threads do together; this is the `worker`th of `workers`. */
struct fold {
	const uint64_t *sources, *results, *scales;     /* scales: doubles; NULL: nothing is scaled */
	uint32_t source_count, result_count;
	uint64_t count;
	uint64_t worker, workers;
	uint32_t op, divisor;
	float inverse_f32;
	double inverse_f64;
};

enum { FOLD_BATCH = 4 };

/* All sources and results of a span that lie at one distance from a multiple of 16 are read and written 16 bytes at a
 * time, but for `head` elements before the first such multiple and what is left at the end. */
DEVICE uint64_t fold_head(const struct fold *fold, uint32_t element_bytes)
{
	const uint64_t first = fold->sources[0] % 16;
	uint64_t differs = 0;
	for (uint32_t k = 1; k < fold->source_count; k++)
		differs |= (fold->sources[k] ^ first) % 16;
	for (uint32_t k = 0; k < fold->result_count; k++)
		differs |= (fold->results[k] ^ first) % 16;
	const uint64_t head = (16 - first) % 16 / element_bytes;
	return differs || first % element_bytes || head > fold->count ? fold->count : head;
}

/* take: lane i of a pack as what it is combined in. give: the opposite, rounded, a NaN in its canonical form. */
#define FLOAT_LANES(name, type, lane, bits, canonical)                                                         \
	DEVICE type take_##name(const union pack *pack, uint32_t i) { return pack->lane[i]; }                          \
	DEVICE void give_##name(union pack *pack, uint32_t i, type x)                                                  \
	{                                                                                                              \
		pack->bits[i] = x != x ? (canonical) : name##_bits(x);                                                 \
	}
FLOAT_LANES(f32, float, f32, u32, 0x7fc00000u)
FLOAT_LANES(f64, double, f64, u64, 0x7ff8000000000000u)
#undef FLOAT_LANES

#define SMALL_LANES(name, lane, type, widened, narrowed)                                                               \
	DEVICE float take_##name(const union pack *pack, uint32_t i)                                                   \
	{                                                                                                              \
		const uint32_t code = pack->lane[i];                                                                   \
		return widened;                                                                                        \
	}                                                                                                              \
	DEVICE void give_##name(union pack *pack, uint32_t i, float x) { pack->lane[i] = (type)(narrowed); }
SMALL_LANES(f16, u16, uint16_t, f16_widen(code), f16_narrow(x))
SMALL_LANES(bf16, u16, uint16_t, bf16_widen(code), bf16_narrow(x))
SMALL_LANES(f8e4m3, u8, uint8_t, small_widen(code, f8e4m3_format()), small_narrow(x, f8e4m3_format()))
SMALL_LANES(f8e5m2, u8, uint8_t, small_widen(code, f8e5m2_format()), small_narrow(x, f8e5m2_format()))
#undef SMALL_LANES

/* C's division truncates; through 64 bits the divisor keeps its value for every world size. */
#define INTEGER_LANES(name, type, lane, stored, wide)                                                                  \
	DEVICE type take_##name(const union pack *pack, uint32_t i) { return (type)pack->lane[i]; }                    \
	DEVICE void give_##name(union pack *pack, uint32_t i, type x) { pack->lane[i] = (stored)x; }                   \
	DEVICE type divide_##name(const struct fold *fold, type x) { return (type)((wide)x / (wide)fold->divisor); }   \
	DEVICE type scale_##name(type x, uint64_t scale) { return x; } /* premul_sum has no integers */
INTEGER_LANES(i8, int8_t, u8, uint8_t, int64_t)
INTEGER_LANES(u8, uint8_t, u8, uint8_t, uint64_t)
INTEGER_LANES(i32, int32_t, u32, uint32_t, int64_t)
INTEGER_LANES(u32, uint32_t, u32, uint32_t, uint64_t)
INTEGER_LANES(i64, int64_t, u64, uint64_t, int64_t)
INTEGER_LANES(u64, uint64_t, u64, uint64_t, uint64_t)
#undef INTEGER_LANES

DEVICE float divide_f32(const struct fold *fold, float x)
{
	return x * fold->inverse_f32;
}

DEVICE float scale_f32(float x, uint64_t scale)
{
	return x * (float)f64_of_bits(scale);
}

DEVICE double scale_f64(double x, uint64_t scale)
{
	return x * f64_of_bits(scale);
}

DEVICE double divide_f64(const struct fold *fold, double x)
{
	return x * fold->inverse_f64;
}

#define FOLD_PASTE(a, b) a##b
#define FOLD_EXPAND(a, b) FOLD_PASTE(a, b)

/* fold_i8(), ...: the text of device_reduce.inc.h for each dtype. */
#define FOLD_NAME i8
#define FOLD_IN i8
#define FOLD_TYPE int8_t
#define FOLD_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME u8
#define FOLD_IN u8
#define FOLD_TYPE uint8_t
#define FOLD_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME i32
#define FOLD_IN i32
#define FOLD_TYPE int32_t
#define FOLD_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME u32
#define FOLD_IN u32
#define FOLD_TYPE uint32_t
#define FOLD_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME i64
#define FOLD_IN i64
#define FOLD_TYPE int64_t
#define FOLD_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME u64
#define FOLD_IN u64
#define FOLD_TYPE uint64_t
#define FOLD_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME f16
#define FOLD_IN f32
#define FOLD_TYPE float
#define FOLD_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME bf16
#define FOLD_IN f32
#define FOLD_TYPE float
#define FOLD_BYTES 2
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME f32
#define FOLD_IN f32
#define FOLD_TYPE float
#define FOLD_BYTES 4
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME f64
#define FOLD_IN f64
#define FOLD_TYPE double
#define FOLD_BYTES 8
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME f8e4m3
#define FOLD_IN f32
#define FOLD_TYPE float
#define FOLD_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"
#define FOLD_NAME f8e5m2
#define FOLD_IN f32
#define FOLD_TYPE float
#define FOLD_BYTES 1
#include "cuda/kernels/device_reduce.inc.h"

#endif
