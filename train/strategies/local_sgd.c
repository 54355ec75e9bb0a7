/* Trains each rank on its own for --local-steps steps; then, and after each epoch, all-reduce averages the values. A
 * step moves 1/H of the bytes of all-reduce. Each rank keeps its own optimiser state. (McMahan et al.,
 * "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017; Stich, "Local SGD Converges
 * Fast and Communicates Little", 2019.) */
#include "error.h"
#include "strategies/compute.h"
#include "strategies/local_state.h"
#include "strategies/strategy.h"

enum { LOCAL_STEPS = 8 };

static bool local_sgd_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	return strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer) &&
		flat_gradients(flat, &trainer->model) && strategy_state(trainer, 0, flat->count);
}

static bool average(struct trainer *trainer)
{
	float *values = trainer->work->values;
	const collet_how how = { .algorithm = trainer->options->algorithm };
	int64_t began;
	if (!strategy_communicate(trainer, &began) ||
		!train_check(collet_allreduce(trainer->step_comm, values, values, trainer->work->count, COLLET_F32,
				 COLLET_AVERAGE, &how),
		    "averaging values"))
		return false;
	strategy_arrived(trainer, began);
	return true;
}

static uint32_t local_steps(const struct trainer *trainer)
{
	return trainer->options->local_steps ? trainer->options->local_steps : LOCAL_STEPS;
}

static bool is_time(const struct trainer *trainer, uint32_t steps)
{
	return steps % local_steps(trainer) == 0;
}

static bool local_sgd_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	bool take;
	if (!compute_step(trainer, 0, images, compute_till_all, NULL, outcome) ||
		!scaling_unscale_local(trainer, &take))
		return false;
	if (take && !strategy_update(trainer))
		return false;
	return !is_time(trainer, trainer->steps_done + 1) || average(trainer);
}

static bool local_sgd_end_epoch(struct trainer *trainer)
{
	return is_time(trainer, trainer->steps_done) || average(trainer);
}

static bool local_sgd_save(struct trainer *trainer, void *state, uint64_t bytes)
{
	local_state_save(trainer, trainer->flat.values, state);
	return true;
}

static bool local_sgd_load(struct trainer *trainer, const void *state, uint64_t bytes)
{
	return local_state_load(trainer, trainer->flat.values, state, bytes);
}

static bool local_sgd_report(struct trainer *trainer, struct trainer_epoch *epoch)
{
	epoch->local_steps = local_steps(trainer);
	return true;
}

const struct strategy strategy_local_sgd = {
	.name = "local-sgd",
	.sentence = "each rank steps on its own; every --local-steps steps values are averaged by all-reduce",
	.supports = SUPPORTS_ALGORITHM | SUPPORTS_ACCUMULATE | SUPPORTS_LOCAL_STEPS | SUPPORTS_SYNC_NORM,
	.state = STATE_OWN,
	.create = local_sgd_create,
	.step = local_sgd_step,
	.end_epoch = local_sgd_end_epoch,
	.traffic = strategy_step_traffic,
	.report = local_sgd_report,
	.saved_bytes = local_state_bytes,
	.save = local_sgd_save,
	.load = local_sgd_load,
};
