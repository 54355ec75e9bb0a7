/* Creates, ends and frees communicator states. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/log.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/fast_path.h"
#include "engine/p2p/p2p.h"
#include "engine/progress_hook.h"
#include "engine/request.h"
#include "engine/sleep.h"
#include "engine/task.h"

collet_status collet_comm_state_init(struct collet_comm_state *state)
{
	collet_status status = collet_recorder_init(&state->recorder);
	if (status != COLLET_OK)
		return status;
	collet_pending_init(&state->pending);
	state->wide_end = &state->wide_requests;
	atomic_init(&state->end_status, COLLET_OK);
	/* Reserves address space, like a task's staging. */
	void *scratch = mmap(NULL, COLLET_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (scratch == MAP_FAILED) {
		collet_recorder_deinit(&state->recorder);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator's scratch");
	}
	state->scratch = scratch;
	state->mismatch.replies = calloc(state->size, sizeof(*state->mismatch.replies));
	state->peer_queues = calloc((size_t)COLLET_CHANNELS * state->size, sizeof(*state->peer_queues));
	if (!state->mismatch.replies || !state->peer_queues) {
		collet_comm_state_deinit(state);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator of %u ranks", state->size);
	}
	return COLLET_OK;
}

void collet_comm_state_deinit(struct collet_comm_state *state)
{
	for (uint32_t i = 0; i < COLLET_TASKS; i++) {
		collet_task_destroy(state->tasks[i]);
		state->tasks[i] = NULL;
	}
	collet_wide_sums_free(state);
	free(state->peer_queues);
	state->peer_queues = NULL;
	collet_p2p_deinit(state);
	for (struct collet_request *request = state->all_requests, *next; request; request = next) {
		next = request->next_allocated;
		free(request->vector_counts);
		collet_fast_path_free(request);
		free(request);
	}
	state->all_requests = NULL;
	memset(state->free_requests, 0, sizeof(state->free_requests));
	if (state->scratch)
		munmap(state->scratch, COLLET_SCRATCH_BYTES);
	state->scratch = NULL;
	free(state->mismatch.replies);
	state->mismatch.replies = NULL;
	collet_recorder_deinit(&state->recorder);
}

const char *collet_comm_state_host(const struct collet_comm_state *state, uint32_t rank)
{
	return state->engine->peer_infos[collet_comm_state_world_rank(state, rank)].host;
}

void collet_comm_state_end(
	struct collet_comm_state *state, enum collet_status status, bool notify_peers, const char *error_text)
{
	struct collet_engine *engine = state->engine;
	pthread_mutex_lock(&engine->end_lock);
	const bool first = atomic_load_explicit(&state->end_status, memory_order_relaxed) == COLLET_OK;
	if (first) {
		snprintf(state->error_text, sizeof(state->error_text), "rank %u on %s: %s", state->rank,
			collet_comm_state_host(state, state->rank), error_text);
		/* Pairs with the acquire loads of end_status: a thread that sees the status sees the sentence. */
		atomic_store_explicit(&state->end_status, (int)status, memory_order_release);
		if (state->abort_flag)
			atomic_store_explicit(state->abort_flag, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&engine->end_lock);
	if (!first)
		return;
	collet_log(&engine->log, status == COLLET_ERR_ABORTED ? COLLET_LOG_INFO : COLLET_LOG_ERROR, "%s: %s",
		collet_status_name(status), state->error_text);
	if (notify_peers)
		collet_connections_notify_end(state, status, error_text);
	collet_engine_wake(engine);
}

/* Ends the internal communicator without a log line: the end of its owner has been logged. */
static void end_internal(struct collet_comm_state *internal, const struct collet_comm_state *state)
{
	int status = atomic_load_explicit(&state->end_status, memory_order_acquire);
	status = status == COLLET_OK ? COLLET_ERR_ABORTED : status;
	pthread_mutex_lock(&state->engine->end_lock);
	if (atomic_load_explicit(&internal->end_status, memory_order_relaxed) == COLLET_OK) {
		memcpy(internal->error_text, state->error_text, sizeof(internal->error_text));
		atomic_store_explicit(&internal->end_status, status, memory_order_release);
	}
	pthread_mutex_unlock(&state->engine->end_lock);
	collet_comm_state_tear_down(internal);
}

void collet_comm_state_tear_down(struct collet_comm_state *state)
{
	if (state->torn_down)
		return;
	state->torn_down = true;
	/* No earlier call is repeated without the checks that find the end. */
	for (struct collet_request *request = state->all_requests; request; request = request->next_allocated)
		request->plan_key.algorithm = 0;
	if (state->internal)
		end_internal(state->internal, state);
	/* Closes endpoints first. Afterwards no peer and no transport reads or writes a buffer of this rank. */
	collet_connections_remove(state);
	for (struct collet_progress_hook *hook = state->hooks; hook; hook = hook->next)
		if (hook->table->release_buffers)
			hook->table->release_buffers(hook->context);
	collet_fast_path_clear(state);
	const enum collet_status status =
		(enum collet_status)atomic_load_explicit(&state->end_status, memory_order_acquire);
	for (struct collet_request *request; (request = collet_pending_next(&state->pending, NULL));)
		collet_request_end(request, status == COLLET_OK ? COLLET_ERR_ABORTED : status);
}

void collet_comm_state_add_hook(struct collet_comm_state *state, struct collet_progress_hook *hook)
{
	hook->next = state->hooks;
	state->hooks = hook;
}

void collet_comm_state_remove_hook(struct collet_comm_state *state, const struct collet_progress_hook *hook)
{
	struct collet_progress_hook **at = &state->hooks;
	while (*at && *at != hook)
		at = &(*at)->next;
	if (*at)
		*at = hook->next;
}
