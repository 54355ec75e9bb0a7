/* Converts arrays of 16-bit and 8-bit floats to f32 and back, by the rules of reduce.h: round to nearest even,
 * canonical NaN, denormals kept, f8 saturating. The floating-point mode of the calling thread has no effect. */
#ifndef COLLET_REDUCE_CONVERT_H
#define COLLET_REDUCE_CONVERT_H

#include "core/cpu.h"

#include <collet/collet.h>

struct collet_conversion {
	collet_dtype dtype;
	void (*widen)(float *to, const void *from, size_t count);
	void (*narrow)(void *to, const float *from, size_t count);
};

/* Chooses the conversions for a type (f16, bf16, f8e4m3 or f8e5m2) and an instruction set (as in reduce.h).
 * COLLET_ERR_UNSUPPORTED: for any other type, or an instruction set that this build lacks. */
COLLET_MUST_USE collet_status collet_conversion_init(struct collet_conversion *c, collet_dtype dtype,
	enum collet_isa isa);

/* Convert count elements. The arrays must not overlap. The narrow one may have any alignment. Any thread may call. */
void collet_widen(const struct collet_conversion *c, float *to, const void *from, size_t count);
void collet_narrow(const struct collet_conversion *c, void *to, const float *from, size_t count);

#endif
