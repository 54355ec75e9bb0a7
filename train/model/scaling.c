#include "model/scaling.h"

#include <string.h>

#include "error.h"
#include "state.h"

/* torch.amp.GradScaler's default. */
static const float first_factor = 65536;

void scaling_init(struct scaling *scaling, bool dynamic)
{
	*scaling = (struct scaling){ .factor = dynamic ? first_factor : 1, .dynamic = dynamic };
}

void scaling_update(struct scaling *scaling, bool finite)
{
	if (!finite) {
		scaling->factor = scaling->factor > 1 ? scaling->factor / 2 : 1;
		scaling->good_steps = 0;
		scaling->skipped++;
	} else if (++scaling->good_steps == SCALING_PATIENCE) {
		scaling->factor = scaling->factor < 0x1p30F ? scaling->factor * 2 : scaling->factor;
		scaling->good_steps = 0;
	}
}

bool scaling_multiply(float *values, uint64_t count, float factor)
{
	uint32_t wrong = 0;
	for (uint64_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &values[i], sizeof(bits));
		wrong |= (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
		values[i] *= factor;
	}
	return !wrong;
}

/* A factor of less than 1 would not help: this is no overflow of f16. */
static bool refuse(void)
{
	return train_fail("gradients overflow even unscaled: try a lower --lr");
}

static bool divide(struct trainer *trainer, bool *finite)
{
	*finite = true;
	return !trainer->scaling.dynamic ||
		trainer->backend->unscale(trainer->network, 1 / trainer->scaling.factor, finite);
}

bool scaling_agree(struct trainer *trainer, bool finite, bool *take)
{
	struct scaling *scaling = &trainer->scaling;
	uint32_t overflows = finite ? 0 : scaling->factor > 1 ? 1 : 2;
	*take = true;
	if (!scaling->dynamic)
		return true;
	if (!train_check(collet_allreduce(trainer->comm, &overflows, &overflows, 1, COLLET_U32, COLLET_MAX, NULL),
		    "agreeing on what has overflowed"))
		return false;
	*take = overflows == 0;
	scaling_update(scaling, *take);
	return overflows < 2 || refuse();
}

bool scaling_unscale(struct trainer *trainer, bool *take)
{
	bool finite;
	return divide(trainer, &finite) && scaling_agree(trainer, finite, take);
}

bool scaling_unscale_local(struct trainer *trainer, bool *take)
{
	struct scaling *scaling = &trainer->scaling;
	if (!divide(trainer, take))
		return false;
	if (!*take && scaling->factor <= 1)
		return refuse();
	if (scaling->dynamic)
		scaling_update(scaling, *take);
	return true;
}
