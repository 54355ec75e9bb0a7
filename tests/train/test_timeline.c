/* What --trace writes: of every rank what it did, properly nested, and where its buckets were meanwhile; and the times
 * that are told of an epoch. Ranks are threads here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "options.h"
#include "report/timeline.h"
#include "thread_ranks.h"
#include "trainer.h"

enum { RANKS = 3, STEPS = 4, MOST_EVENTS = 2000, MOST_THREADS = 12 };

struct event {
	char name[16];
	int64_t began, ended; /* ns */
	int step, bucket;
};

/* Of one thread of one rank, in the order of the file. */
struct thread {
	struct event events[MOST_EVENTS];
	int count;
	bool named;
};

struct trace {
	struct thread threads[RANKS][MOST_THREADS];
	bool rank_named[RANKS];
};

static bool note_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct times *times = context;
	*times = epoch->times;
	return true;
}

struct run {
	struct options options;
	struct times times[RANKS];
	bool fine[RANKS];
};

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	const uint32_t rank = collet_comm_rank(comm);
	const struct trainer_watch watch = {NULL, note_epoch, &run->times[rank]};
	run->fine[rank] = trainer_run(comm, &run->options, &watch);
}

static struct run *run_traced(const char *path, uint32_t ranks, const char *more)
{
	char *arguments[] = {strdup("collet-train"), strdup("--dataset=digits"), strdup("--train-samples=600"),
		strdup("--test-samples=60"), strdup("--batch-size=50"), strdup("--bucket-bytes=16K"),
		strdup("--steps=4"), strdup("--trace"), strdup(path), strdup(more)};
	const int count = sizeof(arguments) / sizeof(arguments[0]);
	struct run *run = calloc(1, sizeof(*run));
	assert_int_equal(options_parse(&run->options, count - (*more == 0), arguments), OPTIONS_RUN);
	thread_ranks_run(ranks, train, run);
	for (uint32_t rank = 0; rank < ranks; rank++)
		assert_true(run->fine[rank]);
	for (int i = 0; i < count; i++)
		free(arguments[i]);
	return run;
}

static int64_t ns_of(const json_t *event, const char *key)
{
	const double us = json_number_value(json_object_get(event, key));
	return (int64_t)(us * 1e3 + 0.5);
}

static void take_event(struct trace *trace, const json_t *json)
{
	const char *kind = json_string_value(json_object_get(json, "ph"));
	const char *name = json_string_value(json_object_get(json, "name"));
	const int64_t rank = json_integer_value(json_object_get(json, "pid"));
	const int64_t thread = json_integer_value(json_object_get(json, "tid"));
	assert_non_null(kind);
	assert_non_null(name);
	assert_in_range(rank, 0, RANKS - 1);
	assert_in_range(thread, 0, MOST_THREADS - 1);
	struct thread *on = &trace->threads[rank][thread];
	const json_t *told = json_object_get(json, "args");
	if (strcmp(kind, "M") == 0) {
		assert_non_null(json_string_value(json_object_get(told, "name")));
		if (strcmp(name, "process_name") == 0)
			trace->rank_named[rank] = true;
		else
			on->named = true;
		return;
	}
	assert_string_equal(kind, "X");
	assert_int_not_equal(on->count, MOST_EVENTS);
	struct event *event = &on->events[on->count++];
	snprintf(event->name, sizeof(event->name), "%s", name);
	event->began = ns_of(json, "ts");
	event->ended = event->began + ns_of(json, "dur");
	event->step = (int)json_integer_value(json_object_get(told, "step"));
	event->bucket = (int)json_integer_value(json_object_get(told, "bucket"));
	assert_true(event->began >= 0 && event->ended >= event->began);
	assert_int_equal(json_integer_value(json_object_get(told, "bytes")) > 0, thread > 0);
}

static struct trace *read_trace(const char *path)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);
	if (!root)
		fail_msg("%s, line %d: %s", path, error.line, error.text);
	const json_t *events = json_object_get(root, "traceEvents");
	assert_true(json_is_array(events) && json_array_size(events) > 0);
	for (size_t i = 0; i < json_array_size(events); i++)
		take_event(trace, json_array_get(events, i));
	json_decref(root);
	unlink(path);
	return trace;
}

/* Two spans of a thread lie one in the other or one behind the other. */
static void nests(const struct thread *thread)
{
	for (int a = 0; a < thread->count; a++)
		for (int b = 0; b < a; b++) {
			const struct event *outer = &thread->events[a], *inner = &thread->events[b];
			const bool apart = inner->ended <= outer->began || outer->ended <= inner->began;
			const bool inside = inner->began >= outer->began && inner->ended <= outer->ended;
			if (!apart && !inside)
				fail_msg("%s and %s cross", outer->name, inner->name);
		}
}

static const struct event *find(const struct thread *thread, const char *name, int step)
{
	for (int i = 0; i < thread->count; i++)
		if (thread->events[i].step == step && strcmp(thread->events[i].name, name) == 0)
			return &thread->events[i];
	fail_msg("no %s in step %d", name, step);
	return NULL;
}

/* One rank's step: its phases in their order, and its buckets, which begin in backward unless told not to. */
static void check_step(const struct trace *trace, uint32_t rank, int step, int buckets, bool overlaps)
{
	static const char *const order[] = {"load", "forward", "backward", "optimise"};
	const struct thread *computing = &trace->threads[rank][0];
	const struct event *whole = find(computing, "step", step), *before = NULL;
	for (int i = 0; i < 4; i++) {
		const struct event *phase = find(computing, order[i], step);
		assert_true(phase->began >= whole->began && phase->ended <= whole->ended);
		assert_true(!before || before->ended <= phase->began);
		before = phase;
	}
	const struct event *backward = find(computing, "backward", step);
	int within = 0;
	for (int b = 0; b < buckets; b++) {
		const struct event *transfer = find(&trace->threads[rank][1 + b], "travel", step);
		assert_int_equal(transfer->bucket, b);
		assert_true(transfer->began >= backward->began && transfer->ended <= before->began);
		within += transfer->began < backward->ended;
	}
	assert_int_equal(within, overlaps ? buckets : 0);
}

static void every_rank_and_bucket_is_in_the_trace(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *more;
		bool overlaps;
	} rows[] = {{1, "", true}, {2, "", true}, {3, "", true}, {2, "--no-overlap", false}};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		char path[64];
		snprintf(path, sizeof(path), "/tmp/collet-trace-%d-%zu", (int)getpid(), row);
		struct run *run = run_traced(path, rows[row].ranks, rows[row].more);
		struct trace *trace = read_trace(path);
		for (uint32_t rank = 0; rank < RANKS; rank++) {
			assert_int_equal(trace->rank_named[rank], rank < rows[row].ranks);
			int buckets = 0;
			while (buckets < MOST_THREADS - 1 && trace->threads[rank][1 + buckets].named)
				buckets++;
			/* Linear, the second convolution, the first. */
			assert_int_equal(buckets, rank < rows[row].ranks ? 3 : 0);
			for (int thread = 0; thread <= buckets; thread++)
				nests(&trace->threads[rank][thread]);
			for (int step = 1; step <= STEPS && buckets > 0; step++)
				check_step(trace, rank, step, buckets, rows[row].overlaps);
		}
		free(trace);
		free(run);
	}
}

/* Phases leave nothing out and count nothing twice, and what hides is a part of what travels. */
static void times_add_up(void **state)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/collet-trace-%d", (int)getpid());
	struct run *run = run_traced(path, 2, "");
	struct trace *trace = read_trace(path);
	double steps = 0, told = 0;
	for (uint32_t rank = 0; rank < 2; rank++)
		for (int step = 1; step <= STEPS; step++) {
			const struct event *whole = find(&trace->threads[rank][0], "step", step);
			steps += 1e-9 * (double)(whole->ended - whole->began) / 2;
		}
	for (int phase = 0; phase < PHASES; phase++)
		told += phase == PHASE_EVALUATE ? 0 : run->times[0].phases[phase];
	assert_true(told > steps * 0.999999 && told < steps * 1.000001);
	assert_true(run->times[0].phases[PHASE_COMMUNICATE] > 0 && run->times[0].phases[PHASE_BACKWARD] > 0);
	assert_true(run->times[0].hidden >= 0 && run->times[0].hidden <= run->times[0].transfer);
	assert_true(run->times[0].transfer > 0 && run->times[0].transfer <= told);
	assert_memory_equal(&run->times[0], &run->times[1], sizeof(run->times[0]));
	free(trace);
	free(run);
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What is hidden is what lies outside the library's calls, once where buckets overlap. */
static void hiding_is_counted_by_hand(void **state)
{
	struct timeline *timeline = timeline_create(false);
	assert_non_null(timeline);
	timeline_begin(timeline, PHASE_STEP);
	timeline_begin(timeline, PHASE_COMMUNICATE);
	timeline_end(timeline);
	/* Long before and after that call. */
	const struct transfer transfers[] = {{100, 300, 1}, {200, 600, 1}, {250, 550, 1}, {1000, 1400, 1}};
	timeline_transfers(timeline, transfers, 4);
	timeline_end(timeline);
	const struct times times = timeline_take(timeline);
	assert_float_equal(times.transfer, 900e-9, 1e-12);
	assert_float_equal(times.hidden, 900e-9, 1e-12);
	const int64_t before = now_ns();
	timeline_begin(timeline, PHASE_STEP);
	timeline_begin(timeline, PHASE_COMMUNICATE);
	timeline_end(timeline);
	const struct transfer around = {before, now_ns(), 1};
	timeline_transfers(timeline, &around, 1);
	timeline_end(timeline);
	const struct times shown = timeline_take(timeline);
	assert_true(shown.hidden > 0 && shown.hidden < shown.transfer);
	const double difference = shown.transfer - shown.hidden - shown.phases[PHASE_COMMUNICATE];
	assert_true(difference > -1e-9 && difference < 1e-9);
	timeline_destroy(timeline);
}

static void a_trace_that_cannot_be_written_is_refused_at_once(void **state)
{
	assert_false(timeline_can_write("/nowhere/at/all"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_and_bucket_is_in_the_trace),
		cmocka_unit_test(times_add_up),
		cmocka_unit_test(hiding_is_counted_by_hand),
		cmocka_unit_test(a_trace_that_cannot_be_written_is_refused_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
