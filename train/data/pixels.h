/* Converts an image to a network's input: a cut of it, its pixels as numbers. It is C++ as well: a GPU kernel makes
 * the same images (cuda/cudnn/images.cu), with the same bits. */
#ifndef TRAIN_PIXELS_H
#define TRAIN_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

struct shape;

enum { IMAGE_CHANNELS = 4 };

/* A cut of the image's size, offset by so much from the image, then mirrored left to right if asked for. Pixels
 * outside the image are background. */
struct placement {
	int32_t down, right;
	bool mirrored;
};

/* A network sees pixel x scale + offset, rounded after each; background is a pixel of 0. */
struct normal {
	float scale, offset;
};

/* One image, channel by channel, row by row; a normal for each channel. */
void pixels_to_image(float *to, const uint8_t *pixels, const struct shape *shape, const struct placement *place,
	const struct normal *normals);

#endif
