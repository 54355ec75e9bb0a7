/* Orders the images. A step takes batch_size * accumulate images of each partition, one partition after the other,
 * in batches of batch_size. The last step of an epoch takes the rest. The loader gets the same order ahead. If one
 * rank deals out images to all, a step's images of all partitions are one batch. */
#include "data/order.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "evaluate.h"
#include "strategies/strategy.h"

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
	return each * trainer->workers * trainer->options->shards;
}

/* Counts the batches of a partition, or of all partitions if they form one batch. */
static uint64_t batches_of_a_step(const struct trainer *trainer, uint64_t step)
{
	if (trainer->strategy->deals)
		return trainer->partition_count > 0;
	const uint64_t images = order_step_images(trainer, step), size = trainer->options->batch_size;
	return trainer->partition_count * ((images + size - 1) / size);
}

uint64_t order_batches_before(const struct trainer *trainer, uint64_t step)
{
	uint64_t batches = 0;
	for (uint64_t s = 0; s < step; s++)
		batches += batches_of_a_step(trainer, s);
	return batches;
}

uint32_t order_largest_batch(const struct trainer *trainer)
{
	const bool deals = trainer->strategy->deals && trainer->partition_count > 0;
	return trainer->options->batch_size * (deals ? trainer->partition_count : 1);
}

/* Whose images this rank's loader gives out, and whose gradients it computes. */
static bool assign_shares(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint32_t rank = collet_comm_rank(trainer->comm), size = collet_comm_size(trainer->comm);
	const uint32_t servers = trainer->strategy->servers ? trainer->strategy->servers(options) : 0;
	if (options->shards > 1 && size > 1)
		return train_fail("--shards is for one rank; there are %u", size);
	if (servers >= size)
		return train_fail(
			"--strategy %s with %u server%s needs more than %u rank%s: the others do the training",
			trainer->strategy->name, servers, servers == 1 ? "" : "s", size, size == 1 ? "" : "s");
	trainer->workers = size - servers;
	trainer->share_count = rank < trainer->workers ? options->shards : 0;
	trainer->partition_count = !trainer->strategy->deals ? trainer->share_count : rank == 0 ? trainer->workers : 0;
	return true;
}

static bool prepare_partitions(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint32_t rank = collet_comm_rank(trainer->comm);
	collet_sampler sampler = { .sample_count = trainer->train.count,
		.world_size = trainer->workers * options->shards, .seed = options->seed };
	trainer->share_images = collet_sampler_count(&sampler);
	trainer->loss_sums = calloc(trainer->share_count + 1, sizeof(*trainer->loss_sums));
	trainer->partitions = calloc(trainer->partition_count + 1, sizeof(*trainer->partitions));
	if (!trainer->loss_sums || !trainer->partitions)
		return train_fail("no memory for %u shares", trainer->partition_count);
	for (uint32_t l = 0; l < trainer->partition_count; l++) {
		sampler.rank = trainer->partition_count > 1 ? l : rank;
		trainer->partitions[l] = (struct partition){ sampler, calloc(trainer->share_images, sizeof(uint64_t)) };
		if (!trainer->partitions[l].indices)
			return train_fail("no memory for the order of %u images", trainer->train.count);
	}
	return true;
}

static bool prepare_training(struct trainer *trainer)
{
	const uint64_t steps = order_steps(trainer), batches = order_batches_before(trainer, steps);
	if (!order_allocate(&trainer->order, trainer->share_images * trainer->partition_count, batches))
		return false;
	const uint32_t together = trainer->strategy->deals ? trainer->partition_count : 1;
	for (uint64_t step = 0; step < steps; step++)
		for (uint32_t l = 0; l < trainer->partition_count; l += together)
			cut(&trainer->order, (uint64_t)order_step_images(trainer, step) * together,
				order_largest_batch(trainer));
	return true;
}

bool order_epoch(struct trainer *trainer, uint32_t epoch, uint64_t first_step)
{
	for (uint32_t l = 0; l < trainer->partition_count; l++)
		if (!train_check(
			    collet_sampler_fill(&trainer->partitions[l].sampler, epoch, trainer->partitions[l].indices),
			    "dealing out images"))
			return false;
	const uint64_t steps = order_steps(trainer);
	uint64_t *to = trainer->order.indices, skipped = 0;
	for (uint64_t step = 0; step < steps; step++) {
		const uint32_t images = order_step_images(trainer, step);
		const uint64_t first = step * most_of_a_step(trainer);
		for (uint32_t l = 0; l < trainer->partition_count; l++, to += images)
			memcpy(to, trainer->partitions[l].indices + first, images * sizeof(*to));
		if (step < first_step)
			skipped += (uint64_t)images * trainer->partition_count;
	}
	const uint64_t before = order_batches_before(trainer, first_step);
	const struct order rest = { trainer->order.indices + skipped, trainer->order.counts + before,
		trainer->order.batch_count - before };
	return loader_epoch(trainer->loader, epoch, rest.indices, rest.counts, rest.batch_count);
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
	return assign_shares(trainer) && prepare_partitions(trainer) && prepare_training(trainer) &&
	       prepare_test(trainer);
}

void order_deinit(struct trainer *trainer)
{
	for (uint32_t l = 0; trainer->partitions && l < trainer->partition_count; l++)
		free(trainer->partitions[l].indices);
	free(trainer->partitions);
	free(trainer->loss_sums);
	free(trainer->order.indices);
	free(trainer->order.counts);
	free(trainer->test_order.indices);
	free(trainer->test_order.counts);
}
