/* Times a blocking call, and the same call as a request that is waited for at once, in turns. A batch is as many
 * calls as take a tenth of the time. It begins at a barrier, and the slowest rank counts. */
#include "request.h"

#include <stdlib.h>

#include "session.h"

enum form { MADE, REQUESTED, FORMS };

enum { ROUNDS_MOST = 1000 };

struct session {
	struct bench_session base;
	struct bench_library requested; /* the side's collective, each call of which is a request; nothing else */
	struct bench_samples times[FORMS]; /* of a batch */
};

static int start_and_wait(void *context, const struct bench_call *call)
{
	const struct session *s = context;
	collet_request *request = NULL;
	collet_how how = s->base.collet.how;
	struct bench_call started = *call;
	how.request = &request;
	started.how = &how;
	return s->base.collet.library.run[s->base.options->work.collective](s->base.collet.library.context, &started)
		|| collet_request_wait(&request) != COLLET_OK;
}

/* The slowest rank's time of a batch. */
static int run_batch(struct session *s, struct bench_run *run, enum form form, uint64_t calls, int64_t *slowest_ns)
{
	struct bench_times times;
	run->library = &s->base.collet.library;
	if (bench_run_barrier(run))
		return bench_session_complain("a barrier");
	run->library = form == REQUESTED ? &s->requested : &s->base.collet.library;
	if (bench_run_batch(run, calls, &times))
		return bench_session_complain("the timed calls");
	if (collet_allreduce(s->base.collet.comm, &times.elapsed_ns, slowest_ns, 1, COLLET_I64, COLLET_MAX, NULL) !=
		COLLET_OK)
		return bench_session_complain("agreeing on the time");
	return 0;
}

/* Doubles a batch of each form until both take long enough. Connections are opened and requests made meanwhile. */
static int calibrate(struct session *s, struct bench_run *run, uint64_t *calls)
{
	const double enough_ns = s->base.options->mode.seconds * 1e8;
	int64_t ns[FORMS] = { 0 };
	for (*calls = 1;; *calls *= 2) {
		for (enum form form = MADE; form < FORMS; form++)
			if (run_batch(s, run, form, *calls, &ns[form]))
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
	for (uint32_t round = 0; round < s->base.options->repeats; round++) {
		for (enum form turn = MADE; turn < FORMS; turn++) {
			const enum form form = round % 2 ? FORMS - 1 - turn : turn;
			struct bench_samples *times = &s->times[form];
			if (run_batch(s, run, form, *calls, &times->ns[times->count]))
				return 1;
			times->count++;
		}
	}
	return 0;
}

static void print(struct session *s, const struct bench_run *run, uint64_t calls)
{
	double us[FORMS];
	for (enum form form = MADE; form < FORMS; form++)
		us[form] = (double)bench_percentile(&s->times[form], 0.5) / (double)calls / 1e3;
	const double more_ns = (us[REQUESTED] - us[MADE]) * 1e3;
	if (s->base.table != NULL) {
		fprintf(s->base.table, "%14llu", (unsigned long long)bench_session_bytes(&s->base, run));
		bench_table_number(s->base.table, us[MADE], 12);
		bench_table_number(s->base.table, us[REQUESTED], 12);
		fprintf(s->base.table, "%9.1f ns\n", more_ns);
		fflush(s->base.table);
	}
	if (s->base.json == NULL)
		return;
	bench_session_json(&s->base, run);
	fprintf(s->base.json, ",\"call_us\":%.4f,\"request_us\":%.4f,\"more_ns\":%.1f}\n", us[MADE], us[REQUESTED],
		more_ns);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	struct bench_run run;
	uint64_t calls;
	if (bench_session_prepare(&s->base, &run, bytes))
		return 1;
	s->times[MADE].count = s->times[REQUESTED].count = 0;
	const int failed = run_rounds(s, &run, &calls);
	if (!failed)
		print(s, &run, calls);
	bench_run_deinit(&run);
	return failed;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->base.options;
	s->requested = (struct bench_library){
		.context = s, .rank = s->base.collet.library.rank, .size = s->base.collet.library.size };
	s->requested.run[o->work.collective] = start_and_wait;
	if (s->base.table != NULL)
		fprintf(s->base.table, "# %s, %u ranks; medians of %u rounds in us, slowest rank\n%14s%12s%12s%12s\n",
			bench_session_collective(&s->base), s->base.collet.library.size,
			o->repeats, "bytes", "call", "request", "more");
	int failed = 0;
	for (size_t i = 0; i < o->sizes.count && !failed; i++)
		failed = measure_size(s, o->sizes.bytes[i]);
	return failed;
}

int bench_request(const struct bench_options *options)
{
	struct session s = { 0 };
	int64_t ns[FORMS][ROUNDS_MOST];
	for (enum form form = MADE; form < FORMS; form++)
		s.times[form] = (struct bench_samples){ .ns = ns[form], .capacity = ROUNDS_MOST };
	return bench_session_begin(&s.base, options) || bench_session_end(&s.base, measure_sizes(&s));
}
