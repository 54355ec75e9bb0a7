#include "cuda/driver/device.h"

#include <assert.h>
#include <string.h>

#include "core/status.h"
#include "cuda/driver/shareable_memory.h"
#include "cuda/peer_gpus/ipc_get.h"

int collet_device_current(const struct collet_cuda *cuda, cu_context *context)
{
	cu_device device = -1;
	int count = 0;
	*context = NULL;
	if (cuda->cuDeviceGetCount(&count) != CU_OK || !count)
		return -1;
	if (cuda->cuCtxGetCurrent(context) == CU_OK && *context)
		return cuda->cuCtxGetDevice(&device) == CU_OK ? device : -1;
	return count == 1 ? 0 : -1;
}

bool collet_peer_info_has_gpu(const struct collet_peer_info *peer_info)
{
	static const uint8_t none[sizeof(peer_info->gpu)];
	return memcmp(peer_info->gpu, none, sizeof(none)) != 0;
}

void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda,
	struct collet_copy_streams *copy_streams, bool use_shared_gpu, struct collet_peer_info *peer_info,
	const struct collet_log *log)
{
	cu_uuid uuid;
	*device = (struct collet_device){ .cuda = cuda, .copy_streams = copy_streams, .log = log,
		.process_id = peer_info->process_id, .rank = peer_info->rank, .ordinal = -1,
		.handle_exchange = { .socket = -1 } };
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++)
		device->received[i].fd = -1;
	collet_kernel_sets_init(&device->kernels, cuda);
	collet_ipc_cache_init(&device->ipc_cache, cuda, COLLET_IPC_CACHE_MAX, COLLET_IPC_CACHE_MAX_BYTES);
	if (!use_shared_gpu)
		return;
	device->ordinal = collet_device_current(cuda, &device->context);
	if (device->ordinal < 0 || cuda->cuDeviceGetUuid(&uuid, device->ordinal) != CU_OK)
		return;
	static_assert(sizeof(peer_info->gpu) == sizeof(uuid), "a UUID");
	memcpy(peer_info->gpu, &uuid, sizeof(uuid));
	if (collet_handle_exchange_open(&device->handle_exchange) == COLLET_OK)
		memcpy(peer_info->handle_exchange, device->handle_exchange.address, sizeof(peer_info->handle_exchange));
	else
		collet_log(log, COLLET_LOG_INFO, "%s; mapped memory is not shared", collet_last_error());
}

void collet_device_deinit(struct collet_device *device)
{
	if (!device->cuda)
		return;
	collet_device_drop_received_handles(device);
	collet_device_drop_local_handles(device);
	for (struct collet_shareable_block *block = device->shareable_blocks, *next; block; block = next) {
		next = block->next;
		collet_shareable_block_destroy(device, block);
	}
	collet_ipc_get_destroy(device);
	collet_handle_exchange_close(&device->handle_exchange);
	collet_ipc_cache_deinit(&device->ipc_cache);
	collet_kernel_sets_deinit(&device->kernels);
	*device = (struct collet_device){ 0 };
}
