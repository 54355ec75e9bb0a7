/* The interpreter: executes an item, from its first receive to its last send. */
#include <string.h>

#include "machine.h"

static void stand_by(struct message **list, uint32_t *count, struct message *message)
{
	if (*count == WAITING)
		abort();
	list[(*count)++] = message;
	enqueue(message->item->stream->machine, message->endpoint);
}

/* Posts an item's sends. The memory must not change before the peer has read it. */
static void post_sends(struct item *item)
{
	struct machine *m = item->stream->machine;
	for (uint32_t i = 0; i < item->send_count; i++) {
		struct message *message = &item->sends[i];
		if (!message->memory)
			message->memory = item->from && item->operand_count == 1 ? item->from
					  : item->kept                           ? item->kept
										 : item->value;
		if (m->run->mode == TRANSFER_REMOTE_READ) {
			message->snapshot = must(calloc(message->length + 1, sizeof *message->snapshot));
			memcpy(message->snapshot, message->memory, message->length * sizeof *message->memory);
		}
		struct endpoint *endpoint = &m->endpoints[message->endpoint];
		stand_by(endpoint->sending, &endpoint->sending_count, message);
	}
}

static void note(struct item *item, enum expression_defect defect)
{
	static const enum defect as[] = {
		[EXPRESSION_TWICE] = DEFECT_TWICE,
		[EXPRESSION_ELEMENTS_DIFFER] = DEFECT_ELEMENTS_MIXED,
		[EXPRESSION_FINISHED_BEFORE] = DEFECT_FINISHED_EARLY,
	};
	if (defect != EXPRESSION_FINE)
		found(item->stream->machine, as[defect], "call %u, rank %u, item %llu", item->stream->call,
			item->stream->rank, (unsigned long long)item->index);
}

/* Finishes a value; every rank's contribution must be in it. */
static void finish(struct item *item, expression *e)
{
	struct machine *m = item->stream->machine;
	enum expression_defect defect;
	const uint64_t everybody = m->run->size == 64 ? UINT64_MAX : ((uint64_t)1 << m->run->size) - 1;
	if (*e && expression_look(m->world->store, *e).ranks != everybody)
		found(m, DEFECT_FINISHED_EARLY, "call %u, rank %u, item %llu", item->stream->call, item->stream->rank,
			(unsigned long long)item->index);
	*e = expression_finish(m->world->store, *e, &defect);
	note(item, defect);
}

/* Finds operands that are sums, which a program that reduces once must not have. */
static void check_reduces_once(struct item *item, const expression *operands, uint32_t count)
{
	struct machine *m = item->stream->machine;
	const struct side *side = world_side(m->world, item->stream->call, item->stream->rank);
	if (!collet_program_reduces_once(m->run->calls[item->stream->call].program, &side->shape))
		return;
	for (uint32_t i = 0; i < count; i++) {
		const uint64_t ranks = operands[i] ? expression_look(m->world->store, operands[i]).ranks : 0;
		if (ranks & (ranks - 1))
			found(m, DEFECT_PARTIAL_SUM, "call %u, rank %u, item %llu", item->stream->call,
				item->stream->rank, (unsigned long long)item->index);
	}
}

/* Computes the value when all operands have arrived, and stores it. */
static void combine(struct item *item)
{
	struct machine *m = item->stream->machine;
	const struct side *side = world_side(m->world, item->stream->call, item->stream->rank);
	const struct walk_cut cut = m->run->calls[item->stream->call].cut;
	const uint32_t count =
		walk_moves(&item->what, WALK_OPERANDS, &side->shape, cut, m->moves, 2 * m->run->size + 4);
	for (uint32_t i = 0; i < count; i++)
		if (m->moves[i].peer == side->shape.rank)
			memcpy(item->operands + i * item->length,
				world_at(side, m->moves[i].local.buffer, m->moves[i].local.span),
				item->length * sizeof *item->operands);
	for (uint64_t e = 0; e < item->length; e++) {
		expression operands[2 * EXPRESSION_RANKS];
		enum expression_defect defect;
		for (uint32_t i = 0; i < count; i++)
			operands[i] = item->operands[i * item->length + e];
		item->value[e] = operands[0];
		if (count > 1) {
			item->value[e] = expression_combine(m->world->store, operands, count, &defect);
			note(item, defect);
			check_reduces_once(item, operands, count);
		}
		if (item->what.step.is_final)
			finish(item, &item->value[e]);
	}
	if (item->kept)
		memcpy(item->kept, item->value, item->length * sizeof *item->value);
}

/* Stores what arrived before its place was free. */
static void store_early(struct item *item)
{
	for (uint32_t i = 0; i < item->receive_count; i++) {
		struct message *message = &item->receives[i];
		if (!message->place)
			continue;
		memcpy(message->place, message->memory, message->length * sizeof *message->memory);
		free(message->memory);
		message->place = NULL;
	}
}

void complete(struct item *item)
{
	if (item->done || !item->active || item->receives_left > 0)
		return;
	if (!item->combined) {
		item->combined = true;
		if (item->value)
			combine(item);
		store_early(item);
		post_sends(item);
	}
	if (item->sends_left > 0)
		return;
	item->done = true;
	const uint32_t bit = (uint32_t)1 << item->index % WINDOW;
	struct stream *s = item->stream;
	for (uint64_t i = item->index + 1; i < s->issued; i++) {
		struct item *later = &s->window[i % WINDOW];
		if (later->blockers & bit && (later->blockers &= ~bit) == 0)
			activate(later);
	}
}

void receive(struct item *item)
{
	struct machine *m = item->stream->machine;
	for (uint32_t i = 0; i < item->receive_count; i++) {
		struct message *message = &item->receives[i];
		if (item->blockers && !item->value) {
			message->place = message->memory;
			message->memory = must(calloc(message->length + 1, sizeof *message->memory));
		}
		struct endpoint *endpoint = &m->endpoints[message->endpoint];
		stand_by(endpoint->receiving, &endpoint->receiving_count, message);
	}
}

void activate(struct item *item)
{
	item->active = true;
	complete(item);
}
