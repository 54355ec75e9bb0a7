/* Trains with one master, as PyTorch's DataParallel (there, one process with a thread for each GPU). Only rank 0 has
 * the optimiser and loads images for all. In each step it broadcasts the values, scatters its large batch, and gets
 * the mean gradient by reduce. Then it steps while the others wait. It is made for ranks that are threads
 * (--threads), and works for processes. */
#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/strategy.h"

struct data_parallel {
	/* This rank's part of a batch: images, or what the back end makes them of. */
	float *images;
	uint8_t *pixels;
	struct placement *places;
	uint8_t *labels;
	uint64_t image_pixels;  /* all channels */
};

static bool allocate_batch(struct trainer *trainer, struct data_parallel *state)
{
	const struct backend *backend = trainer->backend;
	const uint64_t count = trainer->options->batch_size, pixels = count * state->image_pixels;
	state->labels = calloc(count, 1);
	if (!backend->makes_images) {
		trainer->work->bytes += pixels * sizeof(*state->images);
		state->images = backend->memory_allocate(pixels * sizeof(*state->images));
		return state->labels && state->images;
	}
	trainer->work->bytes += pixels + count * sizeof(*state->places);
	state->pixels = backend->memory_allocate(pixels);
	state->places = calloc(count, sizeof(*state->places));
	return state->labels && state->pixels && state->places;
}

static bool data_parallel_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	struct data_parallel *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const struct shape shape = trainer->train.shape;
	const bool master = collet_comm_rank(trainer->comm) == 0;
	if (!state)
		return train_fail("no memory");
	state->image_pixels = (uint64_t)shape.channels * shape.height * shape.width;
	if (!allocate_batch(trainer, state))
		return train_fail("no memory for a batch of %u", trainer->options->batch_size);
	return strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer) &&
		flat_gradients(flat, &trainer->model) && strategy_state(trainer, 0, master ? flat->count : 0);
}

static bool deal_images(struct trainer *trainer, const struct batch *all, uint32_t images)
{
	const struct data_parallel *state = trainer->strategy_state;
	const uint64_t pixels = images * state->image_pixels;
	if (!trainer->backend->makes_images)
		return train_check(
			collet_scatter(trainer->step_comm, all->images, state->images, pixels, COLLET_F32, 0, NULL),
			"dealing out images");
	return train_check(collet_scatter(trainer->step_comm, all->pixels, state->pixels, pixels, COLLET_U8, 0, NULL),
		       "dealing out images") &&
	       train_check(collet_scatter(trainer->step_comm, all->places, state->places,
				   images * sizeof(*state->places), COLLET_U8, 0, NULL),
		       "dealing out what is seen of images");
}

/* Values to everybody, and to each its part of rank 0's next batch. */
static bool deal(struct trainer *trainer, uint32_t images)
{
	const struct data_parallel *state = trainer->strategy_state;
	float *values = trainer->work->values;
	struct batch all = { 0 };
	if (collet_comm_rank(trainer->step_comm) == 0 && !compute_load(trainer, &all))
		return false;
	int64_t began;
	const bool fine =
		strategy_communicate(trainer, &began) &&
		train_check(
			collet_broadcast(trainer->step_comm, values, values, trainer->work->count, COLLET_F32, 0, NULL),
			"broadcasting values") &&
		deal_images(trainer, &all, images) &&
		train_check(collet_scatter(trainer->step_comm, all.labels, state->labels, images, COLLET_U8, 0, NULL),
			"dealing out labels");
	strategy_arrived(trainer, began);
	return fine;
}

static bool data_parallel_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	const struct data_parallel *state = trainer->strategy_state;
	float *gradients = trainer->work->gradients;
	const uint64_t count = trainer->work->count;
	const struct batch mine = { state->images, state->labels, images, state->pixels, state->places };
	const collet_how how = { .algorithm = trainer->options->algorithm };
	bool take;
	if (!deal(trainer, images) || !compute_batch(trainer, 0, &mine, compute_till_all, NULL, outcome) ||
		!scaling_unscale(trainer, &take))
		return false;
	if (!take)
		return true;
	int64_t began;
	if (!strategy_communicate(trainer, &began) ||
		!train_check(collet_reduce(trainer->step_comm, gradients, gradients, count, COLLET_F32, COLLET_AVERAGE,
				     0, &how),
			"averaging gradients"))
		return false;
	strategy_arrived(trainer, began);
	return collet_comm_rank(trainer->step_comm) > 0 ||
		(strategy_clip(trainer, gradients, count) && strategy_update(trainer));
}

/* Evaluates the master's values. */
static bool data_parallel_end_epoch(struct trainer *trainer)
{
	float *values = trainer->work->values;
	return trainer->backend->wait(trainer->network) &&
		train_check(collet_broadcast(trainer->comm, values, values, trainer->work->count, COLLET_F32, 0, NULL),
			"broadcasting values");
}

static void data_parallel_destroy(struct trainer *trainer)
{
	struct data_parallel *state = trainer->strategy_state;
	if (!state)
		return;
	trainer->backend->memory_free(state->images);
	trainer->backend->memory_free(state->pixels);
	free(state->places);
	free(state->labels);
	free(state);
}

const struct strategy strategy_data_parallel = {
	.name = "data-parallel",
	.sentence = "rank 0 broadcasts values, deals out a large batch, and steps by the reduced gradients",
	.supports = SUPPORTS_ALGORITHM | SUPPORTS_CLIP | SUPPORTS_SYNC_NORM,
	.state = STATE_PARTS,
	.deals = true,
	.create = data_parallel_create,
	.step = data_parallel_step,
	.end_epoch = data_parallel_end_epoch,
	.destroy = data_parallel_destroy,
	.traffic = strategy_step_traffic,
};
