/* What a small call is to do, found out once: see fast_path.c, which runs it. The steps are asked for and kept as
 * moves: whom to send to or receive from, and where the bytes are, as offsets into buffers that each call brings
 * along. */
#include <assert.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "engine/work_item.h"

static bool is_small(const struct collet_request *request)
{
	const struct collet_shape *shape = &request->shape;
	if (request->lanes != 1 || shape->result.kind == COLLET_PARTITION_VECTOR || request->prescales)
		return false;
	const uint64_t blocks = shape->result.kind == COLLET_PARTITION_BLOCKS ? shape->size : 1;
	/* Nothing is cut here, so nothing may be cut by a rank that cannot do its part here: trees send several blocks
	 * in one span. */
	const bool many = shape->result.kind == COLLET_PARTITION_BLOCKS || shape->input.kind == COLLET_PARTITION_BLOCKS;
	return shape->count * (many ? shape->size : 1) <= request->piece &&
		shape->count * blocks * request->element_bytes <= request->group->engine->limits.inline_call;
}

static struct collet_place place_of(
	const struct collet_request *request, enum collet_buffer buffer, struct collet_span span)
{
	return (struct collet_place){ span.first * request->element_bytes, buffer };
}

/* Some bytes of staging of its own. */
static struct collet_place stage(struct collet_small *small, uint64_t bytes)
{
	const struct collet_place place = { small->staged_bytes, COLLET_STAGING };
	small->staged_bytes += (bytes + 63) & ~(uint64_t)63;
	return place;
}

/* Where the value goes: as in value_placement.c. */
static struct collet_place value_of(struct collet_request *request, const struct collet_step *step, uint64_t count)
{
	if (item_is_local(request, &step->destination[0]))
		return place_of(request, step->destination[0].buffer, step->destination[0].span);
	if (!step->is_reduction && item_is_local(request, &step->source[0]))
		return place_of(request, step->source[0].buffer, step->source[0].span);
	return stage(&request->small, count * request->element_bytes);
}

static uint64_t moves_of(const struct collet_step *step)
{
	uint64_t moves = 0;
	for (uint32_t e = 0; e < step->source_count; e++)
		moves += step->source[e].peers.count;
	for (uint32_t e = 0; e < step->destination_count; e++)
		moves += step->destination[e].peers.count;
	return moves;
}

/* False: there are too many, or there is no memory. */
static bool make_room(struct collet_small *small, uint64_t moves)
{
	if (moves <= small->move_room)
		return true;
	if (moves > INLINE_MOVES)
		return false;
	free(small->move);
	small->move = malloc(moves * sizeof(small->move[0]));
	small->move_room = small->move ? (uint32_t)moves : 0;
	return small->move;
}

static struct collet_move *add_move(struct collet_small *small)
{
	assert(small->move_count < small->move_room);
	return &small->move[small->move_count++];
}

/* With the peer at this position; false: no memory. */
static bool add_transfer(struct collet_request *request, uint32_t position, struct collet_place place, uint64_t count)
{
	struct collet_small *small = &request->small;
	const uint32_t rank = request->shape.order ? request->shape.order[position] : position;
	struct collet_route *route = collet_route_get(request->group, 0, rank);
	if (!route)
		return false;
	const uint64_t bytes = count * request->element_bytes;
	*add_move(small) =
		(struct collet_move){ .route = route, .place = place, .spare = stage(small, bytes), .bytes = bytes };
	return true;
}

/* The chunk of a buffer that a per_peer step moves with the peer at this position. */
static struct collet_span chunk(const struct collet_request *request, enum collet_buffer buffer, uint32_t position)
{
	return collet_partition_chunk(collet_step_partition(&request->shape, buffer), &request->shape, position);
}

/* This rank's own operand stays where it is; others' are reduced from where they land, which is mostly the transport's
 * memory; what is kept lands in its place. */
static bool add_operand(struct collet_request *request, const struct collet_step *step,
	const struct collet_buffer_range *end, uint32_t position, struct collet_small_step *made)
{
	struct collet_small *small = &request->small;
	if (position == request->shape.rank) {
		*add_move(small) = (struct collet_move){ .place = place_of(request, end->buffer, end->span) };
		return true;
	}
	const enum collet_buffer into = step->destination[0].buffer;
	const struct collet_span span = step->is_per_peer ? chunk(request, into, position) : end->span;
	if (!add_transfer(
		    request, position, step->is_per_peer ? place_of(request, into, span) : made->value, span.count))
		return false;
	struct collet_move *move = &small->move[small->move_count - 1];
	if (step->is_reduction)
		move->place = move->spare;
	made->receives++;
	return true;
}

static bool add_operands(struct collet_request *request, const struct collet_step *step, struct collet_small_step *made)
{
	const uint32_t first = request->small.move_count;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_buffer_range *end = &step->source[e];
		for (uint32_t i = 0; i < end->peers.count; i++) {
			const uint32_t position = collet_peers_at(&end->peers, i, request->shape.size);
			const bool each_its_own =
				step->is_per_peer && position == request->shape.rank; /* see add_sends() */
			if (!each_its_own && !add_operand(request, step, end, position, made))
				return false;
		}
	}
	made->operands = (uint8_t)(request->small.move_count - first);
	return true;
}

/* A binomial node sends to its deepest child first, which has others to pass it on to: peers are listed the other way
 * round, as operands must be. */
static uint32_t send_turn(const struct collet_peers *peers, uint32_t i)
{
	return peers->is_doubling ? peers->count - 1 - i : i;
}

static bool add_sends(struct collet_request *request, const struct collet_step *step, struct collet_small_step *small)
{
	const uint32_t first = request->small.move_count;
	small->send = &request->small.move[first];
	for (uint32_t e = 0; e < step->destination_count; e++) {
		const struct collet_buffer_range *end = &step->destination[e];
		for (uint32_t i = 0; i < end->peers.count; i++) {
			const uint32_t position =
				collet_peers_at(&end->peers, send_turn(&end->peers, i), request->shape.size);
			if (position == request->shape.rank)
				continue;
			const enum collet_buffer from = step->source[0].buffer;
			const struct collet_span span = step->is_per_peer ? chunk(request, from, position) :
                                                                         (struct collet_span){ 0, small->count };
			/* What is only copied here is sent from where it was, before: peers have it sooner, and what
			 * they read in this rank's memory has not just been written. */
			const struct collet_place place = step->is_per_peer || small->sends_first ?
				place_of(request, from, step->is_per_peer ? span : step->source[0].span) : small->value;
			if (!add_transfer(request, position, place, span.count))
				return false;
		}
	}
	small->sends = (uint8_t)(request->small.move_count - first);
	return true;
}

static bool is_callers(enum collet_buffer buffer)
{
	return buffer == COLLET_INPUT || buffer == COLLET_RESULT;
}

/* The step writes there: does one before it send that? */
static void add_write(const struct collet_small *small, struct collet_small_step *step, struct collet_place to,
	uint64_t bytes)
{
	for (const struct collet_small_step *before = small->step; before < step; before++) {
		for (const struct collet_move *sent = before->send; sent < before->send + before->sends; sent++) {
			const bool same = sent->place.buffer == to.buffer;
			step->rewrites |= same && sent->place.first < to.first + bytes &&
				to.first < sent->place.first + sent->bytes;
			step->rewrites_in_place |= !same && is_callers(sent->place.buffer) && is_callers(to.buffer);
		}
	}
}

/* False: no memory. */
static bool add_step(struct collet_request *request, const struct collet_step *step)
{
	if (!step->source_count)
		return true;
	struct collet_small *small = &request->small;
	struct collet_small_step *made = &small->step[small->step_count++];
	*made = (struct collet_small_step){ .operand = &small->move[small->move_count] };
	made->count = step->is_per_peer ? 0 : step->source[0].span.count;
	if (!step->is_per_peer)
		made->value = value_of(request, step, made->count);
	made->finishes = step->is_final && request->averages;
	made->combines = step->is_reduction || (made->finishes && item_is_local(request, &step->source[0]));
	made->writes = item_is_local(request, &step->destination[0]);
	made->copies = made->writes && !step->is_per_peer && item_is_local(request, &step->source[0]);
	made->sends_first = made->copies && !made->combines;
	if (!add_operands(request, step, made))
		return false;
	if (made->combines || made->copies)
		add_write(small, made, made->value, made->count * request->element_bytes);
	for (const struct collet_move *move = made->operand; made->writes && !made->combines &&
		move < made->operand + made->operands; move++)
		if (move->route)
			add_write(small, made, move->place, move->bytes);
	return add_sends(request, step, made);
}

static bool only_sends(const struct collet_request *request, const struct collet_step *step)
{
	return step->source_count == 1 && item_is_local(request, &step->source[0]);
}

void collet_inline_plan(struct collet_request *request)
{
	const struct collet_program *program = request->program;
	const struct collet_shape *shape = &request->shape;
	struct collet_small *small = &request->small;
	small->fits = false;
	small->send_flags = request_send_flags(request);
	if (!is_small(request))
		return;
	small->step_count = small->move_count = 0;
	small->staged_bytes = 0;
	small->linger = 0;
	const uint64_t steps = program->step_count(shape, 0);
	if (steps > INLINE_STEPS)
		return;
	uint64_t moves = 0;
	for (uint64_t s = 0; s < steps; s++) {
		const struct collet_step step = program->step(shape, 0, s);
		moves += moves_of(&step);
	}
	if (!make_room(small, moves))
		return;
	for (uint64_t s = 0; s < steps; s++) {
		struct collet_step step[2] = { program->step(shape, 0, s) };
		const bool pair = step[0].is_paired && s + 1 < steps;
		if (pair)
			step[1] = program->step(shape, 0, ++s);
		const bool swap = pair && !only_sends(request, &step[0]) && only_sends(request, &step[1]);
		if (!add_step(request, &step[swap]) || (pair && !add_step(request, &step[!swap])))
			return;
	}
	small->fits = small->staged_bytes <= COLLET_STAGING_BYTES;
}

void collet_inline_forget(struct collet_request *request)
{
	free(request->small.move);
	request->small.move = NULL;
	request->small.move_room = 0;
}
