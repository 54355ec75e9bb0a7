/* Varies a training image a little in every epoch. The draw depends on (seed, epoch, image) alone, not on the caller
 * or the order. */
#ifndef TRAIN_AUGMENT_H
#define TRAIN_AUGMENT_H

#include "data/pixels.h"

enum { AUGMENT_PADDING = 4 };

struct augment {
	uint64_t seed;
	uint32_t epoch;
	bool mirrors;     /* also left to right: not where the mirror image means something else */
};

/* A cut out of the image with AUGMENT_PADDING of background around it: both offsets are -AUGMENT_PADDING ..
 * AUGMENT_PADDING. */
struct placement augment_draw(const struct augment *augment, uint64_t image);

#endif
