/* What the leader is told ahead of offers: descriptors of memory, and of which memory there is no more. */
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "device/internal.h"

static uint64_t *find(uint64_t list[COLLET_RECEIVED_MOST], uint64_t allocation)
{
	for (uint32_t i = 0; i < COLLET_RECEIVED_MOST; i++)
		if (list[i] == allocation)
			return &list[i];
	return NULL;
}

static collet_status send(struct collet_direct *direct, const struct collet_desk_note *note, int file)
{
	const struct collet_card *leader =
		&direct->group->engine->cards[collet_group_world_rank(direct->group, direct->members[0])];
	direct->notes++;
	if (direct->device->desk.socket < 0 || !leader->desk[1])
		return COLLET_PENDING;
	return collet_desk_send(&direct->device->desk, leader->desk, note, file);
}

collet_status collet_direct_show(struct collet_direct *direct, const struct collet_shared *shared)
{
	const struct collet_desk_note note = { .process = shared->process, .allocation = shared->allocation };
	int file;
	if (find(direct->sent, shared->allocation))
		return COLLET_OK;
	collet_status status = collet_ipc_export(direct->device->cuda, shared, &file);
	if (status != COLLET_OK)
		return status;
	status = send(direct, &note, file);
	close(file);
	if (status == COLLET_OK)
		direct->sent[direct->next_sent++ % COLLET_RECEIVED_MOST] = shared->allocation;
	return status;
}

static collet_status tell_gone(struct collet_direct *direct, uint64_t allocation)
{
	const struct collet_desk_note note = {
		.process = direct->device->process, .allocation = allocation, .gone = 1 };
	return send(direct, &note, -1);
}

void collet_direct_tell_owed(struct collet_direct *direct)
{
	while (direct->owed[0] && tell_gone(direct, direct->owed[0]) != COLLET_PENDING) {
		memmove(&direct->owed[0], &direct->owed[1], sizeof(direct->owed) - sizeof(direct->owed[0]));
		direct->owed[COLLET_RECEIVED_MOST - 1] = 0;
	}
}

/* What there is no room for either the leader keeps until it has opened many others. */
static void forget(struct collet_direct *direct, uint64_t allocation)
{
	uint64_t *sent = find(direct->sent, allocation);
	if (sent)
		*sent = 0;
	if (tell_gone(direct, allocation) != COLLET_PENDING)
		return;
	uint64_t *owed = find(direct->owed, 0);
	if (owed)
		*owed = allocation;
}

void collet_direct_tell(struct collet_engine *engine, const struct collet_shared *shared, bool gone)
{
	for (struct collet_group *group = engine->used_groups; group; group = group->next_used) {
		const struct collet_group_hook *hook = group->hooks;
		while (hook && hook->hooks != &collet_direct_hooks)
			hook = hook->next;
		struct collet_direct *direct = hook ? hook->hooked : NULL;
		if (!direct || is_leader(direct) || direct->one_process)
			continue;
		collet_direct_tell_owed(direct);
		if (gone)
			forget(direct, shared->allocation);
		else
			(void)collet_direct_show(direct, shared);  /* else it is tried again ahead of an offer */
	}
}
