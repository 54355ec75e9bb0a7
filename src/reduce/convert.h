/* Arrays of 16 and 8 bit floats to and from f32, by the rules of reduce.h: to nearest even, canonical NaN,
 * denormals kept, f8 saturating; whatever mode the calling thread is in. */
#ifndef COLLET_REDUCE_CONVERT_H
#define COLLET_REDUCE_CONVERT_H

#include "core/cpu.h"

#include <collet/collet.h>

struct collet_conversion {
	collet_dtype dtype;
	void (*widen)(float *to, const void *from, size_t count);
	void (*narrow)(void *to, const float *from, size_t count);
};

/* dtype: f16, bf16, f8e4m3 or f8e5m2. isa as in reduce.h. COLLET_ERR_UNSUPPORTED for another dtype, or an isa
 * that this build lacks. */
COLLET_MUST_USE collet_status collet_conversion_init(struct collet_conversion *c, collet_dtype dtype,
	enum collet_isa isa);

/* Neither may overlap the other. Any alignment of the narrow side. Any thread. */
void collet_widen(const struct collet_conversion *c, float *to, const void *from, size_t count);
void collet_narrow(const struct collet_conversion *c, void *to, const float *from, size_t count);

#endif
