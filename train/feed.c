/* One batch at a time, made when it is asked for. */
#include "feed.h"

#include <assert.h>
#include <stdlib.h>

#include "error.h"

struct feed {
	const struct backend *backend;
	const struct dataset *set;
	const uint64_t *indices;   /* of what is to come */
	const uint32_t *counts;
	uint64_t batches_left;
	float *images;
	uint8_t *labels;
};

struct feed *feed_create(const struct backend *backend, const struct dataset *set, uint32_t largest)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	const struct shape shape = set->shape;
	if (feed) {
		*feed = (struct feed){ .backend = backend, .set = set, .labels = calloc(largest, 1) };
		feed->images = backend->memory_allocate(
			(size_t)largest * shape.channels * shape.height * shape.width * sizeof(float));
	}
	if (feed && feed->images && feed->labels)
		return feed;
	train_fail("no memory for a batch of %u", largest);
	feed_destroy(feed);
	return NULL;
}

void feed_destroy(struct feed *feed)
{
	if (!feed)
		return;
	feed->backend->memory_free(feed->images);
	free(feed->labels);
	free(feed);
}

bool feed_epoch(
	struct feed *feed, uint32_t epoch, const uint64_t *indices, const uint32_t *counts, uint64_t batch_count)
{
	feed->indices = indices;
	feed->counts = counts;
	feed->batches_left = batch_count;
	return true;
}

bool feed_next(struct feed *feed, struct batch *batch)
{
	assert(feed->batches_left > 0);
	const uint32_t count = *feed->counts;
	dataset_batch(feed->set, feed->indices, count, feed->images, feed->labels);
	feed->indices += count;
	feed->counts++;
	feed->batches_left--;
	*batch = (struct batch){ feed->images, feed->labels, count };
	return true;
}
