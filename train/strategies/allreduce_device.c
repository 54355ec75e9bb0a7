/* Does the same as allreduce.c on GPUs. Gradients lie in buckets in GPU memory, laid out as by collet_ddp. So the same
 * algorithm adds them in the same order. A bucket is averaged as soon as the computing stream has passed its last
 * gradient, while backward goes on.
 *
 * If the library takes calls on a stream, buckets are reduced on a side stream, and the host waits only at the end
 * of a step. Otherwise the host polls for complete buckets, and starts a request for each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"
#include "error.h"
#include "strategies/allreduce_device.h"
#include "strategies/compute.h"
#include "strategies/shards.h"

/* The library's own first one, unless all are smaller. */
#define FIRST_BUCKET_BYTES (UINT64_C(1) << 20)

enum { BUCKET_ALIGNMENT = 512 };  /* bytes */

/* ---- Layout ------------------------------------------------------------------------------------------------- */

/* collet_ddp compares the model across ranks, broadcasts rank 0's values, and lays out buckets. Without a hook it
 * does nothing else here. */
static bool read_layout(struct trainer *trainer, struct device_allreduce *state, uint64_t *places, uint64_t *bytes)
{
	struct model *model = &trainer->model;
	const uint64_t bucket_bytes = trainer->options->bucket_bytes;
	collet_ddp_parameter parameters[MODEL_PARAMETERS];
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		parameters[p] = (collet_ddp_parameter){ .name = parameter->name, .value = parameter->value,
			.shape = parameter->shape, .dimensions = parameter->dimensions, .dtype = COLLET_F32 };
	}
	const collet_ddp_options options = { .keep_order = true, .bucket_bytes = bucket_bytes, .hook = state->hook,
		.algorithm = state->hook ? trainer->options->algorithm : NULL,
		.first_bucket_bytes = bucket_bytes < FIRST_BUCKET_BYTES ? bucket_bytes : FIRST_BUCKET_BYTES };
	if (!train_check(collet_ddp_create(&state->ddp, trainer->comm, parameters, model->parameter_count, &options),
		    "comparing the model across ranks"))
		return false;
	state->bucket_count = collet_ddp_bucket_count(state->ddp);
	*bytes = 0;
	bool fine = true;
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		collet_ddp_bucket bucket;
		fine = train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket");
		for (uint32_t s = 0; fine && s < bucket.slice_count; s++) {
			state->bucket_of[bucket.slices[s].parameter] = b;
			places[bucket.slices[s].parameter] = *bytes + bucket.slices[s].first * sizeof(float);
		}
		if (!fine)
			break;
		state->buckets[b].count = bucket.count;
		state->buckets[b].parameter_count = bucket.slice_count;
		state->buckets[b].gradients = (float *)(uintptr_t)*bytes;
		*bytes += (bucket.count * sizeof(float) + BUCKET_ALIGNMENT - 1) / BUCKET_ALIGNMENT * BUCKET_ALIGNMENT;
	}
	return (state->hook || train_check(collet_ddp_destroy(&state->ddp), "comparing the model across ranks")) &&
	       fine;
}

static bool lay_out(struct trainer *trainer, struct device_allreduce *state)
{
	uint64_t places[MODEL_PARAMETERS], bytes;
	const struct cuda_device *device = trainer->device;
	if (!read_layout(trainer, state, places, &bytes) || !cuda_allocate(device, &state->memory, bytes))
		return false;
	trainer->work->bytes += bytes;
	char *memory = state->memory;
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++)
		trainer->model.parameters[p].gradient = (float *)(void *)(memory + places[p]);
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		bucket->gradients = (float *)(void *)(memory + (uintptr_t)bucket->gradients);
		if (state->dtype != COLLET_F32 &&
			!cuda_allocate(device, &bucket->narrow, bucket->count * collet_dtype_bytes(state->dtype)))
			return false;
		if (!cuda_event(device, &bucket->complete, false) || !cuda_event(device, &bucket->began, true) ||
			!cuda_event(device, &bucket->ended, true))
			return false;
	}
	return cuda_event(device, &state->step_began, true) && cuda_event(device, &state->computed, true);
}

/* Chooses the hook as on the CPU (allreduce.c): the requested one, else that of the layers' precision. Plain 16 bits
 * need no hook here. */
static bool choose_method(const struct trainer *trainer, struct device_allreduce *state)
{
	const char *words = trainer->options->compress;
	const enum precision precision = trainer->options->precision;
	state->dtype = COLLET_F32;
	if (!words && (precision == PRECISION_F32 || collet_comm_size(trainer->comm) == 1))
		return true;
	if (words ? strcmp(words, "bf16") == 0 : precision == PRECISION_BF16)
		state->dtype = COLLET_BF16;
	else if (words ? strcmp(words, "f16") == 0 : precision == PRECISION_F16)
		state->dtype = COLLET_F16;
	else
		return train_check(
			collet_ddp_hook_create(&state->hook, words, trainer->options->seed), "--compress");
	return true;
}

static bool create_shards(struct trainer *trainer, struct device_allreduce *state)
{
	struct array gradients[MODEL_PARAMETERS];
	for (uint32_t b = 0; b < state->bucket_count; b++)
		gradients[b] = (struct array){ state->buckets[b].gradients, state->buckets[b].count };
	state->shards = shards_create(trainer, gradients, state->bucket_count);
	return state->shards != NULL;
}

static bool device_create(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state = calloc(1, sizeof(*state));
	if (!state)
		return train_fail("no memory");
	state->trainer = trainer;
	return choose_method(trainer, state) && lay_out(trainer, state) &&
	       (state->hook ? device_hook_init(state)
			    : strategy_create_step_comm(trainer) && device_reduce_init(state)) &&
	       strategy_state(trainer, 0, trainer->flat.count) &&
	       (trainer->share_count == 1 || create_shards(trainer, state));
}

static void device_destroy(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state;
	if (!state)
		return;
	shards_destroy(state->shards);
	device_hook_deinit(state);
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		cuda_free(trainer->device, state->buckets[b].narrow);
		cuda_event_free(trainer->device, state->buckets[b].complete);
		cuda_event_free(trainer->device, state->buckets[b].began);
		cuda_event_free(trainer->device, state->buckets[b].ended);
	}
	cuda_event_free(trainer->device, state->step_began);
	cuda_event_free(trainer->device, state->computed);
	cuda_free(trainer->device, state->memory);
	free(state);
	trainer->strategy_state = NULL;
}

/* ---- Steps -------------------------------------------------------------------------------------------------- */

static bool load(struct device_allreduce *state)
{
	struct trainer *trainer = state->trainer;
	struct batch batch;
	state->staged = compute_load(trainer, &batch) && cuda_network_stage(trainer->network, &batch);
	return state->staged;
}

/* Runs once backward of this parameter is enqueued; in the same order on every rank, as the model is the same. */
static bool mark_ready(void *context, uint32_t parameter)
{
	struct device_allreduce *state = context;
	struct bucket *bucket = &state->buckets[state->bucket_of[parameter]];
	if (--bucket->missing > 0)
		return true;
	if (bucket != &state->buckets[state->complete])
		return train_fail("gradients became complete in another order than that of their buckets");
	state->complete++;
	return state->hook ? device_hook_mark(state, bucket) : device_reduce_mark(state, bucket);
}

/* Forward and backward are under way; and the next batch, if there is one in this epoch. */
static bool compute_ahead(struct device_allreduce *state)
{
	struct trainer *trainer = state->trainer;
	if (!state->staged && !load(state))
		return false;
	timeline_begin(trainer->timeline, PHASE_FORWARD);
	bool fine = cuda_network_forward(trainer->network, true);
	timeline_end(trainer->timeline);
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	fine = fine && cuda_network_backward(trainer->network, trainer->scaling.factor, mark_ready, state) &&
		cuda_record(trainer->device, state->computed, trainer->device->compute) &&
		cuda_network_staged(trainer->network);
	timeline_end(trainer->timeline);
	state->staged = false;
	return fine && (trainer->epoch_step + 1 >= order_steps(trainer) || load(state));
}

/* A step of several batches, or shards, waits for the loss of each; the last backward is under way. */
static bool compute_parts(struct device_allreduce *state, uint32_t images, struct outcome *outcome)
{
	struct trainer *trainer = state->trainer;
	const bool fine = state->shards ? shards_compute(state->shards, images, mark_ready, state, outcome) :
		compute_step(trainer, 0, images, mark_ready, state, outcome);
	return fine && cuda_record(trainer->device, state->computed, trainer->device->compute);
}

static bool compute(struct device_allreduce *state, uint32_t images, struct outcome *outcome)
{
	struct trainer *trainer = state->trainer;
	for (uint32_t b = 0; b < state->bucket_count; b++)
		state->buckets[b].missing = state->buckets[b].parameter_count;
	state->complete = state->started = state->done = 0;
	if (!cuda_record(trainer->device, state->step_began, trainer->device->compute))
		return false;
	return state->shards || trainer->options->accumulate > 1 ? compute_parts(state, images, outcome) :
		compute_ahead(state);
}

/* Clips as collet_ddp_clip(), parameter by parameter. */
static bool clip(struct trainer *trainer, const struct device_allreduce *state)
{
	struct array gradients[MODEL_PARAMETERS];
	double squares;
	if (!(trainer->options->clip > 0))
		return true;
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++)
		gradients[p] =
			(struct array){ trainer->model.parameters[p].gradient, trainer->model.parameters[p].count };
	bool fine = trainer->backend->squares(trainer->network, gradients, trainer->model.parameter_count, &squares);
	for (uint32_t b = 0; fine && b < state->bucket_count; b++)
		fine = strategy_clip_to(trainer, squares, state->buckets[b].gradients, state->buckets[b].count);
	return fine;
}

static bool device_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct device_allreduce *state = trainer->strategy_state;
	const bool ahead = !state->shards && trainer->options->accumulate == 1;
	bool take;
	if (!compute(state, images, outcome) || !(state->hook ? device_hook_reduce(state) : device_reduce(state)) ||
		(ahead && !cuda_network_outcome(trainer->network, outcome)))
		return false;
	if (ahead)
		trainer->loss_sums[0] += outcome->loss;
	return scaling_unscale(trainer, &take) &&
		(!take || (clip(trainer, state) && strategy_update(trainer)));
}

static bool device_begin_epoch(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state;
	state->staged = false;
	return true;
}

static bool device_traffic(struct trainer *trainer, struct traffic *traffic)
{
	const struct device_allreduce *state = trainer->strategy_state;
	collet_ddp_traffic moved;
	if (!state->ddp)
		return strategy_step_traffic(trainer, traffic);
	if (!train_check(collet_ddp_traffic_get(state->ddp, &moved), "counting bytes"))
		return false;
	*traffic = (struct traffic){ moved.bytes_sent, moved.bytes_received };
	return true;
}

/* A hook's state is in host memory; a run on the CPU saves the same. */
static bool device_saved_bytes(struct trainer *trainer, uint64_t *bytes)
{
	const struct device_allreduce *state = trainer->strategy_state;
	*bytes = 0;
	return !state->hook || train_check(collet_ddp_state_bytes(state->ddp, bytes), "a checkpoint");
}

static bool device_save(struct trainer *trainer, void *saved, uint64_t bytes)
{
	const struct device_allreduce *state = trainer->strategy_state;
	return train_check(collet_ddp_state_save(state->ddp, saved, bytes), "a checkpoint");
}

static bool device_load(struct trainer *trainer, const void *saved, uint64_t bytes)
{
	const struct device_allreduce *state = trainer->strategy_state;
	return train_check(collet_ddp_state_load(state->ddp, saved, bytes), "--resume");
}

const struct strategy strategy_allreduce_device = {
	.name = "allreduce",
	.sentence = "gradients are averaged by all-reduce between GPUs, in buckets, while backward goes on",
	.supports = SUPPORTS_COMPRESS | SUPPORTS_ALGORITHM | SUPPORTS_CLIP | SUPPORTS_ACCUMULATE | SUPPORTS_SHARDS |
		SUPPORTS_BUCKETS | SUPPORTS_SYNC_NORM,
	.state = STATE_ALIKE,
	.create = device_create,
	.step = device_step,
	.begin_epoch = device_begin_epoch,
	.destroy = device_destroy,
	.traffic = device_traffic,
	.saved_bytes = device_saved_bytes,
	.save = device_save,
	.load = device_load,
};
