/* The thread that answers what streams ring, and what waits for it. */
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
#include "engine/lock.h"

/* While some call is held up by others, how often the thread looks whether the communicator has ended meanwhile. */
enum { LOOK_MS = 50 };

/* ---- Rings ---- */

static void wake(struct collet_streams *streams)
{
	const uint64_t one = 1;
	/* Pairs with the thread's: it has seen what this is about, or is seen to be in the engine. */
	if (atomic_load_explicit(&streams->in_engine, memory_order_seq_cst)) {
		collet_engine_wake(streams->engine);
		return;
	}
	const ssize_t written = write(streams->ring_fd, &one, sizeof(one));
	(void)written;  /* EAGAIN: the counter is full, so the thread is awake already */
}

void collet_streams_ring(void *data)
{
	struct collet_streamed *call = data;
	struct collet_streams *streams = call->streams;
	/* What an earlier launch of a graph has left. The stream comes to its wait when this has returned; the thread
	 * writes `done`, or has the GPU write it, after it has seen `rung`. Who reads that it is 0 again has seen
	 * `rings`, too (see stream_completion.c). */
	atomic_fetch_add_explicit(&call->rings, 1, memory_order_relaxed);
	atomic_store_explicit(call->done_word, 0, memory_order_release);
	atomic_store_explicit(&call->words->passed, 0, memory_order_relaxed);
	call->rung_ns = collet_clock_ns();
	atomic_store_explicit(&call->rung, true, memory_order_release);
	/* seq_cst: either the thread sees this ring before it sleeps, or this sees where it sleeps. */
	atomic_fetch_add_explicit(&streams->rings, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&streams->closing, memory_order_seq_cst))
		atomic_store_explicit(call->done_word, 1, memory_order_release);
	wake(streams);
}

/* ---- The thread ---- */

static bool has_ended(const struct collet_streams *streams)
{
	return atomic_load_explicit(&streams->closing, memory_order_seq_cst) ||
		atomic_load_explicit(&streams->comm->group.end_status, memory_order_acquire) != COLLET_OK;
}

/* However it has ended. Under the engine's lock. */
static void let_go(struct collet_streamed *call)
{
	const bool again = call->capture != 0;
	if (call->request && (!again || call->half_count)) {
		collet_request_release(call->request);
		call->request = NULL;
	}
	/* Pairs with the stream's wait. From here on a graph's call may ring again. */
	if (!call->ordered)
		atomic_store_explicit(call->done_word, 1, memory_order_release);
	if (!again)
		collet_streamed_let_pass(call);
}

/* Under the engine's lock. */
static void start(struct collet_streams *streams, struct collet_streamed *call)
{
	collet_comm *comm = streams->comm;
	call->ordered = false;  /* of a graph's last launch */
	call->launch = atomic_load_explicit(&call->rings, memory_order_relaxed);
	if (has_ended(streams)) {
		let_go(call);
		return;
	}
	if (call->half_count)
		call->request =
			collet_halves_start(comm, call->halves, call->half_count, call->dtype, call->timeout_ns);
	else
		collet_call_launch(comm, call->request, call->offered ? &call->sides : NULL,
			collet_staged_flow(call->staged));
	if (!call->request) {  /* no memory, which has ended the communicator */
		let_go(call);
		return;
	}
	call->active = true;
	call->next = streams->active;
	streams->active = call;
}

/* Starts what has rung and is next. Under the engine's lock. */
static void start_rung(struct collet_streams *streams)
{
	for (;;) {
		struct collet_streamed *call = collet_streams_take(streams, has_ended(streams));
		if (!call)
			return;
		const bool counted = call->capture == 0;
		start(streams, call);  /* which may have been all: then it is not this thread's any more */
		if (!counted)
			continue;
		/* seq_cst, both: a waiter that has not seen this is seen. */
		atomic_fetch_sub_explicit(&streams->unstarted, 1, memory_order_seq_cst);
		if (atomic_load_explicit(&streams->waiters, memory_order_seq_cst))
			collet_engine_wake(streams->engine);
	}
}

/* Others are told, too, of a call that was torn down with its communicator. */
static void end_over(struct collet_comm_state *group, const struct collet_request *request, collet_status status)
{
	char call[160], sentence[256];
	const bool destroyed = group->torn_down &&
		atomic_load_explicit(&group->end_status, memory_order_acquire) == COLLET_OK;
	if (!destroyed) {
		collet_comm_state_end(group, status, true, collet_last_error());
		return;
	}
	collet_request_describe(request, call, sizeof(call));
	snprintf(sentence, sizeof(sentence),
		"collet_comm_destroy: its stream had come to %s, which was not over; synchronize streams before", call);
	collet_comm_state_end(group, status, true, sentence);
}

/* Takes a call that has ended off the list. Under the engine's lock, which it lets go of while it copies. */
static void settle(struct collet_streams *streams, struct collet_streamed **at)
{
	struct collet_streamed *call = *at;
	struct collet_staged *staged = call->request->staging; /* if it was offered, and has gone by way of the host */
	collet_status status = collet_call_outcome(call->request);
	call->request->staging = NULL;
	if (call->staged)
		collet_staged_stop(call->staged);
	if (staged) {
		collet_staged_stop(staged);
		collet_engine_unlock(streams->engine);
		status = collet_staged_end(staged, status);
		collet_engine_lock(streams->engine);
	}
	/* Whatever a call on a stream ends with has nobody else to be told to. */
	if (status != COLLET_OK)
		end_over(&streams->comm->group, call->request, status);
	else if (call->request->stream_ordered)
		collet_streamed_order(call);
	*at = call->next;
	call->active = false;
	let_go(call);
}

/* Were there any? Under the engine's lock, which it may let go of meanwhile. */
static bool settle_ended(struct collet_streams *streams)
{
	bool any = false;
	for (struct collet_streamed **at = &streams->active; *at;) {
		if ((*at)->request->status == COLLET_PENDING) {
			at = &(*at)->next;
			continue;
		}
		settle(streams, at);
		any = true;
	}
	return any;
}

/* Under the engine's lock. */
static void end_if_held(struct collet_streams *streams)
{
	const int64_t now = streams->held_until ? collet_clock_ns() : 0;
	if (!streams->held_until || now < streams->held_until)
		return;
	char sentence[256];
	snprintf(sentence, sizeof(sentence),
		"%s timed out: its stream has come to it, but another stream has not come to a call that was made "
		"before it, or is captured before it; calls of a communicator start in order",
		streams->held);
	collet_comm_state_end(&streams->comm->group, COLLET_ERR_TIMEOUT, true, sentence);
}

/* Under the engine's lock. */
static bool something_happened(void *context)
{
	const struct collet_streams *streams = context;
	if (atomic_load_explicit(&streams->rings, memory_order_seq_cst) != streams->rings_seen ||
		atomic_load_explicit(&streams->stop, memory_order_seq_cst))
		return true;
	for (const struct collet_streamed *call = streams->active; call; call = call->next)
		if (call->request->status != COLLET_PENDING)
			return true;
	return collet_streams_are_due(streams) || (streams->held_until && collet_clock_ns() >= streams->held_until);
}

/* Nothing is under way: asleep, until something rings. */
static void sleep_until_rung(struct collet_streams *streams)
{
	struct pollfd ring = { .fd = streams->ring_fd, .events = POLLIN };
	uint64_t ignored;
	if (atomic_load_explicit(&streams->rings, memory_order_seq_cst) != streams->rings_seen ||
		atomic_load_explicit(&streams->stop, memory_order_seq_cst))
		return;
	const int held = streams->held_until ? collet_deadline_ms(streams->held_until, LOOK_MS) : -1;
	const int limit = streams->look_ns ? collet_deadline_ms(streams->look_ns, LOOK_MS) : held;
	(void)poll(&ring, 1, limit);
	const ssize_t got = read(streams->ring_fd, &ignored, sizeof(ignored));
	(void)got;  /* EAGAIN: it was the time that ended the poll */
}

static void *run(void *context)
{
	struct collet_streams *streams = context;
	(void)collet_cuda_relax(&streams->comm->context->cuda);
	/* What is active when it is to stop has been torn down. */
	while (!atomic_load_explicit(&streams->stop, memory_order_seq_cst) || streams->active) {
		streams->rings_seen = atomic_load_explicit(&streams->rings, memory_order_seq_cst);
		collet_engine_lock(streams->engine);
		/* A graph's call may have rung again before it is known that its last launch is done. */
		do
			start_rung(streams);
		while (settle_ended(streams));
		end_if_held(streams);
		if (streams->look_ns && (has_ended(streams) || collet_streams_are_due(streams)))
			collet_streams_look(streams, has_ended(streams));
		collet_engine_unlock(streams->engine);
		if (!streams->active) {
			sleep_until_rung(streams);
			continue;
		}
		atomic_store_explicit(&streams->in_engine, true, memory_order_seq_cst);
		collet_engine_wait(streams->engine, something_happened, streams);
		atomic_store_explicit(&streams->in_engine, false, memory_order_seq_cst);
	}
	return NULL;
}

/* ---- Calls without a stream ---- */

struct await {
	const collet_comm *comm;
	int64_t deadline;
};

static bool all_have_started(const struct collet_streams *streams)
{
	return atomic_load_explicit(&streams->unstarted, memory_order_seq_cst) == 0;
}

static bool may_go_on(void *context)
{
	const struct await *await = context;
	return all_have_started(await->comm->streams) || collet_clock_ns() >= await->deadline ||
		atomic_load_explicit(&await->comm->group.end_status, memory_order_acquire) != COLLET_OK;
}

collet_status collet_streams_let_start(collet_comm *comm, const char *function, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	struct collet_streams *streams = comm->streams;
	if (!streams || all_have_started(streams))
		return COLLET_OK;
	const int64_t timeout = collet_call_timeout(comm, how ? how : &default_how), now = collet_clock_ns();
	struct await await = { comm, timeout < 0 || timeout > COLLET_NEVER - now ? COLLET_NEVER : now + timeout };
	atomic_fetch_add_explicit(&streams->waiters, 1, memory_order_seq_cst);
	collet_engine_wait(streams->engine, may_go_on, &await);
	atomic_fetch_sub_explicit(&streams->waiters, 1, memory_order_seq_cst);
	if (!all_have_started(streams) &&
		atomic_load_explicit(&comm->group.end_status, memory_order_acquire) == COLLET_OK) {
		char sentence[256];
		snprintf(sentence, sizeof(sentence),
			"%s timed out: it comes after calls on streams, and %u of their streams have not come to them",
			function, atomic_load_explicit(&streams->unstarted, memory_order_relaxed));
		collet_comm_state_end(&comm->group, COLLET_ERR_TIMEOUT, true, sentence);
	}
	return collet_comm_ended(comm);
}

static bool has_caught_up(void *context)
{
	const struct await *await = context;
	const struct collet_streams *streams = await->comm->streams;
	if (collet_clock_ns() >= await->deadline || has_ended(streams))
		return true;
	for (const struct collet_streamed *call = streams->active; call; call = call->next)
		if (call->word.number && atomic_load_explicit(call->done_word, memory_order_relaxed))
			return false;
	return true;
}

void collet_streams_catch_up(collet_comm *comm)
{
	struct await await = { comm, collet_clock_ns() + COLLET_STREAMS_PATIENCE_NS };
	if (comm->streams)
		collet_engine_wait(comm->streams->engine, has_caught_up, &await);
}

/* ---- Beginning and end ---- */

static collet_status start_thread(struct collet_streams *streams)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are for the user's threads */
	const int error = pthread_create(&streams->thread, NULL, run, streams);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? collet_fail(COLLET_ERR_SYSTEM, "a thread for calls on streams: %s", strerror(error)) : COLLET_OK;
}

collet_status collet_streams_get(collet_comm *comm, struct collet_streams **streams)
{
	*streams = comm->streams;
	if (*streams)
		return COLLET_OK;
	struct collet_streams *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for calls on streams");
	made->comm = comm;
	made->engine = comm->group.engine;
	made->last = &made->first;
	made->ring_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	collet_status status = COLLET_OK;
	if (made->ring_fd < 0)
		status = collet_fail(COLLET_ERR_SYSTEM,
			"eventfd for calls on streams: %s; is the limit of open files (ulimit -n) reached?",
			strerror(errno));
	pthread_mutex_init(&made->lock, NULL);
	if (status == COLLET_OK)
		status = start_thread(made);
	if (status != COLLET_OK) {
		if (made->ring_fd >= 0)
			close(made->ring_fd);
		pthread_mutex_destroy(&made->lock);
		free(made);
		return status;
	}
	collet_engine_lock(made->engine);
	made->next_in_context = comm->context->streams;
	comm->context->streams = made;
	collet_engine_unlock(made->engine);
	*streams = comm->streams = made;
	return COLLET_OK;
}

void collet_streams_close(collet_comm *comm)
{
	struct collet_streams *streams = comm->streams;
	if (!streams)
		return;
	atomic_store_explicit(&streams->closing, true, memory_order_seq_cst);
	/* Which has rung before, and is not next. */
	atomic_fetch_add_explicit(&streams->rings, 1, memory_order_seq_cst);
	wake(streams);
}

void collet_streams_stop(struct collet_streams *streams)
{
	atomic_store_explicit(&streams->stop, true, memory_order_seq_cst);
	wake(streams);
	pthread_join(streams->thread, NULL);
}
