/* Implements the public point-to-point calls. */
#include "api/call.h"
#include "api/on_end.h"
#include "api/point_to_point.h"
#include "core/clock.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"

static collet_status check_op(
	const collet_comm *comm, const char *function, const struct collet_p2p_op *op, collet_dtype dtype)
{
	const size_t element = collet_dtype_bytes(dtype);
	if (!element)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %d is no dtype", function, (int)dtype);
	if (op->count > (uint64_t)PTRDIFF_MAX / element)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %llu elements do not fit into memory", function,
			(unsigned long long)op->count);
	if (!op->buffer && op->count)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the buffer is NULL", function);
	if (op->peer >= comm->state.size && (op->is_send || op->peer != COLLET_ANY_SOURCE))
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: there is no rank %u in a communicator of %u", function,
			op->peer, comm->state.size);
	return COLLET_OK;
}

static collet_status check_how(const char *function, const collet_how *how)
{
	if (how->timeout_ns < COLLET_NO_TIMEOUT)
		return collet_fail(
			COLLET_ERR_ARGUMENT, "%s: how.timeout_ns is %lld", function, (long long)how->timeout_ns);
	if (!collet_how_reserves_nothing(how))
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: how.reserved is not zero", function);
	return collet_check_notice(function, how);
}

/* Under lock. */
static collet_status new_request(collet_comm *comm, int64_t timeout_ns, struct collet_request **request)
{
	const collet_status status = collet_request_acquire(&comm->state, NULL, request);
	if (status != COLLET_OK)
		return status;
	(*request)->is_p2p = true;
	(*request)->timeout_ns = timeout_ns;
	(*request)->started_ticks = collet_ticks();
	(*request)->p2p = (struct collet_p2p_call){ 0 };
	collet_request_activate(*request);
	return COLLET_OK;
}

static collet_status start_op(collet_comm *comm, const struct collet_p2p_op *op, collet_dtype dtype,
	int64_t timeout_ns, struct collet_request *parent, struct collet_request **started)
{
	struct collet_request *request;
	const collet_status status = new_request(comm, timeout_ns, &request);
	if (status != COLLET_OK)
		return status;
	const size_t element = collet_dtype_bytes(dtype);
	request->p2p = (struct collet_p2p_call){
		.is_send = op->is_send,
		.peer = op->peer,
		.tag = op->tag,
		.buffer = op->buffer,
		.bounce = op->bounce_buffer,
		.bytes = op->count * element,
		.element_bytes = element,
		.received = op->received,
		.parent = parent,
	};
	*started = request;
	return collet_p2p_start(request);
}

struct collet_request *collet_p2p_ops_start(
	collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count, collet_dtype dtype, int64_t timeout_ns)
{
	struct collet_request *request = NULL, *op;
	collet_status status = COLLET_OK;
	if (count > 1) {
		status = new_request(comm, timeout_ns, &request);
		if (status == COLLET_OK)
			request->p2p.pending_ops = count;
	}
	for (uint32_t i = 0; i < count && status == COLLET_OK; i++)
		status = start_op(comm, &ops[i], dtype, timeout_ns, count > 1 ? request : NULL,
			count > 1 ? &op : &request);
	/* Only lack of memory can fail here. It ends the communicator: half of a call may have been sent. */
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
	return request;
}

/* Under lock. */
static bool run_fast_path(collet_comm *comm, const struct collet_p2p_op *op, size_t element)
{
	const uint64_t bytes = op->count * element;
	if (op->is_send)
		return collet_p2p_send_fast(&comm->state, op->peer, op->tag, op->buffer, bytes);
	if (!collet_p2p_receive_fast(&comm->state, op->peer, op->tag, op->buffer, bytes))
		return false;
	if (op->received)
		*op->received = (collet_received){ op->peer, op->tag, op->count };
	return true;
}

/* Completes operations that need no request, up to the first that does. Returns how many. Under lock. */
static uint32_t run_all_fast_path(
	collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count, collet_dtype dtype)
{
	uint32_t completed = 0;
	while (completed < count && run_fast_path(comm, &ops[completed], collet_dtype_bytes(dtype)))
		completed++;
	return completed;
}

/* Runs the operations as requests. Under lock, which it releases. */
static collet_status run_and_unlock(collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count,
	collet_dtype dtype, const collet_how *how, struct collet_gpu_staging *staging)
{
	struct collet_engine *engine = comm->state.engine;
	struct collet_request *request = NULL;
	/* As in collet_call_prepare(). */
	collet_status status = comm->state.torn_down ? collet_comm_ended(comm) : COLLET_OK;
	if (status == COLLET_OK) {
		request = collet_p2p_ops_start(comm, ops, count, dtype, collet_call_timeout(comm, how));
		status = request ? COLLET_OK : COLLET_ERR_MEMORY;
	}
	if (status != COLLET_OK) {
		collet_engine_unlock(engine);
		return staging ? collet_offload->staging_end(staging, status) : status;
	}
	request->staging = staging;
	return collet_call_wait_or_return(request, how);
}

static collet_status run(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
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
		status = check_op(comm, function, &ops[i], dtype);
	struct collet_gpu_staging *staging = NULL;
	if (status == COLLET_OK && comm->gpu)
		status = collet_offload->p2p(comm, function, ops, count, dtype, how, &staging);
	else if (status == COLLET_OK && how->stream)
		status = collet_refuse_stream(comm, function);
	if (status != COLLET_OK || how->stream) {
		collet_comm_leave(comm);
		return status;
	}
	struct collet_engine *engine = comm->state.engine;
	bool is_biased = collet_engine_lock_biased(engine);
	const uint32_t completed = staging || !collet_how_blocks(how) ? 0 : run_all_fast_path(comm, ops, count, dtype);
	if (completed == count) {
		collet_engine_unlock_biased(engine, is_biased);
	} else {
		collet_engine_upgrade_lock(engine, &is_biased);
		status = run_and_unlock(comm, ops + completed, count - completed, dtype, how, staging);
	}
	collet_comm_leave(comm);
	return status;
}

collet_status collet_send(collet_comm *comm, const void *buf, uint64_t count, collet_dtype dtype, uint32_t peer,
	uint32_t tag, const collet_how *how)
{
	struct collet_p2p_op op = { true, (void *)(uintptr_t)buf, count, peer, tag, NULL, NULL };
	return run(comm, "collet_send", &op, 1, dtype, how);
}

collet_status collet_recv(collet_comm *comm, void *buf, uint64_t count, collet_dtype dtype, uint32_t source,
	uint32_t tag, collet_received *received, const collet_how *how)
{
	struct collet_p2p_op op = { false, buf, count, source, tag, received, NULL };
	return run(comm, "collet_recv", &op, 1, dtype, how);
}

collet_status collet_sendrecv(collet_comm *comm, const void *send, uint64_t send_count, uint32_t to, uint32_t send_tag,
	void *recv, uint64_t recv_count, uint32_t from, uint32_t recv_tag, collet_dtype dtype,
	collet_received *received, const collet_how *how)
{
	/* The send goes first: a peer may be waiting for it. */
	struct collet_p2p_op ops[2] = {
		{ true, (void *)(uintptr_t)send, send_count, to, send_tag, NULL, NULL },
		{ false, recv, recv_count, from, recv_tag, received, NULL },
	};
	return run(comm, "collet_sendrecv", ops, 2, dtype, how);
}
