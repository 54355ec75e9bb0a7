/* Tells callers that their calls have ended: how.on_end. */
#ifndef COLLET_API_ON_END_H
#define COLLET_API_ON_END_H

#include <stdbool.h>

#include "api/comm.h"
#include "engine/request.h"

/* Refuses a function that on_end() must not call. */
collet_status collet_check_on_end(const char *function);

/* Checks that how does not ask for a stream and for on_end() or a request. */
collet_status collet_check_notice(const char *function, const collet_how *how);

/* True if the call returns when it has ended. */
static inline bool collet_how_blocks(const collet_how *how)
{
	return !how->request && !how->on_end;
}

/* Has on_end() told of the end of a started request, if how says so. Under the engine's lock. */
static inline void collet_request_use_how(struct collet_request *request, const collet_how *how)
{
	if (how->on_end)
		collet_request_set_on_end(request, how->on_end, how->on_end_context, !how->request);
	if (how->request)
		*how->request = request;
}

/* Calls on_end() of all requests that have ended (engine.run_on_end). Does nothing if another thread does so. */
void collet_run_on_end(struct collet_engine *engine);
/* Returns when each on_end() of the communicator has been called and has returned. It has been torn down. Not under the
 * lock. */
void collet_drain_on_end(struct collet_comm_state *state);

#endif
