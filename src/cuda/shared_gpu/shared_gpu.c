/* Creates and destroys a communicator's state for ranks that share a GPU. */
#include "cuda/shared_gpu/shared_gpu.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/lock.h"
#include "engine/progress_hook.h"

static collet_status create_internal(struct collet_shared_gpu *shared_gpu)
{
	struct collet_comm_state *internal = &shared_gpu->internal_comm, *state = shared_gpu->state;
	*internal = (struct collet_comm_state){ .engine = state->engine,
		.rank = state->rank,
		.size = state->size,
		.world_ranks = state->world_ranks,
		.timeout_ns = state->timeout_ns,
		.id = ~state->id * 0x9e3779b97f4a7c15 };
	const collet_status status = collet_comm_state_init(internal);
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(state->engine);
	collet_connections_add(internal);
	state->internal = internal;
	shared_gpu->hook = (struct collet_progress_hook){ .table = &collet_shared_gpu_hooks, .context = shared_gpu };
	collet_comm_state_add_hook(state, &shared_gpu->hook);
	collet_engine_unlock(state->engine);
	return COLLET_OK;
}

static void destroy_internal(struct collet_shared_gpu *shared_gpu)
{
	struct collet_comm_state *state = shared_gpu->state;
	struct collet_engine *engine = state->engine;
	if (!state->internal)
		return;
	collet_engine_lock(engine);
	if (!shared_gpu->internal_comm.torn_down)
		collet_comm_state_tear_down(&shared_gpu->internal_comm);
	for (struct collet_comm_state **at = &engine->all_states; *at; at = &(*at)->next_in_all) {
		if (*at == &shared_gpu->internal_comm) {
			*at = shared_gpu->internal_comm.next_in_all;
			break;
		}
	}
	collet_comm_state_remove_hook(state, &shared_gpu->hook);
	state->internal = NULL;
	collet_engine_unlock(engine);
	collet_comm_state_deinit(&shared_gpu->internal_comm);
}

collet_status collet_shared_gpu_create(struct collet_shared_gpu **made, struct collet_device *device,
	struct collet_comm_state *state, const struct collet_shared_gpu_events *events)
{
	struct collet_shared_gpu *shared_gpu = calloc(1, sizeof(*shared_gpu));
	bool ok = false;
	*made = NULL;
	if (!shared_gpu)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that share a GPU");
	shared_gpu->device = device;
	shared_gpu->state = state;
	shared_gpu->events = events;
	shared_gpu->last = &shared_gpu->first;
	collet_status status = collet_shared_gpu_find_members(shared_gpu);
	shared_gpu->descriptor_bytes = sizeof(struct call_descriptor) + 4 * sizeof(uint64_t) * state->size;
	if (status == COLLET_OK)
		status = create_internal(shared_gpu);
	if (status == COLLET_OK)
		status = collet_shared_gpu_connect(shared_gpu, &ok);
	if (status != COLLET_OK || !ok)
		collet_shared_gpu_destroy(shared_gpu, false);
	else
		*made = shared_gpu;
	return status;
}

/* Returns false if the stream's context exists but cannot be entered. A failed wait means that nothing runs there any
 * more. */
static bool wait_for_stream(struct collet_shared_gpu *shared_gpu)
{
	const struct collet_cuda *cuda = shared_gpu->device->cuda;
	if (!shared_gpu->stream)
		return true;
	const cu_result result = collet_cuda_push_context(cuda, shared_gpu->copy_stream->context);
	if (result != CU_OK)
		return collet_cuda_context_is_destroyed(result);
	(void)cuda->cuStreamSynchronize(shared_gpu->stream);
	(void)cuda->cuStreamDestroy(shared_gpu->stream);
	collet_cuda_pop_context(cuda);
	return true;
}

/* The GPU may still work for a call that has ended, on other ranks' memory. The mappings stay open if nobody can wait
 * for it. */
static void stop_leader(struct collet_shared_gpu *shared_gpu, bool streams)
{
	const bool waited = wait_for_stream(shared_gpu);
	for (struct shared_call *call = shared_gpu->first; waited && call; call = call->next)
		collet_leader_release(shared_gpu, call);
	if (!waited) {
		collet_engine_lock(shared_gpu->state->engine);
		shared_gpu->device->is_leaked = true;
		collet_engine_unlock(shared_gpu->state->engine);
	}
	collet_completion_flags_deinit(shared_gpu, streams || !waited);
}

/* Frees what belongs to neither the driver nor the communicator. */
static void free_memory(struct collet_shared_gpu *shared_gpu)
{
	*shared_gpu->last = shared_gpu->free_calls;
	for (struct shared_call *call = shared_gpu->first, *next; call; call = next) {
		next = call->next;
		collet_shared_call_free(call);
	}
	collet_span_plan_deinit(&shared_gpu->plan);
	free(shared_gpu->ranks);
	free(shared_gpu->notes_seen);
	free(shared_gpu->members);
	free(shared_gpu);
}

void collet_shared_gpu_destroy(struct collet_shared_gpu *shared_gpu, bool streams)
{
	if (!shared_gpu)
		return;
	stop_leader(shared_gpu, streams);
	destroy_internal(shared_gpu);
	free_memory(shared_gpu);
}

/* The driver's objects belong to the parent process. */
void collet_shared_gpu_atfork_child(struct collet_shared_gpu *shared_gpu)
{
	if (!shared_gpu)
		return;
	collet_comm_state_remove_hook(shared_gpu->state, &shared_gpu->hook);
	collet_connections_atfork_child(&shared_gpu->internal_comm);
	collet_comm_state_deinit(&shared_gpu->internal_comm);
	collet_completion_flags_atfork_child(&shared_gpu->completion_flags);
	free_memory(shared_gpu);
}
