#include "data/pixels.h"

#include <stddef.h>

#include "model/model.h"

static void normalise(const uint8_t *restrict from, float *restrict to, size_t count, struct normal normal)
{
	for (size_t p = 0; p < count; p++)
		to[p] = (float)from[p] * normal.scale + normal.offset;
}

static void normalise_mirrored(const uint8_t *restrict from, float *restrict to, size_t count, struct normal normal)
{
	for (size_t p = 0; p < count; p++)
		to[p] = (float)from[count - 1 - p] * normal.scale + normal.offset;
}

static void fill(float *to, size_t count, float value)
{
	for (size_t p = 0; p < count; p++)
		to[p] = value;
}

/* One channel. */
static void cut_plane(const uint8_t *from, float *to, const struct shape *shape, const struct placement *place,
	struct normal normal)
{
	const int32_t height = (int32_t)shape->height, width = (int32_t)shape->width;
	const int32_t left = place->right < 0 ? -place->right : 0;  /* columns before the image, then of it */
	const int32_t inside = width - (place->right < 0 ? -place->right : place->right);
	for (int32_t y = 0; y < height; y++, to += width) {
		const int32_t row = y + place->down;
		fill(to, (size_t)width, normal.offset);
		if (row < 0 || row >= height || inside <= 0)
			continue;
		const uint8_t *pixels = from + (ptrdiff_t)row * width + (place->right > 0 ? place->right : 0);
		if (place->mirrored)
			normalise_mirrored(pixels, to + (width - left - inside), (size_t)inside, normal);
		else
			normalise(pixels, to + left, (size_t)inside, normal);
	}
}

void pixels_to_image(float *to, const uint8_t *pixels, const struct shape *shape, const struct placement *place,
	const struct normal *normals)
{
	const size_t plane = (size_t)shape->height * shape->width;
	const bool whole = place->down == 0 && place->right == 0 && !place->mirrored;
	for (uint32_t c = 0; c < shape->channels; c++, pixels += plane, to += plane) {
		if (whole)
			normalise(pixels, to, plane, normals[c]);
		else
			cut_plane(pixels, to, shape, place, normals[c]);
	}
}
