/* Tapes on the GPU: laid down and copied there when a call of their kind is first made, and kept for the next. */
#include <stdlib.h>

#include "core/status.h"
#include "cuda/peer_gpus/internal.h"

enum { LEAST_ROOM = 1024 };

static bool same_taping(const struct collet_taping *a, const struct collet_taping *b)
{
	return a->element_bytes == b->element_bytes && a->channels == b->channels && a->piece_bytes == b->piece_bytes &&
	       a->quick == b->quick;
}

/* A v-form's blocks are its own: its tape is kept for nobody, and nobody's is right for it. */
static bool is_of(const struct collet_executor_tape *tape, const struct collet_executor_call *call)
{
	return !call->listed && tape->program && tape->program == call->program && tape->count == call->shape.count &&
	       tape->root == call->shape.root && same_taping(&tape->taping, &call->taping);
}

static void to_front(struct collet_executor *executor, struct collet_executor_tape **at)
{
	struct collet_executor_tape *tape = *at;
	*at = tape->next;
	tape->next = executor->tapes;
	executor->tapes = tape;
}

static uint32_t room_for(uint32_t bytes)
{
	uint32_t room = LEAST_ROOM;
	while (room < bytes)
		room *= 2;
	return room;
}

/* One that no launch will look at any more, the longest unused; NULL: there is none. */
static struct collet_executor_tape **find_unused(struct collet_executor *executor, uint32_t room)
{
	struct collet_executor_tape **found = NULL;
	for (struct collet_executor_tape **at = &executor->tapes; *at; at = &(*at)->next)
		if (!(*at)->captured && !(*at)->promised && (*at)->room == room && (*at)->used <= executor->ended)
			found = at;
	return found;
}

void collet_executor_promise(struct collet_executor_tape *tape, bool promised)
{
	if (promised)
		tape->promised++;
	else
		tape->promised--;
}

/* In the executor's context. */
static collet_status add_block(struct collet_executor *executor, uint32_t room)
{
	struct executor_block *block = calloc(1, sizeof(*block));
	if (!block)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for what a kernel is to do");
	block->bytes = room > EXECUTOR_TAPE_BLOCK ? room : EXECUTOR_TAPE_BLOCK;
	const cu_result result = executor->cuda->cuMemAlloc(&block->memory, block->bytes);
	if (result != CU_OK) {
		free(block);
		return collet_cuda_fail(executor->cuda, result, "allocating memory for what a kernel is to do");
	}
	block->next = executor->blocks;
	executor->blocks = block;
	return COLLET_OK;
}

/* In the executor's context. */
static collet_status take_memory(struct collet_executor *executor, uint32_t room, cu_pointer *at)
{
	struct executor_block *block = executor->blocks;
	if (!block || block->bytes - block->used < room) {
		const collet_status status = add_block(executor, room);
		if (status != COLLET_OK)
			return status;
		block = executor->blocks;
	}
	*at = block->memory + block->used;
	block->used += room;
	return COLLET_OK;
}

/* A place for a tape of so many bytes, at the front of the list. */
static collet_status take_place(struct collet_executor *executor, uint32_t bytes, struct collet_executor_tape **taken)
{
	const uint32_t room = room_for(bytes);
	struct collet_executor_tape **unused = NULL;
	if (executor->kept >= EXECUTOR_TAPES && collet_executor_is_idle(executor))
		executor->ended = executor->launches;
	/* One that serves no later call is used again at once. */
	unused = find_unused(executor, room);
	if (unused && executor->kept < EXECUTOR_TAPES && (*unused)->program)
		unused = NULL;
	if (unused) {
		to_front(executor, unused);
		*taken = executor->tapes;
		return COLLET_OK;
	}
	struct collet_executor_tape *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for what a kernel is to do");
	const collet_status status = take_memory(executor, room, &made->at);
	if (status != COLLET_OK) {
		free(made);
		return status;
	}
	made->room = room;
	made->next = executor->tapes;
	executor->tapes = made;
	executor->kept++;
	*taken = made;
	return COLLET_OK;
}

static collet_status upload(struct collet_executor *executor, const struct collet_tape *laid, cu_pointer at)
{
	static const char what[] = "telling a GPU what its kernel is to do";
	const collet_status status =
		collet_copier_add(executor->cuda, executor->copier, (void *)(uintptr_t)at, laid, laid->bytes, what);
	const collet_status waited = collet_copier_wait(executor->cuda, executor->copier, what);
	return status == COLLET_OK ? waited : status;
}

static collet_status add(struct collet_executor *executor, const struct collet_executor_call *call,
	const struct collet_tape *laid, struct collet_executor_tape **added)
{
	collet_status status = take_place(executor, laid->bytes, added);
	if (status != COLLET_OK)
		return status;
	struct collet_executor_tape *tape = *added;
	tape->program = NULL; /* until it is there */
	tape->used = 0;
	status = upload(executor, laid, tape->at);
	if (status != COLLET_OK)
		return status;
	tape->program = call->listed ? NULL : call->program;
	tape->count = call->shape.count;
	tape->root = call->shape.root;
	tape->taping = call->taping;
	tape->lanes = laid->parts * laid->channels;
	tape->bytes = laid->bytes;
	return COLLET_OK;
}

/* In the executor's context. */
static collet_status make_scratch(struct collet_executor *executor)
{
	if (executor->scratch)
		return COLLET_OK;
	const cu_result result = executor->cuda->cuMemAlloc(&executor->scratch, COLLET_SCRATCH_BYTES);
	if (result == CU_OK)
		return COLLET_OK;
	executor->scratch = 0;
	return collet_cuda_fail(executor->cuda, result, "allocating a communicator's scratch");
}

collet_status collet_executor_prepare(
	struct collet_executor *executor, const struct collet_executor_call *call, struct collet_executor_tape **tape)
{
	struct collet_tape *laid;
	for (struct collet_executor_tape **at = &executor->tapes; *at; at = &(*at)->next) {
		if (!is_of(*at, call))
			continue;
		to_front(executor, at);
		*tape = executor->tapes;
		return COLLET_OK;
	}
	collet_status status = collet_tape_lay(call->program, &call->shape, &call->taping, &laid);
	if (status != COLLET_OK)
		return status;
	status = collet_copier_begin(executor->cuda, executor->copier);
	if (status == COLLET_OK) {
		if (collet_program_scratch(call->program, &call->shape))
			status = make_scratch(executor);
		if (status == COLLET_OK)
			status = add(executor, call, laid, tape);
		collet_copier_end(executor->cuda);
	}
	free(laid);
	return status;
}

collet_status collet_executor_allocate_ahead(struct collet_executor *executor)
{
	const collet_status status = make_scratch(executor);
	return status == COLLET_OK ? add_block(executor, 0) : status;
}

void collet_executor_free_tapes(struct collet_executor *executor)
{
	for (struct collet_executor_tape *tape = executor->tapes, *next; tape; tape = next) {
		next = tape->next;
		free(tape);
	}
	for (struct executor_block *block = executor->blocks, *next; block; block = next) {
		next = block->next;
		(void)executor->cuda->cuMemFree(block->memory);
		free(block);
	}
	executor->tapes = NULL;
	executor->blocks = NULL;
	if (executor->scratch)
		(void)executor->cuda->cuMemFree(executor->scratch);
	executor->scratch = 0;
}
