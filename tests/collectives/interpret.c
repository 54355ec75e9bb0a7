#include "interpret.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matching.h"
#include "world.h"

enum { WINDOW = COLLET_LOOKAHEAD + 1, WAITING = 16 };

static const char *const names[DEFECT_COUNT] = {
	[DEFECT_NONE] = "none",
	[DEFECT_MALFORMED] = "malformed step",
	[DEFECT_OUT_OF_BOUNDS] = "out of bounds",
	[DEFECT_UNMATCHED_SEND] = "unmatched send",
	[DEFECT_UNMATCHED_RECEIVE] = "unmatched receive",
	[DEFECT_UNEQUAL_LENGTHS] = "unequal lengths",
	[DEFECT_ENDS_DISAGREE] = "ends disagree",
	[DEFECT_STUCK] = "stuck",
	[DEFECT_LENT_OVERWRITTEN] = "lent span overwritten",
	[DEFECT_INPUT_WRITTEN] = "INPUT written",
	[DEFECT_TWICE] = "contribution twice",
	[DEFECT_ELEMENTS_MIXED] = "elements mixed",
	[DEFECT_FINISHED_EARLY] = "finished early",
	[DEFECT_UNFINISHED] = "unfinished",
	[DEFECT_MISSING] = "missing",
	[DEFECT_RESULTS_DIFFER] = "results differ",
	[DEFECT_OUT_OF_ORDER] = "out of order",
	[DEFECT_WRONG_ELEMENT] = "wrong element",
	[DEFECT_LEFT_EARLY] = "left early",
};

const char *defect_name(enum defect defect)
{
	return names[defect];
}

uint64_t draw(uint64_t *seed, uint64_t below)
{
	uint64_t z = *seed += 0x9E3779B97F4A7C15u; /* splitmix64 */
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	z ^= z >> 31;
	return below ? z % below : z;
}

/* ---- State ------------------------------------------------------------------------------------------------------ */

struct item;

/* One message, on one of its two ranks. */
struct message {
	struct item *item;
	uint32_t conduit;
	uint64_t number; /* on its conduit */
	uint64_t length;
	expression *memory;   /* sends: where it is lent from; receives: where it comes to */
	expression *place;    /* receives: where it goes from there, once that is free */
	expression *snapshot; /* sends: as it was when lent */
};

struct span {
	const expression *at;
	uint64_t count;
};

struct item {
	struct stream *stream;
	struct walk_item what;
	bool active, combined, done;
	uint64_t index;
	uint32_t blockers; /* earlier items in the window, a bit each, that it waits for before it does more than
			      receive */
	struct message *sends, *receives;
	uint32_t send_count, receive_count, sends_left, receives_left;
	struct span *reads, *writes;
	uint32_t read_count, write_count;
	expression *operands; /* operand by operand, `length` elements each; own ones are filled in late */
	uint32_t operand_count;
	expression *value; /* NULL: none, moves are per peer */
	uint64_t length;
	expression *kept; /* own destination */
	expression *from; /* own source */
};

/* A rank's run of one part of one call. */
struct stream {
	struct machine *machine;
	uint32_t call, rank, part;
	struct walk walk;
	struct item window[WINDOW];
	uint64_t oldest, issued;
	bool exhausted;
};

struct conduit {
	uint64_t sent, received; /* messages that have left, and come */
	struct message *sending[WAITING], *receiving[WAITING];
	uint32_t sending_count, receiving_count;
	uint64_t issued_sends, issued_receives; /* numbers given out, of the call being issued */
	bool slot_full, queued;
	expression *slot;
};

struct machine {
	const struct run *run;
	struct world *world;
	struct conduit *conduits;                 /* (part * size + from) * size + to */
	uint64_t *first_message;                  /* call by call: the number of a conduit's first */
	uint64_t *issued_sends, *issued_receives; /* likewise: given out so far */
	struct stream *streams;                   /* (call * size + rank) * parts + part */
	uint32_t *started, *finished;             /* calls, by rank */
	uint32_t *queue;                          /* conduits to look at */
	uint32_t queue_count;
	struct walk_move *moves;
	uint64_t seed;
	uint64_t open_streams;
	struct finding finding;
};

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

__attribute__((format(printf, 3, 4))) static void found(struct machine *m, enum defect defect, const char *format, ...)
{
	va_list args;
	if (m->finding.defect != DEFECT_NONE)
		return;
	va_start(args, format);
	m->finding.defect = defect;
	vsnprintf(m->finding.text, sizeof m->finding.text, format, args);
	va_end(args);
}

static size_t lanes(const struct machine *m)
{
	return (size_t)MATCHING_PARTS * m->run->size * m->run->size;
}

static void enqueue(struct machine *m, uint32_t conduit)
{
	if (m->conduits[conduit].queued)
		return;
	m->conduits[conduit].queued = true;
	m->queue[m->queue_count++] = conduit;
}

/* ---- Issuing an item ----------------------------------------------------------------------------------------------
 */

static struct message *next_message(struct item *item, bool sends, uint32_t peer, uint64_t length)
{
	struct stream *s = item->stream;
	struct machine *m = s->machine;
	const uint32_t size = m->run->size, from = sends ? s->rank : peer, to = sends ? peer : s->rank;
	const uint32_t conduit = (s->part * size + from) * size + to;
	uint64_t *given = (sends ? m->issued_sends : m->issued_receives) + s->call * lanes(m) + conduit;
	struct message *message = sends ? &item->sends[item->send_count++] : &item->receives[item->receive_count++];
	*message = (struct message){.item = item,
		.conduit = conduit,
		.length = length,
		.number = m->first_message[s->call * lanes(m) + conduit] + (*given)++};
	return message;
}

static void use(struct span *list, uint32_t *count, const expression *at, uint64_t length)
{
	if (length > 0)
		list[(*count)++] = (struct span){at, length};
}

static void take_operands(struct item *item, const struct side *side, const struct walk_move *moves, uint32_t count)
{
	item->operand_count = item->what.step.per_peer ? 0 : count;
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

static void let_go(struct item *item)
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

static void receive(struct item *item);
static void activate(struct item *item);

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

/* ---- Running one ---------------------------------------------------------------------------------------------------
 */

static void stand_by(struct message **list, uint32_t *count, struct message *message)
{
	if (*count == WAITING)
		abort();
	list[(*count)++] = message;
	enqueue(message->item->stream->machine, message->conduit);
}

/* What is lent must not change before the peer has it. */
static void offer(struct item *item)
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
		struct conduit *conduit = &m->conduits[message->conduit];
		stand_by(conduit->sending, &conduit->sending_count, message);
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

/* Every rank's contribution must be in by the last touch. */
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

/* All operands are there: the value, and where it is kept. */
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
		}
		if (item->what.step.last_touch)
			finish(item, &item->value[e]);
	}
	if (item->kept)
		memcpy(item->kept, item->value, item->length * sizeof *item->value);
}

/* What came before its place was free. */
static void put(struct item *item)
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

/* Moves on as far as it can without a peer. */
static void settle(struct item *item)
{
	if (item->done || !item->active || item->receives_left > 0)
		return;
	if (!item->combined) {
		item->combined = true;
		if (item->value)
			combine(item);
		put(item);
		offer(item);
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

/* Straight to its place if that is free, else to a place of the executor's. */
static void receive(struct item *item)
{
	struct machine *m = item->stream->machine;
	for (uint32_t i = 0; i < item->receive_count; i++) {
		struct message *message = &item->receives[i];
		if (item->blockers && !item->value) {
			message->place = message->memory;
			message->memory = must(calloc(message->length + 1, sizeof *message->memory));
		}
		struct conduit *conduit = &m->conduits[message->conduit];
		stand_by(conduit->receiving, &conduit->receiving_count, message);
	}
}

static void activate(struct item *item)
{
	item->active = true;
	settle(item);
}

/* Issues what the window has room for. */
static void advance(struct stream *s)
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

/* ---- Conduits ------------------------------------------------------------------------------------------------------
 */

/* Takes the message with this number out of a list. */
static struct message *take(struct message **list, uint32_t *count, uint64_t number, bool remove)
{
	for (uint32_t i = 0; i < *count; i++) {
		if (list[i]->number != number)
			continue;
		struct message *message = list[i];
		if (remove)
			list[i] = list[--*count];
		return message;
	}
	return NULL;
}

static void settle_send(struct conduit *conduit, struct message *send)
{
	conduit->sent++;
	take(conduit->sending, &conduit->sending_count, send->number, true);
	send->item->sends_left--;
	settle(send->item);
	advance(send->item->stream);
}

static void settle_receive(struct conduit *conduit, struct message *receive, const expression *values)
{
	memcpy(receive->memory, values, receive->length * sizeof *values);
	conduit->received++;
	take(conduit->receiving, &conduit->receiving_count, receive->number, true);
	receive->item->receives_left--;
	settle(receive->item);
	advance(receive->item->stream);
}

/* From the sender's memory as it is now. */
static void fetch(struct machine *m, struct conduit *conduit, struct message *send, struct message *receive)
{
	const size_t bytes = send->length * sizeof *send->memory;
	if (send->snapshot && memcmp(send->snapshot, send->memory, bytes) != 0)
		found(m, DEFECT_LENT_OVERWRITTEN, "call %u, rank %u, item %llu", send->item->stream->call,
			send->item->stream->rank, (unsigned long long)send->item->index);
	expression *values = must(malloc(bytes + 1));
	memcpy(values, send->memory, bytes);
	settle_send(conduit, send);
	settle_receive(conduit, receive, values);
	free(values);
}

static void fill_slot(struct conduit *conduit, struct message *send)
{
	conduit->slot = must(malloc(send->length * sizeof *send->memory + 1));
	memcpy(conduit->slot, send->memory, send->length * sizeof *send->memory);
	conduit->slot_full = true;
	settle_send(conduit, send);
}

static void empty_slot(struct conduit *conduit, struct message *receive)
{
	expression *values = conduit->slot;
	conduit->slot_full = false;
	conduit->slot = NULL;
	settle_receive(conduit, receive, values);
	free(values);
}

/* One thing that can happen on this conduit, if any. */
static bool turn(struct machine *m, struct conduit *conduit)
{
	struct message *send = take(conduit->sending, &conduit->sending_count, conduit->sent, false);
	struct message *receive = take(conduit->receiving, &conduit->receiving_count, conduit->received, false);
	if (m->run->mode == TRANSFER_ONE_SLOT) {
		if (send && !conduit->slot_full)
			fill_slot(conduit, send);
		else if (receive && conduit->slot_full)
			empty_slot(conduit, receive);
		else
			return false;
		return true;
	}
	if (!send || !receive)
		return false;
	fetch(m, conduit, send, receive);
	return true;
}

/* ---- The whole ------------------------------------------------------------------------------------------------------
 */

static uint32_t parts_of(const struct machine *m, uint32_t call)
{
	return collet_program_parts(m->run->calls[call].program, &world_side(m->world, call, 0)->shape);
}

static struct stream *stream_at(const struct machine *m, uint32_t call, uint32_t rank, uint32_t part)
{
	return &m->streams[((size_t)call * m->run->size + rank) * MATCHING_PARTS + part];
}

static bool has_finished(const struct machine *m, uint32_t call, uint32_t rank)
{
	for (uint32_t part = 0; part < parts_of(m, call); part++) {
		const struct stream *s = stream_at(m, call, rank, part);
		if (!s->exhausted || s->oldest < s->issued)
			return false;
	}
	return true;
}

static void start(struct machine *m, uint32_t call, uint32_t rank)
{
	for (uint32_t part = 0; part < parts_of(m, call); part++) {
		struct stream *s = stream_at(m, call, rank, part);
		s->machine = m;
		s->call = call;
		s->rank = rank;
		s->part = part;
		walk_start(&s->walk, m->run->calls[call].program, &world_side(m->world, call, rank)->shape, part,
			m->run->calls[call].cut);
	}
	for (uint32_t part = 0; part < parts_of(m, call); part++)
		advance(stream_at(m, call, rank, part));
}

/* Starts the calls that this rank has come to; false: none. */
static bool start_calls(struct machine *m, uint32_t rank)
{
	bool any = false;
	for (;;) {
		while (m->finished[rank] < m->started[rank] && has_finished(m, m->finished[rank], rank))
			m->finished[rank]++;
		if (m->started[rank] == m->run->call_count || m->started[rank] - m->finished[rank] >= m->run->overlap)
			return any;
		start(m, m->started[rank]++, rank);
		any = true;
	}
}

static void drain(struct machine *m)
{
	while (m->queue_count > 0 && m->finding.defect == DEFECT_NONE) {
		const uint32_t i = (uint32_t)draw(&m->seed, m->queue_count);
		const uint32_t conduit = m->queue[i];
		m->queue[i] = m->queue[--m->queue_count];
		m->conduits[conduit].queued = false;
		if (turn(m, &m->conduits[conduit]))
			enqueue(m, conduit);
	}
}

static void run_all(struct machine *m)
{
	const uint32_t size = m->run->size, late = m->run->late_rank;
	bool waits = late < size, any = true;
	while (any && m->finding.defect == DEFECT_NONE) {
		any = false;
		for (uint32_t rank = 0; rank < size; rank++)
			if (rank != late || !waits)
				any |= start_calls(m, rank);
		drain(m);
		if (any || !waits)
			continue;
		for (uint32_t rank = 0; rank < size; rank++)
			if (rank != late && m->run->calls[0].program->collective == COLLET_BARRIER &&
				has_finished(m, 0, rank))
				found(m, DEFECT_LEFT_EARLY, "rank %u left before rank %u came", rank, late);
		waits = false;
		any = true;
	}
	if (m->open_streams > 0)
		for (size_t i = 0; i < (size_t)m->run->call_count * size * MATCHING_PARTS; i++)
			if (m->streams[i].machine &&
				!(m->streams[i].exhausted && m->streams[i].oldest == m->streams[i].issued))
				found(m, DEFECT_STUCK, "call %u, rank %u, part %u, item %llu of step sources %u",
					m->streams[i].call, m->streams[i].rank, m->streams[i].part,
					(unsigned long long)m->streams[i].oldest,
					m->streams[i].window[m->streams[i].oldest % WINDOW].what.step.source_count);
}

static void check_matching(struct machine *m)
{
	uint64_t *messages = must(calloc(lanes(m), sizeof *messages));
	for (uint32_t call = 0; call < m->run->call_count && m->finding.defect == DEFECT_NONE; call++) {
		uint64_t *first = m->first_message + call * lanes(m);
		memset(messages, 0, lanes(m) * sizeof *messages);
		m->finding = matching_check(m->world, call, messages);
		for (size_t i = 0; i < lanes(m); i++)
			first[lanes(m) + i] = first[i] + messages[i];
		m->open_streams += (uint64_t)parts_of(m, call) * m->run->size;
	}
	free(messages);
}

struct finding interpret(const struct run *run)
{
	struct machine m = {.run = run, .world = world_create(run), .seed = run->seed};
	const size_t streams = (size_t)run->call_count * run->size * MATCHING_PARTS;
	m.conduits = must(calloc(lanes(&m), sizeof *m.conduits));
	m.queue = must(calloc(lanes(&m), sizeof *m.queue));
	m.first_message = must(calloc((run->call_count + 1) * lanes(&m), sizeof *m.first_message));
	m.issued_sends = must(calloc(run->call_count * lanes(&m), sizeof *m.issued_sends));
	m.issued_receives = must(calloc(run->call_count * lanes(&m), sizeof *m.issued_receives));
	m.streams = must(calloc(streams, sizeof *m.streams));
	m.started = must(calloc(run->size, sizeof *m.started));
	m.finished = must(calloc(run->size, sizeof *m.finished));
	m.moves = must(calloc(4 * (size_t)run->size + 16, sizeof *m.moves));

	check_matching(&m);
	if (m.finding.defect == DEFECT_NONE)
		run_all(&m);
	if (m.finding.defect == DEFECT_NONE)
		m.finding = world_check(m.world);

	for (size_t i = 0; i < streams; i++)
		for (uint32_t j = 0; j < WINDOW; j++)
			let_go(&m.streams[i].window[j]);
	for (size_t i = 0; i < lanes(&m); i++)
		free(m.conduits[i].slot);
	free(m.conduits);
	free(m.queue);
	free(m.first_message);
	free(m.issued_sends);
	free(m.issued_receives);
	free(m.streams);
	free(m.started);
	free(m.finished);
	free(m.moves);
	world_destroy(m.world);
	return m.finding;
}
