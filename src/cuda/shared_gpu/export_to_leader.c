/* Sends the leader memory descriptors, and notes of freed memory, ahead of call descriptors. */
#include "core/status.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/progress_hook.h"

static const struct collet_peer_info *leader_info(const struct collet_shared_gpu *shared_gpu)
{
	return &shared_gpu->state->engine
			->peer_infos[collet_comm_state_world_rank(shared_gpu->state, shared_gpu->members[0])];
}

collet_status collet_shared_gpu_export(struct collet_shared_gpu *shared_gpu, const struct collet_ipc_handle *handle)
{
	return collet_exported_handles_send(shared_gpu->device, &shared_gpu->exported, leader_info(shared_gpu), handle);
}

void collet_shared_gpu_flush_freed(struct collet_shared_gpu *shared_gpu)
{
	collet_exported_handles_flush(shared_gpu->device, &shared_gpu->exported, leader_info(shared_gpu));
}

void collet_shared_gpu_notify_leaders(
	struct collet_engine *engine, const struct collet_ipc_handle *handle, bool is_freed)
{
	for (struct collet_comm_state *state = engine->all_states; state; state = state->next_in_all) {
		const struct collet_progress_hook *hook = state->hooks;
		while (hook && hook->table != &collet_shared_gpu_hooks)
			hook = hook->next;
		struct collet_shared_gpu *shared_gpu = hook ? hook->context : NULL;
		if (!shared_gpu || shared_gpu->shares_leader_gpu)
			continue;
		collet_shared_gpu_flush_freed(shared_gpu);
		if (is_freed)
			collet_exported_handles_notify_freed(
				shared_gpu->device, &shared_gpu->exported, leader_info(shared_gpu), handle->allocation);
		else
			/* otherwise it is sent ahead of a call descriptor */
			(void)collet_shared_gpu_export(shared_gpu, handle);
	}
}
