/* A step takes batch_size * accumulate images of each share, share by share, in batches of batch_size; the last step of
 * an epoch takes what is left. The feed is asked for them in just this order, so it can know ahead. */
#include "order.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "evaluate.h"

static bool order_allocate(struct order *order, uint64_t images, uint64_t batches)
{
	order->indices = calloc(images + 1, sizeof(*order->indices));
	order->counts = calloc(batches + 1, sizeof(*order->counts));
	return (order->indices && order->counts) ||
		train_fail("no memory for the order of %llu images", (unsigned long long)images);
}

/* The batches of a run of images. */
static void cut(struct order *order, uint64_t images, uint32_t batch_size)
{
	for (uint64_t left = images; left > 0; left -= order->counts[order->batch_count++])
		order->counts[order->batch_count] = left < batch_size ? (uint32_t)left : batch_size;
}

/* ---- Training ----------------------------------------------------------------------------------------------- */

static uint64_t most_of_a_step(const struct trainer *trainer)
{
	return (uint64_t)trainer->options->batch_size * trainer->options->accumulate;
}

uint64_t order_steps(const struct trainer *trainer)
{
	const uint64_t most = most_of_a_step(trainer);
	return (trainer->share_images + most - 1) / most;
}

uint32_t order_step_images(const struct trainer *trainer, uint64_t step)
{
	const uint64_t most = most_of_a_step(trainer), left = trainer->share_images - step * most;
	return (uint32_t)(left < most ? left : most);
}

uint64_t order_images_before(const struct trainer *trainer, uint64_t step)
{
	const uint64_t most = step * most_of_a_step(trainer);
	const uint64_t each = most < trainer->share_images ? most : trainer->share_images;
	return each * collet_comm_size(trainer->comm) * trainer->share_count;
}

/* Every step but the last is whole. */
uint64_t order_batches_before(const struct trainer *trainer, uint64_t step)
{
	return step * trainer->options->accumulate * trainer->share_count;
}

static bool prepare_shares(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint32_t rank = collet_comm_rank(trainer->comm), size = collet_comm_size(trainer->comm);
	if (options->shards > 1 && size > 1)
		return train_fail("--shards is for one rank; there are %u", size);
	trainer->shares = calloc(options->shards, sizeof(*trainer->shares));
	if (!trainer->shares)
		return train_fail("no memory for %u shards", options->shards);
	trainer->share_count = options->shards;
	for (uint32_t s = 0; s < trainer->share_count; s++) {
		struct share *share = &trainer->shares[s];
		share->sampler = (collet_sampler){ .sample_count = trainer->train.count, .rank = size > 1 ? rank : s,
			.world_size = size > 1 ? size : options->shards, .seed = options->seed };
		trainer->share_images = collet_sampler_count(&share->sampler);
		share->indices = calloc(trainer->share_images, sizeof(*share->indices));
		if (!share->indices)
			return train_fail("no memory for the order of %u images", trainer->train.count);
	}
	return true;
}

static bool prepare_training(struct trainer *trainer)
{
	const uint64_t steps = order_steps(trainer), batches = order_batches_before(trainer, steps);
	if (!order_allocate(&trainer->order, trainer->share_images * trainer->share_count, batches))
		return false;
	for (uint64_t step = 0; step < steps; step++)
		for (uint32_t s = 0; s < trainer->share_count; s++)
			cut(&trainer->order, order_step_images(trainer, step), trainer->options->batch_size);
	return true;
}

bool order_epoch(struct trainer *trainer, uint32_t epoch, uint64_t first_step)
{
	for (uint32_t s = 0; s < trainer->share_count; s++)
		if (!train_check(collet_sampler_fill(&trainer->shares[s].sampler, epoch, trainer->shares[s].indices),
			    "dealing out images"))
			return false;
	const uint64_t steps = order_steps(trainer);
	uint64_t *to = trainer->order.indices, skipped = 0;
	for (uint64_t step = 0; step < steps; step++) {
		const uint32_t images = order_step_images(trainer, step);
		const uint64_t first = step * most_of_a_step(trainer);
		for (uint32_t s = 0; s < trainer->share_count; s++, to += images)
			memcpy(to, trainer->shares[s].indices + first, images * sizeof(*to));
		if (step < first_step)
			skipped += (uint64_t)images * trainer->share_count;
	}
	const uint64_t before = order_batches_before(trainer, first_step);
	const struct order rest = { trainer->order.indices + skipped, trainer->order.counts + before,
		trainer->order.batch_count - before };
	return feed_epoch(trainer->feed, epoch, rest.indices, rest.counts, rest.batch_count);
}

/* ---- Evaluation --------------------------------------------------------------------------------------------- */

static bool prepare_test(struct trainer *trainer)
{
	const collet_sampler sampler = { .sample_count = trainer->test.count, .rank = collet_comm_rank(trainer->comm),
		.world_size = collet_comm_size(trainer->comm), .tail = COLLET_SAMPLER_EXACT, .in_order = true };
	const uint64_t images = collet_sampler_count(&sampler);
	if (!order_allocate(&trainer->test_order, images, images / EVALUATION_BATCH + 1))
		return false;
	cut(&trainer->test_order, images, EVALUATION_BATCH);
	return train_check(
		collet_sampler_fill(&sampler, 0, trainer->test_order.indices), "dealing out the test images");
}

/* ---- Both --------------------------------------------------------------------------------------------------- */

bool order_init(struct trainer *trainer)
{
	return prepare_shares(trainer) && prepare_training(trainer) && prepare_test(trainer);
}

void order_deinit(struct trainer *trainer)
{
	for (uint32_t s = 0; s < trainer->share_count; s++)
		free(trainer->shares[s].indices);
	free(trainer->shares);
	free(trainer->order.indices);
	free(trainer->order.counts);
	free(trainer->test_order.indices);
	free(trainer->test_order.counts);
}
