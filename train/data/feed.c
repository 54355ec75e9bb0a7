/* Batches are made by workers ahead of time, or, without workers, when they are asked for. Workers take the numbers of
 * batches in turn and fill slots in a ring; batches are taken out of it in order, so that who made which does not
 * matter. */
#include "data/feed.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

struct slot {
	float *images;             /* or, where the back end makes these, ... */
	uint8_t *pixels;           /* ... memory of the back end's, either */
	struct placement *places;
	uint8_t *labels;
	bool ready;                /* holds the batch that is taken next from it */
};

struct feed {
	const struct backend *backend;
	const struct dataset *set;
	const struct augment *augment;  /* NULL, or &drawn */
	struct augment drawn;
	struct slot *slots;        /* batch b goes into slot b % slot_count */
	uint32_t slot_count;
	pthread_t *workers;
	uint32_t worker_count;

	/* Under the lock, where there are workers. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
	const uint64_t *indices;   /* of the batch that is made next */
	const uint32_t *counts;    /* of all batches */
	uint64_t batch_count, made, taken;  /* made: begun, at least */
	uint32_t busy;             /* workers that are filling a slot */
};

static void fill_slot(const struct feed *feed, const struct slot *slot, const uint64_t *indices, uint32_t count)
{
	if (slot->pixels)
		dataset_gather(feed->set, feed->augment, indices, count, slot->pixels, slot->places, slot->labels);
	else
		dataset_batch(feed->set, feed->augment, indices, count, slot->images, slot->labels);
}

/* ---- Workers ------------------------------------------------------------------------------------------------ */

/* The batch that was taken last is still in use. */
static bool has_room(const struct feed *feed)
{
	const uint64_t in_use = feed->taken > 0 ? feed->taken - 1 : 0;
	return feed->made < feed->batch_count && feed->made < in_use + feed->slot_count;
}

/* Called and left with the lock. */
static void make_one(struct feed *feed)
{
	struct slot *slot = &feed->slots[feed->made % feed->slot_count];
	const uint64_t *indices = feed->indices;
	const uint32_t count = feed->counts[feed->made];
	feed->indices += count;
	feed->made++;
	feed->busy++;
	pthread_mutex_unlock(&feed->lock);
	fill_slot(feed, slot, indices, count);
	pthread_mutex_lock(&feed->lock);
	slot->ready = true;
	feed->busy--;
	pthread_cond_broadcast(&feed->changed);
}

static void *work(void *argument)
{
	struct feed *feed = argument;
	pthread_mutex_lock(&feed->lock);
	while (!feed->stop) {
		if (has_room(feed))
			make_one(feed);
		else
			pthread_cond_wait(&feed->changed, &feed->lock);
	}
	pthread_mutex_unlock(&feed->lock);
	return NULL;
}

static void stop_workers(struct feed *feed)
{
	pthread_mutex_lock(&feed->lock);
	feed->stop = true;
	pthread_cond_broadcast(&feed->changed);
	pthread_mutex_unlock(&feed->lock);
	for (uint32_t w = 0; w < feed->worker_count; w++)
		pthread_join(feed->workers[w], NULL);
}

static bool start_workers(struct feed *feed, uint32_t count)
{
	feed->workers = count > 0 ? calloc(count, sizeof(*feed->workers)) : NULL;
	if (count > 0 && !feed->workers)
		return train_fail("no memory for %u workers", count);
	for (; feed->worker_count < count; feed->worker_count++) {
		const int refused = pthread_create(&feed->workers[feed->worker_count], NULL, work, feed);
		if (refused)
			return train_fail("worker %u of %u cannot be started: %s: try fewer --workers",
				feed->worker_count + 1, count, strerror(refused));
	}
	return true;
}

/* ---- The feed ----------------------------------------------------------------------------------------------- */

static bool allocate_slot(const struct feed *feed, struct slot *slot, uint32_t largest)
{
	const struct shape shape = feed->set->shape;
	const size_t pixels = (size_t)largest * shape.channels * shape.height * shape.width;
	slot->labels = calloc(largest, 1);
	if (!feed->backend->makes_images) {
		slot->images = feed->backend->memory_allocate(pixels * sizeof(float));
		return slot->labels && slot->images;
	}
	slot->pixels = feed->backend->memory_allocate(pixels);
	slot->places = calloc(largest, sizeof(*slot->places));
	return slot->labels && slot->pixels && slot->places;
}

static bool allocate_slots(struct feed *feed, uint32_t largest)
{
	for (uint32_t s = 0; s < feed->slot_count; s++)
		if (!allocate_slot(feed, &feed->slots[s], largest))
			return train_fail("no memory for %u batches of %u", feed->slot_count, largest);
	return true;
}

struct feed *feed_create(
	const struct backend *backend, const struct dataset *set, uint32_t largest, const struct feed_options *options)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	/* One in use, and one that is ready, for each that is being filled. */
	const uint32_t slot_count = options->workers > 0 ? 2 * options->workers + 1 : 1;
	struct slot *slots = calloc(slot_count, sizeof(*slots));
	if (!feed || !slots) {
		free(feed);
		free(slots);
		train_fail("no memory for a feed");
		return NULL;
	}
	*feed = (struct feed){ .backend = backend, .set = set, .slots = slots, .slot_count = slot_count,
		.drawn = { .seed = options->seed, .mirrors = set->mirrors } };
	feed->augment = options->augment ? &feed->drawn : NULL;
	pthread_mutex_init(&feed->lock, NULL);
	pthread_cond_init(&feed->changed, NULL);
	if (allocate_slots(feed, largest) && start_workers(feed, options->workers))
		return feed;
	feed_destroy(feed);
	return NULL;
}

void feed_destroy(struct feed *feed)
{
	if (!feed)
		return;
	stop_workers(feed);
	for (uint32_t s = 0; s < feed->slot_count; s++) {
		feed->backend->memory_free(feed->slots[s].images);
		feed->backend->memory_free(feed->slots[s].pixels);
		free(feed->slots[s].places);
		free(feed->slots[s].labels);
	}
	pthread_cond_destroy(&feed->changed);
	pthread_mutex_destroy(&feed->lock);
	free(feed->workers);
	free(feed->slots);
	free(feed);
}

bool feed_epoch(
	struct feed *feed, uint32_t epoch, const uint64_t *indices, const uint32_t *counts, uint64_t batch_count)
{
	pthread_mutex_lock(&feed->lock);
	feed->batch_count = 0;  /* nothing is begun any more */
	while (feed->busy > 0)
		pthread_cond_wait(&feed->changed, &feed->lock);
	for (uint32_t s = 0; s < feed->slot_count; s++)
		feed->slots[s].ready = false;
	feed->drawn.epoch = epoch;
	feed->indices = indices;
	feed->counts = counts;
	feed->batch_count = batch_count;
	feed->made = feed->taken = 0;
	pthread_cond_broadcast(&feed->changed);
	pthread_mutex_unlock(&feed->lock);
	return true;
}

bool feed_next(struct feed *feed, struct batch *batch)
{
	pthread_mutex_lock(&feed->lock);
	assert(feed->taken < feed->batch_count);
	struct slot *slot = &feed->slots[feed->taken % feed->slot_count];
	const uint32_t count = feed->counts[feed->taken++];
	pthread_cond_broadcast(&feed->changed);  /* what was taken before may be overwritten */
	if (feed->worker_count == 0)
		make_one(feed);
	while (!slot->ready)
		pthread_cond_wait(&feed->changed, &feed->lock);
	slot->ready = false;
	pthread_mutex_unlock(&feed->lock);
	*batch = (struct batch){ slot->images, slot->labels, count, slot->pixels, slot->places };
	return true;
}
