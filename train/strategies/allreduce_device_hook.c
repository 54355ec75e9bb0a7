/* Runs hooks of collet_ddp, which work on the host. The side stream copies a bucket to page-locked memory while
 * backward goes on. The hook reduces it, and it is copied back. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "strategies/allreduce_device.h"

enum { PAGE_BYTES = 4096 };

static uint64_t bucket_bytes(const struct bucket *bucket)
{
	return bucket->count * sizeof(float);
}

bool device_hook_init(struct device_allreduce *state)
{
	const struct gpu *gpu = &state->trainer->device->gpu.gpu;
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		const size_t bytes = (bucket_bytes(bucket) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
		bucket->host = aligned_alloc(PAGE_BYTES, bytes ? bytes : PAGE_BYTES);
		if (!bucket->host)
			return train_fail("no memory for a bucket of %zu bytes", bytes);
		/* Without page-locking, copies block the host. */
		bucket->locked = bytes > 0 && gpu->cuMemHostRegister(bucket->host, bytes, 0) == GPU_OK;
	}
	return true;
}

void device_hook_deinit(struct device_allreduce *state)
{
	const struct cuda_device *device = state->trainer->device;
	if (state->hook)
		(void)device->gpu.gpu.cuStreamSynchronize(device->side);
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		struct bucket *bucket = &state->buckets[b];
		if (bucket->locked)
			(void)device->gpu.gpu.cuMemHostUnregister(bucket->host);
		free(bucket->host);
	}
	if (state->ddp)
		collet_ddp_destroy(&state->ddp);
	if (state->hook)
		collet_ddp_hook_destroy(&state->hook);
}

bool device_hook_mark(struct device_allreduce *state, struct bucket *bucket)
{
	const struct cuda_device *d = state->trainer->device;
	return cuda_record(d, bucket->complete, d->compute) && cuda_follow(d, d->side, bucket->complete) &&
		cuda_check(d, d->gpu.gpu.cuMemcpyAsync((uintptr_t)bucket->host, (uintptr_t)bucket->gradients,
			bucket_bytes(bucket), d->side), "fetching gradients") &&
		cuda_record(d, bucket->ended, d->side);
}

/* The next bucket has come. */
static bool hand_over(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	const uint32_t b = state->started++;
	collet_ddp_bucket bucket;
	if (!train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket"))
		return false;
	memcpy(bucket.gradients, state->buckets[b].host, bucket_bytes(&state->buckets[b]));
	bool fine = true;
	for (uint32_t p = trainer->model.parameter_count; fine && p-- > 0;)
		if (state->bucket_of[p] == b)
			fine = train_check(collet_ddp_ready(state->ddp, p), "averaging gradients");
	return fine;
}

static bool poll_copies(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	bool fine = true;
	while (fine && !trainer->options->no_overlap && state->started < state->bucket_count &&
		trainer->device->gpu.gpu.cuEventQuery(state->buckets[state->started].ended) == GPU_OK)
		fine = hand_over(state);
	return fine;
}

static bool copy_back(const struct device_allreduce *state)
{
	const struct cuda_device *d = state->trainer->device;
	bool fine = true;
	for (uint32_t b = 0; fine && b < state->bucket_count; b++) {
		const struct bucket *mine = &state->buckets[b];
		collet_ddp_bucket bucket;
		fine = train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket");
		if (!fine)
			break;
		memcpy(mine->host, bucket.gradients, bucket_bytes(mine));
		fine = cuda_check(d, d->gpu.gpu.cuMemcpyAsync((uintptr_t)mine->gradients, (uintptr_t)mine->host,
			bucket_bytes(mine), d->compute), "bringing gradients back");
	}
	return fine;
}

static bool report_transfers(const struct device_allreduce *state)
{
	struct transfer transfers[MODEL_PARAMETERS];
	for (uint32_t b = 0; b < state->bucket_count; b++) {
		collet_ddp_interval transfer;
		if (!train_check(collet_ddp_last_travel(state->ddp, b, &transfer), "a bucket's times"))
			return false;
		transfers[b] =
			(struct transfer){ transfer.began_ns, transfer.ended_ns, bucket_bytes(&state->buckets[b]) };
	}
	timeline_transfers(state->trainer->timeline, transfers, state->bucket_count);
	return true;
}

bool device_hook_reduce(struct device_allreduce *state)
{
	const struct trainer *trainer = state->trainer;
	bool fine = device_while_computing(state, poll_copies);
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	while (fine && state->started < state->bucket_count)
		fine = cuda_await(trainer->device, state->buckets[state->started].ended) && hand_over(state);
	fine = fine && train_check(collet_ddp_wait(state->ddp), "averaging gradients") && copy_back(state);
	timeline_end(trainer->timeline);
	return fine && report_transfers(state);
}
