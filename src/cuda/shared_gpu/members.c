/* Who goes together: of the cards that all ranks have of each other, so that all come to the same. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/peer_gpus/device_comm.h"
#include "cuda/shared_gpu/internal.h"

static const struct collet_peer_info *card_of(const struct collet_comm_state *group, uint32_t rank)
{
	return &group->engine->peer_infos[collet_comm_state_world_rank(group, rank)];
}

static bool shares_gpu(const struct collet_peer_info *a, const struct collet_peer_info *b)
{
	return a->host_id == b->host_id && collet_card_has_gpu(a) && memcmp(a->gpu, b->gpu, sizeof(a->gpu)) == 0;
}

/* How many ranks are on this one's host, and how many of them share its GPU. */
static uint32_t ranks_of_host(const struct collet_comm_state *group, uint32_t rank, uint32_t *sharing)
{
	const struct collet_peer_info *own = card_of(group, rank);
	uint32_t count = 0;
	*sharing = 0;
	for (uint32_t r = 0; r < group->size; r++) {
		count += card_of(group, r)->host_id == own->host_id;
		*sharing += shares_gpu(card_of(group, r), own);
	}
	return count;
}

enum collet_direct_fit collet_direct_fits(const struct collet_comm_state *group)
{
	uint32_t most = 0, sharing = 0;
	for (uint32_t r = 0; r < group->size; r++) {
		const uint32_t count = ranks_of_host(group, r, &sharing);
		if (!sharing || count > COLLET_DIRECT_RANKS)
			return COLLET_DIRECT_NONE;
		most = count > most ? count : most;
	}
	if (most < 2)
		return COLLET_DIRECT_NONE;
	if (most < group->size)
		return COLLET_DIRECT_BY_HOST;
	/* Ranks of one host with GPUs of their own, or threads, launch kernels of their own. */
	return sharing == group->size || !collet_executor_fits(group) ? COLLET_DIRECT_ALL : COLLET_DIRECT_NONE;
}

uint32_t collet_direct_most_sharing(const struct collet_comm_state *group)
{
	uint32_t most = 1, sharing;
	for (uint32_t r = 0; r < group->size; r++) {
		(void)ranks_of_host(group, r, &sharing);
		most = sharing > most ? sharing : most;
	}
	return most;
}

collet_status collet_direct_find_members(struct collet_direct *direct)
{
	const struct collet_comm_state *group = direct->group;
	const struct collet_peer_info *own = card_of(group, group->rank);
	direct->members = calloc(group->size, sizeof(*direct->members));
	if (!direct->members)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for ranks that go together");
	direct->one_gpu = true;
	for (uint32_t r = 0; r < group->size; r++) {
		const struct collet_peer_info *card = card_of(group, r);
		if (card->host_id != own->host_id)
			continue;
		if (r == group->rank)
			direct->place = direct->size;
		direct->one_gpu &= shares_gpu(card, own);
		direct->members[direct->size++] = r;
	}
	const struct collet_peer_info *leader = card_of(group, direct->members[0]);
	direct->beside_leader = leader->process_id == own->process_id && shares_gpu(leader, own);
	direct->by_host = direct->size != group->size;
	return COLLET_OK;
}

bool collet_direct_has_one_gpu(const struct collet_direct *direct)
{
	return direct->one_gpu;
}
