/* Creates, ends and destroys communicators. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/comm.h"
#include "api/offload.h"
#include "api/on_end.h"
#include "api/turns.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/lock.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "selection/choice.h"
#include "selection/tuning.h"

/* ---- Making ---- */

/* Returns the speed of the slowest host's link; 0 if one is unknown or ranks share cores. Where they share cores, work
 * of all ranks of a host takes longer than the formulas say, and a link taken for slow means less of it
 * (docs/design/choice.md). */
static uint32_t least_link_mbps(const struct collet_comm *comm, uint32_t local_ranks, uint32_t cores)
{
	uint32_t least = collet_tuning_ranks_per_core(local_ranks, cores) > 1 ? 0 : UINT32_MAX;
	for (uint32_t r = 0; r < comm->state.size && least > 0; r++) {
		const struct collet_peer_info *peer_info =
			&comm->context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->state, r)];
		least = peer_info->link_mbps < least ? peer_info->link_mbps : least;
	}
	return least;
}

/* Fills the inputs of choices: from the machine, or from none if the bits must not depend on it. Every rank computes
 * the same table, since all it reads is from rank 0 or from the peer_infos that all ranks have. */
static void fill_choice_inputs(struct collet_comm *comm)
{
	const struct collet_context *context = comm->context;
	const uint32_t cores = context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->state, 0)].host_cores;
	const struct collet_layout *layout = &comm->by_host;
	const uint32_t local_ranks = (comm->state.size + layout->host_count - 1) / layout->host_count;
	struct collet_choice_inputs *inputs = &comm->inputs;
	*inputs = (struct collet_choice_inputs){
		.size = comm->state.size,
		.host_count = layout->host_count,
		.host_first = layout->host_count > 1 ? layout->host_first : NULL,
		.order = layout->order,
		.cores_per_host = cores,
		.local = collet_tuning_find(
			context->links, context->link_count, collet_local_transport(context), local_ranks, cores),
		.remote = collet_tuning_find(context->links, context->link_count, "tcp", local_ranks, cores),
		.network_byte_ns = collet_tuning_network_byte_ns(
			context->links, context->link_count, least_link_mbps(comm, local_ranks, cores)),
		.scratch_bytes = COLLET_SCRATCH_BYTES,
	};
	inputs->beside = collet_tuning_find_beside(
		context->links, context->link_count, inputs->local, comm->state.size, cores);
	if (context->agreement.are_cores_far && layout->host_count == 1)
		inputs->far = collet_tuning_find_far(context->links, context->link_count,
			collet_local_transport(context), comm->state.size, cores);
	if (context->deterministic) {
		inputs->host_count = 1;
		inputs->host_first = inputs->order = NULL;
		inputs->cores_per_host = 0;
		inputs->local = inputs->remote = &context->fixed_link;
		inputs->beside = inputs->far = NULL;
	}
	if (inputs->host_count > 1 && comm->state.rank == 0)
		collet_log(&context->engine.log, COLLET_LOG_INFO,
			"choices take the slowest link between hosts for one of %.0f Mb/s",
			8000 / inputs->network_byte_ns);
	collet_choice_table_init(&comm->table, inputs);
}

static void free_comm(struct collet_comm *comm)
{
	collet_turns_destroy(comm->state.turns, collet_context_forked(comm->context));
	collet_comm_state_deinit(&comm->state);
	collet_layouts_deinit(comm);
	pthread_mutex_destroy(&comm->group_counts.lock);
	free(comm->group_counts.counts);
	free(comm->world_ranks);
	free(comm);
}

/* Ends pending requests, and takes the communicator's state from the engine. */
static void tear_down(struct collet_comm *comm)
{
	struct collet_engine *engine = &comm->context->engine;
	collet_engine_lock(engine);
	if (comm->gpu)
		collet_offload->comm_abort(comm);
	collet_comm_state_tear_down(&comm->state);
	for (struct collet_request *request = comm->state.all_requests; request; request = request->next_allocated) {
		if (!request->staging)
			continue;
		collet_offload->staging_stop(request->staging);
		(void)collet_offload->staging_end(request->staging, COLLET_ERR_ABORTED);
		request->staging = NULL;
	}
	for (struct collet_comm_state **at = &engine->all_states; *at; at = &(*at)->next_in_all) {
		if (*at == &comm->state) {
			*at = comm->state.next_in_all;
			break;
		}
	}
	collet_engine_unlock(engine);
}

/* Tells the members that this one could not create the communicator. They would wait for it. */
static collet_status fail_for_all(const struct collet_comm_state *state, collet_status status)
{
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	collet_connections_notify_end(state, status, error_text);
	return collet_fail_copy(status, error_text);
}

collet_status collet_comm_make(
	collet_comm **made, struct collet_context *context, uint64_t id, uint32_t rank, uint32_t size, uint32_t *world)
{
	struct collet_comm *comm = calloc(1, sizeof(*comm));
	if (!comm) {
		const struct collet_comm_state unmade = {
			.engine = &context->engine, .id = id, .rank = rank, .size = size, .world_ranks = world
		};
		const collet_status status = fail_for_all(
			&unmade, collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator"));
		free(world);
		return status;
	}
	pthread_mutex_init(&comm->group_counts.lock, NULL);
	comm->context = context;
	comm->world_ranks = world;
	comm->state.engine = &context->engine;
	comm->state.id = id;
	comm->state.rank = rank;
	comm->state.size = size;
	comm->state.world_ranks = world;
	atomic_init(&comm->state.timeout_ns, context->launch.timeout_ns);
	atomic_init(&comm->busy, false);
	collet_status status = collet_comm_state_init(&comm->state);
	if (status == COLLET_OK && context->thread_multiple)
		status = collet_turns_create(&comm->state.turns);
	if (status == COLLET_OK)
		status = collet_layouts_find(comm);
	if (status != COLLET_OK) {
		status = fail_for_all(&comm->state, status);
		free_comm(comm);
		return status;
	}
	fill_choice_inputs(comm);
	collet_engine_lock(&context->engine);
	collet_connections_add(&comm->state);
	collet_engine_unlock(&context->engine);
	if (collet_offload)
		status = collet_offload->comm_open(comm);
	if (status != COLLET_OK) {
		char error_text[COLLET_ERROR_BYTES];
		snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
		collet_comm_state_end(&comm->state, status, true, error_text);
		tear_down(comm);
		if (comm->gpu)
			(void)collet_offload->comm_close(comm);
		free_comm(comm);
		return collet_fail_copy(status, error_text);
	}
	*made = comm;
	return COLLET_OK;
}

/* ---- Public ---- */

collet_status collet_comm_create(collet_comm **comm, const collet_options *options)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_create: comm is NULL");
	struct collet_context *context;
	collet_status status = collet_check_nested("collet_comm_create");
	if (status == COLLET_OK)
		status = collet_check_on_end("collet_comm_create");
	if (status == COLLET_OK)
		status = collet_context_create(&context, options);
	if (status != COLLET_OK)
		return status;
	atomic_store_explicit(&context->users, 1, memory_order_relaxed);
	status = collet_comm_make(
		comm, context, context->agreement.session, context->launch.rank, context->launch.size, NULL);
	if (status == COLLET_OK)
		return COLLET_OK;
	/* Releasing the context may set another error. */
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	collet_context_release(context);
	return collet_fail_copy(status, error_text);
}

collet_status collet_comm_ended(const collet_comm *comm)
{
	const enum collet_status ended =
		(enum collet_status)atomic_load_explicit(&comm->state.end_status, memory_order_acquire);
	return ended == COLLET_OK ? COLLET_OK : collet_fail_copy(ended, comm->state.error_text);
}

collet_status collet_refuse_nested(const char *function)
{
	return collet_fail(COLLET_ERR_ARGUMENT,
		"%s: called by a user-defined operation, which must not call collet (but collet_comm_abort())",
		function);
}

collet_status collet_refuse_stream(const collet_comm *comm, const char *function)
{
	return collet_fail(COLLET_ERR_UNSUPPORTED, "%s: how.stream: %s", function, comm->context->no_gpu_reason);
}

collet_status collet_comm_check_fork(const collet_comm *comm, const char *function)
{
	if (!collet_context_forked(comm->context))
		return COLLET_OK;
	return collet_fail(COLLET_ERR_FORKED,
		"%s: this process is a fork of the one that created the communicator; only collet_comm_destroy() works "
		"here. Create a communicator after the fork",
		function);
}

/* Waits for the calling thread's turn. A thread other than the biased one revokes the bias when it registers. */
static void enter_by_turn(const struct collet_comm *comm)
{
	struct collet_engine *engine = comm->state.engine;
	if (!collet_engine_knows_thread(engine))
		collet_engine_register_thread(engine);
	collet_turns_enter(comm->state.turns);
}

/* Returns false if another thread is inside. A thread other than the biased one revokes the bias when it registers, and
 * so sees all that the biased thread has done under it. */
static bool try_enter(struct collet_comm *comm)
{
	struct collet_engine *engine = comm->state.engine;
	if (collet_engine_enter_biased(engine)) {
		const bool busy = atomic_load_explicit(&comm->busy, memory_order_relaxed);
		atomic_store_explicit(&comm->busy, true, memory_order_relaxed);
		collet_engine_leave_biased(engine);
		return !busy;
	}
	if (!collet_engine_knows_thread(engine))
		collet_engine_register_thread(engine);
	/* Acquire, pairing with the release in collet_comm_leave(): the communicator's state passes from thread to
	 * thread. */
	return !atomic_exchange_explicit(&comm->busy, true, memory_order_acquire);
}

collet_status collet_comm_enter(collet_comm *comm, const char *function)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the communicator is NULL", function);
	if (collet_check_nested(function) != COLLET_OK)
		return COLLET_ERR_ARGUMENT;
	if (collet_comm_check_fork(comm, function) != COLLET_OK)
		return COLLET_ERR_FORKED;
	if (comm->gpu)
		collet_offload->comm_check(comm);
	const enum collet_status ended =
		(enum collet_status)atomic_load_explicit(&comm->state.end_status, memory_order_acquire);
	if (ended != COLLET_OK)
		return collet_fail(ended, "%s (call %llu) came after the communicator's end: %s", function,
			(unsigned long long)collet_recorder_count(&comm->state.recorder), comm->state.error_text);
	if (comm->state.turns) {
		enter_by_turn(comm);
		return COLLET_OK;
	}
	if (try_enter(comm))
		return COLLET_OK;
	if (collet_blocking_comm != &comm->state)
		return collet_fail(COLLET_ERR_BUSY,
			"%s: another thread is inside this communicator; split one off for each thread, or set "
			"COLLET_THREAD_MULTIPLE=1",
			function);
	/* on_end() calls, and this thread is inside itself. */
	comm->nested_calls++;
	return COLLET_OK;
}

void collet_comm_leave(collet_comm *comm)
{
	if (comm->state.turns) {
		collet_turns_leave(comm->state.turns);
		return;
	}
	if (comm->nested_calls) {
		comm->nested_calls--;
		return;
	}
	atomic_store_explicit(&comm->busy, false, memory_order_release);
}

_Thread_local const struct collet_comm_state *collet_blocking_comm;

void collet_comm_abort(collet_comm *comm)
{
	if (!comm || collet_context_forked(comm->context))
		return;
	collet_comm_state_end(&comm->state, COLLET_ERR_ABORTED, true, "collet_comm_abort() was called");
}

/* Has threads that are inside return, by an abort. */
static void wait_until_unused(struct collet_comm *comm)
{
	struct collet_turns *turns = comm->state.turns;
	if (turns) {
		if (collet_turns_are_used(turns))
			collet_comm_abort(comm);
		collet_turns_drain(turns);
		return;
	}
	if (try_enter(comm))
		return;
	collet_comm_abort(comm);
	while (!try_enter(comm))
		sched_yield();
}

collet_status collet_comm_destroy(collet_comm **comm)
{
	if (!comm || !*comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_destroy: there is no communicator");
	if (collet_check_nested("collet_comm_destroy") != COLLET_OK ||
		collet_check_on_end("collet_comm_destroy") != COLLET_OK)
		return COLLET_ERR_ARGUMENT;
	struct collet_comm *closing = *comm;
	struct collet_context *context = closing->context;
	if (collet_context_forked(context)) {
		collet_connections_atfork_child(&closing->state);
		if (closing->gpu)
			collet_offload->comm_atfork_child(closing);
	} else {
		wait_until_unused(closing);
		if (closing->gpu)
			collet_offload->comm_drain(closing);
		tear_down(closing);
		collet_drain_on_end(&closing->state);
		if (closing->gpu && !collet_offload->comm_close(closing))
			atomic_store_explicit(&context->is_leaked, true, memory_order_relaxed);
	}
	free_comm(closing);
	collet_context_release(context);
	*comm = NULL;
	return COLLET_OK;
}

collet_status collet_comm_error(collet_comm *comm)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_comm_error: the communicator is NULL");
	if (comm->gpu)
		collet_offload->comm_check(comm);
	return collet_comm_ended(comm);
}

collet_status collet_comm_set_timeout(collet_comm *comm, int64_t timeout_ns)
{
	static const char function[] = "collet_comm_set_timeout";
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the communicator is NULL", function);
	if (timeout_ns != COLLET_NO_TIMEOUT && timeout_ns <= 0)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: timeout_ns is %lld; a number of ns or COLLET_NO_TIMEOUT is meant", function,
			(long long)timeout_ns);
	atomic_store_explicit(&comm->state.timeout_ns, timeout_ns, memory_order_relaxed);
	return COLLET_OK;
}

uint32_t collet_comm_rank(const collet_comm *comm)
{
	return comm ? comm->state.rank : 0;
}

uint32_t collet_comm_size(const collet_comm *comm)
{
	return comm ? comm->state.size : 0;
}

uint32_t collet_comm_local_rank(const collet_comm *comm)
{
	return comm ? comm->local_rank : 0;
}

uint32_t collet_comm_local_size(const collet_comm *comm)
{
	return comm ? comm->local_size : 0;
}

const char *collet_comm_host(const collet_comm *comm, uint32_t rank)
{
	if (!comm || rank >= comm->state.size)
		return NULL;
	return comm->context->bootstrap.peer_infos[collet_comm_state_world_rank(&comm->state, rank)].host;
}
