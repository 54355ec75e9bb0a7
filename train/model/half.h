/* Rounds f32 numbers to what an f16 holds, for back ends whose hardware has no f16. */
#ifndef TRAIN_HALF_H
#define TRAIN_HALF_H

#include <stddef.h>

/* To the nearest, ties to even; what is too large becomes infinite, NaN stays. */
void half_round(float *values, size_t count);

#endif
