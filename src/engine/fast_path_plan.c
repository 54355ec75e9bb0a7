/* Plans a small call once, for fast_path.c to execute. The plan lists the transfers of each step: the peer, and where
 * the bytes are, as offsets into buffers that each call supplies. */
#include <assert.h>
#include <stdlib.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/fast_path.h"
#include "engine/peer_queue.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

static bool fits_fast_path(const struct collet_request *request)
{
	const struct collet_shape *shape = &request->shape;
	if (request->task_count != 1 || shape->result.kind == COLLET_PARTITION_VECTOR || request->prescales ||
		request->wide.is_used)
		return false;
	const uint64_t blocks = shape->result.kind == COLLET_PARTITION_BLOCKS ? shape->size : 1;
	/* This path does not segment, so no rank may segment, not even one that cannot use this path. Trees send
	 * several blocks in one span. */
	const bool many = shape->result.kind == COLLET_PARTITION_BLOCKS || shape->input.kind == COLLET_PARTITION_BLOCKS;
	return shape->count * (many ? shape->size : 1) <= request->segment_elements &&
		shape->count * blocks * request->element_bytes <= request->state->engine->limits.fast_path_bytes;
}

static struct collet_buffer_offset place_of(
	const struct collet_request *request, enum collet_buffer buffer, struct collet_span span)
{
	return (struct collet_buffer_offset){ span.first * request->element_bytes, buffer };
}

/* Reserves bytes of staging. */
static struct collet_buffer_offset reserve_staging(struct collet_fast_path *fast_path, uint64_t bytes)
{
	const struct collet_buffer_offset place = { fast_path->staged_bytes, COLLET_STAGING };
	fast_path->staged_bytes += (bytes + 63) & ~(uint64_t)63;
	return place;
}

/* Returns the place of the value, by the rules of value_placement.c. */
static struct collet_buffer_offset value_place(
	struct collet_request *request, const struct collet_step *step, uint64_t count)
{
	if (range_is_local(request, &step->destination[0]))
		return place_of(request, step->destination[0].buffer, step->destination[0].span);
	if (!step->is_reduction && range_is_local(request, &step->source[0]))
		return place_of(request, step->source[0].buffer, step->source[0].span);
	return reserve_staging(&request->fast_path, count * request->element_bytes);
}

static uint64_t count_planned(const struct collet_step *step)
{
	uint64_t planned_count = 0;
	for (uint32_t e = 0; e < step->source_count; e++)
		planned_count += step->source[e].peers.count;
	for (uint32_t e = 0; e < step->destination_count; e++)
		planned_count += step->destination[e].peers.count;
	return planned_count;
}

/* False if there are too many, or no memory. */
static bool reserve_planned(struct collet_fast_path *fast_path, uint64_t planned_count)
{
	if (planned_count <= fast_path->planned_capacity)
		return true;
	if (planned_count > FAST_PATH_TRANSFERS)
		return false;
	free(fast_path->planned);
	fast_path->planned = malloc(planned_count * sizeof(fast_path->planned[0]));
	fast_path->planned_capacity = fast_path->planned ? (uint32_t)planned_count : 0;
	return fast_path->planned;
}

static struct collet_planned_transfer *add_planned(struct collet_fast_path *fast_path)
{
	assert(fast_path->planned_count < fast_path->planned_capacity);
	return &fast_path->planned[fast_path->planned_count++];
}

/* Adds a transfer with the peer at this position. False if there is no memory. */
static bool add_transfer(
	struct collet_request *request, uint32_t position, struct collet_buffer_offset place, uint64_t count)
{
	struct collet_fast_path *fast_path = &request->fast_path;
	const uint32_t rank = request->shape.order ? request->shape.order[position] : position;
	struct collet_peer_queue *peer_queue = collet_peer_queue_get(request->state, 0, rank);
	if (!peer_queue)
		return false;
	const uint64_t bytes = count * request->element_bytes;
	*add_planned(fast_path) = (struct collet_planned_transfer){ .peer_queue = peer_queue,
		.place = place,
		.staging_place = reserve_staging(fast_path, bytes),
		.bytes = bytes };
	return true;
}

/* Returns the chunk of a buffer that a per-peer step sends to or receives from this position. */
static struct collet_span peer_chunk(const struct collet_request *request, enum collet_buffer buffer, uint32_t position)
{
	return collet_partition_chunk(collet_step_partition(&request->shape, buffer), &request->shape, position);
}

/* Adds an operand. This rank's own operand stays where it is. Received operands of a reduction are reduced from where
 * they arrive, mostly the transport's memory. Received data that is kept arrives in its place. */
static bool add_operand(struct collet_request *request, const struct collet_step *step,
	const struct collet_buffer_range *range, uint32_t position, struct collet_fast_path_step *planned_step)
{
	struct collet_fast_path *fast_path = &request->fast_path;
	if (position == request->shape.rank) {
		*add_planned(fast_path) =
			(struct collet_planned_transfer){ .place = place_of(request, range->buffer, range->span) };
		return true;
	}
	const enum collet_buffer into = step->destination[0].buffer;
	const struct collet_span span = step->is_per_peer ? peer_chunk(request, into, position) : range->span;
	if (!add_transfer(request, position, step->is_per_peer ? place_of(request, into, span) : planned_step->value,
		    span.count))
		return false;
	struct collet_planned_transfer *planned = &fast_path->planned[fast_path->planned_count - 1];
	if (step->is_reduction)
		planned->place = planned->staging_place;
	planned_step->receive_count++;
	return true;
}

static bool add_operands(
	struct collet_request *request, const struct collet_step *step, struct collet_fast_path_step *planned_step)
{
	const uint32_t first = request->fast_path.planned_count;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_buffer_range *range = &step->source[e];
		for (uint32_t i = 0; i < range->peers.count; i++) {
			const uint32_t position = collet_peers_at(&range->peers, i, request->shape.size);
			const bool is_packed =
				step->is_per_peer && position == request->shape.rank; /* see add_sends() */
			if (!is_packed && !add_operand(request, step, range, position, planned_step))
				return false;
		}
	}
	planned_step->operand_count = (uint8_t)(request->fast_path.planned_count - first);
	return true;
}

/* Returns the index of the i-th peer to send to. A binomial node sends to its deepest child first, which forwards to
 * most others. Peers are listed in the reverse order, which operands need. */
static uint32_t send_index(const struct collet_peers *peers, uint32_t i)
{
	return peers->is_doubling ? peers->count - 1 - i : i;
}

static bool add_sends(
	struct collet_request *request, const struct collet_step *step, struct collet_fast_path_step *planned_step)
{
	const uint32_t first = request->fast_path.planned_count;
	planned_step->send_list = &request->fast_path.planned[first];
	for (uint32_t e = 0; e < step->destination_count; e++) {
		const struct collet_buffer_range *range = &step->destination[e];
		for (uint32_t i = 0; i < range->peers.count; i++) {
			const uint32_t position =
				collet_peers_at(&range->peers, send_index(&range->peers, i), request->shape.size);
			if (position == request->shape.rank)
				continue;
			const enum collet_buffer from = step->source[0].buffer;
			const struct collet_span span = step->is_per_peer
								? peer_chunk(request, from, position)
								: (struct collet_span){ 0, planned_step->count };
			/* Data that is only copied is sent from its source, before the copy: peers get it earlier, and
			 * do not read lines that this rank has just written. */
			const struct collet_buffer_offset place =
				step->is_per_peer || planned_step->sends_first
					? place_of(request, from, step->is_per_peer ? span : step->source[0].span)
					: planned_step->value;
			if (!add_transfer(request, position, place, span.count))
				return false;
		}
	}
	planned_step->send_count = (uint8_t)(request->fast_path.planned_count - first);
	return true;
}

static bool is_user_buffer(enum collet_buffer buffer)
{
	return buffer == COLLET_INPUT || buffer == COLLET_RESULT;
}

/* Notes whether an earlier step sends what the step writes. */
static void note_overwrites(const struct collet_fast_path *fast_path, struct collet_fast_path_step *step,
	struct collet_buffer_offset to, uint64_t bytes)
{
	for (const struct collet_fast_path_step *before = fast_path->steps; before < step; before++) {
		for (const struct collet_planned_transfer *sent = before->send_list;
			sent < before->send_list + before->send_count; sent++) {
			const bool same = sent->place.buffer == to.buffer;
			step->overwrites_sent |= same && sent->place.offset < to.offset + bytes &&
				to.offset < sent->place.offset + sent->bytes;
			step->overwrites_if_in_place |=
				!same && is_user_buffer(sent->place.buffer) && is_user_buffer(to.buffer);
		}
	}
}

/* True if the step reduces one received operand, and sends the value to the rank that it came from and to no other. */
static bool answers_its_operand(const struct collet_fast_path_step *step)
{
	if (!step->reduces || step->receive_count != 1 || step->send_count != 1)
		return false;
	const struct collet_planned_transfer *operand = step->operand_list;
	while (!operand->peer_queue)
		operand++;
	return operand->peer_queue == step->send_list->peer_queue;
}

/* False if there is no memory. */
static bool add_step(struct collet_request *request, const struct collet_step *step)
{
	if (!step->source_count)
		return true;
	struct collet_fast_path *fast_path = &request->fast_path;
	struct collet_fast_path_step *planned_step = &fast_path->steps[fast_path->step_count++];
	*planned_step = (struct collet_fast_path_step){ .operand_list = &fast_path->planned[fast_path->planned_count] };
	planned_step->count = step->is_per_peer ? 0 : step->source[0].span.count;
	if (!step->is_per_peer)
		planned_step->value = value_place(request, step, planned_step->count);
	planned_step->finishes = step->is_final && request->finishes;
	planned_step->reduces =
		step->is_reduction || (planned_step->finishes && range_is_local(request, &step->source[0]));
	planned_step->writes = range_is_local(request, &step->destination[0]);
	planned_step->copies = planned_step->writes && !step->is_per_peer && range_is_local(request, &step->source[0]);
	planned_step->sends_first = planned_step->copies && !planned_step->reduces;
	if (!add_operands(request, step, planned_step))
		return false;
	if (planned_step->reduces || planned_step->copies)
		note_overwrites(
			fast_path, planned_step, planned_step->value, planned_step->count * request->element_bytes);
	for (const struct collet_planned_transfer *planned = planned_step->operand_list;
		planned_step->writes && !planned_step->reduces &&
		planned < planned_step->operand_list + planned_step->operand_count;
		planned++)
		if (planned->peer_queue)
			note_overwrites(fast_path, planned_step, planned->place, planned->bytes);
	if (!add_sends(request, step, planned_step))
		return false;
	planned_step->may_return = answers_its_operand(planned_step);
	return true;
}

/* Finds the steps that run before the first receive, and whether the calls behind this one need not wait for more. */
static void plan_overlap(struct collet_fast_path *fast_path)
{
	const struct collet_fast_path_step *const end = fast_path->steps + fast_path->step_count;
	const struct collet_fast_path_step *step = fast_path->steps;
	fast_path->may_overlap = true;
	for (; step < end && !step->receive_count; step++) {
		fast_path->may_overlap &= is_user_buffer(step->value.buffer);
		for (const struct collet_planned_transfer *sent = step->send_list;
			sent < step->send_list + step->send_count; sent++)
			fast_path->may_overlap &= is_user_buffer(sent->place.buffer);
	}
	fast_path->leading_steps = (uint32_t)(step - fast_path->steps);
	for (; step < end; step++)
		fast_path->may_overlap &= !step->send_count;
}

static bool only_sends(const struct collet_request *request, const struct collet_step *step)
{
	return step->source_count == 1 && range_is_local(request, &step->source[0]);
}

void collet_fast_path_plan(struct collet_request *request)
{
	const struct collet_program *program = request->program;
	const struct collet_shape *shape = &request->shape;
	struct collet_fast_path *fast_path = &request->fast_path;
	fast_path->is_eligible = false;
	fast_path->send_flags = request_send_flags(request);
	if (!fits_fast_path(request))
		return;
	fast_path->step_count = fast_path->planned_count = 0;
	fast_path->staged_bytes = 0;
	fast_path->poll_backoff = 0;
	const uint64_t steps = program->step_count(shape, 0);
	if (steps > FAST_PATH_STEPS)
		return;
	uint64_t planned_count = 0;
	for (uint64_t s = 0; s < steps; s++) {
		const struct collet_step step = program->step(shape, 0, s);
		planned_count += count_planned(&step);
	}
	if (!reserve_planned(fast_path, planned_count))
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
	plan_overlap(fast_path);
	fast_path->base[COLLET_SCRATCH] = request->state->scratch;
	fast_path->base[COLLET_STAGING] = request->state->tasks[0] ? request->state->tasks[0]->staging : NULL;
	fast_path->is_eligible = fast_path->staged_bytes <= COLLET_STAGING_BYTES;
}

void collet_fast_path_free(struct collet_request *request)
{
	free(request->fast_path.planned);
	request->fast_path.planned = NULL;
	request->fast_path.planned_capacity = 0;
}
