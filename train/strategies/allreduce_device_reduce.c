#include <sched.h>

#include "error.h"
#include "strategies/allreduce_device.h"

/* Asks whether the library takes calls on a stream. Ranks may have different builds of it, so all must agree. */
bool device_reduce_init(struct device_allreduce *state)
{
	struct trainer *trainer = state->trainer;
	const collet_how how = { .stream = trainer->device->side };
	const struct bucket *bucket = &state->buckets[0];
	const collet_status status = collet_allreduce(trainer->step_comm, bucket->gradients, bucket->gradients, 1,
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

/* ---- One bucket --------------------------------------------------------------------------------------------- */

/* Averages a bucket. In 16 bits it is divided first: the sum of large f16 numbers would overflow. */
static bool average(struct device_allreduce *state, const struct bucket *bucket, collet_how how)
{
	struct trainer *trainer = state->trainer;
	void *moves = bucket->narrow ? bucket->narrow : bucket->gradients;
	how.algorithm = trainer->options->algorithm;
	if (bucket->narrow)
		how.scale = 1.0 / collet_comm_size(trainer->step_comm);
	return train_check(collet_allreduce(trainer->step_comm, moves, moves, bucket->count, state->dtype,
				   bucket->narrow ? COLLET_PREMUL_SUM : COLLET_AVERAGE, &how),
		"averaging gradients");
}

static uint64_t transfer_bytes(const struct device_allreduce *state, const struct bucket *bucket)
{
	return bucket->count * collet_dtype_bytes(state->dtype);
}

static bool start_request(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->started++];
	bucket->transfer = (struct transfer){ .began_ns = strategy_now_ns(), .bytes = transfer_bytes(state, bucket) };
	return average(state, bucket, (collet_how){ .request = &bucket->request });
}

static bool start_on_stream(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->started++];
	const struct cuda_device *device = state->trainer->device;
	return cuda_follow(device, device->side, bucket->complete) &&
		cuda_record(device, bucket->began, device->side) &&
		average(state, bucket, (collet_how){ .stream = device->side }) &&
		cuda_record(device, bucket->ended, device->side);
}

bool device_reduce_mark(struct device_allreduce *state, struct bucket *bucket)
{
	struct trainer *trainer = state->trainer;
	return (!bucket->narrow || cuda_network_narrow(trainer->network, state->dtype, bucket->narrow,
			bucket->gradients, bucket->count)) &&
		cuda_record(trainer->device, bucket->complete, trainer->device->compute) &&
		(!state->streams || trainer->options->no_overlap || start_on_stream(state));
}

/* ---- All of them -------------------------------------------------------------------------------------------- */

/* The first request under way, if it has ended. */
static bool poll_library(struct device_allreduce *state)
{
	struct bucket *bucket = &state->buckets[state->done];
	if (state->done == state->started)
		return true;
	const collet_status status = collet_request_test(&bucket->request);
	if (status == COLLET_PENDING)
		return true;
	bucket->transfer.ended_ns = strategy_now_ns();
	state->done++;
	return train_check(status, "averaging gradients");
}

static bool poll_requests(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	const struct gpu *gpu = &trainer->device->gpu.gpu;
	bool fine = true;
	while (fine && !trainer->options->no_overlap && state->started < state->bucket_count &&
		gpu->cuEventQuery(state->buckets[state->started].complete) == GPU_OK)
		fine = start_request(state);
	return fine && poll_library(state);
}

bool device_while_computing(struct device_allreduce *state, bool (*poll)(struct device_allreduce *state))
{
	const struct trainer *trainer = state->trainer;
	gpu_result computed = GPU_NOT_READY;
	bool fine = true;
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	while (fine && computed == GPU_NOT_READY) {
		computed = trainer->device->gpu.gpu.cuEventQuery(state->computed);
		fine = poll(state);
		sched_yield();
	}
	timeline_end(trainer->timeline);
	return fine && cuda_check(trainer->device, computed, "computing");
}

/* While the GPU computes, each bucket's request starts when its gradients are there. */
static bool reduce_by_requests(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	bool fine = device_while_computing(state, poll_requests);
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	while (fine && state->started < state->bucket_count)
		fine = start_request(state);
	for (; fine && state->done < state->started; state->done++) {
		struct bucket *bucket = &state->buckets[state->done];
		fine = train_check(collet_request_wait(&bucket->request), "averaging gradients");
		bucket->transfer.ended_ns = strategy_now_ns();
	}
	timeline_end(trainer->timeline);
	return fine;
}

/* Returns when the streams passed an event, on the host's clock, which read now_ns when they passed `computed`. */
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

static bool reduce_on_stream(struct device_allreduce *state)
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
		train_check(collet_comm_error(trainer->step_comm), "averaging gradients") &&
		cuda_follow(device, device->compute, state->buckets[state->bucket_count - 1].ended);
	timeline_end(trainer->timeline);
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		bucket->transfer.bytes = transfer_bytes(state, bucket);
		fine = when(state, bucket->began, now_ns, &bucket->transfer.began_ns) &&
			when(state, bucket->ended, now_ns, &bucket->transfer.ended_ns);
	}
	return fine;
}

static bool widen(struct device_allreduce *state)
{
	bool fine = true;
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		const struct bucket *bucket = &state->buckets[b];
		fine = !bucket->narrow || cuda_network_widen(state->trainer->network, state->dtype, bucket->gradients,
			bucket->narrow, bucket->count);
	}
	return fine;
}

bool device_reduce(struct device_allreduce *state)
{
	struct transfer transfers[MODEL_PARAMETERS];
	if (!(state->streams ? reduce_on_stream(state) : reduce_by_requests(state)) || !widen(state))
		return false;
	for (uint32_t b = 0; b < state->bucket_count; b++)
		transfers[b] = state->buckets[b].transfer;
	timeline_transfers(state->trainer->timeline, transfers, state->bucket_count);
	return true;
}
