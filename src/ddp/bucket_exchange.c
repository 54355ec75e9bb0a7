/* Moves a bucket through the stages of its hook. */
#include <stdio.h>

#include "core/clock.h"
#include "core/status.h"
#include "ddp/internal.h"

/* ---- The default hook: all-reduce in place ------------------------------------------------------------------ */

static collet_status average_start(
	void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request;
	how.algorithm = args->algorithm;
	return collet_allreduce(args->comms[stage], args->bucket.gradients, args->bucket.gradients, args->bucket.count,
		args->bucket.dtype, COLLET_AVERAGE, &how);
}

const collet_ddp_hook collet_ddp_hook_average = { .name = "average", .stages = 1, .start = average_start };

/* ---- Progress ----------------------------------------------------------------------------------------------- */

collet_status collet_ddp_open_bucket(const collet_ddp *ddp, struct bucket *bucket)
{
	if (bucket->is_open)
		return COLLET_OK;
	const collet_status status =
		ddp->hook->open ? ddp->hook->open(ddp->hook, &bucket->hook_args, &bucket->state) : COLLET_OK;
	bucket->is_open = status == COLLET_OK;
	return status;
}

static collet_status finish_bucket(const collet_ddp *ddp, struct bucket *bucket)
{
	bucket->is_done = true;
	const collet_status status = ddp->hook->finish && bucket->bytes > 0
					     ? ddp->hook->finish(bucket->state, &bucket->hook_args)
					     : COLLET_OK;
	bucket->interval.ended_ns = collet_clock_ns();
	return status;
}

/* Starts a stage. A bucket without elements sends nothing in any stage. */
static collet_status start_stage(collet_ddp *ddp, struct bucket *bucket)
{
	const uint32_t stage = bucket->next_stage++;
	ddp->stage_next_bucket[stage]++;
	if (bucket->bytes == 0)
		return COLLET_OK;
	return ddp->hook->start(bucket->state, &bucket->hook_args, stage, &bucket->request);
}

/* Advances a bucket without blocking. A stage starts when the previous stage has ended here and the previous bucket has
 * started that stage. So every communicator sees the buckets in their order. */
static collet_status progress_bucket(collet_ddp *ddp, uint32_t b)
{
	struct bucket *bucket = &ddp->buckets[b];
	while (!bucket->is_done) {
		collet_status status = bucket->request ? collet_request_test(&bucket->request) : COLLET_OK;
		if (status == COLLET_PENDING)
			return COLLET_OK;
		if (status == COLLET_OK && bucket->next_stage == ddp->hook->stages)
			status = finish_bucket(ddp, bucket);
		else if (status == COLLET_OK && ddp->stage_next_bucket[bucket->next_stage] != b)
			return COLLET_OK;
		else if (status == COLLET_OK)
			status = start_stage(ddp, bucket);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

static collet_status begin_bucket(collet_ddp *ddp, struct bucket *bucket)
{
	bucket->hook_args.step = ddp->step;
	bucket->interval.began_ns = collet_clock_ns();
	return bucket->bytes > 0 ? collet_ddp_open_bucket(ddp, bucket) : COLLET_OK;
}

static collet_status progress(collet_ddp *ddp)
{
	while (ddp->started_count < ddp->bucket_count && ddp->buckets[ddp->started_count].unready_count == 0) {
		const collet_status status = begin_bucket(ddp, &ddp->buckets[ddp->started_count]);
		if (status != COLLET_OK)
			return status;
		ddp->started_count++;
	}
	for (uint32_t b = 0; b < ddp->started_count; b++) {
		const collet_status status = progress_bucket(ddp, b);
		if (status != COLLET_OK)
			return status;
	}
	return COLLET_OK;
}

collet_status collet_ddp_progress(collet_ddp *ddp)
{
	if (ddp->failed)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_ddp: an earlier call failed; only destroy is left");
	const collet_status status = progress(ddp);
	ddp->failed = status != COLLET_OK;
	return status;
}

/* Blocks until one of the requests in progress has ended. The first bucket that is not done always has one. */
static collet_status wait_for_one(collet_ddp *ddp)
{
	size_t index;
	for (uint32_t b = 0; b < ddp->bucket_count; b++)
		ddp->wait_requests[b] = ddp->buckets[b].request;
	const collet_status status = collet_request_wait_any(ddp->wait_requests, ddp->bucket_count, &index);
	if (index < ddp->bucket_count)
		ddp->buckets[index].request = ddp->wait_requests[index];
	return status;
}

static bool all_done(const collet_ddp *ddp)
{
	for (uint32_t b = 0; b < ddp->bucket_count; b++)
		if (!ddp->buckets[b].is_done)
			return false;
	return true;
}

collet_status collet_ddp_progress_all(collet_ddp *ddp)
{
	collet_status status = collet_ddp_progress(ddp);
	while (status == COLLET_OK && !all_done(ddp)) {
		status = wait_for_one(ddp);
		if (status == COLLET_OK)
			status = collet_ddp_progress(ddp);
	}
	if (status == COLLET_OK)
		return COLLET_OK;
	ddp->failed = true;
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	(void)collet_ddp_drain(ddp);
	return collet_fail_copy(status, error_text);
}

collet_status collet_ddp_drain(collet_ddp *ddp)
{
	collet_status first = COLLET_OK;
	collet_request **others[] = { &ddp->active_request, &ddp->used_request };
	for (uint32_t b = 0; b < ddp->bucket_count; b++) {
		const collet_status status =
			ddp->buckets[b].request ? collet_request_wait(&ddp->buckets[b].request) : COLLET_OK;
		if (first == COLLET_OK)
			first = status;
	}
	for (size_t i = 0; i < 2; i++) {
		const collet_status status = *others[i] ? collet_request_wait(others[i]) : COLLET_OK;
		if (first == COLLET_OK)
			first = status;
	}
	return first;
}
