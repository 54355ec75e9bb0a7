/* Waiting for requests. */
#include <stdio.h>

#include "comm/comm.h"

collet_status collet_request_test(collet_request **request)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_test: request is NULL");
	return *request ? collet_call_poll(request) : COLLET_OK;
}

collet_status collet_request_wait(collet_request **request)
{
	if (!request)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_wait: request is NULL");
	return *request ? collet_call_wait(request) : COLLET_OK;
}

struct any {
	collet_request **requests;
	size_t count, ended;
};

static bool any_has_ended(void *context)
{
	struct any *any = context;
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
	struct any any = { requests, count, first };
	collet_engine_wait(requests[first]->group->engine, any_has_ended, &any);
	*index = any.ended;
	return collet_call_settle(&requests[any.ended]);
}

collet_status collet_request_wait_all(collet_request **requests, size_t count)
{
	if (!requests && count)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_request_wait_all: requests is NULL");
	collet_status first = COLLET_OK;
	char sentence[COLLET_ERROR_BYTES] = "";
	for (size_t i = 0; i < count; i++) {
		const collet_status status = requests[i] ? collet_call_wait(&requests[i]) : COLLET_OK;
		if (status != COLLET_OK && first == COLLET_OK) {
			first = status;
			snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
		}
	}
	return first == COLLET_OK ? COLLET_OK : collet_fail_again(first, sentence);
}
