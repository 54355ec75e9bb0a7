#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/cifar10.h"
#include "data/digits.h"
#include "data/idx.h"
#include "data/packed.h"
#include "error.h"

void dataset_deinit(struct dataset *set)
{
	free(set->pixels);
	free(set->labels);
	*set = (struct dataset){ 0 };
}

/* ---- digits ------------------------------------------------------------------------------------------------- */

enum { DIGITS_TRAIN = 60000, DIGITS_TEST = 10000 };

/* Two rows that never meet, whatever --seed is: a test image is a test image in every run. */
static const uint64_t digits_seeds[] = { [DATASET_TRAIN] = 1, [DATASET_TEST] = 2 };

static bool load_digits(struct dataset *set, enum dataset_part part, uint32_t limit)
{
	const uint32_t all = part == DATASET_TRAIN ? DIGITS_TRAIN : DIGITS_TEST,
		       count = limit > 0 && limit < all ? limit : all;
	*set = (struct dataset){ .shape = { 1, DIGITS_SIDE, DIGITS_SIDE }, .classes = 10, .count = count,
		.mean = { 0.1341F }, .deviation = { 0.2411F } };
	set->pixels = malloc((size_t)count * DIGITS_PIXELS);
	set->labels = malloc(count);
	if (!set->pixels || !set->labels) {
		dataset_deinit(set);
		return train_fail("no memory for %u digits", count);
	}
	for (uint32_t i = 0; i < count; i++)
		set->labels[i] = digits_draw(digits_seeds[part], i, set->pixels + (size_t)i * DIGITS_PIXELS);
	return true;
}

/* ---- mnist -------------------------------------------------------------------------------------------------- */

static bool check_mnist(const char *path, const struct idx *images, const struct idx *labels)
{
	if (images->shape[1] != 28 || images->shape[2] != 28)
		return train_fail(
			"%s: images of %u x %u pixels, not 28 x 28", path, images->shape[1], images->shape[2]);
	if (images->shape[0] != labels->shape[0])
		return train_fail("%s: %u images, but %u labels beside it", path, images->shape[0], labels->shape[0]);
	for (uint32_t i = 0; i < labels->shape[0]; i++)
		if (labels->bytes[i] > 9)
			return train_fail("%s: the label of image %u is %u, not 0 to 9", path, i, labels->bytes[i]);
	return true;
}

static bool load_mnist(struct dataset *set, const char *directory, enum dataset_part part, uint32_t limit)
{
	static const char *const names[][2] = {
		[DATASET_TRAIN] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte" },
		[DATASET_TEST] = { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" },
	};
	char path[4096];
	struct idx images = { { 0 }, NULL }, labels = { { 0 }, NULL };
	if (!directory)
		return train_fail(
			"mnist: say where it is with --data DIR or COLLET_DATA; --dataset digits needs no files");
	const bool complete = packed_find(path, sizeof(path), directory, "mnist", names[part][1], "mnist") &&
		idx_read(&labels, path, 1) &&
		packed_find(path, sizeof(path), directory, "mnist", names[part][0], "mnist") &&
		idx_read(&images, path, 3) && check_mnist(path, &images, &labels);
	if (!complete) {
		free(images.bytes);
		free(labels.bytes);
		return false;
	}
	const uint32_t all = images.shape[0];
	*set = (struct dataset){ .shape = { 1, 28, 28 }, .classes = 10, .count = limit > 0 && limit < all ? limit : all,
		.pixels = images.bytes, .labels = labels.bytes, .mean = { 0.1307F }, .deviation = { 0.3081F } };
	return true;
}

/* ---- all ---------------------------------------------------------------------------------------------------- */

bool dataset_load(struct dataset *set, const char *name, const char *directory, enum dataset_part part, uint32_t limit)
{
	if (strcmp(name, "digits") == 0)
		return load_digits(set, part, limit);
	if (strcmp(name, "mnist") == 0)
		return load_mnist(set, directory, part, limit);
	if (strcmp(name, "cifar10") == 0)
		return cifar10_load(set, directory, part, limit);
	return train_fail("there is no data set %s; mnist, cifar10 and digits are known", name);
}

/* A pixel as networks see it is pixel x scale + offset. */
struct normal {
	float scale, offset;
};

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

/* One channel of the cut. Outside of the image is background. */
static void cut_plane(const uint8_t *from, float *to, const struct shape *shape, const struct placement *place,
	struct normal normal)
{
	const int32_t height = (int32_t)shape->height, width = (int32_t)shape->width;
	const int32_t left = place->right < 0 ? -place->right : 0;  /* columns before the image, then of it */
	const int32_t inside = width - (place->right < 0 ? -place->right : place->right);
	for (int32_t y = 0; y < height; y++, to += width) {
		const int32_t row = y + place->down;
		const uint8_t *pixels = from + (ptrdiff_t)row * width + (place->right > 0 ? place->right : 0);
		fill(to, (size_t)width, normal.offset);
		if (row < 0 || row >= height)
			continue;
		if (place->mirrored)
			normalise_mirrored(pixels, to + (width - left - inside), (size_t)inside, normal);
		else
			normalise(pixels, to + left, (size_t)inside, normal);
	}
}

void dataset_batch(const struct dataset *set, const struct augment *augment, const uint64_t *indices, uint32_t count,
	float *images, uint8_t *labels)
{
	const uint32_t channels = set->shape.channels;
	const size_t plane = (size_t)set->shape.height * set->shape.width;
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *from = set->pixels + (size_t)indices[i] * channels * plane;
		float *to = images + i * channels * plane;
		const struct placement place = augment ? augment_draw(augment, indices[i]) : (struct placement){ 0 };
		for (uint32_t c = 0; c < channels; c++, from += plane, to += plane) {
			const struct normal normal = {
				1 / (255 * set->deviation[c]), -set->mean[c] / set->deviation[c] };
			if (augment)
				cut_plane(from, to, &set->shape, &place, normal);
			else
				normalise(from, to, plane, normal);
		}
		labels[i] = set->labels[indices[i]];
	}
}
