/* Keeps descriptors received from other processes, and opens their memory. */
#include <unistd.h>

#include "cuda/driver/device.h"

static void handle_freed(struct collet_device *device, const struct collet_handle_note *note)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++) {
		struct collet_received_handle *entry = &device->received[i];
		if (entry->fd < 0 || entry->note.process != note->process ||
			entry->note.allocation != note->allocation)
			continue;
		close(entry->fd);
		entry->fd = -1;
	}
	collet_ipc_cache_invalidate(&device->ipc_cache, note->process, note->allocation);
}

/* Keeps each descriptor until it is asked for, or until many others have arrived. */
void collet_device_receive_handles(struct collet_device *device)
{
	struct collet_handle_note note;
	int fd;
	while (collet_handle_exchange_receive(&device->handle_exchange, &note, &fd)) {
		if (note.freed) {
			handle_freed(device, &note);
			continue;
		}
		struct collet_received_handle *entry =
			&device->received[device->next_received++ % COLLET_RECEIVED_HANDLES];
		if (entry->fd >= 0)
			close(entry->fd);
		*entry = (struct collet_received_handle){ note, fd };
	}
}

int collet_device_take_fd(struct collet_device *device, uint64_t process, uint64_t allocation)
{
	collet_device_receive_handles(device);
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++) {
		struct collet_received_handle *entry = &device->received[i];
		if (entry->fd < 0 || entry->note.process != process || entry->note.allocation != allocation)
			continue;
		const int fd = entry->fd;
		entry->fd = -1;
		return fd;
	}
	return -1;
}

collet_status collet_device_open_handle(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_ipc_handle *handle, struct collet_ipc_mapping **mapping)
{
	const bool by_file = handle->kind == COLLET_IPC_FD;
	*mapping = collet_ipc_cache_find(&device->ipc_cache, handle, copy_stream->context);
	if (*mapping) {
		/* The descriptor may have come twice, for calls and for messages. An open one would keep the memory
		 * alive. */
		const int twice = by_file ? collet_device_take_fd(device, handle->process, handle->allocation) : -1;
		if (twice >= 0)
			close(twice);
		return COLLET_OK;
	}
	collet_status status = collet_copy_stream_push_context(device->cuda, copy_stream);
	if (status != COLLET_OK)
		return status;
	const int fd = by_file ? collet_device_take_fd(device, handle->process, handle->allocation) : -1;
	status = collet_ipc_cache_open(
		&device->ipc_cache, handle, fd, copy_stream->context, copy_stream->ordinal, mapping);
	if (fd >= 0)
		close(fd);
	collet_copy_stream_pop_context(device->cuda);
	return status;
}

void collet_device_drop_received_handles(struct collet_device *device)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++)
		if (device->received[i].fd >= 0)
			close(device->received[i].fd);
}
