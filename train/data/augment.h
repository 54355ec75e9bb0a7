/* What is done to a training image so that it is a little different in every epoch. What is drawn depends on (seed,
 * epoch, image) alone: not on who draws, nor in which order. */
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
