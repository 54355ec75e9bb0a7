/* Makes batches. Workers make them ahead of time; without workers the caller makes them on demand. Workers take
 * batch numbers in turn, and fill slots in a ring. Batches leave the ring in order, so it does not matter which
 * worker made them. */
#include "data/loader.h"

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

struct loader {
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

static void fill_slot(const struct loader *loader, const struct slot *slot, const uint64_t *indices, uint32_t count)
{
	if (slot->pixels)
		dataset_gather(loader->set, loader->augment, indices, count, slot->pixels, slot->places, slot->labels);
	else
		dataset_batch(loader->set, loader->augment, indices, count, slot->images, slot->labels);
}

/* ---- Workers ------------------------------------------------------------------------------------------------ */

/* The batch that was taken last is still in use. */
static bool has_room(const struct loader *loader)
{
	const uint64_t in_use = loader->taken > 0 ? loader->taken - 1 : 0;
	return loader->made < loader->batch_count && loader->made < in_use + loader->slot_count;
}

/* Called and left with the lock. */
static void make_one(struct loader *loader)
{
	struct slot *slot = &loader->slots[loader->made % loader->slot_count];
	const uint64_t *indices = loader->indices;
	const uint32_t count = loader->counts[loader->made];
	loader->indices += count;
	loader->made++;
	loader->busy++;
	pthread_mutex_unlock(&loader->lock);
	fill_slot(loader, slot, indices, count);
	pthread_mutex_lock(&loader->lock);
	slot->ready = true;
	loader->busy--;
	pthread_cond_broadcast(&loader->changed);
}

static void *work(void *argument)
{
	struct loader *loader = argument;
	pthread_mutex_lock(&loader->lock);
	while (!loader->stop) {
		if (has_room(loader))
			make_one(loader);
		else
			pthread_cond_wait(&loader->changed, &loader->lock);
	}
	pthread_mutex_unlock(&loader->lock);
	return NULL;
}

static void stop_workers(struct loader *loader)
{
	pthread_mutex_lock(&loader->lock);
	loader->stop = true;
	pthread_cond_broadcast(&loader->changed);
	pthread_mutex_unlock(&loader->lock);
	for (uint32_t w = 0; w < loader->worker_count; w++)
		pthread_join(loader->workers[w], NULL);
}

static bool start_workers(struct loader *loader, uint32_t count)
{
	loader->workers = count > 0 ? calloc(count, sizeof(*loader->workers)) : NULL;
	if (count > 0 && !loader->workers)
		return train_fail("no memory for %u workers", count);
	for (; loader->worker_count < count; loader->worker_count++) {
		const int refused = pthread_create(&loader->workers[loader->worker_count], NULL, work, loader);
		if (refused)
			return train_fail("worker %u of %u cannot be started: %s: try fewer --workers",
				loader->worker_count + 1, count, strerror(refused));
	}
	return true;
}

/* ---- The loader ----------------------------------------------------------------------------------------------- */

static bool allocate_slot(const struct loader *loader, struct slot *slot, uint32_t largest)
{
	const struct shape shape = loader->set->shape;
	const size_t pixels = (size_t)largest * shape.channels * shape.height * shape.width;
	slot->labels = calloc(largest, 1);
	if (!loader->backend->makes_images) {
		slot->images = loader->backend->memory_allocate(pixels * sizeof(float));
		return slot->labels && slot->images;
	}
	slot->pixels = loader->backend->memory_allocate(pixels);
	slot->places = calloc(largest, sizeof(*slot->places));
	return slot->labels && slot->pixels && slot->places;
}

static bool allocate_slots(struct loader *loader, uint32_t largest)
{
	for (uint32_t s = 0; s < loader->slot_count; s++)
		if (!allocate_slot(loader, &loader->slots[s], largest))
			return train_fail("no memory for %u batches of %u", loader->slot_count, largest);
	return true;
}

struct loader *loader_create(const struct backend *backend, const struct dataset *set, uint32_t largest,
	const struct loader_options *options)
{
	struct loader *loader = calloc(1, sizeof(*loader));
	/* One in use, and one that is ready, for each that is being filled. */
	const uint32_t slot_count = options->workers > 0 ? 2 * options->workers + 1 : 1;
	struct slot *slots = calloc(slot_count, sizeof(*slots));
	if (!loader || !slots) {
		free(loader);
		free(slots);
		train_fail("no memory for a feed");
		return NULL;
	}
	*loader = (struct loader){ .backend = backend, .set = set, .slots = slots, .slot_count = slot_count,
		.drawn = { .seed = options->seed, .mirrors = set->mirrors } };
	loader->augment = options->augment ? &loader->drawn : NULL;
	pthread_mutex_init(&loader->lock, NULL);
	pthread_cond_init(&loader->changed, NULL);
	if (allocate_slots(loader, largest) && start_workers(loader, options->workers))
		return loader;
	loader_destroy(loader);
	return NULL;
}

void loader_destroy(struct loader *loader)
{
	if (!loader)
		return;
	stop_workers(loader);
	for (uint32_t s = 0; s < loader->slot_count; s++) {
		loader->backend->memory_free(loader->slots[s].images);
		loader->backend->memory_free(loader->slots[s].pixels);
		free(loader->slots[s].places);
		free(loader->slots[s].labels);
	}
	pthread_cond_destroy(&loader->changed);
	pthread_mutex_destroy(&loader->lock);
	free(loader->workers);
	free(loader->slots);
	free(loader);
}

bool loader_epoch(
	struct loader *loader, uint32_t epoch, const uint64_t *indices, const uint32_t *counts, uint64_t batch_count)
{
	pthread_mutex_lock(&loader->lock);
	loader->batch_count = 0;  /* nothing is begun any more */
	while (loader->busy > 0)
		pthread_cond_wait(&loader->changed, &loader->lock);
	for (uint32_t s = 0; s < loader->slot_count; s++)
		loader->slots[s].ready = false;
	loader->drawn.epoch = epoch;
	loader->indices = indices;
	loader->counts = counts;
	loader->batch_count = batch_count;
	loader->made = loader->taken = 0;
	pthread_cond_broadcast(&loader->changed);
	pthread_mutex_unlock(&loader->lock);
	return true;
}

bool loader_next(struct loader *loader, struct batch *batch)
{
	pthread_mutex_lock(&loader->lock);
	assert(loader->taken < loader->batch_count);
	struct slot *slot = &loader->slots[loader->taken % loader->slot_count];
	const uint32_t count = loader->counts[loader->taken++];
	pthread_cond_broadcast(&loader->changed);  /* what was taken before may be overwritten */
	if (loader->worker_count == 0)
		make_one(loader);
	while (!slot->ready)
		pthread_cond_wait(&loader->changed, &loader->lock);
	slot->ready = false;
	pthread_mutex_unlock(&loader->lock);
	*batch = (struct batch){ slot->images, slot->labels, count, slot->pixels, slot->places };
	return true;
}
