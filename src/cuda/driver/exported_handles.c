#include "cuda/driver/exported_handles.h"

#include <string.h>
#include <unistd.h>

#include "core/status.h"

static uint64_t *find(uint64_t list[COLLET_RECEIVED_MOST], uint64_t allocation)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		if (list[i] == allocation)
			return &list[i];
	return NULL;
}

static collet_status send(const struct collet_device *device, struct collet_shown *shown,
	const struct collet_peer_info *to, const struct collet_desk_note *note, int file)
{
	shown->notes++;
	if (device->desk.socket < 0 || !to->handle_exchange[1])
		return COLLET_PENDING;
	return collet_desk_send(&device->desk, to->handle_exchange, note, file);
}

collet_status collet_shown_add(const struct collet_device *device, struct collet_shown *shown,
	const struct collet_peer_info *to, const struct collet_shared *shared)
{
	const struct collet_desk_note note = { .process = shared->process, .allocation = shared->allocation };
	int file;
	if (find(shown->sent, shared->allocation))
		return COLLET_OK;
	collet_status status = collet_ipc_export(device->cuda, shared, &file);
	if (status != COLLET_OK)
		return status;
	status = send(device, shown, to, &note, file);
	close(file);
	if (status == COLLET_OK)
		shown->sent[shown->next_sent++ % COLLET_RECEIVED_MOST] = shared->allocation;
	return status;
}

void collet_shown_again(struct collet_shown *shown, uint64_t allocation)
{
	uint64_t *sent = find(shown->sent, allocation);
	if (sent)
		*sent = 0;
}

bool collet_shown_has(const struct collet_shown *shown, uint64_t allocation)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		if (shown->sent[i] == allocation)
			return true;
	return false;
}

void collet_shown_all_again(struct collet_shown *shown)
{
	memset(shown->sent, 0, sizeof(shown->sent));
}

static collet_status tell_gone(const struct collet_device *device, struct collet_shown *shown,
	const struct collet_peer_info *to, uint64_t allocation)
{
	const struct collet_desk_note note = { .process = device->process, .allocation = allocation, .gone = 1 };
	return send(device, shown, to, &note, -1);
}

void collet_shown_tell_owed(
	const struct collet_device *device, struct collet_shown *shown, const struct collet_peer_info *to)
{
	while (shown->owed[0] && tell_gone(device, shown, to, shown->owed[0]) != COLLET_PENDING) {
		memmove(&shown->owed[0], &shown->owed[1], sizeof(shown->owed) - sizeof(shown->owed[0]));
		shown->owed[COLLET_RECEIVED_MOST - 1] = 0;
	}
}

/* What there is no room for either the other keeps until it has opened many others. */
void collet_shown_gone(const struct collet_device *device, struct collet_shown *shown,
	const struct collet_peer_info *to, uint64_t allocation)
{
	collet_shown_again(shown, allocation);
	if (tell_gone(device, shown, to, allocation) != COLLET_PENDING)
		return;
	uint64_t *owed = find(shown->owed, 0);
	if (owed)
		*owed = allocation;
}
