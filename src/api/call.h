/* A collective call: its arguments, its plan, and its request from start to end. */
#ifndef COLLET_API_CALL_H
#define COLLET_API_CALL_H

#include "api/comm.h"

/* ---- call_plan.c */
struct collet_call_arguments;
collet_status collet_call_check_how(const struct collet_call_arguments *call, const collet_how *how);
/* Plans the request, which may come from the pool: its plan is then good for the same call again, as those of its
 * arguments say that a plan depends on, and that have been checked when it was made. Under lock. */
collet_status collet_call_plan(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request *request);

/* ---- call.c */
struct collet_gpu_staging;
struct collet_call_arguments {
	const char *function;                /* for sentences */
	enum collet_collective collective;
	const void *send;
	void *recv;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;                        /* COLLET_OP_COUNT: it combines nothing */
	uint32_t root;
	const struct collet_partition *input, *result; /* v-forms: LISTED (or an own block); else NULL */
	const struct collet_call_buffers
		*gpu_buffers; /* to be offered to the leader first (see cuda/shared_gpu/shared_gpu.h); else NULL */
	struct collet_gpu_staging *staging;  /* the buffers', with a flow: collet_call_start() takes it over, however
						it ends; else NULL */
};
collet_status collet_call_start(collet_comm *comm, const struct collet_call_arguments *arguments,
	const collet_how *how);
/* The call that comm->again knows, with other buffers, blocking. False: nothing has happened, since its plan is in use
 * or something else is under way. Not under lock. */
bool collet_call_run_cached(collet_comm *comm, const void *send, void *recv, collet_status *status);
/* The same in two steps, for a call that is started later, perhaps again and again: all checks, and a request, which is
 * the caller's to free; under lock, its start (it has not been started, or has ended). */
collet_status collet_call_prepare(collet_comm *comm, const struct collet_call_arguments *arguments,
	const collet_how *how, struct collet_request **request);
/* sides: to be offered to the leader first, as in the arguments; else NULL. flow: its buffers'; else NULL. */
void collet_call_start_prepared(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_pipeline *pipeline);
/* Of a prepared request that is done by other means than lanes: it has its place in the order of calls, or, with this
 * number, in an order of its own, that is recorded apart; it counts, and whoever does it ends it. Under lock. */
void collet_call_start_offloaded(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *out_of_band, uint64_t sequence);
/* How it has ended, with a sentence if it failed. Under lock. */
collet_status collet_call_failure(const struct collet_request *request);
static inline collet_status collet_call_outcome(const struct collet_request *request)
{
	return request->status == COLLET_OK ? COLLET_OK : collet_call_failure(request);
}
/* Of its collective's programs. */
uint32_t collet_call_program_index(const struct collet_program *program);
/* The call's own, or the communicator's; < 0: none. */
int64_t collet_call_timeout(const collet_comm *comm, const collet_how *how);
/* collet_call_start() has returned this status for a call on staged buffers (NULL: on the caller's own): ends it, or
 * leaves that to whoever settles the request. */
collet_status collet_call_attach_staging(
	struct collet_gpu_staging *staging, collet_status status, const collet_how *how);
/* Takes the status of a request that has ended, frees it and sets *request to NULL. */
collet_status collet_call_complete(struct collet_request **request);
/* The same under lock, which it lets go of. */
collet_status collet_call_complete_and_unlock(struct collet_request **request);
/* Blocks until it has ended, then settles it. */
collet_status collet_call_wait(struct collet_request **request);
/* One round of progress; COLLET_PENDING, or settled. */
collet_status collet_call_poll(struct collet_request **request);

#endif
