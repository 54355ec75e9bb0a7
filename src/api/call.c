/* From a planned call to a running request, and how that ends. */
#include <string.h>

#include "api/comm.h"
#include "core/cpu.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/call_class.h"
#include "engine/lock.h"
#include "engine/pipeline.h"

int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how)
{
	return how->timeout_ns ? how->timeout_ns : comm->group.timeout_ns;
}

static bool has_ended(void *context)
{
	const struct collet_request *request = context;
	return request->status != COLLET_PENDING;
}

collet_status collet_call_failure(const struct collet_request *request)
{
	const struct collet_comm_state *group = request->state;
	const enum collet_status status = request->status;
	char call[160];
	if (status == COLLET_ERR_TRUNCATED)
		return collet_fail(status, "collet_recv: the message is longer than the buffer, and was dropped");
	collet_request_describe(request, call, sizeof(call));
	/* What ended the communicator may have been somebody else's doing: then say which call it ended here. */
	return strstr(group->sentence, call) ? collet_fail_copy(status, group->sentence) :
                                               collet_fail(status, "%s: %s", call, group->sentence);
}

/* Under lock. */
static collet_status settle(struct collet_request *request)
{
	const collet_status status = collet_call_outcome(request);
	collet_request_release(request);
	return status;
}

collet_status collet_call_settle_and_unlock(struct collet_request **request)
{
	struct collet_request *ended = *request;
	struct collet_engine *engine = ended->state->engine;
	struct collet_staged *staged = ended->staging;
	ended->staging = NULL;
	*request = NULL;
	if (staged)
		collet_staged_stop(staged);
	const collet_status status = settle(ended);
	collet_engine_unlock(engine);
	return collet_staged_end(staged, status);
}

collet_status collet_call_settle(struct collet_request **request)
{
	collet_engine_lock((*request)->state->engine);
	return collet_call_settle_and_unlock(request);
}

collet_status collet_call_follow(struct collet_staged *staged, collet_status status, const collet_how *how)
{
	if (!staged || status != COLLET_OK || !how || !how->request)
		return collet_staged_end(staged, status);
	(*how->request)->staging = staged;
	return COLLET_OK;
}

/* Of a call on the spot, before it is waited for in earnest: looks at its own messages alone, and so at once. How
 * often that was in vain, until a step was done. Under lock. */
static uint32_t look_briefly(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	uint32_t looks = collet_engine_spin_budget(engine);
	uint32_t in_vain = 0;
	const uint32_t at = request->fast_path.step_index;
	while (request->status == COLLET_PENDING) {
		const uint32_t cost = collet_fast_path_poll_cost(request);
		if (!cost || cost > looks)
			break;
		looks -= cost;
		engine->wake.empty_polls++;
		collet_cpu_relax();
		collet_fast_path_progress(request);
		in_vain += request->fast_path.step_index == at;
	}
	return in_vain;
}

/* The first looks of whoever waits for a call on the spot, whose first messages have gone. Whoever looks for the answer
 * too early takes its line away from the core that is about to fill it, whose store then waits until the line is back:
 * where cores are far apart that is as long again as the message takes. So a rank lingers before it looks, for so many
 * multiplications: more of them whenever that was too early, but not because its peer was late, and one less whenever
 * it was not. Under lock. */
static void look_in_time(struct collet_request *request)
{
	enum { MOST = 96, MORE = 12, SOON = 1, LATE = 9, BYTES = 1024 };
	uint32_t *linger = &request->fast_path.poll_backoff;
	const uint32_t at = request->fast_path.step_index;
	if (*linger)
		collet_cpu_backoff(*linger);
	collet_fast_path_progress(request);
	const bool at_once = request->fast_path.step_index != at;
	const uint32_t in_vain = look_briefly(request);
	const bool too_early = !at_once && in_vain > SOON && in_vain <= LATE;
	if (too_early && at > 0 && *linger + MORE <= MOST && request->counted_bytes <= BYTES)
		*linger += MORE;
	else if (!too_early && *linger)
		*linger -= 1;
}

collet_status collet_call_wait(struct collet_request **request)
{
	struct collet_request *awaited = *request;
	const struct collet_comm_state *group = awaited->state;
	collet_engine_lock(group->engine);
	if (group->fast_path_request == awaited)
		look_in_time(awaited);
	if (awaited->status == COLLET_PENDING)
		collet_engine_wait_locked(group->engine, has_ended, awaited);
	return collet_call_settle_and_unlock(request);
}

collet_status collet_call_poll(struct collet_request **request)
{
	if (!collet_engine_poll((*request)->state->engine, has_ended, *request))
		return COLLET_PENDING;
	return collet_call_settle(request);
}

static void register_start(struct collet_request *request, uint64_t ticks)
{
	request->started_ticks = ticks;
	request->started_ns = request->next_query_ns = 0;
	request->warning_stage = 0;
	collet_recorder_start(request->out_of_band_recorder ? request->out_of_band_recorder : &request->state->recorder,
		&request->call, request->call_signature, request->signature, request->started_ticks);
	collet_request_activate(request);
}

/* Its first messages go before anything else is done, which is done while they travel. */
static inline void start_on_the_spot(collet_comm *comm, struct collet_request *request, bool blocks)
{
	/* Where transports are told what the call takes, its first copies count. */
	const bool told = request->counted_bytes >= COLLET_CALL_REPORTED_BYTES;
	const uint64_t ticks = told ? collet_ticks() : 0;
	collet_fast_path_start(request);
	request->is_starting = true;
	collet_comm_count_use(comm, request);
	register_start(request, told ? ticks : collet_ticks());
	if (blocks)
		look_in_time(request);
	else if (!request->fast_path.poll_backoff || request->fast_path.step_index == request->fast_path.step_count)
		collet_fast_path_progress(request); /* else it is too early to look */
	request->is_starting = false;
}

static void start(collet_comm *comm, struct collet_request *request, bool blocks)
{
	if (collet_fast_path_is_eligible(request)) {
		start_on_the_spot(comm, request, blocks);
		return;
	}
	request->is_starting = false;
	collet_comm_count_use(comm, request);
	register_start(request, collet_ticks());
	const collet_status status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->group, status, true, collet_last_error());
}

/* Offered first: its lanes hold it, and what comes after it, until the leader has said which way it goes. */
static void start_offered(collet_comm *comm, struct collet_request *request, const struct collet_direct_sides *sides,
	bool blocks)
{
	collet_status status = collet_direct_begin(comm->direct, request, sides);
	if (status == COLLET_OK && !request->deferred) {
		start(comm, request, blocks);
		return;
	}
	request->is_starting = false;
	register_start(request, collet_ticks());
	if (status == COLLET_OK)
		status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->group, status, true, collet_last_error());
}

/* With buffers that are filled while it runs. */
static void start_flowing(collet_comm *comm, struct collet_request *request, struct collet_pipeline *flow)
{
	request->is_starting = false;
	collet_comm_count_use(comm, request);
	register_start(request, collet_ticks());
	collet_pipeline_start(flow, request);
	const collet_status status = collet_request_start(request);
	if (status == COLLET_OK)
		(void)flow->progress(flow);
	else
		collet_comm_state_end(&comm->group, status, true, collet_last_error());
}

/* A call that could have been offered, and is not: its buffers are the host's by now. */
static void start_staged(collet_comm *comm, struct collet_request *request, bool blocks)
{
	struct collet_pipeline *flow = collet_staged_flow(request->staging);
	if (flow)
		start_flowing(comm, request, flow);
	else
		start(comm, request, blocks);
}

/* A request for the call, which is not started yet. Under lock. */
static collet_status prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **prepared)
{
	struct collet_request *request;
	collet_status status = collet_request_acquire(&comm->group, &request);
	if (status != COLLET_OK)
		return status;
	status = collet_call_plan(comm, call, how, request);
	if (status == COLLET_OK && call->staged)
		status = collet_staged_plan(call->staged, request);
	if (status != COLLET_OK) {
		collet_request_release(request);
		return status;
	}
	request->timeout_ns = collet_call_timeout(comm, how);
	*prepared = request;
	return COLLET_OK;
}

/* It is this communicator's next call. Under lock. */
static void number(struct collet_comm_state *group, struct collet_request *request)
{
	request->sequence = request->call.sequence = group->next_sequence++;
	request->signature = group->call_history = collet_call_history(request->call_signature, group->call_history);
}

collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **request)
{
	struct collet_engine *engine = comm->group.engine;
	collet_status status = collet_call_check_how(call, how);
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(engine);
	status = prepare(comm, call, how, request);
	collet_engine_unlock(engine);
	return status;
}

void collet_call_launch(collet_comm *comm, struct collet_request *request, const struct collet_direct_sides *sides,
	struct collet_pipeline *flow)
{
	collet_request_reset(request);
	number(&comm->group, request);
	if (!sides) {
		if (flow)
			start_flowing(comm, request, flow);
		else
			start(comm, request, false);
		return;
	}
	/* The last launch may have gone by way of the host. */
	if (sides->side[0].bytes)
		request->input = sides->side[0].first;
	if (sides->side[1].bytes)
		request->result = (char *)(uintptr_t)sides->side[1].first;
	if (collet_request_is_offered(comm, request)) {
		start_offered(comm, request, sides, false);
		return;
	}
	const collet_status status = collet_request_stage(request, sides);
	if (status == COLLET_OK) {
		start_staged(comm, request, false);
		return;
	}
	register_start(request, collet_ticks());
	collet_comm_state_end(&comm->group, status, true, collet_last_error());
}

void collet_call_begin_elsewhere(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *apart, uint64_t sequence)
{
	request->out_of_band_recorder = apart;
	if (apart)
		request->sequence = request->call.sequence = sequence;
	else
		number(&comm->group, request);
	request->is_starting = false;
	request->deferred = request->offloaded = true;
	collet_comm_count_use(comm, request);
	register_start(request, collet_ticks());
}

/* A prepared request that no leader is to be offered has the host's memory in place of a GPU's, if its call could have
 * been offered. *stays: that is so. Under lock. */
static collet_status stage_unoffered(const collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_request *request, bool *stays)
{
	*stays = call->sides && !collet_request_is_offered(comm, request);
	const collet_status status = *stays ? collet_request_stage(request, call->sides) : COLLET_OK;
	if (status != COLLET_OK)
		collet_request_release(request);
	return status;
}

/* Under lock. */
static void start_any(collet_comm *comm, const struct collet_call_arguments *call, struct collet_request *request,
	bool stays, bool blocks)
{
	if (stays) {
		start_staged(comm, request, blocks);
	} else if (call->sides) {
		start_offered(comm, request, call->sides, blocks);
	} else if (call->staged) {
		request->staging = call->staged;
		start_flowing(comm, request, collet_staged_flow(call->staged));
	} else {
		start(comm, request, blocks);
	}
}

/* It may be repeated with other buffers, without a check or a plan. */
static void remember(collet_comm *comm, struct collet_request *request)
{
	comm->again.request = request;
	comm->again.plans = request->plan_count;
}

/* Waits for it, and gives it back. Under lock, which it lets go of. */
static collet_status finish_and_unlock(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	if (request->status == COLLET_PENDING)
		collet_engine_wait_locked(engine, has_ended, request);
	return collet_call_settle_and_unlock(&request);
}

collet_status collet_call_start(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	collet_status status = how ? collet_call_check_how(call, how) : COLLET_OK;
	if (status != COLLET_OK)
		return collet_staged_end(call->staged, status);
	if (!how)
		how = &default_how;
	struct collet_engine *engine = comm->group.engine;
	struct collet_request *request;
	bool stays;
	comm->again.request = NULL;
	collet_engine_lock(engine);
	status = prepare(comm, call, how, &request);
	if (status == COLLET_OK)
		status = stage_unoffered(comm, call, request, &stays);
	if (status != COLLET_OK) {
		collet_engine_unlock(engine);
		return collet_staged_end(call->staged, status);
	}
	if (how == &default_how && !call->sides && !call->staged && request->plan_key.algorithm)
		remember(comm, request);
	number(&comm->group, request);
	start_any(comm, call, request, stays, !how->request);
	if (!how->request)
		return finish_and_unlock(request);
	collet_engine_unlock_handoff(engine);
	*how->request = request;
	return COLLET_OK;
}

bool collet_call_again(collet_comm *comm, const void *send, void *recv, collet_status *status)
{
	const struct collet_again *again = &comm->again;
	struct collet_comm_state *group = &comm->group;
	struct collet_engine *engine = group->engine;
	struct collet_request *request = again->request;
	bool stepped_in = collet_engine_lock_biased(engine);
	if (group->free_requests != request || request->plan_count != again->plans || !request->plan_key.algorithm ||
		!collet_fast_path_is_eligible(request)) {
		collet_engine_unlock_biased(engine, stepped_in);
		return false;
	}
	group->free_requests = request->next_free;
	collet_request_reset(request);
	request->is_p2p = false;
	request->input = send;
	request->result = recv;
	request->timeout_ns = group->timeout_ns;
	number(group, request);
	start_on_the_spot(comm, request, true);
	if (request->status == COLLET_PENDING) {
		collet_engine_upgrade_lock(engine, &stepped_in);
		collet_engine_wait_locked(engine, has_ended, request);
	}
	*status = settle(request);
	collet_engine_unlock_biased(engine, stepped_in);
	return true;
}
