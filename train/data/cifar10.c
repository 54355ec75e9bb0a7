/* Reads CIFAR-10 in its binary version (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
 * A file has 10000 records: a byte of label and 3 planes of 32 x 32 pixels. */
#include "data/cifar10.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/packed.h"
#include "error.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, RECORD = 1 + PIXELS, RECORDS = 10000 };

static bool take_records(struct dataset *set, uint32_t first, const uint8_t *records, const char *path)
{
	for (uint32_t i = 0; i < RECORDS && first + i < set->count; i++) {
		const uint8_t *record = records + (size_t)i * RECORD;
		if (record[0] > 9)
			return train_fail("%s: the label of image %u is %u, not 0 to 9", path, i, record[0]);
		set->labels[first + i] = record[0];
		memcpy(set->pixels + (size_t)(first + i) * PIXELS, record + 1, PIXELS);
	}
	return true;
}

static bool read_file(struct dataset *set, uint32_t first, uint8_t *records, const char *directory, const char *name)
{
	char path[4096];
	struct packed file;
	if (!packed_find(path, sizeof(path), directory, "cifar-10", name, "cifar10") || !packed_open(&file, path))
		return false;
	const bool complete =
		packed_read(&file, records, (uint64_t)RECORDS * RECORD, "images") && packed_end(&file);
	packed_close(&file);
	return complete && take_records(set, first, records, path);
}

bool cifar10_load(struct dataset *set, const char *directory, enum dataset_part part, uint32_t limit)
{
	static const char *const names[] = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
		"data_batch_4.bin", "data_batch_5.bin", "test_batch.bin" };
	const uint32_t from = part == DATASET_TRAIN ? 0 : 5, files = part == DATASET_TRAIN ? 5 : 1;
	const uint32_t all = files * RECORDS, count = limit > 0 && limit < all ? limit : all;
	if (!directory)
		return train_fail(
			"cifar10: say where it is with --data DIR or COLLET_DATA; --dataset digits needs no files");
	*set = (struct dataset){ .shape = { 3, SIDE, SIDE }, .classes = 10, .count = count,
		.mean = { 0.4914F, 0.4822F, 0.4465F }, .deviation = { 0.2023F, 0.1994F, 0.2010F }, .mirrors = true };
	set->pixels = malloc((size_t)count * PIXELS);
	set->labels = malloc(count);
	uint8_t *records = malloc((size_t)RECORDS * RECORD);
	bool complete = (set->pixels && set->labels && records) || train_fail("no memory for %u images", count);
	for (uint32_t f = 0; complete && f < files && f * RECORDS < count; f++)
		complete = read_file(set, f * RECORDS, records, directory, names[from + f]);
	free(records);
	if (!complete)
		dataset_deinit(set);
	return complete;
}
