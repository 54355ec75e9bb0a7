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

/* Seeds of two disjoint rows: a test image is never a training image, whatever --seed is. */
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

const char *const dataset_names[] = { "mnist", "cifar10", "digits", NULL };

bool dataset_load(struct dataset *set, const char *name, const char *directory, enum dataset_part part, uint32_t limit)
{
	if (strcmp(name, "digits") == 0)
		return load_digits(set, part, limit);
	if (strcmp(name, "mnist") == 0)
		return load_mnist(set, directory, part, limit);
	if (strcmp(name, "cifar10") == 0)
		return cifar10_load(set, directory, part, limit);
	return train_fail("there is no data set %s", name);
}

void dataset_normals(const struct dataset *set, struct normal normals[IMAGE_CHANNELS])
{
	for (uint32_t c = 0; c < IMAGE_CHANNELS; c++)
		normals[c] = c < set->shape.channels ?
			(struct normal){ 1 / (255 * set->deviation[c]), -set->mean[c] / set->deviation[c] } :
			(struct normal){ 0 };
}

static size_t image_pixels(const struct dataset *set)
{
	return (size_t)set->shape.channels * set->shape.height * set->shape.width;
}

static struct placement place(const struct augment *augment, uint64_t image)
{
	return augment ? augment_draw(augment, image) : (struct placement){ 0 };
}

void dataset_batch(const struct dataset *set, const struct augment *augment, const uint64_t *indices, uint32_t count,
	float *images, uint8_t *labels)
{
	const size_t pixels = image_pixels(set);
	struct normal normals[IMAGE_CHANNELS];
	dataset_normals(set, normals);
	for (uint32_t i = 0; i < count; i++) {
		const struct placement placement = place(augment, indices[i]);
		pixels_to_image(images + i * pixels, set->pixels + (size_t)indices[i] * pixels, &set->shape, &placement,
			normals);
		labels[i] = set->labels[indices[i]];
	}
}

void dataset_gather(const struct dataset *set, const struct augment *augment, const uint64_t *indices, uint32_t count,
	uint8_t *pixels, struct placement *places, uint8_t *labels)
{
	const size_t bytes = image_pixels(set);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(pixels + i * bytes, set->pixels + (size_t)indices[i] * bytes, bytes);
		places[i] = place(augment, indices[i]);
		labels[i] = set->labels[indices[i]];
	}
}
