#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

static const char *const names[DEFECT_COUNT] = {
	[DEFECT_NONE] = "none",
	[DEFECT_MALFORMED] = "malformed step",
	[DEFECT_OUT_OF_BOUNDS] = "out of bounds",
	[DEFECT_UNMATCHED_SEND] = "unmatched send",
	[DEFECT_UNMATCHED_RECEIVE] = "unmatched receive",
	[DEFECT_UNEQUAL_LENGTHS] = "unequal lengths",
	[DEFECT_ENDS_DISAGREE] = "ends disagree",
	[DEFECT_STUCK] = "stuck",
	[DEFECT_SENT_OVERWRITTEN] = "lent span overwritten",
	[DEFECT_INPUT_WRITTEN] = "INPUT written",
	[DEFECT_TWICE] = "contribution twice",
	[DEFECT_ELEMENTS_MIXED] = "elements mixed",
	[DEFECT_FINISHED_EARLY] = "finished early",
	[DEFECT_UNFINISHED] = "unfinished",
	[DEFECT_MISSING] = "missing",
	[DEFECT_RESULTS_DIFFER] = "results differ",
	[DEFECT_PARTIAL_SUM] = "partial sum",
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

void found(struct machine *m, enum defect defect, const char *format, ...)
{
	va_list args;
	if (m->finding.defect != DEFECT_NONE)
		return;
	va_start(args, format);
	m->finding.defect = defect;
	vsnprintf(m->finding.text, sizeof m->finding.text, format, args);
	va_end(args);
}

void enqueue(struct machine *m, uint32_t endpoint)
{
	if (m->endpoints[endpoint].queued)
		return;
	m->endpoints[endpoint].queued = true;
	m->queue[m->queue_count++] = endpoint;
}

static uint32_t parts_of(const struct machine *m, uint32_t call)
{
	return collet_program_part_count(m->run->calls[call].program, &world_side(m->world, call, 0)->shape);
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

/* Starts this rank's next calls. Returns false if there are none. */
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
		const uint32_t endpoint = m->queue[i];
		m->queue[i] = m->queue[--m->queue_count];
		m->endpoints[endpoint].queued = false;
		if (turn(m, &m->endpoints[endpoint]))
			enqueue(m, endpoint);
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
	uint64_t *messages = must(calloc(sequence_count(m), sizeof *messages));
	for (uint32_t call = 0; call < m->run->call_count && m->finding.defect == DEFECT_NONE; call++) {
		uint64_t *first = m->first_message + call * sequence_count(m);
		memset(messages, 0, sequence_count(m) * sizeof *messages);
		m->finding = matching_check(m->world, call, messages);
		for (size_t i = 0; i < sequence_count(m); i++)
			first[sequence_count(m) + i] = first[i] + messages[i];
		m->open_streams += (uint64_t)parts_of(m, call) * m->run->size;
	}
	free(messages);
}

struct finding interpret(const struct run *run)
{
	struct machine m = { .run = run, .world = world_create(run), .seed = run->seed };
	const size_t streams = (size_t)run->call_count * run->size * MATCHING_PARTS;
	m.endpoints = must(calloc(sequence_count(&m), sizeof *m.endpoints));
	m.queue = must(calloc(sequence_count(&m), sizeof *m.queue));
	m.first_message = must(calloc((run->call_count + 1) * sequence_count(&m), sizeof *m.first_message));
	m.issued_sends = must(calloc(run->call_count * sequence_count(&m), sizeof *m.issued_sends));
	m.issued_receives = must(calloc(run->call_count * sequence_count(&m), sizeof *m.issued_receives));
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
	for (size_t i = 0; i < sequence_count(&m); i++)
		free(m.endpoints[i].slot);
	free(m.endpoints);
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
