/* The first thing one thinks of: rank 0 gathers everybody's gradients, averages them, and sends the mean back. Every
 * rank then takes the same step. In a step rank 0 receives n - 1 times the model, and holds it n times. */
#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/strategy.h"

struct gather {
	float *all;   /* on rank 0: gradients rank by rank */
};

static bool gather_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	struct gather *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const uint32_t size = collet_comm_size(trainer->comm);
	if (!state)
		return train_fail("no memory");
	return strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer) &&
		flat_gradients(flat, &trainer->model) && strategy_state(trainer, 0, flat->count) &&
		(collet_comm_rank(trainer->comm) > 0 || flat_allocate(flat, &state->all, size * flat->count));
}

static bool gather_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	const struct gather *state = trainer->strategy_state;
	float *gradients = trainer->work->gradients;
	const uint64_t count = trainer->work->count;
	const collet_how how = { .algorithm = trainer->options->algorithm };
	bool take;
	if (!compute_step(trainer, 0, images, compute_till_all, NULL, outcome) || !scaling_unscale(trainer, &take))
		return false;
	if (!take)
		return true;
	int64_t began;
	if (!strategy_communicate(trainer, &began) ||
		!train_check(collet_gather(trainer->step_comm, gradients, state->all, count, COLLET_F32, 0, &how),
		    "gathering gradients"))
		return false;
	if (collet_comm_rank(trainer->step_comm) == 0 &&
		!(strategy_average(
			  trainer, gradients, state->all, count, count, collet_comm_size(trainer->step_comm)) &&
			strategy_clip(trainer, gradients, count) && trainer->backend->wait(trainer->network)))
		return false;
	if (!train_check(collet_broadcast(trainer->step_comm, gradients, gradients, count, COLLET_F32, 0, NULL),
		    "sending gradients back"))
		return false;
	strategy_arrived(trainer, began);
	return strategy_update(trainer);
}

static void gather_destroy(struct trainer *trainer)
{
	struct gather *state = trainer->strategy_state;
	if (state)
		flat_free(trainer->work, state->all);
	free(state);
}

const struct strategy strategy_gather = {
	.name = "gather",
	.sentence = "rank 0 gathers all gradients, averages them and sends the mean back",
	.supports = SUPPORTS_ALGORITHM | SUPPORTS_CLIP | SUPPORTS_ACCUMULATE | SUPPORTS_SYNC_NORM,
	.state = STATE_ALIKE,
	.create = gather_create,
	.step = gather_step,
	.destroy = gather_destroy,
	.traffic = strategy_step_traffic,
};
