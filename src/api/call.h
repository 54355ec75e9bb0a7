/* Plans, starts and completes collective calls whose arguments have been checked.
 *
 * A call on host memory goes through collet_call_run(). src/cuda starts other calls from the steps below it. */
#ifndef COLLET_API_CALL_H
#define COLLET_API_CALL_H

#include "api/comm.h"
#include "api/offload.h"
#include "engine/request.h"
#include "selection/choice.h"

/* True if the same arguments may mean another operation at each call. */
static inline bool collet_op_is_caller_defined(collet_op op)
{
	return op == COLLET_USER || op == COLLET_PREMUL_SUM;
}

struct collet_call_arguments {
	const char *function; /* static, for error texts */
	enum collet_collective collective;
	const void *send;
	void *recv;
	uint64_t count;
	collet_dtype dtype;
	collet_op op; /* COLLET_OP_COUNT if it does not reduce */
	uint32_t root;
	const struct collet_partition *input_partition, *result_partition; /* partitions of a v-form (VECTOR, or an
	                                                                      own block); else NULL */
};

/* ---- Running a call (call.c) */

/* Runs a call on host memory to its end, or starts it if how does not block. how may be NULL. */
collet_status collet_call_run(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how);
/* Repeats the blocking call that was cached with other buffers. Returns false if its plan is in use or another call is
 * pending; nothing has happened then. Takes the engine's lock. */
bool collet_call_run_cached(collet_comm *comm, const struct collet_cached_call *cached, const void *send, void *recv,
	collet_status *status);
/* Starts the call that was cached with other buffers, if how asks for no wait, and for nothing else but a timeout.
 * Returns false if a plan must be made, the call is large, or several threads make calls; nothing has happened then.
 * Takes the engine's lock. */
bool collet_call_start_cached(collet_comm *comm, const struct collet_cached_call *cached, const void *send, void *recv,
	const collet_how *how);

/* ---- The steps of a call, for code that does something between them (call.c, call_plan.c) */

/* True if how asks for nothing that this version does not know. Reads word by word: the caller has just stored them,
 * and a load of several that were stored apart waits for all earlier stores (see ALWAYS_INLINE in collectives.c). */
static inline bool collet_how_reserves_nothing(const collet_how *how)
{
	for (size_t i = 0; i < sizeof(how->reserved) / sizeof(how->reserved[0]); i++)
		if (how->reserved[i])
			return false;
	return true;
}

/* Checks timeout_ns, channels and reserved of how. */
collet_status collet_call_check_how(const struct collet_call_arguments *call, const collet_how *how);
/* Acquires a request and plans it. The caller starts it, perhaps repeatedly, or releases it. how has been checked.
 * Under lock. */
collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request **request);
/* Returns the arguments that the call's plan depends on. */
struct collet_plan_key collet_call_plan_key(const struct collet_call_arguments *call, const collet_how *how);
/* Plans the request, which may come from the pool and still have a plan. That plan is used again if it has this key,
 * the call's; the arguments were checked when it was made. Under lock. */
collet_status collet_call_plan(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	const struct collet_plan_key *key, struct collet_request *request);
/* Makes the request the communicator's next call. Under lock. */
void collet_call_assign_sequence(struct collet_request *request);
/* Starts a prepared request that has its sequence number, and counts it. If the caller blocks, the first polls of its
 * messages are made here. A failure ends the communicator. Under lock. */
void collet_call_start(collet_comm *comm, struct collet_request *request, bool blocks);
/* Puts the request into the flight recorder and the list of pending requests: the first step of every start but
 * collet_call_start(), which includes it. Under lock. */
void collet_call_record_start(struct collet_request *request);
/* Waits for a started request and returns its status; or, if how does not block, passes the request on as how says and
 * returns COLLET_OK. Under lock, which it releases. */
collet_status collet_call_wait_or_return(struct collet_request *request, const collet_how *how);

/* ---- How a call ends (call.c) */

/* Describes why the request failed as this thread's error, and returns its status. Under lock. */
collet_status collet_call_failure(const struct collet_request *request);
static inline collet_status collet_call_outcome(const struct collet_request *request)
{
	return request->status == COLLET_OK ? COLLET_OK : collet_call_failure(request);
}
/* Releases a request that has ended and whose on_end(), if any, runs or has run. Under lock. */
void collet_call_release(struct collet_request *request);
/* Takes the status of a request that has ended, frees it and sets *request to NULL. Takes the engine's lock. */
collet_status collet_call_complete(struct collet_request **request);
/* Blocks until the request has ended, then completes it. */
collet_status collet_call_wait(struct collet_request **request);
/* Does so too, but returns COLLET_PENDING if the request has not ended by this time of the clock. */
collet_status collet_call_wait_until(struct collet_request **request, int64_t until_ns);
/* Makes one round of progress. Returns COLLET_PENDING, or completes the request. */
collet_status collet_call_poll(struct collet_request **request);

/* ---- Parts of planning, for other callers too (call_plan.c) */

/* Returns the inputs of the choice of an algorithm, the same on all ranks. is_vector: the call is a v-form. */
struct collet_choice_basis collet_call_choice_basis(
	collet_comm *comm, const struct collet_path_query *query, bool is_vector);
/* Returns the algorithm of a call for which none is named. query->program is not read. */
struct collet_decision collet_call_choose(
	const struct collet_choice_basis *basis, const struct collet_path_query *query, bool commutes);
/* Returns the program's index among those of its collective. */
uint32_t collet_call_program_index(const struct collet_program *program);
/* Returns the timeout of how, or else the communicator's; < 0 is none. */
int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how);

#endif
