/* Starts planned calls, waits for them and completes them. Repeats the last call if only its buffers differ. */
#include "api/call.h"

#include <string.h>

#include "api/on_end.h"
#include "api/turns.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/fast_path.h"
#include "engine/lock.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/wait.h"
#include "engine/watch.h"

int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how)
{
	return how->timeout_ns ? how->timeout_ns : collet_comm_state_timeout_ns(&comm->state);
}

static bool has_ended(void *context)
{
	return collet_request_has_ended(context);
}

collet_status collet_call_failure(const struct collet_request *request)
{
	const struct collet_comm_state *state = request->state;
	const enum collet_status status = request->status;
	char call[160];
	if (status == COLLET_ERR_TRUNCATED)
		return collet_fail(status, "collet_recv: the message is longer than the buffer, and was dropped");
	collet_request_describe(request, call, sizeof(call));
	if (request->is_p2p && request->p2p.outcome == COLLET_ERR_TIMEOUT) {
		char peers[96] = "";
		collet_p2p_list_peers(request, peers, sizeof(peers));
		return collet_fail(status,
			"rank %u on %s: %s timed out after %.3f s, waiting for rank %s; none of its data were under "
			"way, so the communicator works on",
			state->rank, collet_comm_state_host(state, state->rank), call,
			(double)request->timeout_ns * 1e-9, peers);
	}
	if (request->is_p2p && request->p2p.outcome == COLLET_CANCELLED)
		return collet_fail(status, "%s was cancelled by collet_request_cancel()", call);
	/* Another call or rank may have ended the communicator: then say which call that ended here. */
	return strstr(state->error_text, call) ? collet_fail_copy(status, state->error_text) :
                                               collet_fail(status, "%s: %s", call, state->error_text);
}

void collet_call_release(struct collet_request *request)
{
	if (request->on_end) {
		request->on_end = NULL;
		request->state->engine->on_end_request = NULL;
	}
	collet_request_release(request);
}

/* Under lock. */
static collet_status complete(struct collet_request *request)
{
	const collet_status status = collet_call_outcome(request);
	collet_call_release(request);
	return status;
}

/* Completes the request. Under lock, which it releases first: staging may wait for a copy. */
static collet_status complete_and_unlock(struct collet_request **request, bool is_biased)
{
	struct collet_request *ended = *request;
	struct collet_engine *engine = ended->state->engine;
	struct collet_gpu_staging *staging = ended->staging;
	ended->staging = NULL;
	*request = NULL;
	if (staging)
		collet_offload->staging_stop(staging);
	const collet_status status = complete(ended);
	collet_engine_unlock_biased(engine, is_biased);
	return staging ? collet_offload->staging_end(staging, status) : status;
}

collet_status collet_call_complete(struct collet_request **request)
{
	const bool is_biased = collet_engine_lock_biased((*request)->state->engine);
	return complete_and_unlock(request, is_biased);
}

/* Polls the messages of a fast-path request, and no others, before the engine waits for it. Returns how many polls were
 * empty until a step was done. Under lock. */
static uint32_t poll_briefly(struct collet_request *request)
{
	struct collet_engine *engine = request->state->engine;
	uint32_t polls = collet_engine_spin_budget(engine);
	uint32_t empty_polls = 0;
	const uint32_t start_index = request->fast_path.step_index;
	while (request->status == COLLET_PENDING) {
		const uint32_t cost = collet_fast_path_poll_cost(request);
		if (!cost || cost > polls)
			break;
		polls -= cost;
		engine->wake.empty_polls++;
		collet_cpu_relax();
		collet_fast_path_progress(request);
		empty_polls += request->fast_path.step_index == start_index;
	}
	return empty_polls;
}

/* Polls a fast-path request whose first messages have been sent, for the first time after a back-off. A rank that polls
 * too early takes the answer's cache line from the core that is about to fill it. That core's store then waits until
 * the line is back; between distant cores this takes as long as the message itself. So the rank first runs a delay
 * loop of some multiplications: more after a poll that was too early (but not if the peer was late), one less after
 * any other. ticks is the time now; it is recorded as the end if these polls end the request. Under lock. */
static void poll_with_backoff(struct collet_request *request, uint64_t ticks)
{
	enum { BACKOFF_MAX = 96, BACKOFF_STEP = 12, EMPTY_FEW = 1, EMPTY_MANY = 9, BACKOFF_BYTES = 1024 };
	uint32_t *backoff = &request->fast_path.poll_backoff;
	const uint32_t start_index = request->fast_path.step_index;
	if (*backoff)
		collet_cpu_backoff(*backoff);
	request->poll_ticks = ticks;
	collet_fast_path_progress(request);
	const bool had_arrived = request->fast_path.step_index != start_index;
	const uint32_t empty_polls = poll_briefly(request);
	request->poll_ticks = 0;
	const bool too_early = !had_arrived && empty_polls > EMPTY_FEW && empty_polls <= EMPTY_MANY;
	if (too_early && start_index > 0 && *backoff + BACKOFF_STEP <= BACKOFF_MAX &&
		request->counted_bytes <= BACKOFF_BYTES)
		*backoff += BACKOFF_STEP;
	else if (!too_early && *backoff)
		*backoff -= 1;
}

collet_status collet_call_wait(struct collet_request **request)
{
	struct collet_request *awaited = *request;
	struct collet_comm_state *state = awaited->state;
	bool is_biased = collet_engine_lock_biased(state->engine);
	/* Read while the answer is on its way, not after it has come. */
	const uint64_t ticks = awaited->status == COLLET_PENDING ? collet_ticks() : 0;
	if (state->fast_path_queued)
		collet_fast_path_progress_queue(state, ticks);
	if (state->fast_path_request == awaited) {
		poll_with_backoff(awaited, ticks);
		if (awaited->status != COLLET_PENDING)
			awaited->fast_path.next = NULL;
	}
	if (!collet_request_has_ended(awaited)) {
		collet_engine_upgrade_lock(state->engine, &is_biased);
		collet_engine_wait_locked(state->engine, has_ended, awaited);
	}
	return complete_and_unlock(request, is_biased);
}

collet_status collet_call_wait_until(struct collet_request **request, int64_t until_ns)
{
	if (!collet_engine_wait_until((*request)->state->engine, has_ended, *request, until_ns))
		return COLLET_PENDING;
	return collet_call_complete(request);
}

collet_status collet_call_poll(struct collet_request **request)
{
	if (!collet_engine_poll((*request)->state->engine, has_ended, *request))
		return COLLET_PENDING;
	return collet_call_complete(request);
}

void collet_call_record_start(struct collet_request *request)
{
	request->started_ticks = collet_ticks();
	collet_recorder_start(request->out_of_band_recorder ? request->out_of_band_recorder : &request->state->recorder,
		&request->call, request->call_signature, request->signature, request->started_ticks);
	collet_request_activate(request);
}

/* Sends the first messages before anything else: the rest is done while they travel. */
static inline void start_fast_path(collet_comm *comm, struct collet_request *request, bool blocks)
{
	collet_fast_path_start(request);
	collet_comm_count_call(comm, request);
	collet_call_record_start(request);
	if (blocks) {
		poll_with_backoff(request, request->started_ticks);
	} else if (!request->fast_path.poll_backoff || request->fast_path.step_index == request->fast_path.step_count) {
		request->poll_ticks = request->started_ticks;
		collet_fast_path_progress(request);
		request->poll_ticks = 0;
	} /* else it is too early to poll */
}

/* Starts a request that cannot run on the fast path now: behind those that are there, or in tasks. */
static void start_behind_others(collet_comm *comm, struct collet_request *request)
{
	const bool follows = collet_fast_path_follow(request);
	collet_comm_count_call(comm, request);
	collet_call_record_start(request);
	if (follows) {
		if (comm->state.fast_path_queued)
			collet_fast_path_progress_queue(&comm->state, request->started_ticks);
		return;
	}
	const collet_status status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* Inlined where a request repeats the last call. */
static inline void start(collet_comm *comm, struct collet_request *request, bool blocks)
{
	if (collet_fast_path_is_eligible(request))
		start_fast_path(comm, request, blocks);
	else
		start_behind_others(comm, request);
}

void collet_call_start(collet_comm *comm, struct collet_request *request, bool blocks)
{
	start(comm, request, blocks);
}

collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **prepared)
{
	const struct collet_plan_key key = collet_call_plan_key(call, how);
	struct collet_request *request;
	/* Another thread may have torn it down since this one entered; a request that starts now would never end. */
	collet_status status = comm->state.torn_down ? collet_comm_ended(comm) : COLLET_OK;
	if (status == COLLET_OK)
		status = collet_request_acquire(&comm->state, &key, &request);
	if (status != COLLET_OK)
		return status;
	status = collet_call_plan(comm, call, how, &key, request);
	if (status != COLLET_OK) {
		collet_request_release(request);
		return status;
	}
	request->timeout_ns = collet_call_timeout(comm, how);
	*prepared = request;
	return COLLET_OK;
}

/* Under lock. */
static inline void assign_sequence(struct collet_comm_state *state, struct collet_request *request)
{
	request->sequence = request->call.sequence = state->next_sequence++;
	request->signature = state->history_hash =
		collet_call_history_hash(request->call_signature, state->history_hash);
}

void collet_call_assign_sequence(struct collet_request *request)
{
	assign_sequence(request->state, request);
}

/* Lets collet_call_run_cached() repeat the call with other buffers, unchecked and unplanned. */
static void cache_call(struct collet_cached_call *cached, struct collet_request *request)
{
	cached->request = request;
	cached->plan_generation = request->plan_generation;
}

/* True if how asks for no wait, and for nothing else but a timeout. Reads field by field, as
 * collet_how_reserves_nothing() does. */
static inline bool is_plain_request(const collet_how *how)
{
	if (how->stream || how->algorithm || how->segment_bytes || how->channels || !collet_how_reserves_nothing(how))
		return false;
	return !collet_how_blocks(how) && how->timeout_ns >= COLLET_NO_TIMEOUT;
}

/* Waits for a request inside the communicator. on_end() may enter it meanwhile. Under lock. */
static void block(struct collet_request *request)
{
	const struct collet_comm_state *outer = collet_blocking_comm;
	collet_blocking_comm = request->state;
	if (request->state->turns)
		collet_turns_pause(request->state->turns);
	collet_engine_wait_locked(request->state->engine, has_ended, request);
	collet_blocking_comm = outer;
}

/* Takes the turn that block() has given. Not under lock, as whoever has the turn may need that. */
static void end_block(struct collet_comm_state *state)
{
	if (state->turns)
		collet_turns_resume(state->turns);
}

collet_status collet_call_wait_or_return(struct collet_request *request, const collet_how *how)
{
	if (!collet_how_blocks(how)) {
		collet_request_use_how(request, how);
		collet_engine_unlock_handoff(request->state->engine);
		return COLLET_OK;
	}
	struct collet_comm_state *state = request->state;
	const bool blocks = request->status == COLLET_PENDING;
	if (blocks)
		block(request);
	const collet_status status = complete_and_unlock(&request, false);
	if (blocks)
		end_block(state);
	return status;
}

collet_status collet_call_run(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	collet_status status = how ? collet_call_check_how(call, how) : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	if (!how)
		how = &default_how;
	struct collet_engine *engine = comm->state.engine;
	struct collet_request *request;
	struct collet_cached_call *cached = collet_cached_call(comm, call->collective, call->count, call->root);
	cached->request = NULL;
	collet_engine_lock(engine);
	status = collet_call_prepare(comm, call, how, &request);
	if (status != COLLET_OK) {
		collet_engine_unlock(engine);
		return status;
	}
	if ((how == &default_how || (is_plain_request(how) && !collet_op_is_caller_defined(call->op))) &&
		request->plan_key.algorithm)
		cache_call(cached, request);
	assign_sequence(&comm->state, request);
	collet_call_start(comm, request, collet_how_blocks(how));
	return collet_call_wait_or_return(request, how);
}

/* Returns the list of free requests that a cached call's may be in. */
static inline struct collet_request **free_list(collet_comm *comm, const struct collet_cached_call *cached)
{
	return &comm->state.free_requests[cached - comm->cached_calls];
}

/* Takes the first request of the list, which has its plan, for a call. Needs the engine's lock. */
static inline void take_planned(struct collet_comm_state *state, struct collet_request **list, const void *send,
	void *recv, int64_t timeout_ns)
{
	struct collet_request *request = *list;
	*list = request->next_free;
	collet_request_reset(request);
	request->is_p2p = false;
	request->input = send;
	request->result = recv;
	request->timeout_ns = timeout_ns;
	assign_sequence(state, request);
}

bool collet_call_run_cached(collet_comm *comm, const struct collet_cached_call *cached, const void *send, void *recv,
	collet_status *status)
{
	struct collet_comm_state *state = &comm->state;
	struct collet_engine *engine = state->engine;
	struct collet_request *request = cached->request, **list = free_list(comm, cached);
	bool is_biased = collet_engine_lock_biased(engine);
	if (*list != request || request->plan_generation != cached->plan_generation ||
		!request->plan_key.algorithm || !collet_fast_path_is_eligible(request)) {
		collet_engine_unlock_biased(engine, is_biased);
		return false;
	}
	take_planned(state, list, send, recv, collet_comm_state_timeout_ns(state));
	start_fast_path(comm, request, true);
	const bool blocks = request->status == COLLET_PENDING;
	if (blocks) {
		collet_engine_upgrade_lock(engine, &is_biased);
		block(request);
	}
	*status = complete(request);
	collet_engine_unlock_biased(engine, is_biased);
	if (blocks)
		end_block(state);
	return true;
}

/* True if the request has the plan of the cached call. */
static bool has_cached_plan(const struct collet_request *request, const struct collet_cached_call *cached)
{
	const struct collet_plan_key *key = &request->plan_key;
	return key->count == cached->count && key->collective == cached->collective && key->dtype == cached->dtype &&
		key->op == (uint32_t)cached->op && key->root == cached->root && key->algorithm == 1 &&
		!key->segment_bytes && !key->channels;
}

bool collet_call_start_cached(collet_comm *comm, const struct collet_cached_call *cached, const void *send, void *recv,
	const collet_how *how)
{
	struct collet_comm_state *state = &comm->state;
	if (!is_plain_request(how) || collet_op_is_caller_defined(cached->op))
		return false;
	const bool is_biased = collet_engine_lock_biased(state->engine);
	struct collet_request **list = free_list(comm, cached), *request = *list;
	if (!is_biased || !request || !request->fast_path.is_eligible || !has_cached_plan(request, cached)) {
		collet_engine_unlock_biased(state->engine, is_biased);
		return false;
	}
	take_planned(state, list, send, recv, collet_call_timeout(comm, how));
	start(comm, request, false);
	collet_request_use_how(request, how);
	if (state->engine->is_watched)
		collet_watch_interrupt(state->engine);
	collet_engine_unlock_biased(state->engine, is_biased);
	return true;
}
