/* The same call in two ways, in turns: made, and started as a request that is waited for at once. Batches of as many
 * calls as take a tenth of the time, each beginning at a barrier; the slowest rank counts. */
#include "request.h"

#include <stdlib.h>

#include "collet_side.h"
#include "output.h"

enum way { MADE, REQUESTED, WAYS };

enum { ROUNDS_MOST = 1000 };

struct session {
	const struct bench_options *options;
	struct collet_side side;
	struct bench_library requested; /* the side's collective, each call of which is a request; nothing else */
	struct bench_samples times[WAYS]; /* of a batch */
	FILE *table, *json;             /* on rank 0; NULL: not wanted */
};

static int complain(const char *what)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

static int start_and_wait(void *context, const struct bench_call *call)
{
	const struct session *s = context;
	collet_request *request = NULL;
	collet_how how = s->side.how;
	struct bench_call started = *call;
	how.request = &request;
	started.how = &how;
	return s->side.library.run[s->options->work.collective](s->side.library.context, &started)
		|| collet_request_wait(&request) != COLLET_OK;
}

/* The slowest rank's time of a batch. */
static int run_batch(struct session *s, struct bench_run *run, enum way way, uint64_t calls, int64_t *slowest_ns)
{
	struct bench_times times;
	run->library = &s->side.library;
	if (bench_run_barrier(run))
		return complain("a barrier");
	run->library = way == REQUESTED ? &s->requested : &s->side.library;
	if (bench_run_batch(run, calls, &times))
		return complain("the timed calls");
	if (collet_allreduce(s->side.comm, &times.elapsed_ns, slowest_ns, 1, COLLET_I64, COLLET_MAX, NULL) != COLLET_OK)
		return complain("agreeing on the time");
	return 0;
}

/* Doubles a batch of each way until both take long enough. Connections are opened and requests made meanwhile. */
static int calibrate(struct session *s, struct bench_run *run, uint64_t *calls)
{
	const double enough_ns = s->options->manner.seconds * 1e8;
	int64_t ns[WAYS] = { 0 };
	for (*calls = 1;; *calls *= 2) {
		for (enum way way = MADE; way < WAYS; way++)
			if (run_batch(s, run, way, *calls, &ns[way]))
				return 1;
		const int64_t least_ns = ns[MADE] < ns[REQUESTED] ? ns[MADE] : ns[REQUESTED];
		if ((double)least_ns >= enough_ns || *calls >= BENCH_ITERATIONS_MAX)
			return 0;
	}
}

static int run_rounds(struct session *s, struct bench_run *run, uint64_t *calls)
{
	if (calibrate(s, run, calls))
		return 1;
	for (uint32_t round = 0; round < s->options->repeats; round++) {
		for (enum way turn = MADE; turn < WAYS; turn++) {
			const enum way way = round % 2 ? WAYS - 1 - turn : turn;
			struct bench_samples *times = &s->times[way];
			if (run_batch(s, run, way, *calls, &times->ns[times->count]))
				return 1;
			times->count++;
		}
	}
	return 0;
}

static void print(struct session *s, uint64_t bytes, uint64_t calls)
{
	double us[WAYS];
	for (enum way way = MADE; way < WAYS; way++)
		us[way] = (double)bench_percentile(&s->times[way], 0.5) / (double)calls / 1e3;
	const double more_ns = (us[REQUESTED] - us[MADE]) * 1e3;
	if (s->table != NULL) {
		fprintf(s->table, "%14llu", (unsigned long long)bytes);
		bench_table_number(s->table, us[MADE], 12);
		bench_table_number(s->table, us[REQUESTED], 12);
		fprintf(s->table, "%9.1f ns\n", more_ns);
		fflush(s->table);
	}
	if (s->json == NULL)
		return;
	bench_json_begin(s->json);
	fprintf(s->json, ",\"collective\":\"%s\",\"transport\":",
		bench_collective_name((enum bench_collective)s->options->work.collective));
	bench_json_string(
		s->json, s->side.plan.transport[0] != '\0' ? s->side.plan.transport : s->options->transport);
	fprintf(s->json, ",\"ranks\":%u,\"bytes\":%llu,\"call_us\":%.4f,\"request_us\":%.4f,\"more_ns\":%.1f}\n",
		s->side.library.size, (unsigned long long)bytes, us[MADE], us[REQUESTED], more_ns);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	const struct bench_options *o = s->options;
	const struct bench_library *library = &s->side.library;
	const uint64_t count = bench_count(&o->work, library->size, bytes);
	struct bench_run run;
	uint64_t calls;
	s->side.piece_bytes = o->piece_bytes;
	s->side.channels = o->channels;
	const void *how = collet_side_plan(&s->side, &o->work, count, o->algorithm);
	const char *problem = bench_run_init(&run, library, &o->work, count, o->manner.buffers, o->manner.cold, how);
	if (problem != NULL) {
		fprintf(stderr, "collet-bench: %llu bytes: %s\n", (unsigned long long)bytes, problem);
		return 1;
	}
	s->times[MADE].count = s->times[REQUESTED].count = 0;
	const int failed = run_rounds(s, &run, &calls);
	if (!failed)
		print(s, bench_bytes(&o->work, library->size, count), calls);
	bench_run_deinit(&run);
	return failed;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->options;
	s->requested = (struct bench_library){
		.context = s, .rank = s->side.library.rank, .size = s->side.library.size };
	s->requested.run[o->work.collective] = start_and_wait;
	if (s->table != NULL)
		fprintf(s->table, "# %s, %u ranks; medians of %u rounds in us, slowest rank\n%14s%12s%12s%12s\n",
			bench_collective_name((enum bench_collective)o->work.collective), s->side.library.size,
			o->repeats, "bytes", "call", "request", "more");
	int failed = 0;
	for (size_t i = 0; i < o->sizes.count && !failed; i++)
		failed = measure_size(s, o->sizes.bytes[i]);
	return failed;
}

int bench_request(const struct bench_options *options)
{
	struct session s = { .options = options };
	int64_t ns[WAYS][ROUNDS_MOST];
	bool failed = false;
	for (enum way way = MADE; way < WAYS; way++)
		s.times[way] = (struct bench_samples){ .ns = ns[way], .capacity = ROUNDS_MOST };
	if (collet_side_init(&s.side, options->transport) != COLLET_OK)
		return complain("creating the communicator");
	if (s.side.library.rank == 0) {
		s.json = bench_json_open(options->json, &failed);
		s.table = s.json == stdout ? NULL : stdout;
	}
	int status = failed ? 1 : measure_sizes(&s);
	if (!bench_json_close(s.json))
		status = 1;
	collet_side_deinit(&s.side);
	return status;
}
