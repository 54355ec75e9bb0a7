/* Phases as they happen. timeline_write.c makes the file. */
#include "report/timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "error.h"
#include "report/timeline_spans.h"

enum { MOST_DEPTH = 8, MOST_CALLS = 256, MOST_SPANS = 1 << 20 };

struct interval {
	int64_t began_ns, ended_ns;
};

struct timeline {
	int64_t since_ns; /* when the innermost phase became that */
	enum phase phases[MOST_DEPTH];
	int64_t began_ns[MOST_DEPTH];
	int depth;
	int64_t spent_ns[PHASES], transfer_ns, hidden_ns;
	struct interval calls[MOST_CALLS]; /* of the library, in this step */
	uint32_t call_count;
	uint32_t step;
	bool tracing;
	struct spans spans;
	size_t capacity;
};

const char *phase_name(enum phase phase)
{
	static const char *const names[] = {[PHASE_STEP] = "step",
		[PHASE_LOAD] = "load",
		[PHASE_FORWARD] = "forward",
		[PHASE_BACKWARD] = "backward",
		[PHASE_COMMUNICATE] = "communicate",
		[PHASE_OPTIMISE] = "optimise",
		[PHASE_EVALUATE] = "evaluate"};
	return names[phase];
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct timeline *timeline_create(bool tracing)
{
	struct timeline *timeline = calloc(1, sizeof(*timeline));
	if (!timeline)
		train_fail("no memory for a timeline");
	else
		timeline->tracing = tracing;
	return timeline;
}

void timeline_destroy(struct timeline *timeline)
{
	if (!timeline)
		return;
	free(timeline->spans.spans);
	free(timeline);
}

/* Training does not end because its trace is too long: the first part of it is kept. */
static void trace(struct timeline *timeline, struct span span)
{
	struct spans *spans = &timeline->spans;
	if (!timeline->tracing)
		return;
	if (spans->count == timeline->capacity && spans->dropped == 0 && spans->count < MOST_SPANS) {
		const size_t capacity = timeline->capacity ? 2 * timeline->capacity : 4096;
		struct span *more = realloc(spans->spans, capacity * sizeof(*more));
		if (more) {
			spans->spans = more;
			timeline->capacity = capacity;
		}
	}
	if (spans->count < timeline->capacity)
		spans->spans[spans->count++] = span;
	else
		spans->dropped++;
}

static void note_call(struct timeline *timeline, int64_t began_ns, int64_t ended_ns)
{
	if (timeline->call_count < MOST_CALLS)
		timeline->calls[timeline->call_count++] = (struct interval){ began_ns, ended_ns };
	else
		timeline->calls[MOST_CALLS - 1].ended_ns = ended_ns; /* as if it had been one long call */
}

void timeline_begin(struct timeline *timeline, enum phase phase)
{
	const int64_t now = now_ns();
	assert(timeline->depth < MOST_DEPTH);
	if (timeline->depth > 0)
		timeline->spent_ns[timeline->phases[timeline->depth - 1]] += now - timeline->since_ns;
	if (phase == PHASE_STEP)
		timeline->call_count = 0;
	timeline->phases[timeline->depth] = phase;
	timeline->began_ns[timeline->depth++] = now;
	timeline->since_ns = now;
}

void timeline_end(struct timeline *timeline)
{
	const int64_t now = now_ns();
	assert(timeline->depth > 0);
	const enum phase phase = timeline->phases[--timeline->depth];
	const int64_t began = timeline->began_ns[timeline->depth];
	timeline->spent_ns[phase] += now - timeline->since_ns;
	timeline->since_ns = now;
	if (phase == PHASE_COMMUNICATE)
		note_call(timeline, began, now);
	trace(timeline, (struct span){ .began_ns = began, .ended_ns = now, .step = timeline->step, .phase = phase });
	timeline->step += phase == PHASE_STEP;
}

/* Returns how much of this interval was spent in calls. */
static int64_t in_calls(const struct timeline *timeline, int64_t began_ns, int64_t ended_ns)
{
	int64_t sum = 0;
	for (uint32_t i = 0; i < timeline->call_count; i++) {
		const struct interval *call = &timeline->calls[i];
		const int64_t first = call->began_ns > began_ns ? call->began_ns : began_ns;
		const int64_t last = call->ended_ns < ended_ns ? call->ended_ns : ended_ns;
		sum += last > first ? last - first : 0;
	}
	return sum;
}

void timeline_transfers(struct timeline *timeline, const struct transfer *transfers, uint32_t count)
{
	int64_t counted = INT64_MIN; /* until when */
	for (uint32_t b = 0; b < count; b++) {
		const struct transfer *transfer = &transfers[b];
		trace(timeline, (struct span){ .began_ns = transfer->began_ns,
					.ended_ns = transfer->ended_ns,
					.bytes = transfer->bytes,
					.step = timeline->step,
					.phase = PHASES,
					.bucket = b });
		const int64_t began = transfer->began_ns > counted ? transfer->began_ns : counted;
		if (transfer->ended_ns <= began)
			continue;
		counted = transfer->ended_ns;
		timeline->transfer_ns += counted - began;
		timeline->hidden_ns += counted - began - in_calls(timeline, began, counted);
	}
}

struct times timeline_take(struct timeline *timeline)
{
	struct times times = {
		.transfer = 1e-9 * (double)timeline->transfer_ns, .hidden = 1e-9 * (double)timeline->hidden_ns};
	for (int phase = 0; phase < PHASES; phase++) {
		times.phases[phase] = 1e-9 * (double)timeline->spent_ns[phase];
		timeline->spent_ns[phase] = 0;
	}
	timeline->transfer_ns = timeline->hidden_ns = 0;
	return times;
}

bool timeline_write(const struct timeline *timeline, collet_comm *comm, const char *path)
{
	return spans_write(&timeline->spans, comm, path);
}
