/* The public point-to-point calls. */
#include "api/comm.h"
#include "cuda/peer_gpus/ipc_get.h"
#include "cuda/staging/gpu_staging.h"
#include "cuda/stream/stream_call.h"
#include "engine/lock.h"

static collet_status check_half(
	const collet_comm *comm, const char *function, const struct collet_half *half, collet_dtype dtype)
{
	const size_t element = collet_dtype_bytes(dtype);
	if (!element)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %d is no dtype", function, (int)dtype);
	if (half->count > (uint64_t)PTRDIFF_MAX / element)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %llu elements do not fit into memory", function,
			(unsigned long long)half->count);
	if (!half->buffer && half->count)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the buffer is NULL", function);
	if (half->peer >= comm->group.size && (half->sends || half->peer != COLLET_ANY_SOURCE))
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: there is no rank %u in a communicator of %u", function,
			half->peer, comm->group.size);
	return COLLET_OK;
}

static collet_status check_how(const char *function, const collet_how *how)
{
	if (how->timeout_ns < COLLET_NO_TIMEOUT)
		return collet_fail(
			COLLET_ERR_ARGUMENT, "%s: how.timeout_ns is %lld", function, (long long)how->timeout_ns);
	for (size_t i = 0; i < sizeof(how->reserved) / sizeof(how->reserved[0]); i++)
		if (how->reserved[i])
			return collet_fail(COLLET_ERR_ARGUMENT, "%s: how.reserved is not zero", function);
	return COLLET_OK;
}

/* Under lock. */
static collet_status new_request(collet_comm *comm, int64_t timeout_ns, struct collet_request **request)
{
	const collet_status status = collet_request_acquire(&comm->group, request);
	if (status != COLLET_OK)
		return status;
	(*request)->is_p2p = true;
	(*request)->plan_key.algorithm = 0;
	(*request)->timeout_ns = timeout_ns;
	(*request)->started_ticks = collet_ticks();
	(*request)->started_ns = (*request)->next_query_ns = 0; /* as in call.c */
	(*request)->warning_stage = 0;
	(*request)->p2p = (struct collet_p2p_call){ 0 };
	collet_request_activate(*request);
	return COLLET_OK;
}

static collet_status start_half(collet_comm *comm, const struct collet_half *half, collet_dtype dtype,
	int64_t timeout_ns, struct collet_request *parent, struct collet_request **started)
{
	struct collet_request *request;
	const collet_status status = new_request(comm, timeout_ns, &request);
	if (status != COLLET_OK)
		return status;
	const size_t element = collet_dtype_bytes(dtype);
	request->p2p = (struct collet_p2p_call){
		.is_send = half->sends,
		.peer = half->peer,
		.tag = half->tag,
		.buffer = half->buffer,
		.bounce = half->bounce,
		.bytes = half->count * element,
		.element_bytes = element,
		.received = half->received,
		.parent = parent,
	};
	*started = request;
	return collet_p2p_start(request);
}

void collet_halves_take_staged(struct collet_half *halves, uint32_t count, const struct collet_side sides[COLLET_SIDES],
	const struct collet_staged *staged)
{
	for (uint32_t i = 0; i < count && staged; i++) {
		const int side = halves[i].sends ? COLLET_READ : COLLET_WRITTEN;
		halves[i].buffer = (void *)(uintptr_t)sides[side].first;
		halves[i].bounce = collet_staged_bounce(staged, side);
	}
}

enum collet_staging collet_halves_staging(
	const collet_comm *comm, const struct collet_half *halves, uint32_t count)
{
	const struct collet_comm_state *group = &comm->group;
	for (uint32_t i = 0; i < count; i++) {
		const bool any = halves[i].peer == COLLET_ANY_SOURCE;
		for (uint32_t r = any ? 0 : halves[i].peer; r < (any ? group->size : halves[i].peer + 1); r++)
			if (collet_pull_may(group->engine, collet_comm_state_world_rank(group, r)))
				return COLLET_STAGED_PULLED;
	}
	return COLLET_STAGED_BOUNCES;
}

/* Host memory for halves whose buffers are a GPU's; *staged NULL: none is. */
static collet_status stage(collet_comm *comm, const char *function, struct collet_half *halves, uint32_t count,
	collet_dtype dtype, struct collet_staged **staged)
{
	const size_t element = collet_dtype_bytes(dtype);
	struct collet_side sides[COLLET_SIDES] = { { NULL, 0 }, { NULL, 0 } };
	*staged = NULL;
	if (!comm->context->cuda.module)
		return COLLET_OK;
	for (uint32_t i = 0; i < count; i++)
		sides[halves[i].sends ? COLLET_READ : COLLET_WRITTEN] =
			(struct collet_side){ halves[i].buffer, halves[i].count * element };
	const collet_status status = collet_staged_begin(
		comm->context, function, sides, collet_halves_staging(comm, halves, count), staged);
	collet_halves_take_staged(halves, count, sides, *staged);
	for (uint32_t i = 0; i < count && *staged; i++)
		if (!halves[i].sends)
			halves[i].received = collet_staged_received(*staged, halves[i].received, element);
	return status;
}

static bool has_ended(void *context)
{
	const struct collet_request *request = context;
	return request->status != COLLET_PENDING;
}

struct collet_request *collet_halves_start(
	collet_comm *comm, const struct collet_half *halves, uint32_t count, collet_dtype dtype, int64_t timeout_ns)
{
	struct collet_request *request = NULL, *half;
	collet_status status = COLLET_OK;
	if (count > 1) {
		status = new_request(comm, timeout_ns, &request);
		if (status == COLLET_OK)
			request->p2p.pending_ops = count;
	}
	for (uint32_t i = 0; i < count && status == COLLET_OK; i++)
		status = start_half(comm, &halves[i], dtype, timeout_ns, count > 1 ? request : NULL,
			count > 1 ? &half : &request);
	/* Only memory can fail here. The communicator is of no use then: half of a call may be on its way. */
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->group, status, true, collet_last_error());
	return request;
}

/* Under lock. */
static bool is_over_at_once(collet_comm *comm, const struct collet_half *half, size_t element)
{
	const uint64_t bytes = half->count * element;
	if (half->sends)
		return collet_p2p_send_fast(&comm->group, half->peer, half->tag, half->buffer, bytes);
	if (!collet_p2p_receive_fast(&comm->group, half->peer, half->tag, half->buffer, bytes))
		return false;
	if (half->received)
		*half->received = (collet_received){ half->peer, half->tag, half->count };
	return true;
}

/* How many of the first halves need no request. Under lock. */
static uint32_t run_at_once(collet_comm *comm, const struct collet_half *halves, uint32_t count, collet_dtype dtype)
{
	uint32_t over = 0;
	while (over < count && is_over_at_once(comm, &halves[over], collet_dtype_bytes(dtype)))
		over++;
	return over;
}

/* As requests. Under lock, which it lets go of. */
static collet_status run_and_unlock(collet_comm *comm, const struct collet_half *halves, uint32_t count,
	collet_dtype dtype, const collet_how *how, struct collet_staged *staged)
{
	struct collet_engine *engine = comm->group.engine;
	struct collet_request *request =
		collet_halves_start(comm, halves, count, dtype, collet_call_timeout(comm, how));
	if (!request) {
		collet_engine_unlock(engine);
		return collet_staged_end(staged, COLLET_ERR_MEMORY);
	}
	request->staging = staged;
	if (how->request) {
		collet_engine_unlock_handoff(engine);
		*how->request = request;
		return COLLET_OK;
	}
	if (request->status == COLLET_PENDING)
		collet_engine_wait_locked(engine, has_ended, request);
	return collet_call_settle_and_unlock(&request);
}

static collet_status run(collet_comm *comm, const char *function, struct collet_half *halves, uint32_t count,
	collet_dtype dtype, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	if (!how)
		how = &default_how;
	collet_status status = collet_comm_enter(comm, function);
	if (status != COLLET_OK)
		return status;
	status = check_how(function, how);
	for (uint32_t i = 0; i < count && status == COLLET_OK; i++)
		status = check_half(comm, function, &halves[i], dtype);
	if (how->stream) {
		if (status == COLLET_OK)
			status = collet_streamed_halves(comm, function, halves, count, dtype, how);
		collet_comm_leave(comm);
		return status;
	}
	struct collet_staged *staged = NULL;
	if (status == COLLET_OK)
		status = collet_streams_let_start(comm, function, how);
	if (status == COLLET_OK)
		status = stage(comm, function, halves, count, dtype, &staged);
	if (status != COLLET_OK) {
		collet_comm_leave(comm);
		return status;
	}
	struct collet_engine *engine = comm->group.engine;
	bool stepped_in = collet_engine_lock_biased(engine);
	const uint32_t over = staged || how->request ? 0 : run_at_once(comm, halves, count, dtype);
	if (over == count) {
		collet_engine_unlock_biased(engine, stepped_in);
	} else {
		collet_engine_upgrade_lock(engine, &stepped_in);
		status = run_and_unlock(comm, halves + over, count - over, dtype, how, staged);
	}
	collet_comm_leave(comm);
	return status;
}

collet_status collet_send(collet_comm *comm, const void *buf, uint64_t count, collet_dtype dtype, uint32_t peer,
	uint32_t tag, const collet_how *how)
{
	struct collet_half half = { true, (void *)(uintptr_t)buf, count, peer, tag, NULL, NULL };
	return run(comm, "collet_send", &half, 1, dtype, how);
}

collet_status collet_recv(collet_comm *comm, void *buf, uint64_t count, collet_dtype dtype, uint32_t source,
	uint32_t tag, collet_received *received, const collet_how *how)
{
	struct collet_half half = { false, buf, count, source, tag, received, NULL };
	return run(comm, "collet_recv", &half, 1, dtype, how);
}

collet_status collet_sendrecv(collet_comm *comm, const void *send, uint64_t send_count, uint32_t to, uint32_t send_tag,
	void *recv, uint64_t recv_count, uint32_t from, uint32_t recv_tag, collet_dtype dtype,
	collet_received *received, const collet_how *how)
{
	/* What is sent goes first: a peer may be waiting for it. */
	struct collet_half halves[2] = {
		{ true, (void *)(uintptr_t)send, send_count, to, send_tag, NULL, NULL },
		{ false, recv, recv_count, from, recv_tag, received, NULL },
	};
	return run(comm, "collet_sendrecv", halves, 2, dtype, how);
}
