#include "cuda/driver/exported_handles.h"

#include <string.h>
#include <unistd.h>

#include "core/status.h"

static uint64_t *find_allocation(uint64_t list[COLLET_RECEIVED_HANDLES], uint64_t allocation)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++)
		if (list[i] == allocation)
			return &list[i];
	return NULL;
}

static collet_status send_message(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, const struct collet_handle_note *note, int fd)
{
	exported->notes_sent++;
	if (device->handle_exchange.socket < 0 || !to->handle_exchange[1])
		return COLLET_PENDING;
	return collet_handle_exchange_send(&device->handle_exchange, to->handle_exchange, note, fd);
}

collet_status collet_exported_handles_send(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, const struct collet_ipc_handle *handle)
{
	const struct collet_handle_note note = { .process = handle->process, .allocation = handle->allocation };
	int fd;
	if (find_allocation(exported->sent, handle->allocation))
		return COLLET_OK;
	collet_status status = collet_ipc_handle_export_fd(device->cuda, handle, &fd);
	if (status != COLLET_OK)
		return status;
	status = send_message(device, exported, to, &note, fd);
	close(fd);
	if (status == COLLET_OK)
		exported->sent[exported->next_sent++ % COLLET_RECEIVED_HANDLES] = handle->allocation;
	return status;
}

void collet_exported_handles_resend(struct collet_exported_handles *exported, uint64_t allocation)
{
	uint64_t *sent = find_allocation(exported->sent, allocation);
	if (sent)
		*sent = 0;
}

bool collet_exported_handles_has(const struct collet_exported_handles *exported, uint64_t allocation)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_HANDLES; i++)
		if (exported->sent[i] == allocation)
			return true;
	return false;
}

void collet_exported_handles_resend_all(struct collet_exported_handles *exported)
{
	memset(exported->sent, 0, sizeof(exported->sent));
}

static collet_status send_freed(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, uint64_t allocation)
{
	const struct collet_handle_note note = { .process = device->process_id, .allocation = allocation, .freed = 1 };
	return send_message(device, exported, to, &note, -1);
}

void collet_exported_handles_flush(
	const struct collet_device *device, struct collet_exported_handles *exported, const struct collet_peer_info *to)
{
	while (exported->unsent_freed[0] &&
		send_freed(device, exported, to, exported->unsent_freed[0]) != COLLET_PENDING) {
		memmove(&exported->unsent_freed[0], &exported->unsent_freed[1],
			sizeof(exported->unsent_freed) - sizeof(exported->unsent_freed[0]));
		exported->unsent_freed[COLLET_RECEIVED_HANDLES - 1] = 0;
	}
}

/* Drops the note if there is no room to keep it. The peer then keeps the mapping until its cache evicts it. */
void collet_exported_handles_notify_freed(const struct collet_device *device, struct collet_exported_handles *exported,
	const struct collet_peer_info *to, uint64_t allocation)
{
	collet_exported_handles_resend(exported, allocation);
	if (send_freed(device, exported, to, allocation) != COLLET_PENDING)
		return;
	uint64_t *unsent = find_allocation(exported->unsent_freed, 0);
	if (unsent)
		*unsent = allocation;
}
