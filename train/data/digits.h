/* Draws digits, a data set that needs no download. Each image shows a digit's strokes, bent and put through a random
 * affine map. A pen of random width draws them over noise and a stray stroke. */
#ifndef TRAIN_DIGITS_H
#define TRAIN_DIGITS_H

#include <stdint.h>

enum { DIGITS_SIDE = 28, DIGITS_PIXELS = DIGITS_SIDE * DIGITS_SIDE };

/* Draws image number index of this seed's endless row into pixels (DIGITS_PIXELS, 255 is ink) and returns its label,
 * 0..9. A pure function, in arithmetic that every IEEE machine does alike: the same bytes everywhere. */
uint8_t digits_draw(uint64_t seed, uint64_t index, uint8_t *pixels);

#endif
