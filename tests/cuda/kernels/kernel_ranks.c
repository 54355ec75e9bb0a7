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

static bool seat_make(struct gpus *gpus, struct seat *seat, const struct program *program)
{
	const struct collet_pointer_attributes residence = { .is_device = true, .context = program->context };
	const size_t bytes = collet_window_bytes(&gpus->window);
	void *blank = calloc(1, bytes);
	*seat = (struct seat){ .program = program };
	const bool made = blank && program->cuCtxPushCurrent_v2(program->context) == CU_OK &&
		collet_copy_stream_get(&gpus->copiers, &residence, &seat->copier) == COLLET_OK &&
		collet_kernel_set_get(&gpus->sets, seat->copier, &seat->set) == COLLET_OK &&
		buffer_make(&seat->window, program, true, bytes) && buffer_write(&seat->window, blank) &&
		buffer_make(&seat->tape, program, true, 1 << 16) && buffer_make(&seat->input, program, true, ROOM) &&
		buffer_make(&seat->result, program, true, ROOM) &&
		buffer_make(&seat->scratch, program, true, 2 * ROOM) &&
		buffer_make(&seat->windows, program, true, WORLD * sizeof(uint64_t)) &&
		program->cuCtxPopCurrent_v2(NULL) == CU_OK;
	free(blank);
	return made;
}

static void seat_free(struct seat *seat)
{
	struct buffer *all[] = { &seat->window, &seat->tape, &seat->input, &seat->result, &seat->scratch,
		&seat->windows };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && seat->program; i++)
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
	gpus->window = collet_window_for(size, CHANNELS, PIECE_BYTES);
	if (collet_cuda_open(&gpus->cuda, &no_log) != COLLET_OK || !gpus->cuda.module ||
		!program_start(&gpus->programs[0], 0) || gpus->cuda.cuDeviceGetCount(&count) != CU_OK)
		return false;
	gpus->count = (uint32_t)count >= size ? size : 1;
	for (uint32_t d = 1; d < gpus->count; d++)
		if (!program_start(&gpus->programs[d], (int)d))
			return false;
	collet_copy_streams_init(&gpus->copiers, &gpus->cuda);
	collet_kernel_sets_init(&gpus->sets, &gpus->cuda);
	if (!enable_peers(gpus) || !buffer_make(&gpus->abort_word, &gpus->programs[0], true, sizeof(nothing)) ||
		!buffer_write(&gpus->abort_word, &nothing))
		return false;
	for (uint32_t apart = 0; apart < (gpus->count > 1 ? 2 : 1); apart++) {
		for (uint32_t r = 0; r < size; r++)
			if (!seat_make(gpus, &gpus->seats[apart][r], &gpus->programs[apart ? r : 0]))
				return false;
		for (uint32_t r = 0; r < size; r++)
			addresses[r] = (uintptr_t)gpus->seats[apart][r].window.first;
		for (uint32_t r = 0; r < size; r++)
			if (!buffer_write(&gpus->seats[apart][r].windows, addresses))
				return false;
	}
	return true;
}

bool gpus_close(struct gpus *gpus)
{
	bool fine = true;
	for (uint32_t s = 0; s < 2 * WORLD; s++)
		seat_free(&gpus->seats[s / WORLD][s % WORLD]);
	buffer_free(&gpus->abort_word);
	collet_kernel_sets_deinit(&gpus->sets);
	collet_copy_streams_deinit(&gpus->copiers);
	for (uint32_t d = gpus->count; d-- > 0;)
		fine = program_end(&gpus->programs[d]) && fine;
	collet_cuda_close(&gpus->cuda);
	return fine;
}

/* buffer_write() and buffer_read() copy whole buffers. */
static bool write_some(const struct seat *seat, const struct buffer *buffer, const void *from, size_t bytes)
{
	const struct buffer part = { seat->program, true, buffer->first, bytes };
	return buffer_write(&part, from);
}

bool seat_lay(const struct gpus *gpus, struct seat *seat, const struct row *row, uint32_t rank, uint32_t size,
	const void *values, struct collet_plan_rank *laid, uint32_t *lanes)
{
	const size_t element = collet_dtype_bytes(row->dtype);
	const struct collet_plan_options taping = { (uint32_t)element, row->channels, row->quick ? 512 : PIECE_BYTES,
		row->quick };
	const struct collet_shape shape =
		collet_shape_of(row->program->collective, rank, size, row_root(size), row->count);
	const uint64_t bytes[] = { row_send_count(row, rank, size) * element, row_recv_count(row, rank, size) * element,
		collet_program_scratch(row->program, &shape) * element };
	const double scale = row_scale(rank);
	struct collet_kernel_plan *tape;
	if (collet_kernel_plan_build(row->program, &shape, &taping, &tape) != COLLET_OK)
		return false;
	*laid = (struct collet_plan_rank){
		.plan = (uintptr_t)seat->tape.first, .plan_bytes = tape->bytes,
		.windows = (uintptr_t)seat->windows.first, .abort = (uintptr_t)gpus->abort_word.first,
		.buffers = { (uintptr_t)(row->in_place ? seat->result.first : seat->input.first),
			(uintptr_t)seat->result.first, (uintptr_t)seat->scratch.first },
		.bytes = { bytes[0], bytes[1], bytes[2] },
	};
	memcpy(&laid->scale, &scale, sizeof(scale));
	*lanes = tape->parts * tape->channels_per_part;
	const bool fine = bytes[2] <= 2 * ROOM && tape->bytes <= 1 << 16 &&
		write_some(seat, &seat->tape, tape, tape->bytes) &&
		write_some(seat, row->in_place ? &seat->result : &seat->input, values, bytes[0]);
	free(tape);
	return fine;
}

collet_status seat_launch(struct seat *seat, const struct collet_plan_arguments *arguments, uint32_t lanes,
	uint32_t rows)
{
	collet_status status = collet_copy_stream_push_context(seat->set->cuda, seat->copier);
	if (status != COLLET_OK)
		return status;
	status = collet_kernel_launch(seat->set, COLLET_GPU_plan, lanes, rows, arguments, seat->copier->stream);
	collet_copy_stream_pop_context(seat->set->cuda);
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
