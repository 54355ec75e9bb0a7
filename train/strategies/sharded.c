/* Splits all-reduce in two, with the optimiser between. Reduce-scatter gives each rank the mean gradient of its part
 * of the model. The rank steps that part, so only it needs that part's optimiser state. All-gather gives all ranks
 * the new values. It moves as many bytes as all-reduce, with 1/n of the optimiser's memory and work. (Rajbhandari et
 * al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020: stage 1.) */
#include "error.h"
#include "strategies/compute.h"
#include "strategies/strategy.h"

/* Returns a rank's number of elements, equal on all ranks: flat.count is a multiple of the ranks. */
static uint64_t part_count(const struct trainer *trainer)
{
	return trainer->work->count / collet_comm_size(trainer->comm);
}

static bool sharded_create(struct trainer *trainer)
{
	const uint64_t count = part_count(trainer);
	return strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer) &&
		flat_gradients(trainer->work, &trainer->model) &&
		strategy_state(trainer, collet_comm_rank(trainer->comm) * count, count);
}

/* Every part's squares make the norm. */
static bool clip(struct trainer *trainer, float *gradients, uint64_t count)
{
	if (!(trainer->options->clip > 0))
		return true;
	const struct array array = { gradients, count };
	double sum;
	if (!trainer->backend->squares(trainer->network, &array, 1, &sum) ||
		!train_check(
			collet_allreduce(trainer->step_comm, &sum, &sum, 1, COLLET_F64, COLLET_SUM, NULL), "--clip"))
		return false;
	return strategy_clip_to(trainer, sum, gradients, count);
}

static bool sharded_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	const struct flat *flat = trainer->work;
	const uint64_t count = part_count(trainer);
	float *mine = flat->gradients + flat->state_first;
	const collet_how how = { .algorithm = trainer->options->algorithm };
	bool take;
	if (!compute_step(trainer, 0, images, compute_till_all, NULL, outcome) || !scaling_unscale(trainer, &take))
		return false;
	if (!take)
		return true;
	int64_t began;
	if (!strategy_communicate(trainer, &began) ||
		!train_check(collet_reduce_scatter(
				 trainer->step_comm, flat->gradients, mine, count, COLLET_F32, COLLET_AVERAGE, &how),
		    "averaging gradients") ||
		!clip(trainer, mine, count))
		return false;
	strategy_arrived(trainer, began);
	if (!strategy_update_part(trainer, mine) || !strategy_communicate(trainer, &began) ||
		!train_check(collet_allgather(trainer->step_comm, flat->values + flat->state_first, flat->values, count,
				 COLLET_F32, NULL),
		    "gathering values"))
		return false;
	strategy_arrived(trainer, began);
	return true;
}

const struct strategy strategy_sharded = {
	.name = "sharded",
	.sentence = "each rank averages and steps its part of the model, then values are gathered (ZeRO)",
	.supports = SUPPORTS_ALGORITHM | SUPPORTS_CLIP | SUPPORTS_ACCUMULATE | SUPPORTS_SYNC_NORM,
	.state = STATE_PARTS,
	.create = sharded_create,
	.step = sharded_step,
	.traffic = strategy_step_traffic,
};
