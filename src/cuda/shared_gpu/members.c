/* Decides which ranks share a GPU. It reads only the peer infos, which all ranks have alike, so all come to the same
 * result. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/peer_gpus/device_comm.h"
#include "cuda/shared_gpu/internal.h"
#include "engine/comm_state.h"
#include "engine/engine.h"

static const struct collet_peer_info *peer_info_of(const struct collet_comm_state *state, uint32_t rank)
{
	return &state->engine->peer_infos[collet_comm_state_world_rank(state, rank)];
}

static bool shares_gpu(const struct collet_peer_info *a, const struct collet_peer_info *b)
{
	return a->host_id == b->host_id && collet_peer_info_has_gpu(a) && memcmp(a->gpu, b->gpu, sizeof(a->gpu)) == 0;
}

/* Counts the ranks on this one's host, and how many of them share its GPU. */
static uint32_t count_host_ranks(const struct collet_comm_state *state, uint32_t rank, uint32_t *sharing)
{
	const struct collet_peer_info *own = peer_info_of(state, rank);
	uint32_t count = 0;
	*sharing = 0;
	for (uint32_t r = 0; r < state->size; r++) {
		count += peer_info_of(state, r)->host_id == own->host_id;
		*sharing += shares_gpu(peer_info_of(state, r), own);
	}
	return count;
}

enum collet_shared_gpu_scope collet_shared_gpu_scope_of(const struct collet_comm_state *state)
{
	uint32_t most = 0, sharing = 0;
	for (uint32_t r = 0; r < state->size; r++) {
		const uint32_t count = count_host_ranks(state, r, &sharing);
		if (!sharing || count > COLLET_SHARED_GPU_RANKS)
			return COLLET_SHARED_GPU_NONE;
		most = count > most ? count : most;
	}
	if (most < 2)
		return COLLET_SHARED_GPU_NONE;
	if (most < state->size)
		return COLLET_SHARED_GPU_PER_HOST;
	/* Ranks of one host with a GPU each, or threads, launch kernels of their own. */
	return sharing == state->size || !collet_device_comm_is_possible(state) ? COLLET_SHARED_GPU_ALL
										: COLLET_SHARED_GPU_NONE;
}

uint32_t collet_shared_gpu_max_ranks(const struct collet_comm_state *state)
{
	uint32_t most = 1, sharing;
	for (uint32_t r = 0; r < state->size; r++) {
		(void)count_host_ranks(state, r, &sharing);
		most = sharing > most ? sharing : most;
	}
	return most;
}

collet_status collet_shared_gpu_find_members(struct collet_shared_gpu *shared_gpu)
{
	const struct collet_comm_state *state = shared_gpu->state;
	const struct collet_peer_info *own = peer_info_of(state, state->rank);
	shared_gpu->members = calloc(state->size, sizeof(*shared_gpu->members));
	if (!shared_gpu->members)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the list of ranks that share a GPU");
	shared_gpu->has_one_gpu = true;
	for (uint32_t r = 0; r < state->size; r++) {
		const struct collet_peer_info *peer_info = peer_info_of(state, r);
		if (peer_info->host_id != own->host_id)
			continue;
		if (r == state->rank)
			shared_gpu->member = shared_gpu->size;
		shared_gpu->has_one_gpu &= shares_gpu(peer_info, own);
		shared_gpu->members[shared_gpu->size++] = r;
	}
	const struct collet_peer_info *leader = peer_info_of(state, shared_gpu->members[0]);
	shared_gpu->shares_leader_gpu = leader->process_id == own->process_id && shares_gpu(leader, own);
	shared_gpu->is_per_host = shared_gpu->size != state->size;
	return COLLET_OK;
}

bool collet_shared_gpu_has_one_gpu(const struct collet_shared_gpu *shared_gpu)
{
	return shared_gpu->has_one_gpu;
}
