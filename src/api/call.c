/* From a planned call to a running request, and how that ends. */
#include <string.h>

#include "api/call.h"
#include "core/cpu.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/call_class.h"
#include "engine/lock.h"
#include "engine/pipeline.h"

int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how)
{
	return how->timeout_ns ? how->timeout_ns : comm->state.timeout_ns;
}

static bool has_ended(void *context)
{
	const struct collet_request *request = context;
	return request->status != COLLET_PENDING;
}

collet_status collet_call_failure(const struct collet_request *request)
{
	const struct collet_comm_state *state = request->state;
	const enum collet_status status = request->status;
	char call[160];
	if (status == COLLET_ERR_TRUNCATED)
		return collet_fail(status, "collet_recv: the message is longer than the buffer, and was dropped");
	collet_request_describe(request, call, sizeof(call));
	/* What ended the communicator may have been somebody else's doing: then say which call it ended here. */
	return strstr(state->sentence, call) ? collet_fail_copy(status, state->sentence) :
                                               collet_fail(status, "%s: %s", call, state->sentence);
}

/* Under lock. */
static collet_status complete(struct collet_request *request)
{
	const collet_status status = collet_call_outcome(request);
	collet_request_release(request);
	return status;
}

collet_status collet_call_complete_and_unlock(struct collet_request **request)
{
	struct collet_request *ended = *request;
	struct collet_engine *engine = ended->state->engine;
	struct collet_gpu_staging *staging = ended->staging;
	ended->staging = NULL;
	*request = NULL;
	if (staging)
		collet_gpu_staging_stop(staging);
	const collet_status status = complete(ended);
	collet_engine_unlock(engine);
	return collet_gpu_staging_end(staging, status);
}

collet_status collet_call_complete(struct collet_request **request)
{
	collet_engine_lock((*request)->state->engine);
	return collet_call_complete_and_unlock(request);
}

collet_status collet_call_attach_staging(
	struct collet_gpu_staging *staging, collet_status status, const collet_how *how)
{
	if (!staging || status != COLLET_OK || !how || !how->request)
		return collet_gpu_staging_end(staging, status);
	(*how->request)->staging = staging;
	return COLLET_OK;
}

/* Of a call on the spot, before it is waited for in earnest: looks at its own messages alone, and so at once. How
 * often that was in vain, until a step was done. Under lock. */
static uint32_t poll_briefly(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	uint32_t polls = collet_engine_spin_budget(engine);
	uint32_t empty_polls = 0;
	const uint32_t at = request->fast_path.step_index;
	while (request->status == COLLET_PENDING) {
		const uint32_t cost = collet_fast_path_poll_cost(request);
		if (!cost || cost > polls)
			break;
		polls -= cost;
		engine->wake.empty_polls++;
		collet_cpu_relax();
		collet_fast_path_progress(request);
		empty_polls += request->fast_path.step_index == at;
	}
	return empty_polls;
}

/* The first looks of whoever waits for a call on the spot, whose first messages have gone. Whoever looks for the answer
 * too early takes its line away from the core that is about to fill it, whose store then waits until the line is back:
 * where cores are far apart that is as long again as the message takes. So a rank lingers before it looks, for so many
 * multiplications: more of them whenever that was too early, but not because its peer was late, and one less whenever
 * it was not. Under lock. */
static void poll_with_backoff(struct collet_request *request)
{
	enum { BACKOFF_MAX = 96, BACKOFF_STEP = 12, EMPTY_FEW = 1, EMPTY_MANY = 9, BACKOFF_BYTES = 1024 };
	uint32_t *backoff = &request->fast_path.poll_backoff;
	const uint32_t at = request->fast_path.step_index;
	if (*backoff)
		collet_cpu_backoff(*backoff);
	collet_fast_path_progress(request);
	const bool at_once = request->fast_path.step_index != at;
	const uint32_t empty_polls = poll_briefly(request);
	const bool too_early = !at_once && empty_polls > EMPTY_FEW && empty_polls <= EMPTY_MANY;
	if (too_early && at > 0 && *backoff + BACKOFF_STEP <= BACKOFF_MAX && request->counted_bytes <= BACKOFF_BYTES)
		*backoff += BACKOFF_STEP;
	else if (!too_early && *backoff)
		*backoff -= 1;
}

collet_status collet_call_wait(struct collet_request **request)
{
	struct collet_request *awaited = *request;
	const struct collet_comm_state *state = awaited->state;
	collet_engine_lock(state->engine);
	if (state->fast_path_request == awaited)
		poll_with_backoff(awaited);
	if (awaited->status == COLLET_PENDING)
		collet_engine_wait_locked(state->engine, has_ended, awaited);
	return collet_call_complete_and_unlock(request);
}

collet_status collet_call_poll(struct collet_request **request)
{
	if (!collet_engine_poll((*request)->state->engine, has_ended, *request))
		return COLLET_PENDING;
	return collet_call_complete(request);
}

static void record_start(struct collet_request *request, uint64_t ticks)
{
	request->started_ticks = ticks;
	request->started_ns = request->next_query_ns = 0;
	request->warning_stage = 0;
	collet_recorder_start(request->out_of_band_recorder ? request->out_of_band_recorder : &request->state->recorder,
		&request->call, request->call_signature, request->signature, request->started_ticks);
	collet_request_activate(request);
}

/* Its first messages go before anything else is done, which is done while they travel. */
static inline void start_fast_path(collet_comm *comm, struct collet_request *request, bool blocks)
{
	/* Where transports are told what the call takes, its first copies count. */
	const bool told = request->counted_bytes >= COLLET_CALL_REPORTED_BYTES;
	const uint64_t ticks = told ? collet_ticks() : 0;
	collet_fast_path_start(request);
	request->is_starting = true;
	collet_comm_count_call(comm, request);
	record_start(request, told ? ticks : collet_ticks());
	if (blocks)
		poll_with_backoff(request);
	else if (!request->fast_path.poll_backoff || request->fast_path.step_index == request->fast_path.step_count)
		collet_fast_path_progress(request); /* else it is too early to look */
	request->is_starting = false;
}

static void start(collet_comm *comm, struct collet_request *request, bool blocks)
{
	if (collet_fast_path_is_eligible(request)) {
		start_fast_path(comm, request, blocks);
		return;
	}
	request->is_starting = false;
	collet_comm_count_call(comm, request);
	record_start(request, collet_ticks());
	const collet_status status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* Offered first: its lanes hold it, and what comes after it, until the leader has said which way it goes. */
static void start_with_leader(
	collet_comm *comm, struct collet_request *request, const struct collet_call_buffers *gpu_buffers, bool blocks)
{
	collet_status status = collet_shared_gpu_start(comm->shared_gpu, request, gpu_buffers);
	if (status == COLLET_OK && !request->deferred) {
		start(comm, request, blocks);
		return;
	}
	request->is_starting = false;
	record_start(request, collet_ticks());
	if (status == COLLET_OK)
		status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* With buffers that are filled while it runs. */
static void start_pipelined(collet_comm *comm, struct collet_request *request, struct collet_pipeline *pipeline)
{
	request->is_starting = false;
	collet_comm_count_call(comm, request);
	record_start(request, collet_ticks());
	collet_pipeline_start(pipeline, request);
	const collet_status status = collet_request_start(request);
	if (status == COLLET_OK)
		(void)pipeline->progress(pipeline);
	else
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* A call that could have been offered, and is not: its buffers are the host's by now. */
static void start_staged_request(collet_comm *comm, struct collet_request *request, bool blocks)
{
	struct collet_pipeline *pipeline = collet_gpu_staging_pipeline(request->staging);
	if (pipeline)
		start_pipelined(comm, request, pipeline);
	else
		start(comm, request, blocks);
}

/* A request for the call, which is not started yet. Under lock. */
static collet_status prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **prepared)
{
	struct collet_request *request;
	collet_status status = collet_request_acquire(&comm->state, &request);
	if (status != COLLET_OK)
		return status;
	status = collet_call_plan(comm, call, how, request);
	if (status == COLLET_OK && call->staging)
		status = collet_gpu_staging_plan(call->staging, request);
	if (status != COLLET_OK) {
		collet_request_release(request);
		return status;
	}
	request->timeout_ns = collet_call_timeout(comm, how);
	*prepared = request;
	return COLLET_OK;
}

/* It is this communicator's next call. Under lock. */
static void assign_sequence(struct collet_comm_state *state, struct collet_request *request)
{
	request->sequence = request->call.sequence = state->next_sequence++;
	request->signature = state->call_history = collet_call_history(request->call_signature, state->call_history);
}

collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **request)
{
	struct collet_engine *engine = comm->state.engine;
	collet_status status = collet_call_check_how(call, how);
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(engine);
	status = prepare(comm, call, how, request);
	collet_engine_unlock(engine);
	return status;
}

void collet_call_start_prepared(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_pipeline *pipeline)
{
	collet_request_reset(request);
	assign_sequence(&comm->state, request);
	if (!gpu_buffers) {
		if (pipeline)
			start_pipelined(comm, request, pipeline);
		else
			start(comm, request, false);
		return;
	}
	/* The last launch may have gone by way of the host. */
	if (gpu_buffers->buffer[0].bytes)
		request->input = gpu_buffers->buffer[0].first;
	if (gpu_buffers->buffer[1].bytes)
		request->result = (char *)(uintptr_t)gpu_buffers->buffer[1].first;
	if (collet_request_is_for_leader(comm, request)) {
		start_with_leader(comm, request, gpu_buffers, false);
		return;
	}
	const collet_status status = collet_request_use_staging(request, gpu_buffers);
	if (status == COLLET_OK) {
		start_staged_request(comm, request, false);
		return;
	}
	record_start(request, collet_ticks());
	collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

void collet_call_start_offloaded(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *out_of_band, uint64_t sequence)
{
	request->out_of_band_recorder = out_of_band;
	if (out_of_band)
		request->sequence = request->call.sequence = sequence;
	else
		assign_sequence(&comm->state, request);
	request->is_starting = false;
	request->deferred = request->offloaded = true;
	collet_comm_count_call(comm, request);
	record_start(request, collet_ticks());
}

/* A prepared request that no leader is to be offered has the host's memory in place of a GPU's, if its call could have
 * been offered. *stays: that is so. Under lock. */
static collet_status stage_without_leader(const collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_request *request, bool *is_staged)
{
	*is_staged = call->gpu_buffers && !collet_request_is_for_leader(comm, request);
	const collet_status status = *is_staged ? collet_request_use_staging(request, call->gpu_buffers) : COLLET_OK;
	if (status != COLLET_OK)
		collet_request_release(request);
	return status;
}

/* Under lock. */
static void start_any(collet_comm *comm, const struct collet_call_arguments *call, struct collet_request *request,
	bool is_staged, bool blocks)
{
	if (is_staged) {
		start_staged_request(comm, request, blocks);
	} else if (call->gpu_buffers) {
		start_with_leader(comm, request, call->gpu_buffers, blocks);
	} else if (call->staging) {
		request->staging = call->staging;
		start_pipelined(comm, request, collet_gpu_staging_pipeline(call->staging));
	} else {
		start(comm, request, blocks);
	}
}

/* It may be repeated with other buffers, without a check or a plan. */
static void cache_call(collet_comm *comm, struct collet_request *request)
{
	comm->cached_call.request = request;
	comm->cached_call.plan_count = request->plan_count;
}

/* Waits for it, and gives it back. Under lock, which it lets go of. */
static collet_status wait_and_unlock(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	if (request->status == COLLET_PENDING)
		collet_engine_wait_locked(engine, has_ended, request);
	return collet_call_complete_and_unlock(&request);
}

collet_status collet_call_start(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	collet_status status = how ? collet_call_check_how(call, how) : COLLET_OK;
	if (status != COLLET_OK)
		return collet_gpu_staging_end(call->staging, status);
	if (!how)
		how = &default_how;
	struct collet_engine *engine = comm->state.engine;
	struct collet_request *request;
	bool is_staged;
	comm->cached_call.request = NULL;
	collet_engine_lock(engine);
	status = prepare(comm, call, how, &request);
	if (status == COLLET_OK)
		status = stage_without_leader(comm, call, request, &is_staged);
	if (status != COLLET_OK) {
		collet_engine_unlock(engine);
		return collet_gpu_staging_end(call->staging, status);
	}
	if (how == &default_how && !call->gpu_buffers && !call->staging && request->plan_key.algorithm)
		cache_call(comm, request);
	assign_sequence(&comm->state, request);
	start_any(comm, call, request, is_staged, !how->request);
	if (!how->request)
		return wait_and_unlock(request);
	collet_engine_unlock_handoff(engine);
	*how->request = request;
	return COLLET_OK;
}

bool collet_call_run_cached(collet_comm *comm, const void *send, void *recv, collet_status *status)
{
	const struct collet_cached_call *cached = &comm->cached_call;
	struct collet_comm_state *state = &comm->state;
	struct collet_engine *engine = state->engine;
	struct collet_request *request = cached->request;
	bool is_biased = collet_engine_lock_biased(engine);
	if (state->free_requests != request || request->plan_count != cached->plan_count ||
		!request->plan_key.algorithm || !collet_fast_path_is_eligible(request)) {
		collet_engine_unlock_biased(engine, is_biased);
		return false;
	}
	state->free_requests = request->next_free;
	collet_request_reset(request);
	request->is_p2p = false;
	request->input = send;
	request->result = recv;
	request->timeout_ns = state->timeout_ns;
	assign_sequence(state, request);
	start_fast_path(comm, request, true);
	if (request->status == COLLET_PENDING) {
		collet_engine_upgrade_lock(engine, &is_biased);
		collet_engine_wait_locked(engine, has_ended, request);
	}
	*status = complete(request);
	collet_engine_unlock_biased(engine, is_biased);
	return true;
}
