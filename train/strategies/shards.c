#include "strategies/shards.h"

#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"

struct shards {
	struct trainer *trainer;
	uint32_t count;
	struct array *gradients;
	float **sums;
};

struct shards *shards_create(struct trainer *trainer, const struct array *gradients, uint32_t count)
{
	struct shards *shards = calloc(1, sizeof(*shards));
	if (shards)
		*shards = (struct shards){ trainer, count, calloc(count, sizeof(*gradients)),
			calloc(count, sizeof(float *)) };
	bool complete = shards && shards->gradients && shards->sums;
	if (!complete)
		train_fail("no memory for %u sums", count);
	for (uint32_t a = 0; complete && a < count; a++) {
		shards->gradients[a] = gradients[a];
		complete = flat_allocate(trainer->work, &shards->sums[a], gradients[a].count);
	}
	if (complete)
		return shards;
	shards_destroy(shards);
	return NULL;
}

void shards_destroy(struct shards *shards)
{
	if (!shards)
		return;
	for (uint32_t a = 0; shards->sums && a < shards->count; a++)
		flat_free(shards->trainer->work, shards->sums[a]);
	free(shards->gradients);
	free(shards->sums);
	free(shards);
}

/* sum += gradients (the first shard's are the sum so far); after the last shard, gradients = sum x 1/shards. */
static bool add_shard(const struct shards *shards, uint32_t a, uint32_t s)
{
	struct trainer *trainer = shards->trainer;
	float *gradients = shards->gradients[a].first, *sum = shards->sums[a];
	const bool first = s == 0, last = s + 1 == trainer->share_count;
	const double share = (double)(1 / (float)trainer->share_count);
	return trainer->backend->add(trainer->network, last ? gradients : sum, first ? gradients : sum,
		first ? NULL : gradients, last ? share : 1, shards->gradients[a].count);
}

bool shards_compute(
	struct shards *shards, uint32_t images, gradient_ready ready, void *context, struct outcome *outcome)
{
	struct trainer *trainer = shards->trainer;
	for (uint32_t s = 0; s < trainer->share_count; s++) {
		if (!compute_step(trainer, s, images, compute_till_all, NULL, outcome))
			return false;
		for (uint32_t a = 0; a < shards->count; a++)
			if (!add_shard(shards, a, s))
				return false;
	}
	for (uint32_t p = trainer->model.parameter_count; p-- > 0;)
		if (!ready(context, p))
			return false;
	return true;
}
