#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/cost.h"
#include "collectives/host_groups.h"

/* Ended items are kept as long as a later one in the window may depend on them. */
enum { WINDOW = COLLET_LOOKAHEAD + 1, KEPT = 2 * WINDOW, PARTS = 8, SPANS = 8 };

struct area {
	enum collet_buffer buffer;
	uint64_t first, end;
};

/* The ranks that an item sends to or receives from. */
struct contacts {
	uint32_t peers[SPANS], count;
	bool are_many; /* more than these */
};

struct item {
	struct walk_item what;
	struct contacts senders, receivers;
	bool done;
	double opened;   /* when it was issued: the last item that must have ended before had ended */
	double finished, all_finished; /* this one; it and all before it */
	struct area reads[SPANS], writes[SPANS];
	uint32_t read_count, write_count;
};

struct stream {
	struct walk walk;
	struct item window[KEPT];
	uint64_t oldest, issued;
	double all_finished; /* when everything before the oldest had ended */
	bool exhausted;
};

/* Messages in flight from one rank to another. */
struct message_sequence {
	double *arrivals;
	uint64_t taken, sent, capacity;
};

/* The item that a rank can begin first. */
struct next {
	bool exists;
	uint32_t part;
	uint64_t index;
	double when;            /* its operands are there */
	double start;           /* and its send port is free */
};

struct simulation {
	const struct collet_program *program;
	struct collet_shape *shapes;
	const struct collet_cost_model *model;
	size_t element_bytes;
	struct walk_cut cut;
	struct stream *streams; /* rank * PARTS + part */
	struct message_sequence *sequences; /* (part * size + from) * size + to */
	double *out_free, *in_free;
	double *link_free;      /* by host: when the link that its ranks share will have sent all so far */
	double now;             /* when the item that is being executed starts */
	struct walk_move *moves;
	struct next *next;      /* by rank */
	bool *is_stale;         /* its next item is to be found again */
	double end;
};

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

static struct message_sequence *sequence_at(struct simulation *sim, uint32_t part, uint32_t from, uint32_t to)
{
	const uint32_t size = sim->shapes[0].size;
	return &sim->sequences[((size_t)part * size + from) * size + to];
}

static const struct collet_cost_model *between(const struct simulation *sim, uint32_t a, uint32_t b)
{
	const struct collet_shape *shape = &sim->shapes[0];
	const bool same = collet_host_group_of(shape, a).index == collet_host_group_of(shape, b).index;
	return same && sim->model->local ? sim->model->local : sim->model;
}

/* Returns the link between two ranks' hosts; NULL: both are on one host. */
static double *link_between(struct simulation *sim, uint32_t from, uint32_t to)
{
	const uint32_t host = collet_host_group_of(&sim->shapes[0], from).index;
	return host == collet_host_group_of(&sim->shapes[0], to).index ? NULL : &sim->link_free[host];
}

static uint32_t moves_of(struct simulation *sim, const struct item *item, enum walk_side side, uint32_t rank)
{
	return walk_moves(&item->what, side, &sim->shapes[rank], sim->cut, sim->moves, 2 * sim->shapes[0].size + 4);
}

/* Adds an area. Chunks of an is_per_peer step count as one. */
static void add_area(struct area *areas, uint32_t *count, const struct collet_buffer_range *end, uint64_t length)
{
	const struct area area = {end->buffer, end->span.first, end->span.first + length};
	if (length == 0)
		return;
	if (*count == SPANS) {
		areas[SPANS - 1].first = 0;
		areas[SPANS - 1].end = UINT64_MAX;
		return;
	}
	areas[(*count)++] = area;
}

static void note_contacts(struct simulation *sim, struct contacts *contacts, uint32_t moves, uint32_t rank)
{
	for (uint32_t i = 0; i < moves && !contacts->are_many; i++) {
		if (sim->moves[i].peer == rank)
			continue;
		contacts->are_many = contacts->count == SPANS;
		if (!contacts->are_many)
			contacts->peers[contacts->count++] = sim->moves[i].peer;
	}
}

static bool have_common(const struct contacts *a, const struct contacts *b)
{
	if (a->are_many || b->are_many)
		return a->count > 0 && b->count > 0;
	for (uint32_t i = 0; i < a->count; i++)
		for (uint32_t j = 0; j < b->count; j++)
			if (a->peers[i] == b->peers[j])
				return true;
	return false;
}

static void note_areas(struct simulation *sim, struct item *item, uint32_t rank)
{
	item->read_count = item->write_count = 0;
	const bool per_peer = item->what.step.is_per_peer;
	uint32_t count = moves_of(sim, item, WALK_OPERANDS, rank);
	note_contacts(sim, &item->senders, count, rank);
	for (uint32_t i = 0; i < count; i++)
		if (sim->moves[i].has_local)
			add_area(per_peer ? item->writes : item->reads,
				per_peer ? &item->write_count : &item->read_count, &sim->moves[i].local,
				sim->moves[i].length);
	count = moves_of(sim, item, WALK_DESTINATIONS, rank);
	note_contacts(sim, &item->receivers, count, rank);
	for (uint32_t i = 0; i < count; i++)
		if (sim->moves[i].has_local)
			add_area(per_peer ? item->reads : item->writes,
				per_peer ? &item->read_count : &item->write_count, &sim->moves[i].local,
				sim->moves[i].length);
}

static bool touch(const struct area *a, uint32_t a_count, const struct area *b, uint32_t b_count)
{
	for (uint32_t i = 0; i < a_count; i++)
		for (uint32_t j = 0; j < b_count; j++)
			if (a[i].buffer == b[j].buffer && a[i].first < b[j].end && b[j].first < a[i].end)
				return true;
	return false;
}

/* Finds when earlier items allow an item to go on. Returns false if one of them has not ended. */
static bool let(const struct stream *s, uint64_t index, double *when)
{
	const struct item *item = &s->window[index % KEPT];
	for (uint64_t i = index < WINDOW ? 0 : index - WINDOW + 1; i < index; i++) {
		const struct item *earlier = &s->window[i % KEPT];
		/* Messages between two ranks never change order. */
		if (!earlier->done && (have_common(&item->senders, &earlier->senders) ||
					      have_common(&item->receivers, &earlier->receivers)))
			return false;
		if (!touch(item->reads, item->read_count, earlier->writes, earlier->write_count) &&
			!touch(item->writes, item->write_count, earlier->reads, earlier->read_count) &&
			!touch(item->writes, item->write_count, earlier->writes, earlier->write_count))
			continue;
		if (!earlier->done)
			return false;
		*when = later(*when, earlier->finished);
	}
	return true;
}

/* Returns how long a segment occupies a port. */
static double port_for(const struct simulation *sim, const struct item *item, uint32_t move,
	const struct collet_cost_model *model)
{
	const double bytes = (double)(sim->moves[move].length * sim->element_bytes);
	return (item->what.offset > 0 ? model->segment_s : model->overhead_s) + collet_cost_transfer(model, bytes);
}

static double next_arrival(struct simulation *sim, uint32_t move, uint32_t rank, uint32_t part)
{
	const struct message_sequence *sequence = sequence_at(sim, part, sim->moves[move].peer, rank);
	return sequence->arrivals[sequence->taken];
}

/* Does an item's receives, if all have been sent. Returns false otherwise. */
static bool receive(
	struct simulation *sim, struct item *item, uint32_t rank, uint32_t part, double *when, uint32_t *operands)
{
	const uint32_t count = moves_of(sim, item, WALK_OPERANDS, rank);
	*operands = count;
	for (uint32_t i = 0; i < count; i++) {
		const struct message_sequence *sequence = sequence_at(sim, part, sim->moves[i].peer, rank);
		if (sim->moves[i].peer != rank && sequence->taken == sequence->sent)
			return false;
	}
	for (uint32_t left = count; left > 0; left--) { /* in the order of arrival */
		uint32_t i = count;
		for (uint32_t k = 0; k < count; k++)
			if (sim->moves[k].peer != rank &&
				(i == count || next_arrival(sim, k, rank, part) < next_arrival(sim, i, rank, part)))
				i = k;
		if (i == count)
			break;
		struct message_sequence *sequence = sequence_at(sim, part, sim->moves[i].peer, rank);
		const struct collet_cost_model *model = between(sim, rank, sim->moves[i].peer);
		const double port = port_for(sim, item, i, model);
		sim->in_free[rank] = later(sequence->arrivals[sequence->taken++], sim->in_free[rank] + port);
		*when = later(*when, sim->in_free[rank]);
		sim->moves[i].peer = rank; /* this one is handled */
	}
	return true;
}

static void send(struct simulation *sim, struct item *item, uint32_t rank, uint32_t part, double when)
{
	const uint32_t count = moves_of(sim, item, WALK_DESTINATIONS, rank);
	item->finished = when;
	for (uint32_t i = 0; i < count; i++) {
		if (sim->moves[i].peer == rank)
			continue;
		struct message_sequence *sequence = sequence_at(sim, part, rank, sim->moves[i].peer);
		const struct collet_cost_model *model = between(sim, rank, sim->moves[i].peer);
		double *link = link_between(sim, rank, sim->moves[i].peer);
		const double port = port_for(sim, item, i, model);
		const double transfer =
			collet_cost_transfer(model, (double)(sim->moves[i].length * sim->element_bytes));
		sim->out_free[rank] = later(when, sim->out_free[rank]) + port;
		if (link) { /* its ranks' overheads overlap; only bytes occupy it */
			*link = later(*link, sim->now) + transfer;
			sim->out_free[rank] = later(sim->out_free[rank], *link);
		}
		item->finished = sim->out_free[rank];
		if (sequence->sent == sequence->capacity) {
			sequence->capacity = sequence->capacity ? 2 * sequence->capacity : 8;
			sequence->arrivals =
				must(realloc(sequence->arrivals, sequence->capacity * sizeof *sequence->arrivals));
		}
		sim->is_stale[sim->moves[i].peer] = true;
		sequence->arrivals[sequence->sent++] = sim->out_free[rank] + model->alpha_s;
	}
}

/* Returns true if an item can be executed now, and when it would begin. */
static bool is_ready(
	struct simulation *sim, const struct stream *s, uint64_t index, uint32_t rank, uint32_t part, double *when)
{
	const struct item *item = &s->window[index % KEPT];
	*when = item->opened;
	if (item->done || !let(s, index, when))
		return false;
	const uint32_t count = moves_of(sim, item, WALK_OPERANDS, rank);
	for (uint32_t i = 0; i < count; i++) {
		const struct message_sequence *sequence = sequence_at(sim, part, sim->moves[i].peer, rank);
		if (sim->moves[i].peer != rank && sequence->taken == sequence->sent)
			return false;
		if (sim->moves[i].peer != rank)
			*when = later(*when, sequence->arrivals[sequence->taken]);
	}
	return true;
}

static void do_item(struct simulation *sim, struct stream *s, uint64_t index, uint32_t rank, uint32_t part)
{
	struct item *item = &s->window[index % KEPT];
	double when = item->opened;
	uint32_t operands;
	if (!let(s, index, &when) || !receive(sim, item, rank, part, &when, &operands))
		abort();
	if (item->what.step.is_reduction) {
		const uint64_t left = item->what.step.source[0].span.count - item->what.offset;
		const uint64_t length = left < item->what.length ? left : item->what.length;
		sim->in_free[rank] = later(sim->in_free[rank], when) +
				     (operands - 1) * (double)(length * sim->element_bytes) * sim->model->gamma_s;
		when = sim->in_free[rank];
	}
	send(sim, item, rank, part, when);
	item->done = true;
	sim->end = later(sim->end, item->finished);
}

static void issue(struct simulation *sim, struct stream *s, uint32_t rank)
{
	while (s->oldest < s->issued && s->window[s->oldest % KEPT].done) {
		struct item *item = &s->window[s->oldest++ % KEPT];
		item->all_finished = s->all_finished = later(s->all_finished, item->finished);
	}
	while (!s->exhausted && s->issued - s->oldest < WINDOW) {
		struct item *item = &s->window[s->issued % KEPT];
		memset(item, 0, sizeof *item);
		if (s->issued >= WINDOW)
			item->opened = s->window[(s->issued - WINDOW) % KEPT].all_finished;
		s->exhausted = !walk_next(&s->walk, &item->what);
		if (s->exhausted)
			break;
		note_areas(sim, item, rank);
		s->issued++;
	}
}

/* Finds, of all items of a rank that are possible in any part, the one that can begin first. */
static void find_next(struct simulation *sim, uint32_t rank, uint32_t parts)
{
	struct next *next = &sim->next[rank];
	*next = (struct next){ .exists = false };
	for (uint32_t part = 0; part < parts; part++) {
		struct stream *s = &sim->streams[rank * PARTS + part];
		issue(sim, s, rank);
		for (uint64_t i = s->oldest; i < s->issued; i++) {
			double when;
			if (!is_ready(sim, s, i, rank, part, &when))
				continue;
			if (next->exists && when >= next->when)
				continue;
			const double port_free = s->window[i % KEPT].receivers.count > 0 ? sim->out_free[rank] : 0;
			*next = (struct next){ .exists = true,
				.part = part,
				.index = i,
				.when = when,
				.start = later(when, port_free) };
		}
	}
}

/* Executes the items of all ranks in the order in which they start, since ranks share links. */
static void run(struct simulation *sim, uint32_t parts)
{
	const uint32_t size = sim->shapes[0].size;
	memset(sim->is_stale, true, size);
	for (;;) {
		uint32_t first = size;
		for (uint32_t rank = 0; rank < size; rank++) {
			if (sim->is_stale[rank])
				find_next(sim, rank, parts);
			sim->is_stale[rank] = false;
			if (sim->next[rank].exists &&
				(first == size || sim->next[rank].start < sim->next[first].start))
				first = rank;
		}
		if (first == size)
			break;
		const struct next *next = &sim->next[first];
		sim->now = next->start;
		do_item(sim, &sim->streams[first * PARTS + next->part], next->index, first, next->part);
		sim->is_stale[first] = true;
	}
	for (uint32_t i = 0; i < size * PARTS; i++)
		if (sim->streams[i].walk.program &&
			!(sim->streams[i].exhausted && sim->streams[i].oldest == sim->streams[i].issued))
			abort();
}

double simulate(const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const uint32_t size = shape->size, parts = collet_program_part_count(program, shape);
	struct simulation sim = { .program = program,
		.model = model,
		.element_bytes = element_bytes,
		.cut = {segment_bytes / element_bytes, COLLET_LOOKAHEAD - 1} };
	sim.shapes = must(calloc(size, sizeof *sim.shapes));
	sim.streams = must(calloc((size_t)size * PARTS, sizeof *sim.streams));
	sim.sequences = must(calloc((size_t)size * size * PARTS, sizeof *sim.sequences));
	sim.out_free = must(calloc(size, sizeof *sim.out_free));
	sim.in_free = must(calloc(size, sizeof *sim.in_free));
	sim.link_free = must(calloc(size, sizeof *sim.link_free));
	sim.next = must(calloc(size, sizeof *sim.next));
	sim.is_stale = must(calloc(size, sizeof *sim.is_stale));
	sim.moves = must(calloc(2 * (size_t)size + 4, sizeof *sim.moves));
	for (uint32_t rank = 0; rank < size; rank++) {
		sim.shapes[rank] = *shape;
		sim.shapes[rank].rank = rank;
		for (uint32_t part = 0; part < parts; part++)
			walk_start(&sim.streams[rank * PARTS + part].walk, program, &sim.shapes[rank], part, sim.cut);
	}
	run(&sim, parts);
	for (size_t i = 0; i < (size_t)size * size * PARTS; i++)
		free(sim.sequences[i].arrivals);
	free(sim.shapes);
	free(sim.streams);
	free(sim.sequences);
	free(sim.out_free);
	free(sim.in_free);
	free(sim.link_free);
	free(sim.next);
	free(sim.is_stale);
	free(sim.moves);
	return sim.end;
}
