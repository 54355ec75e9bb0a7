/* Memory that peers can map, and the user's own. */
#include <stdlib.h>

#include "comm/comm.h"

static collet_status check(const collet_comm *comm, const char *function)
{
	if (!comm)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: the communicator is NULL", function);
	if (collet_context_forked(comm->context))
		return collet_fail(COLLET_ERR_FORKED,
			"%s: this process is a fork of the one that created the communicator", function);
	return COLLET_OK;
}

collet_status collet_mem_alloc(collet_comm *comm, void **memory, size_t bytes)
{
	const collet_status status = check(comm, "collet_mem_alloc");
	if (status != COLLET_OK)
		return status;
	if (!memory)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_alloc: memory is NULL");
	return collet_arena_alloc(&comm->context->arena, memory, bytes);
}

/* Does a pending request read or write into the block that starts at memory? */
static bool in_use(struct collet_context *context, const void *memory)
{
	struct collet_engine *engine = &context->engine;
	bool used = false;
	pthread_mutex_lock(&engine->lock);
	for (const struct collet_request *request = engine->requests; request && !used; request = request->next_active)
		used = collet_arena_in_block(&context->arena, memory, request->input) ||
			collet_arena_in_block(&context->arena, memory, request->result);
	pthread_mutex_unlock(&engine->lock);
	return used;
}

collet_status collet_mem_free(collet_comm *comm, void *memory)
{
	const collet_status status = check(comm, "collet_mem_free");
	if (status != COLLET_OK || !memory)
		return status;
	if (in_use(comm->context, memory))
		return collet_fail(
			COLLET_ERR_ARGUMENT, "collet_mem_free: a pending request uses this memory; wait for it first");
	return collet_arena_free(&comm->context->arena, memory);
}

/* The transports of this version read a peer's ordinary memory without registering it: what is registered is kept, and
 * checked, for those that will need it. */
collet_status collet_mem_register(collet_comm *comm, void *memory, size_t bytes)
{
	const collet_status status = check(comm, "collet_mem_register");
	if (status != COLLET_OK)
		return status;
	if (!memory || !bytes)
		return collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_register: there is no memory to register");
	struct collet_registry *registry = &comm->context->registry;
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

collet_status collet_mem_deregister(collet_comm *comm, void *memory)
{
	const collet_status status = check(comm, "collet_mem_deregister");
	if (status != COLLET_OK)
		return status;
	struct collet_registry *registry = &comm->context->registry;
	bool found = false;
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count && !found; i++) {
		if (registry->entries[i].first == memory) {
			registry->entries[i] = registry->entries[--registry->count];
			found = true;
		}
	}
	pthread_mutex_unlock(&registry->lock);
	return found ? COLLET_OK :
                       collet_fail(COLLET_ERR_ARGUMENT, "collet_mem_deregister: %p is not registered", memory);
}
