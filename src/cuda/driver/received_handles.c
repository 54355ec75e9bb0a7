/* Others' memory: descriptors that have come for it, and what has been opened by them. */
#include <unistd.h>

#include "cuda/driver/device.h"

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

int collet_device_take_file(struct collet_device *device, uint64_t process, uint64_t allocation)
{
	collet_device_look(device);
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++) {
		struct collet_received_file *entry = &device->received[i];
		if (entry->file < 0 || entry->note.process != process || entry->note.allocation != allocation)
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
	const bool by_file = shared->kind == COLLET_SHARED_DESCRIPTOR;
	*opened = collet_ipc_find(&device->ipc, shared, copier->context);
	if (*opened) {
		/* It may have come twice, for calls and for messages, and would keep the memory. */
		const int twice = by_file ? collet_device_take_file(device, shared->process, shared->allocation) : -1;
		if (twice >= 0)
			close(twice);
		return COLLET_OK;
	}
	collet_status status = collet_copier_begin(device->cuda, copier);
	if (status != COLLET_OK)
		return status;
	const int file = by_file ? collet_device_take_file(device, shared->process, shared->allocation) : -1;
	status = collet_ipc_open(&device->ipc, shared, file, copier->context, copier->ordinal, opened);
	if (file >= 0)
		close(file);
	collet_copier_end(device->cuda);
	return status;
}

void collet_device_drop_received(struct collet_device *device)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		if (device->received[i].file >= 0)
			close(device->received[i].file);
}
