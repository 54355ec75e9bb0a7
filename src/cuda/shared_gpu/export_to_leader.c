/* What the leader is told ahead of offers. */
#include "core/status.h"
#include "cuda/shared_gpu/internal.h"

static const struct collet_peer_info *leader_of(const struct collet_direct *direct)
{
	return &direct->group->engine->peer_infos[collet_comm_state_world_rank(direct->group, direct->members[0])];
}

collet_status collet_direct_show(struct collet_direct *direct, const struct collet_shared *shared)
{
	return collet_shown_add(direct->device, &direct->shown, leader_of(direct), shared);
}

void collet_direct_tell_owed(struct collet_direct *direct)
{
	collet_shown_tell_owed(direct->device, &direct->shown, leader_of(direct));
}

void collet_direct_tell(struct collet_engine *engine, const struct collet_shared *shared, bool gone)
{
	for (struct collet_comm_state *group = engine->all_states; group; group = group->next_in_all) {
		const struct collet_progress_hook *hook = group->hooks;
		while (hook && hook->table != &collet_direct_hooks)
			hook = hook->next;
		struct collet_direct *direct = hook ? hook->context : NULL;
		if (!direct || direct->beside_leader)
			continue;
		collet_direct_tell_owed(direct);
		if (gone)
			collet_shown_gone(direct->device, &direct->shown, leader_of(direct), shared->allocation);
		else
			(void)collet_direct_show(direct, shared);  /* else it is tried again ahead of an offer */
	}
}
