/* A lane's memory: its staging, with a slot for each item under way. */
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/work_item.h"
#include "transport/arena.h"

/* Address space only: pages come as they are used. In the arena, so that what is staged can be read by local peers. */
static void *get_staging(struct collet_engine *engine, bool *is_mapped)
{
	void *staging;
	*is_mapped = engine->arena && collet_arena_alloc(engine->arena, &staging, COLLET_STAGING_BYTES) == COLLET_OK;
	if (!*is_mapped)
		staging = mmap(NULL, COLLET_STAGING_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (staging == MAP_FAILED)
		return NULL;
	const struct collet_memory memory = { .base = staging, .bytes = COLLET_STAGING_BYTES, .gpu = -1, .dmabuf = -1,
		.kind = *is_mapped ? COLLET_MEMORY_ARENA : COLLET_MEMORY_HOST };
	if (collet_transports_register(engine->transports, &engine->log, &memory) != COLLET_OK)
		collet_log(&engine->log, COLLET_LOG_INFO, "staging is used unregistered: %s", collet_last_error());
	return staging;
}

static void put_staging(struct collet_engine *engine, void *staging, bool is_mapped)
{
	if (!staging)
		return;
	collet_transports_deregister(engine->transports, staging);
	if (is_mapped)
		(void)collet_arena_free(engine->arena, staging);
	else
		munmap(staging, COLLET_STAGING_BYTES);
}

collet_status collet_lane_get(struct collet_group *group, uint32_t channel, struct collet_lane **lane)
{
	*lane = group->lanes[channel];
	if (*lane)
		return COLLET_OK;
	struct collet_lane *made = calloc(1, sizeof(*made));
	struct collet_operand *operands = calloc((size_t)group->size + COLLET_STEP_SOURCES, sizeof(*operands));
	bool is_mapped;
	void *staging = get_staging(group->engine, &is_mapped);
	if (!made || !operands || !staging) {
		put_staging(group->engine, staging, is_mapped);
		free(operands);
		free(made);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for channel %u of a communicator of %u ranks", channel,
			group->size);
	}
	made->group = group;
	made->channel = channel;
	made->free_slots = ((uint32_t)1 << LANE_WINDOW) - 1;
	made->operands = operands;
	made->staging = staging;
	made->staging_is_mapped = is_mapped;
	group->lanes[channel] = *lane = made;
	return COLLET_OK;
}

void collet_lane_free(struct collet_lane *lane)
{
	if (!lane)
		return;
	put_staging(lane->group->engine, lane->staging, lane->staging_is_mapped);
	free(lane->operands);
	free(lane);
}

uint32_t collet_slot_pieces(enum collet_collective collective, uint32_t fan_in)
{
	const bool one_more = collet_collective_is_reduction(collective) || collective == COLLET_SCATTER;
	return fan_in + 1 + one_more;
}

uint64_t collet_piece_elements(uint32_t piece_bytes, uint32_t slot_pieces, size_t element_bytes)
{
	const uint64_t most = COLLET_STAGING_BYTES / LANE_WINDOW / slot_pieces & ~(uint64_t)63;
	uint64_t bytes = piece_bytes && piece_bytes < most ? piece_bytes : most;
	return bytes < element_bytes ? 1 : bytes / element_bytes;
}
