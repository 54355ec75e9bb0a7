/* Implements the public functions that test requests, wait for them and make progress. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>

#include "api/call.h"
#include "api/on_end.h"
#include "core/clock.h"
#include "core/status.h"
#include "engine/lock.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"
#include "engine/sleep.h"
#include "engine/wait.h"
#include "engine/watch.h"

/* Refuses callers that must not make progress. In a forked child it would take the parent's messages from its
 * connections, or wait for a lock that no thread there holds. */
static collet_status check_caller(const struct collet_context *context, const char *function)
{
	if (!collet_context_forked(context))
		return collet_check_nested(function);
	return collet_fail(COLLET_ERR_FORKED,
		"%s: this process is a fork of the one that created the communicator; its calls end there", function);
}

static const struct collet_context *context_of(const struct collet_request *request)
{
	static_assert(offsetof(struct collet_context, engine) == 0, "the engine's address is its context's");
	return (const struct collet_context *)request->state->engine;
}

/* Refuses to wait in on_end() for a request whose own on_end() comes later. */
static collet_status check_order(const struct collet_request *request, const char *function)
{
	return !collet_in_on_end || !request->on_end
		       ? COLLET_OK
		       : collet_fail(COLLET_ERR_ARGUMENT,
				 "%s: called by how.on_end() for a request that has how.on_end() too, which is called "
				 "later",
				 function);
}

/* Makes the checks that each function begins with that waits. */
static collet_status check_wait(collet_request **request, const char *function)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: request is NULL", function);
	if (!*request)
		return COLLET_OK;
	const collet_status status = check_caller(context_of(*request), function);
	return status == COLLET_OK ? check_order(*request, function) : status;
}

collet_status collet_request_test(collet_request **request)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_test: request is NULL");
	if (!*request)
		return COLLET_OK;
	const collet_status status = check_caller(context_of(*request), "collet_request_test");
	return status == COLLET_OK ? collet_call_poll(request) : status;
}

collet_status collet_request_wait(collet_request **request)
{
	const collet_status status = check_wait(request, "collet_request_wait");
	return status == COLLET_OK && *request ? collet_call_wait(request) : status;
}

static collet_status check_timeout(int64_t timeout_ns, const char *function)
{
	return timeout_ns >= COLLET_NO_TIMEOUT
		       ? COLLET_OK
		       : collet_fail(COLLET_ERR_ARGUMENT,
				 "%s: timeout_ns is %lld; a number of ns or COLLET_NO_TIMEOUT is meant", function,
				 (long long)timeout_ns);
}

collet_status collet_request_wait_for(collet_request **request, int64_t timeout_ns)
{
	static const char function[] = "collet_request_wait_for";
	collet_status status = check_wait(request, function);
	if (status == COLLET_OK)
		status = check_timeout(timeout_ns, function);
	if (status != COLLET_OK || !*request)
		return status;
	return collet_call_wait_until(request, collet_deadline_after(timeout_ns));
}

collet_status collet_request_cancel(collet_request *request)
{
	static const char function[] = "collet_request_cancel";
	if (!request)
		return COLLET_OK;
	const collet_status status = check_caller(context_of(request), function);
	if (status != COLLET_OK)
		return status;
	struct collet_engine *engine = request->state->engine;
	collet_engine_lock(engine);
	bool has_ended = request->status != COLLET_PENDING;
	if (!has_ended && request->is_p2p && collet_p2p_withdraw(request, COLLET_CANCELLED)) {
		has_ended = true;
		/* Another thread may be asleep until it ends, or wait to tell of it. */
		collet_engine_wake(engine);
		if (engine->is_watched)
			collet_watch_interrupt(engine);
	}
	collet_engine_unlock(engine);
	return has_ended ? COLLET_OK : COLLET_PENDING;
}

struct wait_any {
	collet_request **requests;
	size_t count, ended;
	const struct collet_engine *engine;
	uint64_t checked_count;          /* requests that had ended when all of these were looked at */
};

static bool any_has_completed(void *context)
{
	struct wait_any *any = context;
	if (any->checked_count == any->engine->ended_count)
		return false;
	any->checked_count = any->engine->ended_count;
	for (size_t i = 0; i < any->count; i++) {
		if (any->requests[i] && collet_request_has_ended(any->requests[i])) {
			any->ended = i;
			return true;
		}
	}
	return false;
}

collet_status collet_request_wait_any(collet_request **requests, size_t count, size_t *index)
{
	if (!index || (!requests && count))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_wait_any: requests or index is NULL");
	size_t first = 0;
	while (first < count && !requests[first])
		first++;
	*index = first;
	if (first == count)
		return COLLET_OK;
	collet_status status = check_caller(context_of(requests[first]), "collet_request_wait_any");
	for (size_t i = first; i < count && collet_in_on_end && status == COLLET_OK; i++)
		status = requests[i] ? check_order(requests[i], "collet_request_wait_any") : COLLET_OK;
	if (status != COLLET_OK)
		return status;
	struct collet_engine *engine = requests[first]->state->engine;
	struct wait_any any = { requests, count, first, engine, UINT64_MAX };
	collet_engine_wait(engine, any_has_completed, &any);
	*index = any.ended;
	return collet_call_complete(&requests[any.ended]);
}

collet_status collet_request_wait_all(collet_request **requests, size_t count)
{
	if (!requests && count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_wait_all: requests is NULL");
	collet_status first = COLLET_OK;
	char error_text[COLLET_ERROR_BYTES]; /* of the first failure; clearing it would cost each call 15 ns */
	for (size_t i = 0; i < count; i++) {
		const collet_status status = collet_request_wait(&requests[i]);
		if (status != COLLET_OK && first == COLLET_OK) {
			first = status;
			snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
		}
	}
	return first == COLLET_OK ? COLLET_OK : collet_fail_copy(first, error_text);
}

/* ---- Progress ---- */

static collet_status check_comm(const collet_comm *comm, const char *function)
{
	return comm ? check_caller(comm->context, function)
		    : collet_fail(COLLET_ERR_ARGUMENT, "%s: the communicator is NULL", function);
}

collet_status collet_progress(collet_comm *comm, int64_t timeout_ns)
{
	collet_status status = check_comm(comm, "collet_progress");
	if (status == COLLET_OK)
		status = check_timeout(timeout_ns, "collet_progress");
	if (status != COLLET_OK)
		return status;
	return collet_engine_progress_until(
		       &comm->context->engine, timeout_ns ? collet_deadline_after(timeout_ns) : 0)
		       ? COLLET_OK
		       : COLLET_PENDING;
}

collet_status collet_comm_descriptor(collet_comm *comm, int *descriptor)
{
	collet_status status = check_comm(comm, "collet_comm_descriptor");
	if (status != COLLET_OK)
		return status;
	if (!descriptor)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_descriptor: descriptor is NULL");
	struct collet_engine *engine = &comm->context->engine;
	collet_engine_lock(engine);
	status = collet_watch_open(engine);
	if (status == COLLET_OK)
		*descriptor = engine->watch_fd;
	collet_engine_unlock(engine);
	return status;
}
