#include "device/device.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "device/own.h"

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

void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda, struct collet_copiers *copiers,
	bool direct, struct collet_card *card, const struct collet_log *log)
{
	cu_uuid uuid;
	*device = (struct collet_device){ .cuda = cuda, .copiers = copiers, .log = log, .process = card->process_id,
		.ordinal = -1, .desk = { .socket = -1 } };
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
		memcpy(card->desk, device->desk.name, sizeof(card->desk));
	else
		collet_log(log, COLLET_LOG_INFO, "%s; mapped memory is not shared", collet_last_error());
}

void collet_device_deinit(struct collet_device *device)
{
	if (!device->cuda)
		return;
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		if (device->received[i].file >= 0)
			close(device->received[i].file);
	for (struct collet_own_block *block = device->own, *next; block; block = next) {
		next = block->next;
		collet_own_free(device, block);
	}
	collet_desk_close(&device->desk);
	collet_ipc_deinit(&device->ipc);
	collet_kernel_sets_deinit(&device->kernels);
	*device = (struct collet_device){ 0 };
}

collet_status collet_device_describe(struct collet_device *device, const struct collet_residence *residence,
	const void *memory, struct collet_shared *shared)
{
	const size_t place = residence->allocation % COLLET_DESCRIBED;
	struct collet_shared *known = &device->described[place];
	/* One number may be that of several allocations, see cuda/ipc.c. */
	if (device->described_ids[place] != residence->allocation || (uintptr_t)memory < known->first ||
		(uintptr_t)memory - known->first >= known->bytes) {
		struct collet_copier *copier;
		collet_status status = collet_copier_find(device->copiers, residence, &copier);
		if (status == COLLET_OK)
			status = collet_copier_begin(device->cuda, copier);
		if (status != COLLET_OK)
			return status;
		status = collet_ipc_describe(device->cuda, device->process, memory, known);
		collet_copier_end(device->cuda);
		if (status != COLLET_OK) {
			known->bytes = 0;
			return status;
		}
		device->described_ids[place] = residence->allocation;
	}
	*shared = *known;
	return COLLET_OK;
}

static void forget(struct collet_device *device, const struct collet_desk_note *note)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++) {
		struct collet_received_file *entry = &device->received[i];
		if (entry->file < 0 || entry->note.process != note->process ||
			entry->note.allocation != note->allocation)
			continue;
		close(entry->file);
		entry->file = -1;
	}
	collet_ipc_forget(&device->ipc, note->process, note->allocation);
}

/* What has come is kept until it is asked for, or many others have come since. */
void collet_device_look(struct collet_device *device)
{
	struct collet_desk_note note;
	int file;
	while (collet_desk_take(&device->desk, &note, &file)) {
		if (note.gone) {
			forget(device, &note);
			continue;
		}
		struct collet_received_file *entry = &device->received[device->next_received++ % COLLET_RECEIVED_MOST];
		if (entry->file >= 0)
			close(entry->file);
		*entry = (struct collet_received_file){ note, file };
	}
}

/* -1: it has not come. */
static int take_file(struct collet_device *device, const struct collet_shared *shared)
{
	collet_device_look(device);
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++) {
		struct collet_received_file *entry = &device->received[i];
		if (entry->file < 0 || entry->note.process != shared->process ||
			entry->note.allocation != shared->allocation)
			continue;
		const int file = entry->file;
		entry->file = -1;
		return file;
	}
	return -1;
}

collet_status collet_device_open(struct collet_device *device, const struct collet_copier *copier,
	const struct collet_shared *shared, struct collet_opened **opened)
{
	*opened = collet_ipc_find(&device->ipc, shared, copier->context);
	if (*opened)
		return COLLET_OK;
	collet_status status = collet_copier_begin(device->cuda, copier);
	if (status != COLLET_OK)
		return status;
	const int file = shared->kind == COLLET_SHARED_DESCRIPTOR ? take_file(device, shared) : -1;
	status = collet_ipc_open(&device->ipc, shared, file, copier->context, copier->ordinal, opened);
	if (file >= 0)
		close(file);
	collet_copier_end(device->cuda);
	return status;
}
