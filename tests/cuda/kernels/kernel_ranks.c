/* Ranks of one launch of the plan kernel, without communicators: memory, windows and plans, and the launch. */
#include "kernels/kernel_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collet_log no_log;

uint32_t row_root(uint32_t size)
{
	return size - 1;
}

uint64_t row_send_count(const struct row *row, uint32_t rank, uint32_t size)
{
	switch (row->program->collective) {
	case COLLET_BROADCAST: return rank == row_root(size) ? row->count : 0;
	case COLLET_REDUCE_SCATTER:
	case COLLET_ALLTOALL: return row->count * size;
	case COLLET_SCATTER: return rank == row_root(size) ? row->count * size : 0;
	case COLLET_BARRIER: return 0;
	default: return row->count;
	}
}

uint64_t row_recv_count(const struct row *row, uint32_t rank, uint32_t size)
{
	switch (row->program->collective) {
	case COLLET_REDUCE: return rank == row_root(size) ? row->count : 0;
	case COLLET_ALLGATHER:
	case COLLET_ALLTOALL: return row->count * size;
	case COLLET_GATHER: return rank == row_root(size) ? row->count * size : 0;
	case COLLET_BARRIER: return 0;
	default: return row->count;
	}
}

double row_scale(uint32_t rank)
{
	return 0.3 + rank;
}

static bool kernel_rank_create(struct gpus *gpus, struct kernel_rank *member, const struct program *program)
{
	const struct collet_pointer_attributes attributes = { .is_device = true, .context = program->context };
	const size_t bytes = collet_window_bytes(&gpus->window);
	void *blank = calloc(1, bytes);
	*member = (struct kernel_rank){ .program = program };
	const bool made = blank && program->cuCtxPushCurrent_v2(program->context) == CU_OK &&
			  collet_copy_stream_get(&gpus->copy_streams, &attributes, &member->copy_stream) == COLLET_OK &&
			  collet_kernel_set_get(&gpus->sets, member->copy_stream, &member->set) == COLLET_OK &&
			  buffer_make(&member->window, program, true, bytes) && buffer_write(&member->window, blank) &&
			  buffer_make(&member->plan, program, true, 1 << 16) &&
			  buffer_make(&member->input, program, true, ROOM) &&
			  buffer_make(&member->result, program, true, ROOM) &&
			  buffer_make(&member->scratch, program, true, 2 * ROOM) &&
			  buffer_make(&member->windows, program, true, WORLD * sizeof(uint64_t)) &&
			  program->cuCtxPopCurrent_v2(NULL) == CU_OK;
	free(blank);
	return made;
}

static void kernel_rank_free(struct kernel_rank *member)
{
	struct buffer *all[] = { &member->window, &member->plan, &member->input, &member->result, &member->scratch,
		&member->windows };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && member->program; i++)
		buffer_free(all[i]);
}

static bool enable_peers(struct gpus *gpus)
{
	for (uint32_t a = 0; a < gpus->count; a++)
		for (uint32_t b = 0; b < gpus->count; b++) {
			if (a == b)
				continue;
			if (gpus->cuda.cuCtxPushCurrent(gpus->programs[a].context) != CU_OK ||
				gpus->cuda.cuCtxEnablePeerAccess(gpus->programs[b].context, 0) != CU_OK ||
				gpus->cuda.cuCtxPopCurrent(NULL) != CU_OK)
				return false;
		}
	return true;
}

bool gpus_open(struct gpus *gpus, uint32_t size)
{
	int count = 0;
	const uint64_t nothing = 0;
	uint64_t addresses[WORLD];
	memset(gpus, 0, sizeof(*gpus));
	gpus->window = collet_window_for(size, CHANNELS, SEGMENT_BYTES);
	if (collet_cuda_open(&gpus->cuda, &no_log) != COLLET_OK || !gpus->cuda.module ||
		!program_start(&gpus->programs[0], 0) || gpus->cuda.cuDeviceGetCount(&count) != CU_OK)
		return false;
	gpus->count = (uint32_t)count >= size ? size : 1;
	for (uint32_t d = 1; d < gpus->count; d++)
		if (!program_start(&gpus->programs[d], (int)d))
			return false;
	collet_copy_streams_init(&gpus->copy_streams, &gpus->cuda);
	collet_kernel_sets_init(&gpus->sets, &gpus->cuda);
	if (!enable_peers(gpus) || !buffer_make(&gpus->abort_word, &gpus->programs[0], true, sizeof(nothing)) ||
		!buffer_write(&gpus->abort_word, &nothing))
		return false;
	for (uint32_t own_gpus = 0; own_gpus < (gpus->count > 1 ? 2 : 1); own_gpus++) {
		for (uint32_t r = 0; r < size; r++)
			if (!kernel_rank_create(gpus, &gpus->members[own_gpus][r], &gpus->programs[own_gpus ? r : 0]))
				return false;
		for (uint32_t r = 0; r < size; r++)
			addresses[r] = (uintptr_t)gpus->members[own_gpus][r].window.first;
		for (uint32_t r = 0; r < size; r++)
			if (!buffer_write(&gpus->members[own_gpus][r].windows, addresses))
				return false;
	}
	return true;
}

bool gpus_close(struct gpus *gpus)
{
	bool fine = true;
	for (uint32_t s = 0; s < 2 * WORLD; s++)
		kernel_rank_free(&gpus->members[s / WORLD][s % WORLD]);
	buffer_free(&gpus->abort_word);
	collet_kernel_sets_deinit(&gpus->sets);
	collet_copy_streams_deinit(&gpus->copy_streams);
	for (uint32_t d = gpus->count; d-- > 0;)
		fine = program_end(&gpus->programs[d]) && fine;
	collet_cuda_close(&gpus->cuda);
	return fine;
}

/* buffer_write() and buffer_read() copy whole buffers. */
static bool write_some(const struct kernel_rank *member, const struct buffer *buffer, const void *from, size_t bytes)
{
	const struct buffer part = { member->program, true, buffer->first, bytes };
	return buffer_write(&part, from);
}

bool kernel_rank_prepare(const struct gpus *gpus, struct kernel_rank *member, const struct row *row, uint32_t rank,
	uint32_t size, const void *values, struct collet_plan_rank *rank_arguments, uint32_t *blocks)
{
	const size_t element = collet_dtype_bytes(row->dtype);
	const struct collet_plan_options options = { (uint32_t)element, row->channels, row->is_ll ? 512 : SEGMENT_BYTES,
		row->is_ll };
	const struct collet_shape shape =
		collet_shape_of(row->program->collective, rank, size, row_root(size), row->count);
	const uint64_t bytes[] = { row_send_count(row, rank, size) * element, row_recv_count(row, rank, size) * element,
		collet_program_scratch(row->program, &shape) * element };
	const double scale = row_scale(rank);
	struct collet_kernel_plan *plan;
	if (collet_kernel_plan_build(row->program, &shape, &options, &plan) != COLLET_OK)
		return false;
	*rank_arguments = (struct collet_plan_rank){
		.plan = (uintptr_t)member->plan.first, .plan_bytes = plan->bytes,
		.windows = (uintptr_t)member->windows.first, .abort = (uintptr_t)gpus->abort_word.first,
		.buffers = { (uintptr_t)(row->in_place ? member->result.first : member->input.first),
			(uintptr_t)member->result.first, (uintptr_t)member->scratch.first },
		.bytes = { bytes[0], bytes[1], bytes[2] },
	};
	memcpy(&rank_arguments->scale, &scale, sizeof(scale));
	*blocks = plan->parts * plan->channels_per_part;
	const bool fine = bytes[2] <= 2 * ROOM && plan->bytes <= 1 << 16 &&
		write_some(member, &member->plan, plan, plan->bytes) &&
		write_some(member, row->in_place ? &member->result : &member->input, values, bytes[0]);
	free(plan);
	return fine;
}

collet_status kernel_rank_launch(
	struct kernel_rank *member, const struct collet_plan_arguments *arguments, uint32_t blocks, uint32_t rows)
{
	collet_status status = collet_copy_stream_push_context(member->set->cuda, member->copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_kernel_launch(
		member->set, COLLET_GPU_plan, blocks, rows, arguments, member->copy_stream->stream);
	collet_copy_stream_pop_context(member->set->cuda);
	return status;
}

void set_schedule(uint64_t seed)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	if (seed)
		setenv("FAKE_CUDA_SCHEDULE", text, 1);
	else
		unsetenv("FAKE_CUDA_SCHEDULE");
}
