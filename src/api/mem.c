/* Allocates memory that peers can map, and registers the user's own. */
#include <stdlib.h>

#include <collet/cuda.h>

#include "api/comm.h"
#include "api/offload.h"
#include "core/status.h"
#include "engine/lock.h"
#include "engine/request.h"
#include "transport/registry.h"

static collet_status check(const collet_comm *comm, const char *function)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the communicator is NULL", function);
	if (collet_context_forked(comm->context))
		return collet_fail(COLLET_ERR_FORKED,
			"%s: this process is a fork of the one that created the communicator", function);
	return collet_check_nested(function);
}

collet_status collet_mem_alloc(collet_comm *comm, void **memory, size_t bytes)
{
	const collet_status status = check(comm, "collet_mem_alloc");
	if (status != COLLET_OK)
		return status;
	if (!memory)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_alloc: memory is NULL");
	struct collet_context *context = comm->context;
	void *block;
	collet_status allocated = collet_arena_alloc(&context->arena, &block, bytes);
	if (allocated != COLLET_OK)
		return allocated;
	const struct collet_memory memory_info = {
		.base = block, .bytes = bytes, .kind = COLLET_MEMORY_ARENA, .gpu = -1, .dmabuf = -1 };
	allocated = collet_transports_register(&context->transports, &context->engine.log, &memory_info);
	if (allocated != COLLET_OK)
		(void)collet_arena_free(&context->arena, block);
	else
		*memory = block;
	return allocated;
}

collet_status collet_mem_alloc_device(collet_comm *comm, void **memory, size_t bytes)
{
	collet_status status = check(comm, "collet_mem_alloc_device");
	if (status != COLLET_OK)
		return status;
	if (!memory)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_alloc_device: memory is NULL");
	if (!comm->context->gpu)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "collet_mem_alloc_device: %s", comm->context->no_gpu_reason);
	status = collet_offload->mem_alloc(comm->context, memory, bytes);
	if (status != COLLET_OK)
		collet_error_prefix("collet_mem_alloc_device");
	return status;
}

/* True if a pending request uses the arena block that starts at memory. */
static bool in_use(struct collet_context *context, const void *memory)
{
	struct collet_engine *engine = &context->engine;
	bool used = false;
	collet_engine_lock(engine);
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all)
		for (const struct collet_request *request = NULL;
			!used && (request = collet_pending_next(&state->pending, request));)
			used = collet_arena_in_block(&context->arena, memory, request->input) ||
				collet_arena_in_block(&context->arena, memory, request->result);
	collet_engine_unlock(engine);
	return used;
}

collet_status collet_mem_free(collet_comm *comm, void *memory)
{
	collet_status status = check(comm, "collet_mem_free");
	if (status != COLLET_OK || !memory)
		return status;
	if (comm->context->gpu && collet_offload->mem_free(comm->context, memory, &status))
		return status;
	if (in_use(comm->context, memory))
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_mem_free: a pending request uses this memory; wait for it first");
	collet_transports_deregister(&comm->context->transports, memory);
	return collet_arena_free(&comm->context->arena, memory);
}

static bool remove_entry(struct collet_registry *registry, const void *memory)
{
	bool found = false;
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count && !found; i++) {
		if (registry->entries[i].first == memory) {
			registry->entries[i] = registry->entries[--registry->count];
			found = true;
		}
	}
	pthread_mutex_unlock(&registry->lock);
	return found;
}

static collet_status add_entry(struct collet_registry *registry, void *memory, size_t bytes)
{
	pthread_mutex_lock(&registry->lock);
	struct collet_registration *entries = realloc(registry->entries, (registry->count + 1) * sizeof(*entries));
	if (entries) {
		registry->entries = entries;
		entries[registry->count++] = (struct collet_registration){ memory, bytes };
	}
	pthread_mutex_unlock(&registry->lock);
	return entries ? COLLET_OK
		       : collet_fail(COLLET_ERR_MEMORY, "collet_mem_register: no memory for the registration");
}

/* Registers memory with the transports that gain by it. shm and tcp move ordinary memory as it is. */
collet_status collet_mem_register(collet_comm *comm, void *memory, size_t bytes)
{
	collet_status status = check(comm, "collet_mem_register");
	if (status != COLLET_OK)
		return status;
	if (!memory || !bytes)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_register: there is no memory to register");
	struct collet_context *context = comm->context;
	status = add_entry(&context->registry, memory, bytes);
	if (status != COLLET_OK)
		return status;
	const struct collet_memory memory_info = {
		.base = memory, .bytes = bytes, .kind = COLLET_MEMORY_HOST, .gpu = -1, .dmabuf = -1};
	bool is_gpu = false;
	if (context->gpu)
		status = collet_offload->mem_register(context, memory, bytes, &is_gpu);
	if (status == COLLET_OK && !is_gpu)
		status = collet_transports_register(&context->transports, &context->engine.log, &memory_info);
	if (status != COLLET_OK)
		(void)remove_entry(&context->registry, memory);
	return status;
}

collet_status collet_mem_deregister(collet_comm *comm, void *memory)
{
	const collet_status status = check(comm, "collet_mem_deregister");
	if (status != COLLET_OK)
		return status;
	if (!remove_entry(&comm->context->registry, memory))
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_deregister: %p is not registered", memory);
	collet_transports_deregister(&comm->context->transports, memory);
	return COLLET_OK;
}
