/* Runs the thread that answers the doorbells of streams, and waits for it on behalf of other calls. */
#include "cuda/stream/stream_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/gpu_call.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/request.h"
#include "engine/sleep.h"
#include "engine/wait.h"

/* How often the thread checks whether the communicator has ended, while a call waits for others. */
enum { POLL_MS = 50 };

/* ---- Doorbells ---- */

static void wake(struct collet_streams *streams)
{
	const uint64_t one = 1;
	/* Pairs with the thread's store: it sees the doorbell before it waits, or is seen to wait in the engine. */
	if (atomic_load_explicit(&streams->is_in_engine, memory_order_seq_cst)) {
		collet_engine_wake(streams->engine);
		return;
	}
	const ssize_t written = write(streams->doorbell_fd, &one, sizeof(one));
	(void)written; /* EAGAIN: the counter is full, so the thread wakes anyway */
}

void collet_streams_ring_doorbell(void *data)
{
	struct collet_stream_call *call = data;
	struct collet_streams *streams = call->streams;
	/* Clears what an earlier launch of a graph has left. The stream waits only after this has returned, and the
	 * thread (or the GPU for it) sets `done` only after it has seen `rung`. Whoever reads a 0 here also sees the
	 * new count of doorbells (stream_completion.c). */
	atomic_fetch_add_explicit(&call->doorbells, 1, memory_order_relaxed);
	atomic_store_explicit(call->done_flag, 0, memory_order_release);
	atomic_store_explicit(&call->flags->released, 0, memory_order_relaxed);
	call->rung_ns = collet_clock_ns();
	atomic_store_explicit(&call->rung, true, memory_order_release);
	/* seq_cst: either the thread sees this doorbell before it sleeps, or this sees where it sleeps. */
	atomic_fetch_add_explicit(&streams->doorbells, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&streams->is_closing, memory_order_seq_cst))
		atomic_store_explicit(call->done_flag, 1, memory_order_release);
	wake(streams);
}

/* ---- The thread ---- */

static bool has_ended(const struct collet_streams *streams)
{
	return atomic_load_explicit(&streams->is_closing, memory_order_seq_cst) ||
		atomic_load_explicit(&streams->comm->state.end_status, memory_order_acquire) != COLLET_OK;
}

/* Releases a call, however it has ended. Under the engine's lock. */
static void release_call(struct collet_stream_call *call)
{
	const bool is_captured = call->capture != 0;
	if (call->request && (!is_captured || call->op_count)) {
		collet_request_release(call->request);
		call->request = NULL;
	}
	/* Pairs with the stream's wait. A graph's call may ring again from here on. */
	if (!call->is_on_gpu)
		atomic_store_explicit(call->done_flag, 1, memory_order_release);
	if (!is_captured)
		collet_stream_call_await_release(call);
}

/* Under the engine's lock. */
static void start(struct collet_streams *streams, struct collet_stream_call *call)
{
	collet_comm *comm = streams->comm;
	call->is_on_gpu = false; /* as a graph's last launch may have left it */
	call->started_doorbells = atomic_load_explicit(&call->doorbells, memory_order_relaxed);
	if (has_ended(streams)) {
		release_call(call);
		return;
	}
	if (call->op_count)
		call->request =
			collet_p2p_ops_start(comm, call->ops, call->op_count, call->dtype, call->timeout_ns);
	else
		collet_gpu_call_start_prepared(comm, call->request, call->is_for_leader ? &call->gpu_buffers : NULL,
			collet_gpu_staging_pipeline(call->staging));
	if (!call->request) { /* no memory; that has ended the communicator */
		release_call(call);
		return;
	}
	call->is_active = true;
	call->next = streams->active;
	streams->active = call;
}

/* Starts the calls that have rung and are next. Under the engine's lock. */
static void start_rung(struct collet_streams *streams)
{
	for (;;) {
		struct collet_stream_call *call = collet_streams_next(streams, has_ended(streams));
		if (!call)
			return;
		const bool counted = call->capture == 0;
		start(streams, call); /* may release the call, which is not this thread's then */
		if (!counted)
			continue;
		/* seq_cst, both: a waiter that does not see the new count is seen here. */
		atomic_fetch_sub_explicit(&streams->unstarted_count, 1, memory_order_seq_cst);
		if (atomic_load_explicit(&streams->waiter_count, memory_order_seq_cst))
			collet_engine_wake(streams->engine);
	}
}

/* Ends the communicator for a failed call. Other ranks hear also of a call that was torn down with it. */
static void end_for_call(struct collet_comm_state *state, const struct collet_request *request, collet_status status)
{
	char call[160], error_text[256];
	const bool destroyed = state->torn_down &&
		atomic_load_explicit(&state->end_status, memory_order_acquire) == COLLET_OK;
	if (!destroyed) {
		collet_comm_state_end(state, status, true, collet_last_error());
		return;
	}
	collet_request_describe(request, call, sizeof(call));
	snprintf(error_text, sizeof(error_text),
		"collet_comm_destroy: its stream had come to %s, which was not over; synchronize streams before", call);
	collet_comm_state_end(state, status, true, error_text);
}

/* Takes a call that has ended from the list. Under the engine's lock, which it releases while it copies. */
static void complete(struct collet_streams *streams, struct collet_stream_call **at)
{
	struct collet_stream_call *call = *at;
	/* Its own, if the leader has decided that each rank stages its buffers. */
	struct collet_gpu_staging *staging = call->request->staging;
	collet_status status = collet_call_outcome(call->request);
	call->request->staging = NULL;
	if (call->staging)
		collet_gpu_staging_stop(call->staging);
	if (staging) {
		collet_gpu_staging_stop(staging);
		collet_engine_unlock(streams->engine);
		status = collet_gpu_staging_end(staging, status);
		collet_engine_lock(streams->engine);
	}
	/* Nobody waits for the call's status, so an error becomes the communicator's. */
	if (status != COLLET_OK)
		end_for_call(&streams->comm->state, call->request, status);
	else if (call->request->signals_stream)
		collet_stream_call_await_gpu(call);
	*at = call->next;
	call->is_active = false;
	release_call(call);
}

/* Completes the calls that have ended; true if there were any. Under the engine's lock, which it may release meanwhile.
 */
static bool complete_ended(struct collet_streams *streams)
{
	bool any = false;
	for (struct collet_stream_call **at = &streams->active; *at;) {
		if ((*at)->request->status == COLLET_PENDING) {
			at = &(*at)->next;
			continue;
		}
		complete(streams, at);
		any = true;
	}
	return any;
}

/* Under the engine's lock. */
static void end_if_order_timed_out(struct collet_streams *streams)
{
	const int64_t now = streams->deferred_until ? collet_clock_ns() : 0;
	if (!streams->deferred_until || now < streams->deferred_until)
		return;
	char error_text[256];
	snprintf(error_text, sizeof(error_text),
		"%s timed out: its stream has come to it, but another stream has not come to a call that was made "
		"before it, or is captured before it; calls of a communicator start in order",
		streams->deferred_function);
	collet_comm_state_end(&streams->comm->state, COLLET_ERR_TIMEOUT, true, error_text);
}

/* Under the engine's lock. */
static bool has_event(void *context)
{
	const struct collet_streams *streams = context;
	if (atomic_load_explicit(&streams->doorbells, memory_order_seq_cst) != streams->doorbells_seen ||
		atomic_load_explicit(&streams->is_stopping, memory_order_seq_cst))
		return true;
	for (const struct collet_stream_call *call = streams->active; call; call = call->next)
		if (call->request->status != COLLET_PENDING)
			return true;
	return collet_streams_poll_is_due(streams) ||
	       (streams->deferred_until && collet_clock_ns() >= streams->deferred_until);
}

/* Sleeps until a doorbell rings. No call is active. */
static void sleep_until_rung(struct collet_streams *streams)
{
	struct pollfd ring = { .fd = streams->doorbell_fd, .events = POLLIN };
	uint64_t ignored;
	if (atomic_load_explicit(&streams->doorbells, memory_order_seq_cst) != streams->doorbells_seen ||
		atomic_load_explicit(&streams->is_stopping, memory_order_seq_cst))
		return;
	const int deferred_ms = streams->deferred_until ? collet_deadline_ms(streams->deferred_until, POLL_MS) : -1;
	const int limit = streams->next_poll_ns ? collet_deadline_ms(streams->next_poll_ns, POLL_MS) : deferred_ms;
	(void)poll(&ring, 1, limit);
	const ssize_t got = read(streams->doorbell_fd, &ignored, sizeof(ignored));
	(void)got; /* EAGAIN: the poll has timed out */
}

static void *run(void *context)
{
	struct collet_streams *streams = context;
	(void)collet_cuda_relax_capture(&streams->comm->context->gpu->cuda);
	/* Calls that are active when it must stop have been torn down, and end soon. */
	while (!atomic_load_explicit(&streams->is_stopping, memory_order_seq_cst) || streams->active) {
		streams->doorbells_seen = atomic_load_explicit(&streams->doorbells, memory_order_seq_cst);
		collet_engine_lock(streams->engine);
		/* A graph's call may ring again before its last launch is completed here. */
		do
			start_rung(streams);
		while (complete_ended(streams));
		end_if_order_timed_out(streams);
		if (streams->next_poll_ns && (has_ended(streams) || collet_streams_poll_is_due(streams)))
			collet_streams_poll_completions(streams, has_ended(streams));
		collet_engine_unlock(streams->engine);
		if (!streams->active) {
			sleep_until_rung(streams);
			continue;
		}
		atomic_store_explicit(&streams->is_in_engine, true, memory_order_seq_cst);
		collet_engine_wait(streams->engine, has_event, streams);
		atomic_store_explicit(&streams->is_in_engine, false, memory_order_seq_cst);
	}
	return NULL;
}

/* ---- Calls without a stream ---- */

struct wait_until {
	const collet_comm *comm;
	int64_t deadline;
};

static bool all_started(const struct collet_streams *streams)
{
	return atomic_load_explicit(&streams->unstarted_count, memory_order_seq_cst) == 0;
}

static bool may_continue(void *context)
{
	const struct wait_until *until = context;
	return all_started(until->comm->gpu->streams) || collet_clock_ns() >= until->deadline ||
	       atomic_load_explicit(&until->comm->state.end_status, memory_order_acquire) != COLLET_OK;
}

collet_status collet_streams_wait_started(collet_comm *comm, const char *function, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	struct collet_streams *streams = comm->gpu->streams;
	if (!streams || all_started(streams))
		return COLLET_OK;
	const int64_t timeout = collet_call_timeout(comm, how ? how : &default_how), now = collet_clock_ns();
	struct wait_until until = { comm, timeout < 0 || timeout > COLLET_NEVER - now ? COLLET_NEVER : now + timeout };
	atomic_fetch_add_explicit(&streams->waiter_count, 1, memory_order_seq_cst);
	collet_engine_wait(streams->engine, may_continue, &until);
	atomic_fetch_sub_explicit(&streams->waiter_count, 1, memory_order_seq_cst);
	if (!all_started(streams) && atomic_load_explicit(&comm->state.end_status, memory_order_acquire) == COLLET_OK) {
		char error_text[256];
		snprintf(error_text, sizeof(error_text),
			"%s timed out: it comes after calls on streams, and %u of their streams have not come to them",
			function, atomic_load_explicit(&streams->unstarted_count, memory_order_relaxed));
		collet_comm_state_end(&comm->state, COLLET_ERR_TIMEOUT, true, error_text);
	}
	return collet_comm_ended(comm);
}

static bool has_drained(void *context)
{
	const struct wait_until *until = context;
	const struct collet_streams *streams = until->comm->gpu->streams;
	if (collet_clock_ns() >= until->deadline || has_ended(streams))
		return true;
	for (const struct collet_stream_call *call = streams->active; call; call = call->next)
		if (call->completion_flag.index && atomic_load_explicit(call->done_flag, memory_order_relaxed))
			return false;
	return true;
}

void collet_streams_drain(collet_comm *comm)
{
	struct wait_until until = { comm, collet_clock_ns() + COLLET_STREAMS_RELEASE_TIMEOUT_NS };
	if (comm->gpu->streams)
		collet_engine_wait(comm->gpu->streams->engine, has_drained, &until);
}

/* ---- Creating and ending ---- */

static collet_status start_thread(struct collet_streams *streams)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the user's threads */
	const int error = pthread_create(&streams->thread, NULL, run, streams);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? collet_fail(COLLET_ERR_SYSTEM, "a thread for calls on streams: %s", strerror(error)) : COLLET_OK;
}

collet_status collet_streams_get(collet_comm *comm, struct collet_streams **streams)
{
	*streams = comm->gpu->streams;
	if (*streams)
		return COLLET_OK;
	struct collet_streams *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for calls on streams");
	made->comm = comm;
	made->engine = comm->state.engine;
	made->last = &made->first;
	made->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	collet_status status = COLLET_OK;
	if (made->doorbell_fd < 0)
		status = collet_fail(COLLET_ERR_SYSTEM,
			"eventfd for calls on streams: %s; is the limit of open files (ulimit -n) reached?",
			strerror(errno));
	pthread_mutex_init(&made->lock, NULL);
	if (status == COLLET_OK)
		status = start_thread(made);
	if (status != COLLET_OK) {
		if (made->doorbell_fd >= 0)
			close(made->doorbell_fd);
		pthread_mutex_destroy(&made->lock);
		free(made);
		return status;
	}
	collet_engine_lock(made->engine);
	made->next_in_context = comm->context->gpu->streams;
	comm->context->gpu->streams = made;
	collet_engine_unlock(made->engine);
	*streams = comm->gpu->streams = made;
	return COLLET_OK;
}

void collet_streams_close(collet_comm *comm)
{
	struct collet_streams *streams = comm->gpu->streams;
	if (!streams)
		return;
	atomic_store_explicit(&streams->is_closing, true, memory_order_seq_cst);
	/* So that the thread also releases calls that have rung and are not next. */
	atomic_fetch_add_explicit(&streams->doorbells, 1, memory_order_seq_cst);
	wake(streams);
}

void collet_streams_stop(struct collet_streams *streams)
{
	atomic_store_explicit(&streams->is_stopping, true, memory_order_seq_cst);
	wake(streams);
	pthread_join(streams->thread, NULL);
}
