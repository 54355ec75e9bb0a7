/* What allreduce.c does, on GPUs: gradients lie in buckets in the GPU's memory, in the places that collet_ddp has for
 * them, so that the same algorithm adds them up in the same order; a bucket is averaged as soon as the computing stream
 * has come past its last gradient, while backward goes on.
 *
 * Where the library takes calls on a stream, buckets go on one beside the computing one, and the host waits at the end
 * of a step only. Else the host watches for buckets that are complete, and starts a request for each. */
#include <sched.h>
#include <stdlib.h>

#include <collet/ddp.h>

#include "cuda/network.h"
#include "data/order.h"
#include "error.h"
#include "strategies/compute.h"
#include "strategies/strategy.h"

/* The library's own first one, unless all are smaller. */
#define FIRST_BUCKET_BYTES (UINT64_C(1) << 20)

enum { BUCKET_ALIGNMENT = 512 };  /* bytes */

struct bucket {
	float *gradients;          /* of the GPU */
	uint64_t count;
	uint32_t parameter_count, missing;
	gpu_event complete;        /* on the computing stream */
	gpu_event began, ended;    /* on the side stream, timed */
	collet_request *request;
	struct travel travel;
};

struct device_allreduce {
	struct trainer *trainer;
	void *memory;              /* of all buckets */
	uint32_t bucket_count, complete, started, done;  /* in this step, as many of the first ones */
	struct bucket buckets[MODEL_PARAMETERS];
	uint32_t bucket_of[MODEL_PARAMETERS];
	bool streams;              /* the library takes calls on a stream */
	bool staged;               /* the next batch is on its way to the GPU */
	gpu_event step_began, computed;  /* timed */
};

/* ---- Layout ------------------------------------------------------------------------------------------------- */

/* collet_ddp compares the model across ranks, shares rank 0's values, and lays out buckets; no more is wanted of it. */
static bool read_layout(struct trainer *trainer, struct device_allreduce *state, uint64_t *places, uint64_t *bytes)
{
	struct model *model = &trainer->model;
	const uint64_t bucket_bytes = trainer->options->bucket_bytes;
	collet_ddp_parameter parameters[MODEL_PARAMETERS];
	collet_ddp *ddp = NULL;
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		parameters[p] = (collet_ddp_parameter){ .name = parameter->name, .value = parameter->value,
			.shape = parameter->shape, .dimensions = parameter->dimensions, .dtype = COLLET_F32 };
	}
	const collet_ddp_options options = { .keep_order = true, .bucket_bytes = bucket_bytes,
		.first_bucket_bytes = bucket_bytes < FIRST_BUCKET_BYTES ? bucket_bytes : FIRST_BUCKET_BYTES };
	if (!train_check(collet_ddp_create(&ddp, trainer->comm, parameters, model->parameter_count, &options),
		    "comparing the model across ranks"))
		return false;
	state->bucket_count = collet_ddp_bucket_count(ddp);
	*bytes = 0;
	bool fine = true;
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		collet_ddp_bucket bucket;
		fine = train_check(collet_ddp_bucket_get(ddp, b, &bucket), "a bucket");
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
	return train_check(collet_ddp_destroy(&ddp), "comparing the model across ranks") && fine;
}

static bool lay_out(struct trainer *trainer, struct device_allreduce *state)
{
	uint64_t places[MODEL_PARAMETERS], bytes;
	const struct cuda_device *device = trainer->device;
	if (!read_layout(trainer, state, places, &bytes) || !cuda_allocate(device, &state->memory, bytes))
		return false;
	trainer->flat.bytes += bytes;
	char *memory = state->memory;
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++)
		trainer->model.parameters[p].gradient = (float *)(void *)(memory + places[p]);
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		bucket->gradients = (float *)(void *)(memory + (uintptr_t)bucket->gradients);
		if (!cuda_event(device, &bucket->complete, false) || !cuda_event(device, &bucket->began, true) ||
			!cuda_event(device, &bucket->ended, true))
			return false;
	}
	return cuda_event(device, &state->step_began, true) && cuda_event(device, &state->computed, true);
}

/* Whether the library takes such calls is the same on every rank: that of a build is not, and is asked. */
static bool ask_for_streams(struct trainer *trainer, struct device_allreduce *state)
{
	const collet_how how = { .stream = trainer->device->side };
	const struct bucket *bucket = &state->buckets[0];
	const collet_status status = collet_allreduce(trainer->lane, bucket->gradients, bucket->gradients, 1,
		COLLET_F32, COLLET_SUM, &how);
	uint32_t mine = status == COLLET_OK, all = 0;
	if (status != COLLET_OK && status != COLLET_ERR_UNSUPPORTED)
		return train_check(status, "a call on a stream");
	if (!cuda_check(trainer->device, trainer->device->gpu.gpu.cuStreamSynchronize(trainer->device->side),
		    "a call on a stream") ||
		!train_check(collet_allreduce(trainer->comm, &mine, &all, 1, COLLET_U32, COLLET_MIN, NULL),
			"agreeing on how gradients travel"))
		return false;
	state->streams = all != 0;
	return true;
}

static bool device_create(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state = calloc(1, sizeof(*state));
	if (!state)
		return train_fail("no memory");
	state->trainer = trainer;
	return lay_out(trainer, state) && strategy_open_lane(trainer) && ask_for_streams(trainer, state) &&
		flat_state(&trainer->flat, &trainer->model, trainer->backend, trainer->options->optimiser, 0,
			trainer->flat.count);
}

static void device_destroy(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state;
	if (!state)
		return;
	for (uint32_t b = 0; b < state->bucket_count; b++) {
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

/* ---- Travelling --------------------------------------------------------------------------------------------- */

static bool start_request(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->started++];
	const collet_how how = { .request = &bucket->request, .algorithm = state->trainer->options->algorithm };
	bucket->travel = (struct travel){ .began_ns = strategy_now_ns(), .bytes = bucket->count * sizeof(float) };
	return train_check(collet_allreduce(state->trainer->lane, bucket->gradients, bucket->gradients, bucket->count,
		COLLET_F32, COLLET_AVERAGE, &how), "averaging gradients");
}

static bool start_on_stream(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->started++];
	const struct cuda_device *device = state->trainer->device;
	const collet_how how = { .stream = device->side, .algorithm = state->trainer->options->algorithm };
	return cuda_follow(device, device->side, bucket->complete) &&
	       cuda_record(device, bucket->began, device->side) &&
	       train_check(collet_allreduce(state->trainer->lane, bucket->gradients, bucket->gradients, bucket->count,
				   COLLET_F32, COLLET_AVERAGE, &how),
		       "averaging gradients") &&
	       cuda_record(device, bucket->ended, device->side);
}

/* Backward has been told to compute this one; the same order on every rank, as the model is the same. */
static bool mark_ready(void *context, uint32_t parameter)
{
	struct device_allreduce *state = context;
	const struct trainer *trainer = state->trainer;
	struct bucket *bucket = &state->buckets[state->bucket_of[parameter]];
	if (--bucket->missing > 0)
		return true;
	if (bucket != &state->buckets[state->complete])
		return train_fail("gradients became complete in another order than that of their buckets");
	state->complete++;
	return cuda_record(trainer->device, bucket->complete, trainer->device->compute) &&
		(!state->streams || trainer->options->no_overlap || start_on_stream(state));
}

/* The first request under way, if it has ended. */
static bool look_after_requests(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->done];
	if (state->done == state->started)
		return true;
	const collet_status status = collet_request_test(&bucket->request);
	if (status == COLLET_PENDING)
		return true;
	bucket->travel.ended_ns = strategy_now_ns();
	state->done++;
	return train_check(status, "averaging gradients");
}

/* While the GPU computes: each bucket's request starts when its gradients are there. */
static bool travel_by_requests(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	const struct gpu *gpu = &trainer->device->gpu.gpu;
	gpu_result computed = GPU_NOT_READY;
	bool fine = true;
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	while (fine && computed == GPU_NOT_READY) {
		computed = gpu->cuEventQuery(state->computed);
		while (fine && !trainer->options->no_overlap && state->started < state->bucket_count &&
			gpu->cuEventQuery(state->buckets[state->started].complete) == GPU_OK)
			fine = start_request(state);
		fine = fine && look_after_requests(state);
		sched_yield();
	}
	timeline_end(trainer->timeline);
	fine = fine && cuda_check(trainer->device, computed, "computing");
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	while (fine && state->started < state->bucket_count)
		fine = start_request(state);
	for (; fine && state->done < state->started; state->done++) {
		struct bucket *bucket = &state->buckets[state->done];
		fine = train_check(collet_request_wait(&bucket->request), "averaging gradients");
		bucket->travel.ended_ns = strategy_now_ns();
	}
	timeline_end(trainer->timeline);
	return fine;
}

/* When the streams came past an event, on the host's clock, which read now_ns when they came past `computed`. */
static bool when(const struct device_allreduce *state, gpu_event event, int64_t now_ns, int64_t *ns)
{
	const struct cuda_device *device = state->trainer->device;
	float computed_ms = 0, event_ms = 0;
	if (!cuda_check(device, device->gpu.gpu.cuEventElapsedTime(&computed_ms, state->step_began, state->computed),
		    "reading times") ||
		!cuda_check(device, device->gpu.gpu.cuEventElapsedTime(&event_ms, state->step_began, event),
			"reading times"))
		return false;
	*ns = now_ns + (int64_t)(((double)event_ms - (double)computed_ms) * 1e6);
	return true;
}

static bool travel_on_stream(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	const struct cuda_device *device = trainer->device;
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	bool fine = cuda_await(device, state->computed);
	const int64_t now_ns = strategy_now_ns();
	timeline_end(trainer->timeline);
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	while (fine && state->started < state->bucket_count)
		fine = start_on_stream(state);
	fine = fine && cuda_await(device, state->buckets[state->bucket_count - 1].ended) &&
		train_check(collet_comm_error(trainer->lane), "averaging gradients") &&
		cuda_follow(device, device->compute, state->buckets[state->bucket_count - 1].ended);
	timeline_end(trainer->timeline);
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		bucket->travel.bytes = bucket->count * sizeof(float);
		fine = when(state, bucket->began, now_ns, &bucket->travel.began_ns) &&
			when(state, bucket->ended, now_ns, &bucket->travel.ended_ns);
	}
	return fine;
}

static bool travel(struct device_allreduce *state)
{
	struct travel travels[MODEL_PARAMETERS];
	if (!(state->streams ? travel_on_stream(state) : travel_by_requests(state)))
		return false;
	for (uint32_t b = 0; b < state->bucket_count; b++)
		travels[b] = state->buckets[b].travel;
	timeline_travels(state->trainer->timeline, travels, state->bucket_count);
	return true;
}

/* ---- Steps -------------------------------------------------------------------------------------------------- */

static bool load(struct device_allreduce *state)
{
	struct trainer *trainer = state->trainer;
	struct batch batch;
	state->staged = compute_load(trainer, &batch) && cuda_network_stage(trainer->network, &batch);
	return state->staged;
}

/* Forward and backward are under way; and the next batch, if there is one in this epoch. */
static bool compute(struct device_allreduce *state)
{
	struct trainer *trainer = state->trainer;
	const struct cuda_device *device = trainer->device;
	if (!state->staged && !load(state))
		return false;
	for (uint32_t b = 0; b < state->bucket_count; b++)
		state->buckets[b].missing = state->buckets[b].parameter_count;
	state->complete = state->started = state->done = 0;
	timeline_begin(trainer->timeline, PHASE_FORWARD);
	bool fine = cuda_record(device, state->step_began, device->compute) &&
		cuda_network_forward(trainer->network, true);
	timeline_end(trainer->timeline);
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	fine = fine && cuda_network_backward(trainer->network, trainer->scaling.factor, mark_ready, state) &&
		cuda_record(device, state->computed, device->compute) && cuda_network_staged(trainer->network);
	timeline_end(trainer->timeline);
	state->staged = false;
	return fine && (trainer->epoch_step + 1 >= order_steps(trainer) || load(state));
}

static bool descend(struct trainer *trainer)
{
	const struct descent descent = strategy_descent(trainer);
	timeline_begin(trainer->timeline, PHASE_OPTIMISE);
	const bool fine = cuda_network_descend(trainer->network, &descent);
	timeline_end(trainer->timeline);
	return fine;
}

static bool device_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct device_allreduce *state = trainer->strategy_state;
	bool take = true, finite = true;
	if (!compute(state) || !travel(state) || !cuda_network_outcome(trainer->network, outcome))
		return false;
	trainer->loss_sums[0] += outcome->loss;
	if (trainer->scaling.dynamic &&
		(!cuda_network_unscale(trainer->network, 1 / trainer->scaling.factor, &finite) ||
			!scaling_agree(trainer, finite, &take)))
		return false;
	return !take || descend(trainer);
}

static bool device_begin_epoch(struct trainer *trainer)
{
	struct device_allreduce *state = trainer->strategy_state;
	state->staged = false;
	return true;
}

static bool device_end_epoch(struct trainer *trainer)
{
	return trainer->backend->fetch(trainer->network);
}

const struct strategy strategy_allreduce_device = {
	.name = "allreduce",
	.sentence = "gradients are averaged by all-reduce between GPUs, in buckets, while backward goes on",
	.takes = TAKES_ALGORITHM | TAKES_BUCKETS,
	.state = STATE_ALIKE,
	.create = device_create,
	.step = device_step,
	.begin_epoch = device_begin_epoch,
	.end_epoch = device_end_epoch,
	.destroy = device_destroy,
	.traffic = strategy_lane_traffic,
};
