#include "cuda/driver/device.h"

#include <assert.h>
#include <string.h>

#include "core/status.h"
#include "cuda/driver/shareable_memory.h"
#include "cuda/peer_gpus/ipc_get.h"

int collet_device_of_thread(const struct collet_cuda *cuda, cu_context *context)
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

bool collet_card_has_gpu(const struct collet_peer_info *card)
{
	static const uint8_t none[sizeof(card->gpu)];
	return memcmp(card->gpu, none, sizeof(none)) != 0;
}

void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda, struct collet_copiers *copiers,
	bool direct, struct collet_peer_info *card, const struct collet_log *log)
{
	cu_uuid uuid;
	*device = (struct collet_device){ .cuda = cuda, .copiers = copiers, .log = log, .process = card->process_id,
		.rank = card->rank, .ordinal = -1, .desk = { .socket = -1 } };
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		device->received[i].file = -1;
	collet_kernel_sets_init(&device->kernels, cuda);
	collet_ipc_init(&device->ipc, cuda, COLLET_OPENED_MOST, COLLET_OPENED_MOST_BYTES);
	if (!direct)
		return;
	device->ordinal = collet_device_of_thread(cuda, &device->context);
	if (device->ordinal < 0 || cuda->cuDeviceGetUuid(&uuid, device->ordinal) != CU_OK)
		return;
	static_assert(sizeof(card->gpu) == sizeof(uuid), "a UUID");
	memcpy(card->gpu, &uuid, sizeof(uuid));
	if (collet_desk_open(&device->desk) == COLLET_OK)
		memcpy(card->handle_exchange, device->desk.name, sizeof(card->handle_exchange));
	else
		collet_log(log, COLLET_LOG_INFO, "%s; mapped memory is not shared", collet_last_error());
}

void collet_device_deinit(struct collet_device *device)
{
	if (!device->cuda)
		return;
	collet_device_drop_received(device);
	collet_device_drop_described(device);
	for (struct collet_own_block *block = device->own, *next; block; block = next) {
		next = block->next;
		collet_own_free(device, block);
	}
	collet_pulls_free(device);
	collet_desk_close(&device->desk);
	collet_ipc_deinit(&device->ipc);
	collet_kernel_sets_deinit(&device->kernels);
	*device = (struct collet_device){ 0 };
}
