#include "matching.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message, as one of its ranks describes it. */
struct seen {
	uint64_t length;
	struct collet_buffer_range near[2]; /* on this rank: sent from, kept at, or neither */
	uint32_t near_count;
	struct collet_buffer_range far; /* on the peer, according to this rank */
};

struct message_sequence {
	struct seen *sent, *received;
	uint64_t sent_count, received_count, sent_capacity, received_capacity;
};

struct matching {
	const struct world *world;
	uint32_t c, part;
	struct message_sequence *sequences; /* from * size + to */
	struct finding finding;
};

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

__attribute__((format(printf, 3, 4))) static bool found(struct matching *m, enum defect defect, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	m->finding.defect = defect;
	vsnprintf(m->finding.text, sizeof m->finding.text, format, args);
	va_end(args);
	return false;
}

static void add(struct seen **list, uint64_t *count, uint64_t *capacity, const struct seen *seen)
{
	if (*count == *capacity) {
		*capacity = *capacity ? 2 * *capacity : 4;
		*list = must(realloc(*list, *capacity * sizeof **list));
	}
	(*list)[(*count)++] = *seen;
}

/* Returns true if all spans have the same length, there is one value or one for each peer, and the own destination is
 * first. */
static bool is_well_formed(const struct collet_step *step, const struct collet_shape *shape)
{
	uint64_t operands = 0;
	if (step->source_count > COLLET_STEP_SOURCES || step->destination_count > COLLET_STEP_DESTINATIONS)
		return false;
	if (step->source_count == 0)
		return true;
	for (uint32_t i = 0; i < step->source_count; i++)
		operands += step->source[i].peers.count;
	if (operands == 0 || step->destination_count == 0)
		return false;
	if (step->is_per_peer) {
		const struct collet_peers *from = &step->source[0].peers, *to = &step->destination[0].peers;
		const bool sends = from->count == 1 && from->first == shape->rank;
		const bool receives = to->count == 1 && to->first == shape->rank;
		const struct collet_peers *peers = sends ? to : from;
		for (uint32_t i = 0; i < peers->count; i++)
			if (collet_peers_at(peers, i, shape->size) == shape->rank)
				return false;
		return sends != receives && step->source_count == 1 && step->destination_count == 1 &&
		       !step->is_reduction;
	}
	for (uint32_t i = 0; i < step->source_count; i++)
		if (step->source[i].span.count != step->source[0].span.count)
			return false;
	for (uint32_t i = 0; i < step->destination_count; i++)
		if (step->destination[i].span.count != step->source[0].span.count)
			return false;
	return step->is_reduction == (operands > 1);
}

static bool check_own(struct matching *m, const struct side *side, const struct walk_move *move, bool writes)
{
	const uint32_t rank = side->shape.rank;
	if (!world_at(side, move->local.buffer, move->local.span))
		return found(m, DEFECT_OUT_OF_BOUNDS, "rank %u: buffer %d, elements %llu + %llu", rank,
			move->local.buffer, (unsigned long long)move->local.span.first,
			(unsigned long long)move->local.span.count);
	if (writes && move->local.buffer == COLLET_INPUT)
		return found(m, DEFECT_INPUT_WRITTEN, "rank %u writes INPUT", rank);
	return true;
}

/* Returns true if a step has at most as many remote operands as the program declares. */
static bool is_within_fan_in(
	struct matching *m, const struct side *side, const struct walk_move *operands, uint32_t count)
{
	const struct collet_program *program = m->world->run->calls[m->c].program;
	const uint32_t most = program->fan_in ? program->fan_in(&side->shape) : side->shape.size;
	uint32_t remote = 0;
	for (uint32_t i = 0; i < count; i++)
		remote += operands[i].peer != side->shape.rank;
	return remote <= most ||
	       found(m, DEFECT_MALFORMED, "rank %u: %u remote operands, not %u", side->shape.rank, remote, most);
}

/* Adds one item's moves to the message lists. */
static bool take_item(
	struct matching *m, const struct side *side, const struct walk_item *item, struct walk_move *moves)
{
	const struct collet_shape *shape = &side->shape;
	const struct walk_cut cut = m->world->run->calls[m->c].cut;
	const uint32_t rank = shape->rank, size = shape->size;
	const bool per_peer = item->step.is_per_peer;
	if (!is_well_formed(&item->step, shape))
		return found(m, DEFECT_MALFORMED, "rank %u", rank);

	struct walk_move *operands = moves, *destinations = moves + 2 * size + COLLET_STEP_SOURCES;
	const uint32_t operand_count = walk_moves(item, WALK_OPERANDS, shape, cut, operands, 2 * size);
	const uint32_t destination_count = walk_moves(item, WALK_DESTINATIONS, shape, cut, destinations, 2 * size);
	if (!is_within_fan_in(m, side, operands, operand_count))
		return false;
	struct seen sent = { .near_count = 0 }, received = { .near_count = 0 };
	for (uint32_t i = 0; i < operand_count; i++)
		if (operands[i].has_local && !check_own(m, side, &operands[i], per_peer))
			return false;
	for (uint32_t i = 0; i < destination_count; i++)
		if (destinations[i].has_local && !check_own(m, side, &destinations[i], !per_peer))
			return false;
	if (!per_peer && operands[0].has_local && !item->step.is_reduction)
		sent.near[sent.near_count++] = operands[0].local;
	if (!per_peer && destinations[0].has_local) {
		sent.near[sent.near_count++] = destinations[0].local;
		if (!item->step.is_reduction)
			received.near[received.near_count++] = destinations[0].local;
	}
	for (uint32_t i = 0; i < destination_count; i++) {
		struct message_sequence *sequence = &m->sequences[rank * size + destinations[i].peer];
		if (destinations[i].peer == rank)
			continue;
		if (per_peer)
			sent.near[0] = destinations[i].local, sent.near_count = 1;
		sent.length = destinations[i].length;
		sent.far = destinations[i].remote;
		add(&sequence->sent, &sequence->sent_count, &sequence->sent_capacity, &sent);
	}
	for (uint32_t i = 0; i < operand_count; i++) {
		struct message_sequence *sequence = &m->sequences[operands[i].peer * size + rank];
		if (operands[i].peer == rank)
			continue;
		if (per_peer)
			received.near[0] = operands[i].local, received.near_count = 1;
		received.length = operands[i].length;
		received.far = operands[i].remote;
		add(&sequence->received, &sequence->received_count, &sequence->received_capacity, &received);
	}
	return true;
}

static bool is_among(const struct collet_buffer_range *end, const struct seen *seen)
{
	for (uint32_t i = 0; i < seen->near_count; i++)
		if (seen->near[i].buffer == end->buffer && seen->near[i].span.first == end->span.first)
			return true;
	return seen->near_count == 0 || end->span.count == 0;
}

static bool check_lane(struct matching *m, uint32_t from, uint32_t to)
{
	const struct run *run = m->world->run;
	const struct call *call = &run->calls[m->c];
	const struct message_sequence *sequence = &m->sequences[from * run->size + to];
	const uint64_t both =
		sequence->sent_count < sequence->received_count ? sequence->sent_count : sequence->received_count;
	for (uint64_t i = 0; i < both; i++) {
		const struct seen *sent = &sequence->sent[i], *received = &sequence->received[i];
		if (sent->length != received->length)
			return found(m, DEFECT_UNEQUAL_LENGTHS, "%u -> %u, message %llu: %llu sent, %llu expected",
				from, to, (unsigned long long)i, (unsigned long long)sent->length,
				(unsigned long long)received->length);
		/* A rank cannot know the other's place in place, or if only the other knows the counts. */
		if (!call->is_vector && call->in_place == 0 &&
			(!is_among(&received->far, sent) || !is_among(&sent->far, received)))
			return found(
				m, DEFECT_ENDS_DISAGREE, "%u -> %u, message %llu", from, to, (unsigned long long)i);
	}
	if (sequence->sent_count > both)
		return found(m, DEFECT_UNMATCHED_SEND, "%u -> %u, message %llu", from, to, (unsigned long long)both);
	if (sequence->received_count > both)
		return found(m, DEFECT_UNMATCHED_RECEIVE, "%u -> %u, message %llu", from, to, (unsigned long long)both);
	return true;
}

static bool check_part(struct matching *m, uint64_t *messages)
{
	const struct run *run = m->world->run;
	const struct call *call = &run->calls[m->c];
	struct walk_move *moves = must(calloc(4 * (size_t)run->size + 16, sizeof *moves));
	bool fine = true;
	for (uint32_t rank = 0; fine && rank < run->size; rank++) {
		const struct side *side = world_side(m->world, m->c, rank);
		struct walk walk;
		struct walk_item item;
		walk_start(&walk, call->program, &side->shape, m->part, call->cut);
		while (fine && walk_next(&walk, &item))
			fine = take_item(m, side, &item, moves);
	}
	for (uint32_t i = 0; fine && i < run->size * run->size; i++) {
		fine = check_lane(m, i / run->size, i % run->size);
		messages[i] = m->sequences[i].sent_count;
	}
	free(moves);
	return fine;
}

struct finding matching_check(const struct world *world, uint32_t c, uint64_t *messages)
{
	const struct run *run = world->run;
	const size_t lanes = (size_t)run->size * run->size;
	struct matching m = { .world = world, .c = c };
	const uint32_t parts = collet_program_part_count(run->calls[c].program, &world_side(world, c, 0)->shape);
	for (m.part = 0; m.part < parts && m.finding.defect == DEFECT_NONE; m.part++) {
		m.sequences = must(calloc(lanes, sizeof *m.sequences));
		check_part(&m, &messages[m.part * lanes]);
		for (size_t i = 0; i < lanes; i++) {
			free(m.sequences[i].sent);
			free(m.sequences[i].received);
		}
		free(m.sequences);
	}
	return m.finding;
}
