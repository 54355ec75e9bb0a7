/* Images with labels, in memory, and batches of them. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "data/augment.h"
#include "model/model.h"

enum dataset_part { DATASET_TRAIN, DATASET_TEST };

struct dataset {
	struct shape shape;
	uint32_t classes;
	uint32_t count;
	uint8_t *pixels;      /* image by image, channel by channel, row by row; 0 is background */
	uint8_t *labels;      /* below classes */
	/* Statistics of the training pixels of a channel, as fractions of 255. Networks see (pixel / 255 - mean) /
	 * deviation. */
	float mean[IMAGE_CHANNELS], deviation[IMAGE_CHANNELS];
	bool mirrors;         /* a mirrored image is one of the same class */
};

/* The names that dataset_load() takes; ends with NULL. */
extern const char *const dataset_names[];
/* "mnist", "cifar10": from directory, which is the set's folder or its parent. "digits": drawn, no directory needed. At
 * most limit images (0: all there are). False after a line on standard error. deinit takes a zeroed set. */
bool dataset_load(struct dataset *set, const char *name, const char *directory, enum dataset_part part, uint32_t limit);
void dataset_deinit(struct dataset *set);

/* By which pixels become what networks see; zeros for channels that the set has not. */
void dataset_normals(const struct dataset *set, struct normal normals[IMAGE_CHANNELS]);
/* Gathers the images of these indices, augmented (NULL: as they are) and normalised, and their labels. */
void dataset_batch(const struct dataset *set, const struct augment *augment, const uint64_t *indices, uint32_t count,
	float *images, uint8_t *labels);
/* The same for back ends that make images themselves: the pixels as the set has them, and a placement for each
 * image. */
void dataset_gather(const struct dataset *set, const struct augment *augment, const uint64_t *indices, uint32_t count,
	uint8_t *pixels, struct placement *places, uint8_t *labels);

#endif
