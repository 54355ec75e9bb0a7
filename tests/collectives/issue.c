/* The interpreter: issues a rank's items, and finds what each of them sends, receives and waits for. */
#include <string.h>

#include "machine.h"

static struct message *next_message(struct item *item, bool sends, uint32_t peer, uint64_t length)
{
	struct stream *s = item->stream;
	struct machine *m = s->machine;
	const uint32_t size = m->run->size, from = sends ? s->rank : peer, to = sends ? peer : s->rank;
	const uint32_t endpoint = (s->part * size + from) * size + to;
	uint64_t *given = (sends ? m->issued_sends : m->issued_receives) + s->call * sequence_count(m) + endpoint;
	struct message *message = sends ? &item->sends[item->send_count++] : &item->receives[item->receive_count++];
	*message = (struct message){ .item = item,
		.endpoint = endpoint,
		.length = length,
		.number = m->first_message[s->call * sequence_count(m) + endpoint] + (*given)++ };
	return message;
}

static void use(struct span *list, uint32_t *count, const expression *at, uint64_t length)
{
	if (length > 0)
		list[(*count)++] = (struct span){ at, length };
}

static void take_operands(struct item *item, const struct side *side, const struct walk_move *moves, uint32_t count)
{
	item->operand_count = item->what.step.is_per_peer ? 0 : count;
	if (item->operand_count > 0) {
		item->length = moves[0].length;
		item->operands = must(calloc(count * item->length + 1, sizeof *item->operands));
		item->value = must(calloc(item->length + 1, sizeof *item->value));
	}
	for (uint32_t i = 0; i < count; i++) {
		expression *local =
			moves[i].has_local ? world_at(side, moves[i].local.buffer, moves[i].local.span) : NULL;
		if (moves[i].peer == side->shape.rank) {
			use(item->reads, &item->read_count, local, moves[i].length);
			item->from = local;
			continue;
		}
		struct message *message = next_message(item, false, moves[i].peer, moves[i].length);
		message->memory = local ? local : item->operands + i * item->length;
		if (local)
			use(item->writes, &item->write_count, local, moves[i].length);
	}
}

static void take_destinations(struct item *item, const struct side *side, const struct walk_move *moves, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		expression *local =
			moves[i].has_local ? world_at(side, moves[i].local.buffer, moves[i].local.span) : NULL;
		if (moves[i].peer == side->shape.rank) {
			use(item->writes, &item->write_count, local, moves[i].length);
			item->kept = local;
			continue;
		}
		next_message(item, true, moves[i].peer, moves[i].length)->memory = local;
		if (local)
			use(item->reads, &item->read_count, local, moves[i].length);
	}
}

static bool overlap(const struct span *a, uint32_t a_count, const struct span *b, uint32_t b_count)
{
	for (uint32_t i = 0; i < a_count; i++)
		for (uint32_t j = 0; j < b_count; j++)
			if (a[i].at < b[j].at + b[j].count && b[j].at < a[i].at + a[i].count)
				return true;
	return false;
}

static bool waits_for(const struct item *item, const struct item *earlier)
{
	return overlap(item->reads, item->read_count, earlier->writes, earlier->write_count) ||
	       overlap(item->writes, item->write_count, earlier->reads, earlier->read_count) ||
	       overlap(item->writes, item->write_count, earlier->writes, earlier->write_count);
}

void let_go(struct item *item)
{
	for (uint32_t i = 0; i < item->send_count; i++)
		free(item->sends[i].snapshot);
	for (uint32_t i = 0; i < item->receive_count; i++)
		if (item->receives[i].place)
			free(item->receives[i].memory);
	free(item->sends);
	free(item->receives);
	free(item->reads);
	free(item->writes);
	free(item->operands);
	free(item->value);
	memset(item, 0, sizeof *item);
}

static void issue(struct stream *s, const struct walk_item *what)
{
	struct machine *m = s->machine;
	struct item *item = &s->window[s->issued % WINDOW];
	const struct side *side = world_side(m->world, s->call, s->rank);
	const struct walk_cut cut = m->run->calls[s->call].cut;
	const uint32_t size = m->run->size, room = 2 * size + 4;
	let_go(item);
	item->stream = s;
	item->what = *what;
	item->index = s->issued++;
	struct walk_move *operands = m->moves, *destinations = m->moves + room;
	const uint32_t operand_count = walk_moves(what, WALK_OPERANDS, &side->shape, cut, operands, room);
	const uint32_t destination_count = walk_moves(what, WALK_DESTINATIONS, &side->shape, cut, destinations, room);
	item->sends = must(calloc(destination_count + 1, sizeof *item->sends));
	item->receives = must(calloc(operand_count + 1, sizeof *item->receives));
	item->reads = must(calloc(operand_count + destination_count + 1, sizeof *item->reads));
	item->writes = must(calloc(operand_count + destination_count + 1, sizeof *item->writes));
	take_operands(item, side, operands, operand_count);
	take_destinations(item, side, destinations, destination_count);
	item->receives_left = item->receive_count;
	item->sends_left = item->send_count;
	for (uint64_t i = s->oldest; i < item->index; i++) {
		const struct item *earlier = &s->window[i % WINDOW];
		if (!earlier->done && waits_for(item, earlier))
			item->blockers |= (uint32_t)1 << i % WINDOW;
	}
	receive(item);
	if (item->blockers == 0)
		activate(item);
}

void advance(struct stream *s)
{
	struct machine *m = s->machine;
	struct walk_item what;
	if (s->exhausted && s->oldest == s->issued)
		return;
	for (;;) {
		while (s->oldest < s->issued && s->window[s->oldest % WINDOW].done)
			s->oldest++;
		if (s->exhausted || s->issued - s->oldest == WINDOW)
			break;
		s->exhausted = !walk_next(&s->walk, &what);
		if (!s->exhausted)
			issue(s, &what);
	}
	if (s->exhausted && s->oldest == s->issued)
		m->open_streams--;
}
