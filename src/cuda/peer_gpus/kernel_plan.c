/* From step programs to tapes: each step's ends are named, what goes to each peer apart becomes moves of its own, and
 * where one channel may read what another wrote, they are to meet. */
#include "cuda/peer_gpus/kernel_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* An array that grows. */
struct list {
	char *items;
	size_t count, room, item_bytes;
};

/* NULL: no memory. */
static void *append(struct list *list)
{
	if (list->count == list->room) {
		const size_t room = list->room ? 2 * list->room : 64;
		char *items = realloc(list->items, room * list->item_bytes);
		if (!items)
			return NULL;
		list->items = items;
		list->room = room;
	}
	void *item = list->items + list->count++ * list->item_bytes;
	memset(item, 0, list->item_bytes);
	return item;
}

/* Elements of this rank that a step touches. */
struct touch {
	uint32_t place;
	bool writes;
	uint64_t first, count;
};

struct laying {
	const struct collet_shape *shape;
	struct list steps, moves, ends;
	struct list touched;         /* since the channels last met */
	bool short_of_memory;
};

static const enum collet_tape_place places[] = {
	[COLLET_INPUT] = COLLET_TAPE_INPUT,
	[COLLET_RESULT] = COLLET_TAPE_RESULT,
	[COLLET_SCRATCH] = COLLET_TAPE_SCRATCH,
};

/* ---- Who touches what: the channels of a rank cut every span alike, so they stay out of each other's way wherever a
 * later step has the same span as an earlier one, or none of its elements ---- */

/* INPUT and RESULT may be one memory: if they are, equally long spans of both are either the same or apart. */
static bool disturbs(const struct touch *a, const struct touch *b)
{
	if (!a->writes && !b->writes)
		return false;
	if (a->place != b->place)
		return a->place != COLLET_TAPE_SCRATCH && b->place != COLLET_TAPE_SCRATCH && a->count != b->count;
	const bool same = a->first == b->first && a->count == b->count;
	return !same && a->first < b->first + b->count && b->first < a->first + a->count;
}

static bool must_meet(const struct laying *laying, const struct list *touches)
{
	for (size_t i = 0; i < touches->count; i++)
		for (size_t k = 0; k < laying->touched.count; k++)
			if (disturbs((const struct touch *)(const void *)touches->items + i,
				    (const struct touch *)(const void *)laying->touched.items + k))
				return true;
	return false;
}

/* ---- A step ---- */

static void add_end(struct laying *laying, bool own, enum collet_buffer buffer, uint64_t first, uint32_t peer)
{
	struct collet_tape_end *end = append(&laying->ends);
	if (!end) {
		laying->short_of_memory = true;
		return;
	}
	end->place = own ? places[buffer] : COLLET_TAPE_PEER;
	end->first = own ? first : 0;
	end->peer = own ? 0 : peer;
}

static struct collet_tape_move *add_move(struct laying *laying, uint64_t count, bool finish)
{
	struct collet_tape_move *move = append(&laying->moves);
	if (!move) {
		laying->short_of_memory = true;
		return NULL;
	}
	move->count = count;
	move->end = (uint32_t)laying->ends.count;
	move->finish = finish;
	return move;
}

/* All ranks that an end names; how many. */
static uint32_t add_ends(struct laying *laying, const struct collet_buffer_range *ends, uint32_t count)
{
	uint32_t added = 0;
	for (uint32_t e = 0; e < count; e++)
		for (uint32_t i = 0; i < ends[e].peers.count; i++, added++) {
			const uint32_t peer = collet_peers_at(&ends[e].peers, i, laying->shape->size);
			add_end(laying, peer == laying->shape->rank, ends[e].buffer, ends[e].span.first, peer);
		}
	return added;
}

static void lay_move(struct laying *laying, const struct collet_step *step)
{
	struct collet_tape_move *move = add_move(laying, step->source[0].span.count, step->is_final);
	if (!move)
		return;
	move->sources = (uint16_t)add_ends(laying, step->source, step->source_count);
	move->results = (uint16_t)add_ends(laying, step->destination, step->destination_count);
}

/* One chunk for each peer, to it or from it. */
static void lay_each(struct laying *laying, const struct collet_step *step)
{
	const struct collet_shape *shape = laying->shape;
	const bool sends = step->source[0].peers.count == 1 && step->source[0].peers.first == shape->rank;
	const struct collet_buffer_range *near = sends ? &step->source[0] : &step->destination[0];
	const struct collet_buffer_range *far = sends ? &step->destination[0] : &step->source[0];
	for (uint32_t i = 0; i < far->peers.count; i++) {
		const uint32_t peer = collet_peers_at(&far->peers, i, shape->size);
		const struct collet_span span =
			collet_partition_chunk(collet_step_partition(shape, near->buffer), shape, peer);
		struct collet_tape_move *move =
			peer == shape->rank ? NULL : add_move(laying, span.count, step->is_final);
		if (!move)
			continue;
		move->sources = move->results = 1;
		add_end(laying, sends, near->buffer, span.first, peer);
		add_end(laying, !sends, near->buffer, span.first, peer);
	}
}

static void touch_moves(struct laying *laying, const struct collet_tape_step *step, struct list *touches)
{
	touches->count = 0;
	for (uint32_t m = step->move; m < step->move + step->moves; m++) {
		const struct collet_tape_move *move =
			(const struct collet_tape_move *)(const void *)laying->moves.items + m;
		for (uint32_t e = 0; e < (uint32_t)move->sources + move->results; e++) {
			const struct collet_tape_end *end =
				(const struct collet_tape_end *)(const void *)laying->ends.items + move->end + e;
			struct touch *touch = end->place == COLLET_TAPE_PEER ? NULL : append(touches);
			if (touch)
				*touch = (struct touch){ end->place, e >= move->sources, end->first, move->count };
			else
				laying->short_of_memory |= end->place != COLLET_TAPE_PEER;
		}
	}
}

static void lay_step(struct laying *laying, const struct collet_step *step)
{
	struct list touches = { .item_bytes = sizeof(struct touch) };
	struct collet_tape_step *laid = append(&laying->steps);
	if (!laid) {
		laying->short_of_memory = true;
		return;
	}
	laid->move = (uint32_t)laying->moves.count;
	laid->paired = step->is_paired;
	if (step->source_count && step->is_per_peer)
		lay_each(laying, step);
	else if (step->source_count)
		lay_move(laying, step);
	laid->moves = (uint32_t)laying->moves.count - laid->move;
	for (uint32_t m = laid->move; m < laid->move + laid->moves; m++) {
		const uint64_t count = ((const struct collet_tape_move *)(const void *)laying->moves.items)[m].count;
		laid->longest = count > laid->longest ? count : laid->longest;
	}
	touch_moves(laying, laid, &touches);
	laid->meets = must_meet(laying, &touches);
	if (laid->meets)
		laying->touched.count = 0;
	for (size_t i = 0; i < touches.count; i++) {
		struct touch *touch = append(&laying->touched);
		if (touch)
			*touch = ((const struct touch *)(const void *)touches.items)[i];
		else
			laying->short_of_memory = true;
	}
	free(touches.items);
}

/* ---- The tape ---- */

/* Must not look at the rank. */
static collet_status check(const struct collet_program *program, const struct collet_shape *shape, uint32_t parts)
{
	const uint32_t fan_in = collet_program_fan_in(program, shape);
	if (shape->size > COLLET_TAPE_RANKS || fan_in >= COLLET_TAPE_RANKS)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "%u ranks are more than the %d that a kernel serves",
			shape->size, COLLET_TAPE_RANKS);
	if (parts > COLLET_TAPE_PARTS || parts > shape->size)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "%s has %u parts, and a kernel runs no more than %u",
			program->name, parts, shape->size < COLLET_TAPE_PARTS ? shape->size : COLLET_TAPE_PARTS);
	return COLLET_OK;
}

static uint32_t put(char *at, uint32_t bytes, const struct list *list)
{
	if (list->count)
		memcpy(at + bytes, list->items, list->count * list->item_bytes);
	return bytes + (uint32_t)(list->count * list->item_bytes);
}

static struct collet_tape *gather(const struct laying *laying, const struct collet_tape *head)
{
	const size_t bytes = sizeof(*head) + laying->steps.count * laying->steps.item_bytes +
		laying->moves.count * laying->moves.item_bytes + laying->ends.count * laying->ends.item_bytes;
	struct collet_tape *tape = malloc(bytes);
	if (!tape)
		return NULL;
	*tape = *head;
	tape->step_at = sizeof(*head);
	tape->move_at = put((char *)tape, tape->step_at, &laying->steps);
	tape->end_at = put((char *)tape, tape->move_at, &laying->moves);
	tape->bytes = put((char *)tape, tape->end_at, &laying->ends);
	return tape;
}

collet_status collet_tape_lay(const struct collet_program *program, const struct collet_shape *shape,
	const struct collet_taping *taping, struct collet_tape **tape)
{
	const uint32_t parts = collet_program_part_count(program, shape);
	const collet_status status = check(program, shape, parts);
	if (status != COLLET_OK)
		return status;
	struct laying laying = {
		.shape = shape,
		.steps.item_bytes = sizeof(struct collet_tape_step),
		.moves.item_bytes = sizeof(struct collet_tape_move),
		.ends.item_bytes = sizeof(struct collet_tape_end),
		.touched.item_bytes = sizeof(struct touch),
	};
	struct collet_tape head = {
		.rank = shape->rank,
		.size = shape->size,
		.parts = parts,
		.channels = taping->channels,
		.few = program->segmented ? COLLET_TAPE_FEW : UINT32_MAX,
		.element_bytes = taping->element_bytes,
		.quick = taping->quick,
		.piece = taping->piece_bytes / taping->element_bytes,
	};
	for (uint32_t part = 0; part < parts; part++) {
		const uint64_t steps = program->step_count(shape, part);
		head.steps[part] = (uint32_t)laying.steps.count;
		laying.touched.count = 0;
		for (uint64_t s = 0; s < steps && !laying.short_of_memory; s++) {
			const struct collet_step step = program->step(shape, part, s);
			lay_step(&laying, &step);
		}
	}
	for (uint32_t part = parts; part <= COLLET_TAPE_PARTS; part++)
		head.steps[part] = (uint32_t)laying.steps.count;
	/* Sliced programs cut all steps' spans at the same places, and their channels make passes of their own. */
	for (size_t s = 0; s < laying.steps.count && program->segmented; s++)
		((struct collet_tape_step *)(void *)laying.steps.items)[s].meets = false;
	*tape = laying.short_of_memory ? NULL : gather(&laying, &head);
	free(laying.steps.items);
	free(laying.moves.items);
	free(laying.ends.items);
	free(laying.touched.items);
	return *tape ? COLLET_OK : collet_fail(COLLET_ERR_MEMORY, "no memory for what a kernel is to do");
}

struct collet_window collet_window_for(uint32_t size, uint32_t channels, uint64_t piece_bytes)
{
	const uint32_t parts = size < COLLET_TAPE_PARTS ? size : COLLET_TAPE_PARTS;
	return (struct collet_window){ size, channels * parts, (uint32_t)((piece_bytes + 63) / 64 * 64) };
}
