/* The table of strategies, and what they have in common. */
#include "strategies/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <collet/ddp.h>

#include "error.h"

extern const struct strategy strategy_allreduce, strategy_gather, strategy_data_parallel, strategy_parameter_server,
	strategy_async, strategy_gossip, strategy_local_sgd, strategy_sharded;

const struct strategy *const strategies[] = { &strategy_allreduce, &strategy_gather, &strategy_data_parallel,
	&strategy_parameter_server, &strategy_async, &strategy_gossip, &strategy_local_sgd, &strategy_sharded, NULL };

const struct strategy *strategy_find(const char *name)
{
	for (size_t i = 0; strategies[i]; i++)
		if (strcmp(strategies[i]->name, name) == 0)
			return strategies[i];
	return NULL;
}

static bool is_known(const char *name)
{
	enum { COUNT = sizeof(strategies) / sizeof(strategies[0]) };
	const char *names[COUNT] = { NULL };
	for (size_t i = 0; strategies[i]; i++)
		names[i] = strategies[i]->name;
	return train_check_name("strategy", name, names);
}

/* ---- What goes with what ------------------------------------------------------------------------------------- */

bool strategy_fits(const struct options *options)
{
	const struct strategy *strategy = strategy_find(options->strategy);
	const struct {
		enum strategy_support what;
		bool asked;
		const char *option, *why;
	} rows[] = {
		{ SUPPORTS_COMPRESS, options->compress, "compress", "it is a hook of the all-reduce of gradients" },
		{ SUPPORTS_ALGORITHM, options->algorithm, "algorithm", "no collective carries what it moves" },
		{ SUPPORTS_CLIP, options->clip > 0, "clip", "no rank ever has the averaged gradients" },
		{ SUPPORTS_BUCKETS, options->bucket_bytes > 0, "bucket-bytes", "its gradients travel as one" },
		{ SUPPORTS_BUCKETS, options->no_overlap, "no-overlap", "its gradients travel when all are there" },
		{ SUPPORTS_ACCUMULATE, options->accumulate > 1, "accumulate", "rank 0 deals out one batch a step" },
		{ SUPPORTS_SHARDS, options->shards > 1, "shards", "it proves what the all-reduce computes" },
		{ SUPPORTS_SYNC_NORM, options->sync_batch_norm, "sync-batch-norm", "its servers see no batches" },
		{ SUPPORTS_SERVERS, options->servers > 0, "servers", "it has none" },
		{ SUPPORTS_STALENESS, options->staleness != OPTIONS_NOT_GIVEN, "staleness",
			"no rank runs ahead in it" },
		{ SUPPORTS_LOCAL_STEPS, options->local_steps > 0, "local-steps", "every step of it is everybody's" },
	};
	if (!is_known(options->strategy))
		return false;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].asked && !(strategy->supports & rows[i].what))
			return train_fail("--%s does not go with --strategy %s: %s", rows[i].option, strategy->name,
				rows[i].why);
	return true;
}

/* ---- The optimiser ------------------------------------------------------------------------------------------- */

struct optimiser_inputs strategy_optimiser_inputs(const struct trainer *trainer)
{
	const struct options *options = trainer->options;
	return (struct optimiser_inputs){ .optimiser = options->optimiser, .weight_decay = options->weight_decay,
		.rate = schedule_rate(&trainer->schedule, trainer->steps_done), .momentum = options->momentum,
		.nesterov = options->nesterov, .step = trainer->steps_done + 1 };
}

bool strategy_state(struct trainer *trainer, uint64_t first, uint64_t count)
{
	const enum optimiser optimiser = trainer->options->optimiser;
	struct flat *flat = &trainer->flat;
	if (!flat_state(flat, optimiser, first, count) ||
		(trainer->work != flat && !flat_state(trainer->work, optimiser, first, count)))
		return false;
	for (uint32_t p = 0; flat_has_all_state(flat) && p < trainer->model.parameter_count; p++) {
		struct parameter *parameter = &trainer->model.parameters[p];
		parameter->velocity = flat->velocity + flat->first[p];
		parameter->squares = flat->squares ? flat->squares + flat->first[p] : NULL;
	}
	return true;
}

bool strategy_update(struct trainer *trainer)
{
	const struct optimiser_inputs inputs = strategy_optimiser_inputs(trainer);
	timeline_begin(trainer->timeline, PHASE_OPTIMISE);
	const bool fine = trainer->backend->update(trainer->network, &inputs);
	timeline_end(trainer->timeline);
	return fine;
}

bool strategy_update_part(struct trainer *trainer, const float *gradients)
{
	const struct optimiser_inputs inputs = strategy_optimiser_inputs(trainer);
	timeline_begin(trainer->timeline, PHASE_OPTIMISE);
	const bool fine = flat_update(trainer->work, trainer->network, gradients, &inputs);
	timeline_end(trainer->timeline);
	return fine;
}

/* ---- Ranks --------------------------------------------------------------------------------------------------- */

/* collet_ddp compares parameters, names the difference, and broadcasts values when it is created; no more is wanted of
 * it here. */
bool strategy_broadcast_values(struct trainer *trainer)
{
	const struct model *model = &trainer->model;
	collet_ddp_parameter parameters[MODEL_PARAMETERS];
	collet_ddp *ddp = NULL;
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		parameters[p] = (collet_ddp_parameter){ .name = parameter->name, .value = parameter->value,
			.shape = parameter->shape, .dimensions = parameter->dimensions, .dtype = COLLET_F32 };
	}
	return train_check(collet_ddp_create(&ddp, trainer->comm, parameters, model->parameter_count, NULL),
		       "comparing the model across ranks") &&
		train_check(collet_ddp_destroy(&ddp), "comparing the model across ranks");
}

bool strategy_create_step_comm(struct trainer *trainer)
{
	return train_check(collet_comm_split(trainer->comm, 0, collet_comm_rank(trainer->comm), &trainer->step_comm),
		"splitting the communicator");
}

bool strategy_step_traffic(struct trainer *trainer, struct traffic *traffic)
{
	size_t count = 0;
	if (!train_check(collet_comm_stats(trainer->step_comm, NULL, 0, &count), "counting bytes"))
		return false;
	collet_stat *rows = calloc(count + 1, sizeof(*rows));
	bool fine = rows || train_fail("no memory for %zu statistics", count);
	size_t row_count = 0;
	fine = fine && train_check(collet_comm_stats(trainer->step_comm, rows, count, &row_count), "counting bytes");
	*traffic = (struct traffic){ 0 };
	for (size_t i = 0; fine && i < count && i < row_count; i++) {
		if (rows[i].kind != COLLET_STAT_TRANSPORT)
			continue;
		traffic->sent += rows[i].bytes_sent;
		traffic->received += rows[i].bytes_received;
	}
	free(rows);
	return fine;
}

int64_t strategy_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool strategy_communicate(struct trainer *trainer, int64_t *began_ns)
{
	const bool fine = trainer->backend->wait(trainer->network);
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	*began_ns = strategy_now_ns();
	return fine;
}

void strategy_arrived(struct trainer *trainer, int64_t began_ns)
{
	const struct transfer transfer = { began_ns, strategy_now_ns(), trainer->flat.count * sizeof(float) };
	timeline_end(trainer->timeline);
	timeline_transfers(trainer->timeline, &transfer, 1);
}

/* ---- Gradients ----------------------------------------------------------------------------------------------- */

/* Averages as COLLET_AVERAGE: the sum, then times 1/n. */
bool strategy_average(struct trainer *trainer, float *to, const float *from, uint64_t count, uint64_t stride,
	uint32_t operands)
{
	const struct backend *backend = trainer->backend;
	const double share = (double)(1 / (float)operands);
	const float *sum = from;
	bool fine = operands > 1 || strategy_copy(trainer, to, from, count);
	for (uint32_t o = 1; fine && o < operands; o++) {
		fine = backend->add(
			trainer->network, to, sum, from + o * stride, o + 1 < operands ? 1 : share, count);
		sum = to;
	}
	return fine;
}

bool strategy_copy(struct trainer *trainer, float *to, const float *from, uint64_t count)
{
	return trainer->backend->add(trainer->network, to, from, NULL, 1, count);
}

bool strategy_clip_to(struct trainer *trainer, double square_sum, float *gradients, uint64_t count)
{
	const double norm = sqrt(square_sum), most = (double)trainer->options->clip;
	return !isfinite(norm) || norm <= most ||
		trainer->backend->add(trainer->network, gradients, gradients, NULL, most / norm, count);
}

bool strategy_clip(struct trainer *trainer, float *gradients, uint64_t count)
{
	const struct array array = { gradients, count };
	double sum;
	return !(trainer->options->clip > 0) ||
		(trainer->backend->squares(trainer->network, &array, 1, &sum) &&
			strategy_clip_to(trainer, sum, gradients, count));
}

struct range strategy_part(const struct flat *flat, uint32_t part, uint32_t parts)
{
	const uint64_t lines = flat->count / 16;
	const uint64_t first = lines * part / parts, end = lines * (part + 1) / parts;
	return (struct range){ first * 16, (end - first) * 16 };
}
