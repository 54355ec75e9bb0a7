/* Allocates GPU memory that ranks of this host can map (collet_mem_alloc_device()), and registers memory of the
 * application. */
#include "cuda/device_memory.h"

#include <unistd.h>

#include "cuda/driver/dmabuf.h"
#include "cuda/driver/shareable_memory.h"
#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/ipc_get.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/staging/gpu_staging.h"
#include "cuda/stream/stream_internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/lock.h"
#include "engine/request.h"

static collet_status add_block(struct collet_context *context, struct collet_shareable_block *block)
{
	collet_engine_lock(&context->engine);
	const collet_status status = collet_shareable_block_publish(&context->gpu->device, block);
	if (status == COLLET_OK)
		collet_shared_gpu_notify_leaders(&context->engine, &block->handle, false);
	collet_engine_unlock(&context->engine);
	return status;
}

collet_status collet_device_memory_alloc(struct collet_context *context, void **memory, size_t bytes)
{
	struct collet_shareable_block *block;
	collet_status status = collet_shareable_block_create(&context->gpu->device, bytes ? bytes : 1, &block);
	if (status != COLLET_OK)
		return status;
	status = add_block(context, block);
	if (status == COLLET_OK)
		*memory = (void *)(uintptr_t)block->memory.address;
	else
		collet_shareable_block_destroy(&context->gpu->device, block);
	return status;
}

/* True if a request that has not been waited for uses this memory. Under the engine's lock. */
static bool requests_use(const struct collet_context *context, const char *first, size_t bytes)
{
	const struct collet_engine *engine = &context->engine;
	for (const struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		for (const struct collet_request *request = NULL;
			(request = collet_pending_next(&state->pending, request));)
			if ((request->input >= first && request->input < first + bytes) ||
				(request->result >= first && request->result < first + bytes))
				return true;
		for (const struct collet_request *request = state->all_requests; request;
			request = request->next_allocated)
			if (request->staging && collet_gpu_staging_uses(request->staging, first, bytes))
				return true;
	}
	return false;
}

bool collet_device_memory_free(struct collet_context *context, const void *memory, collet_status *status)
{
	struct collet_shareable_block *freed = NULL;
	*status = COLLET_OK;
	collet_engine_lock(&context->engine);
	struct collet_shareable_block **at = collet_shareable_block_find(&context->gpu->device, memory), *found = *at;
	if (found && requests_use(context, memory, found->memory.bytes)) {
		*status = collet_fail(COLLET_ERR_ARGUMENT,
			"collet_mem_free: a pending request uses this memory; wait for it first");
	} else if (found && collet_streams_use(context, memory, found->memory.bytes)) {
		*status = collet_fail(COLLET_ERR_ARGUMENT,
			"collet_mem_free: a call on a stream uses this memory: wait for the stream first; or a graph "
			"does: destroy the communicator first");
	} else if (found) {
		*at = found->next;
		freed = found;
		collet_shared_gpu_notify_leaders(&context->engine, &freed->handle, true);
		collet_ipc_get_notify_freed(&context->gpu->device, &context->engine, &freed->handle);
	}
	collet_engine_unlock(&context->engine);
	collet_shareable_block_destroy(&context->gpu->device, freed);
	return found;
}

/* It is no error if no adapter can reach the memory: calls stage it in host memory then. */
static void register_with_transports(
	struct collet_context *context, const struct collet_pointer_attributes *attributes, void *memory, size_t bytes)
{
	struct collet_memory memory_info = {
		.base = memory, .bytes = bytes, .kind = COLLET_MEMORY_GPU, .gpu = attributes->ordinal, .dmabuf = -1
	};
	int file;
	if (!context->transports.has_registration)
		return;
	collet_status status =
		collet_dmabuf_export(&context->gpu->cuda, attributes, memory, bytes, &file, &memory_info.dmabuf_offset);
	if (status == COLLET_OK) {
		memory_info.dmabuf = file;
		status = collet_transports_register(&context->transports, &context->engine.log, &memory_info);
		close(file);
	}
	if (status != COLLET_OK)
		collet_log(&context->engine.log, COLLET_LOG_INFO,
			"%zu bytes of GPU %d are not registered with transports: %s", bytes, attributes->ordinal,
			collet_last_error());
}

collet_status collet_device_memory_register(struct collet_context *context, void *memory, size_t bytes, bool *is_gpu)
{
	struct collet_pointer_attributes attributes;
	const collet_status status =
		collet_pointer_attributes_get(&context->gpu->cuda, "collet_mem_register", memory, bytes, &attributes);
	*is_gpu = status == COLLET_OK && attributes.is_device;
	if (*is_gpu)
		register_with_transports(context, &attributes, memory, bytes);
	return status;
}
