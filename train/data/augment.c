#include "data/augment.h"

#include "data/random.h"

static int32_t draw_offset(struct random *random)
{
	return (int32_t)(random_bits(random) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
}

struct placement augment_draw(const struct augment *augment, uint64_t image)
{
	const struct random epoch = random_stream(augment->seed, augment->epoch);
	struct random random = random_stream(~epoch.state, image);
	struct placement placement;
	placement.down = draw_offset(&random);
	placement.right = draw_offset(&random);
	placement.mirrored = random_bits(&random) >> 63 && augment->mirrors;
	return placement;
}
