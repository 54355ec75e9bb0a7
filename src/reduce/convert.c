/* Conversions of arrays: chooses the kernels of a type and runs them in the floating-point mode of fpmode.h. */
#include "reduce/convert.h"

#include "core/status.h"
#include "core/types.h"
#include "reduce/fpmode.h"
#include "reduce/reduce_kernels.h"

collet_status collet_conversion_init(struct collet_conversion *c, collet_dtype dtype, enum collet_isa isa)
{
	const struct collet_kernels *kernels = collet_kernels_for(isa);
	if (!kernels)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "conversion: this build has no instruction set %d",
			(int)isa);
	if (!collet_dtype_is_narrow_float(dtype))
		return collet_fail(COLLET_ERR_UNSUPPORTED, "conversion: dtype %d is no float of 16 or 8 bits",
			(int)dtype);
	*c = (struct collet_conversion){ dtype, kernels->widen[dtype], kernels->narrow[dtype] };
	return COLLET_OK;
}

void collet_widen(const struct collet_conversion *c, float *to, const void *from, size_t count)
{
	const uint64_t mode = collet_fpmode_enter();
	c->widen(to, from, count);
	collet_fpmode_leave(mode);
}

void collet_narrow(const struct collet_conversion *c, void *to, const float *from, size_t count)
{
	const uint64_t mode = collet_fpmode_enter();
	c->narrow(to, from, count);
	collet_fpmode_leave(mode);
}
