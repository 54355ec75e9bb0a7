#include "data/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

/* The sizes that other ranks need before they allocate memory for the images. */
struct dataset_info {
	uint64_t fine;
	struct dataset train, test;  /* pointers are rank 0's, and mean nothing elsewhere */
};

static size_t pixel_bytes(const struct dataset *set)
{
	return (size_t)set->count * set->shape.channels * set->shape.height * set->shape.width;
}

static bool broadcast(collet_comm *comm, void *bytes, size_t count)
{
	return train_check(
		collet_broadcast(comm, bytes, bytes, count, COLLET_U8, 0, NULL), "rank 0 deals out the images");
}

static bool broadcast_set(collet_comm *comm, const struct dataset *from, struct dataset *set)
{
	if (collet_comm_rank(comm) != 0) {
		*set = *from;
		set->pixels = malloc(pixel_bytes(set));
		set->labels = malloc(set->count);
		if (!set->pixels || !set->labels)
			return train_fail("no memory for %u images", set->count);
	}
	return broadcast(comm, set->pixels, pixel_bytes(set)) && broadcast(comm, set->labels, set->count);
}

bool prepare_images(collet_comm *comm, const struct options *options, struct dataset *train, struct dataset *test)
{
	struct dataset_info info;
	memset(&info, 0, sizeof(info));
	if (collet_comm_rank(comm) == 0) {
		info.fine =
			dataset_load(train, options->dataset, options->data, DATASET_TRAIN, options->train_samples) &&
			dataset_load(test, options->dataset, options->data, DATASET_TEST, options->test_samples);
		info.train = *train;
		info.test = *test;
		info.train.pixels = info.train.labels = info.test.pixels = info.test.labels = NULL;
	}
	if (!broadcast(comm, &info, sizeof(info)))
		return false;
	if (!info.fine)
		return collet_comm_rank(comm) == 0 ? false : train_fail("rank 0 has no images to deal out");
	return broadcast_set(comm, &info.train, train) && broadcast_set(comm, &info.test, test);
}
