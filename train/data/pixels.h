/* How networks see an image: a cut of it, its pixels as numbers. C++ as well, since a GPU's kernel makes images of the
 * same (cuda/cudnn/images.cu), and the same bits. */
#ifndef TRAIN_PIXELS_H
#define TRAIN_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

struct shape;

enum { IMAGE_CHANNELS = 4 };

/* A cut of the image's size, by so much off the image itself, then left to right if it is mirrored. Outside of the
 * image is background. */
struct placement {
	int32_t down, right;
	bool mirrored;
};

/* A pixel as networks see it is pixel x scale + offset, rounded after each; background is a pixel of 0. */
struct normal {
	float scale, offset;
};

/* One image, channel by channel, row by row; a normal for each channel. */
void pixels_to_image(float *to, const uint8_t *pixels, const struct shape *shape, const struct placement *place,
	const struct normal *normals);

#endif
