/* Allocates a task's memory: its staging has a slot for each item under way. */
#include <stdlib.h>
#include <sys/mman.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "core/log.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/task.h"
#include "transport/arena.h"
#include "transport/registry.h"

void *collet_staging_alloc(struct collet_engine *engine, size_t bytes, bool *is_mapped)
{
	void *staging;
	*is_mapped = engine->arena && collet_arena_alloc(engine->arena, &staging, bytes) == COLLET_OK;
	if (!*is_mapped)
		staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (staging == MAP_FAILED)
		return NULL;
	const struct collet_memory memory = { .base = staging, .bytes = bytes, .gpu = -1, .dmabuf = -1,
		.kind = *is_mapped ? COLLET_MEMORY_ARENA : COLLET_MEMORY_HOST };
	if (collet_transports_register(engine->transports, &engine->log, &memory) != COLLET_OK)
		collet_log(&engine->log, COLLET_LOG_INFO, "staging is used unregistered: %s", collet_last_error());
	return staging;
}

void collet_staging_free(struct collet_engine *engine, void *staging, size_t bytes, bool is_mapped)
{
	if (!staging)
		return;
	collet_transports_deregister(engine->transports, staging);
	if (is_mapped)
		(void)collet_arena_free(engine->arena, staging);
	else
		munmap(staging, bytes);
}

collet_status collet_task_get(struct collet_comm_state *state, uint32_t channel, struct collet_task **task)
{
	*task = state->tasks[channel];
	if (*task)
		return COLLET_OK;
	struct collet_task *made = calloc(1, sizeof(*made));
	struct collet_operand *operands = calloc((size_t)state->size + COLLET_STEP_SOURCES, sizeof(*operands));
	bool is_mapped;
	void *staging = collet_staging_alloc(state->engine, COLLET_STAGING_BYTES, &is_mapped);
	if (!made || !operands || !staging) {
		collet_staging_free(state->engine, staging, COLLET_STAGING_BYTES, is_mapped);
		free(operands);
		free(made);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for channel %u of a communicator of %u ranks", channel,
			state->size);
	}
	made->state = state;
	made->channel = channel;
	made->free_slots = ((uint32_t)1 << TASK_WINDOW) - 1;
	made->operands = operands;
	made->staging = staging;
	made->staging_is_mapped = is_mapped;
	state->tasks[channel] = *task = made;
	return COLLET_OK;
}

void collet_task_destroy(struct collet_task *task)
{
	if (!task)
		return;
	collet_staging_free(task->state->engine, task->staging, COLLET_STAGING_BYTES, task->staging_is_mapped);
	free(task->operands);
	free(task);
}

uint32_t collet_slot_segments(enum collet_collective collective, uint32_t fan_in)
{
	const bool has_extra = collet_collective_is_reduction(collective) || collective == COLLET_SCATTER;
	return fan_in + 1 + has_extra;
}

uint64_t collet_segment_elements(uint32_t segment_bytes, uint32_t slot_segments, size_t element_bytes)
{
	const uint64_t most = COLLET_STAGING_BYTES / TASK_WINDOW / slot_segments & ~(uint64_t)63;
	uint64_t bytes = segment_bytes && segment_bytes < most ? segment_bytes : most;
	return bytes < element_bytes ? 1 : bytes / element_bytes;
}
