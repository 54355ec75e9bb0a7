/* Implements the public functions that test requests and wait for them. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>

#include "api/call.h"
#include "core/status.h"
#include "engine/request.h"
#include "engine/wait.h"

/* Refuses callers that must not make progress. In a forked child it would take the parent's messages from its
 * connections, or wait for a lock that no thread there holds. */
static collet_status check_caller(const struct collet_request *request, const char *function)
{
	static_assert(offsetof(struct collet_context, engine) == 0, "the engine's address is its context's");
	if (!collet_context_forked((const struct collet_context *)request->state->engine))
		return collet_check_nested(function);
	return collet_fail(COLLET_ERR_FORKED,
		"%s: this process is a fork of the one that started the request; it ends there", function);
}

collet_status collet_request_test(collet_request **request)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_test: request is NULL");
	if (!*request)
		return COLLET_OK;
	const collet_status status = check_caller(*request, "collet_request_test");
	return status == COLLET_OK ? collet_call_poll(request) : status;
}

collet_status collet_request_wait(collet_request **request)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_wait: request is NULL");
	if (!*request)
		return COLLET_OK;
	const collet_status status = check_caller(*request, "collet_request_wait");
	return status == COLLET_OK ? collet_call_wait(request) : status;
}

struct wait_any {
	collet_request **requests;
	size_t count, ended;
};

static bool any_has_completed(void *context)
{
	struct wait_any *any = context;
	for (size_t i = 0; i < any->count; i++) {
		if (any->requests[i] && any->requests[i]->status != COLLET_PENDING) {
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
	const collet_status status = check_caller(requests[first], "collet_request_wait_any");
	if (status != COLLET_OK)
		return status;
	struct wait_any any = { requests, count, first };
	collet_engine_wait(requests[first]->state->engine, any_has_completed, &any);
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
