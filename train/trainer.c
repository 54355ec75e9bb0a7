/* Runs the training loop: epochs and steps.
 *
 * Every rank draws the same first values. The distributed sampler assigns its share of the images (order.h), and a
 * loader loads them (loader.h). A strategy (strategy.h) turns their gradients into steps. Each rank trains with its
 * own statistics of batch norm; evaluation uses rank 0's, as in PyTorch. */
#include "trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agree.h"
#include "checkpoint/checkpoint.h"
#include "data/order.h"
#include "error.h"
#include "evaluate.h"
#include "report/costs.h"
#include "setup.h"
#include "state.h"
#include "strategies/strategy.h"

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool out_of_steps(const struct trainer *trainer)
{
	return trainer->options->steps > 0 && trainer->steps_done >= trainer->options->steps;
}

/* Returns the rate of the last step. */
static double last_rate(const struct trainer *trainer)
{
	return trainer->steps_done > 0 ? (double)schedule_rate(&trainer->schedule, trainer->steps_done - 1) : 0;
}

static void show_step(const struct trainer *trainer, const struct outcome *outcome, uint32_t count,
	double images_per_s)
{
	if (!trainer->watch->step)
		return;
	const struct trainer_progress progress = { .epoch = trainer->epochs_done + 1, .step = trainer->epoch_step,
		.steps = (uint32_t)order_steps(trainer), .loss = outcome->loss / count, .images_per_s = images_per_s,
		.accuracy = (double)outcome->correct / count, .rate = last_rate(trainer),
		.steps_done = trainer->steps_done };
	trainer->watch->step(trainer->watch->context, &progress);
}

static void begin_epoch(struct trainer *trainer)
{
	for (uint32_t s = 0; s < trainer->share_count; s++)
		trainer->loss_sums[s] = 0;
	trainer->epoch_images = 0;
}

/* Trains what is left of an epoch, which a resumed run begins in its middle. Time does not count while a checkpoint is
 * written. */
static bool train_epoch(struct trainer *trainer, struct trainer_epoch *result)
{
	const uint64_t steps = order_steps(trainer);
	if (trainer->epoch_step == 0)
		begin_epoch(trainer);
	if (!order_epoch(trainer, trainer->epochs_done, trainer->epoch_step) ||
		(trainer->strategy->begin_epoch && !trainer->strategy->begin_epoch(trainer)))
		return false;
	double start = now_s(), saving;
	while (trainer->epoch_step < steps && !out_of_steps(trainer)) {
		struct outcome outcome;
		const uint32_t count = order_step_images(trainer, trainer->epoch_step);
		timeline_begin(trainer->timeline, PHASE_STEP);
		const bool went = trainer->strategy->step(trainer, count, &outcome);
		timeline_end(trainer->timeline);
		if (!went)
			return false;
		trainer->steps_done++;  /* now values, optimiser and place in time agree: what could be gone on from */
		trainer->epoch_step++;
		trainer->epoch_images += (uint64_t)count * trainer->share_count;
		result->images += (double)count * trainer->share_count * trainer->workers;
		show_step(trainer, &outcome, count, result->images / (now_s() - start));
		if (!checkpoint_after_step(trainer, &saving))
			return false;
		start += saving;
	}
	result->seconds = now_s() - start;
	result->images_per_s = result->images / result->seconds;
	result->steps_done = trainer->steps_done;
	result->rate = last_rate(trainer);
	return true;
}

/* The mean over all ranks: in it, what one waits for the other is in the other's computing. */
static bool mean_times(struct trainer *trainer, struct times *times)
{
	enum { NUMBERS = sizeof(*times) / sizeof(double) };
	*times = timeline_take(trainer->timeline);
	return train_check(collet_allreduce(trainer->comm, times, times, NUMBERS, COLLET_F64, COLLET_AVERAGE, NULL),
		"adding up times");
}

static bool test(struct trainer *trainer, double *accuracy)
{
	timeline_begin(trainer->timeline, PHASE_EVALUATE);
	const bool went = evaluate_accuracy(trainer, accuracy);
	timeline_end(trainer->timeline);
	return went;
}

/* One that --steps has cut short is not done. */
static bool note_epoch(struct trainer *trainer, const struct trainer_epoch *result)
{
	if (trainer->epoch_step < order_steps(trainer))
		return true;
	struct trainer_epoch *grown =
		realloc(trainer->history, (trainer->history_count + 1) * sizeof(*trainer->history));
	if (!grown)
		return train_fail("no memory for epoch %u", result->epoch);
	trainer->history = grown;
	trainer->history[trainer->history_count++] = *result;
	trainer->epochs_done++;
	trainer->epoch_step = 0;
	return true;
}

/* Now values are those that are evaluated, and the host has them. */
static bool end_strategy_epoch(struct trainer *trainer)
{
	return (!trainer->strategy->end_epoch || trainer->strategy->end_epoch(trainer)) &&
		trainer->backend->fetch(trainer->network);
}

static bool run_epoch(struct trainer *trainer)
{
	struct trainer_epoch result = { .epoch = trainer->epochs_done + 1 };
	if (!train_epoch(trainer, &result) ||
		!evaluate_loss(trainer, trainer->epoch_images, &result.loss) ||
		!end_strategy_epoch(trainer) || !evaluate_equality(trainer, &result.checksum) ||
		!test(trainer, &result.test_accuracy) || !mean_times(trainer, &result.times) ||
		!costs_fill(trainer, &result))
		return false;
	/* Reports before saving, so that a resumed run repeats no report. */
	return note_epoch(trainer, &result) &&
		(!trainer->watch->epoch || trainer->watch->epoch(trainer->watch->context, &result)) &&
		checkpoint_after_epoch(trainer);
}

/* Said before training rather than after it. What is there stays until there is something better. */
static bool may_dump(collet_comm *comm, const char *path)
{
	if (!path || collet_comm_rank(comm) != 0)
		return true;
	FILE *file = fopen(path, "ab");
	if (!file)
		return train_fail("--dump-parameters %s: %s", path, strerror(errno));
	fclose(file);
	return true;
}

static bool dump_parameters(const struct trainer *trainer, const char *path)
{
	FILE *file = fopen(path, "wb");
	bool complete = file != NULL;
	for (uint32_t p = 0; complete && p < trainer->model.parameter_count; p++) {
		const struct parameter *parameter = &trainer->model.parameters[p];
		complete = fwrite(parameter->value, sizeof(float), parameter->count, file) == parameter->count;
	}
	if (file && fclose(file) != 0)
		complete = false;
	return complete || train_fail("--dump-parameters %s: %s", path, strerror(errno));
}

bool trainer_run(collet_comm *comm, const struct options *options, const struct trainer_watch *watch)
{
	struct trainer *trainer = calloc(1, sizeof(*trainer));
	if (!trainer)
		return train_fail("no memory");
	*trainer = (struct trainer){ .comm = comm, .options = options, .watch = watch, .backend = &backend_onednn };
	bool fine = agree_on_options(comm, options) && checkpoint_begin(trainer) &&
		may_dump(comm, options->dump_parameters) && setup_init(trainer);
	if (fine && options->resume && watch->resumed)
		fine = watch->resumed(
			watch->context, trainer->history, trainer->history_count, trainer->steps_done);
	while (fine && trainer->epochs_done < options->epochs && !out_of_steps(trainer))
		fine = run_epoch(trainer);
	if (fine && options->trace)
		fine = timeline_write(trainer->timeline, comm, options->trace);
	if (fine && options->dump_parameters && collet_comm_rank(comm) == 0)
		fine = dump_parameters(trainer, options->dump_parameters);
	fine = checkpoint_end(trainer) && fine;
	setup_deinit(trainer);
	free(trainer->history);
	free(trainer);
	return fine;
}
