#include "strategies/shards.h"

#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"

struct shards {
	struct trainer *trainer;
	const collet_ddp *ddp;
	uint32_t bucket_count;
	float **sums;              /* one a bucket */
};

struct shards *shards_create(struct trainer *trainer, const collet_ddp *ddp)
{
	struct shards *shards = calloc(1, sizeof(*shards));
	const uint32_t buckets = collet_ddp_bucket_count(ddp);
	if (shards)
		*shards = (struct shards){ trainer, ddp, buckets, calloc(buckets, sizeof(*shards->sums)) };
	bool complete = shards && shards->sums;
	for (uint32_t b = 0; complete && b < buckets; b++) {
		collet_ddp_bucket bucket;
		complete = collet_ddp_bucket_get(ddp, b, &bucket) == COLLET_OK;
		if (complete)
			shards->sums[b] = trainer->backend->memory_allocate(bucket.count * sizeof(float));
		complete = complete && shards->sums[b];
	}
	if (complete)
		return shards;
	train_fail("no memory for the sums of %u buckets", buckets);
	shards_destroy(shards);
	return NULL;
}

void shards_destroy(struct shards *shards)
{
	if (!shards)
		return;
	for (uint32_t b = 0; shards->sums && b < shards->bucket_count; b++)
		shards->trainer->backend->memory_free(shards->sums[b]);
	free(shards->sums);
	free(shards);
}

/* sum += gradients (the first shard's are the sum so far); after the last shard, gradients = sum x 1/shards. */
static void add_shard(float *restrict sum, float *restrict gradients, uint64_t count, uint32_t s, uint32_t shards)
{
	for (uint64_t i = 0; i < count; i++)
		sum[i] = s == 0 ? gradients[i] : sum[i] + gradients[i];
	const float share = 1 / (float)shards;
	for (uint64_t i = 0; s == shards - 1 && i < count; i++)
		gradients[i] = sum[i] * share;
}

bool shards_compute(
	struct shards *shards, uint32_t images, gradient_ready ready, void *context, struct outcome *outcome)
{
	struct trainer *trainer = shards->trainer;
	for (uint32_t s = 0; s < trainer->share_count; s++) {
		if (!compute_step(trainer, s, images, compute_till_all, NULL, outcome))
			return false;
		for (uint32_t b = 0; b < shards->bucket_count; b++) {
			collet_ddp_bucket bucket;
			if (!train_check(collet_ddp_bucket_get(shards->ddp, b, &bucket), "a bucket"))
				return false;
			add_shard(shards->sums[b], bucket.gradients, bucket.count, s, trainer->share_count);
		}
	}
	for (uint32_t p = trainer->model.parameter_count; p-- > 0;)
		if (!ready(context, p))
			return false;
	return true;
}
