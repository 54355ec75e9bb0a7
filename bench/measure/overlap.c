/* Measures how much of a request overlaps with other work. A round has five steps, so that other load hits all alike:
 *
 *   1. the call alone
 *   2. a sleep as long as the call took
 *   3. the same sleep between starting the call and waiting for it
 *   4. computing for that long
 *   5. the same computing between start and wait
 *
 * Each step begins at a barrier, and the slowest rank counts. The progress thread advances the call meanwhile. */
#include "overlap.h"

#include <stdlib.h>
#include <time.h>

#include "pin.h"
#include "session.h"

enum step { CALL, SLEEP, SLEEP_OVER_CALL, COMPUTE, COMPUTE_OVER_CALL, STEPS };

enum { OPERANDS = 2048, CALIBRATION = 1000, ROUNDS_MOST = 1000 };

struct session {
	struct bench_session base;
	float operands[OPERANDS];   /* stay in the first-level cache: computing does not compete for memory */
	double pass_ns;             /* of one pass over them */
	bool any_disturbed;
};

/* The results of a size: medians in ns, of the slowest rank. */
struct outcome {
	int64_t ns[STEPS];
	double sleep_hidden;        /* share of the call's time that a sleep of equal length hid */
	double compute_hidden;      /* the same of computing */
	double compute_ratio;       /* both at once, over the sum of both alone */
	enum bench_disturbance disturbance;
};

/* ---- What the caller does meanwhile ---- */

static void sleep_for(int64_t ns)
{
	struct timespec left = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	while (nanosleep(&left, &left) != 0)
		;
}

static void compute_passes(struct session *s, uint64_t passes)
{
	for (uint64_t p = 0; p < passes; p++) {
		for (size_t i = 0; i < OPERANDS; i++)
			s->operands[i] = s->operands[i] * 0.999f + 0.5f;
		__asm__ volatile("" : : "r"(s->operands) : "memory");   /* each pass is made */
	}
}

static void compute_for(struct session *s, int64_t ns)
{
	compute_passes(s, 1 + (uint64_t)((double)ns / s->pass_ns));
}

/* The least of several: the rest is other people's work. */
static void calibrate(struct session *s)
{
	s->pass_ns = 1e18;
	for (int round = 0; round < 20; round++) {
		const int64_t before = bench_clock_ns();
		compute_passes(s, CALIBRATION);
		const double pass = (double)(bench_clock_ns() - before) / CALIBRATION;
		s->pass_ns = pass < s->pass_ns ? pass : s->pass_ns;
	}
}

/* ---- One step ---- */

static bool has_call(enum step step)
{
	return step == CALL || step == SLEEP_OVER_CALL || step == COMPUTE_OVER_CALL;
}

static int run_step(struct session *s, struct bench_run *run, enum step step, int64_t meanwhile_ns, int64_t *took_ns)
{
	const struct bench_library *library = &s->base.collet.library;
	collet_request *request = NULL;
	collet_how how = s->base.collet.how;
	how.request = &request;
	run->call.how = &how;
	if (bench_run_barrier(run))
		return bench_session_complain("a barrier");
	const int64_t before = bench_clock_ns();
	if (has_call(step) && library->run[run->work.collective](library->context, &run->call))
		return bench_session_complain("starting the call");
	if (step == SLEEP || step == SLEEP_OVER_CALL)
		sleep_for(meanwhile_ns);
	if (step == COMPUTE || step == COMPUTE_OVER_CALL)
		compute_for(s, meanwhile_ns);
	if (has_call(step) && collet_request_wait(&request) != COLLET_OK)
		return bench_session_complain("waiting for the call");
	*took_ns = bench_clock_ns() - before;
	return 0;
}

/* The slowest rank's time becomes everybody's. */
static int agree(struct session *s, int64_t *ns)
{
	int64_t slowest;
	if (collet_allreduce(s->base.collet.comm, ns, &slowest, 1, COLLET_I64, COLLET_MAX, NULL) != COLLET_OK)
		return bench_session_complain("agreeing on the time");
	*ns = slowest;
	return 0;
}

/* ---- A size ---- */

static int run_rounds(struct session *s, struct bench_run *run, struct bench_samples samples[STEPS])
{
	int64_t call_ns = 0;
	/* The first round warms up, and finds how long the call takes. */
	for (uint32_t round = 0; round <= s->base.options->repeats; round++) {
		for (enum step step = CALL; step < STEPS; step++) {
			int64_t took_ns;
			if (run_step(s, run, step, call_ns, &took_ns) || agree(s, &took_ns))
				return 1;
			if (step == CALL)
				call_ns = took_ns;
			if (round > 0)
				samples[step].ns[samples[step].count++] = took_ns;
		}
	}
	return 0;
}

/* Returns the share of the call's time that is not seen when both run at once: 0 to 1. */
static double hidden(double call_ns, int64_t alone_ns, int64_t both_ns)
{
	const double share = 1 - (double)(both_ns - alone_ns) / call_ns;
	return share < 0 ? 0 : share > 1 ? 1 : share;
}

static void summarise(struct bench_samples samples[STEPS], struct outcome *outcome)
{
	for (enum step step = CALL; step < STEPS; step++)
		outcome->ns[step] = bench_percentile(&samples[step], 0.5);
	const double call = (double)outcome->ns[CALL];
	outcome->sleep_hidden = hidden(call, outcome->ns[SLEEP], outcome->ns[SLEEP_OVER_CALL]);
	outcome->compute_hidden = hidden(call, outcome->ns[COMPUTE], outcome->ns[COMPUTE_OVER_CALL]);
	outcome->compute_ratio = (double)outcome->ns[COMPUTE_OVER_CALL] / (call + (double)outcome->ns[COMPUTE]);
}

static void print_row(FILE *out, uint64_t bytes, const struct outcome *o)
{
	fprintf(out, "%14llu", (unsigned long long)bytes);
	for (enum step step = CALL; step < STEPS; step++) {
		bench_table_number(out, (double)o->ns[step] / 1e3, 11);
		if (step == SLEEP_OVER_CALL)
			fprintf(out, "%8.1f %%", o->sleep_hidden * 100);
	}
	fprintf(out, "%8.1f %%%8.3f%s\n", o->compute_hidden * 100, o->compute_ratio,
		o->disturbance == BENCH_DISTURBED ? " *" : "");
	fflush(out);
}

static void print_json(const struct session *s, const struct bench_run *run, const struct outcome *o)
{
	static const char *const names[STEPS] = { "call_us", "sleep_us", "sleep_over_call_us", "compute_us",
		"compute_over_call_us" };
	FILE *json = s->base.json;
	bench_session_json(&s->base, run);
	for (enum step step = CALL; step < STEPS; step++) {
		fprintf(json, ",\"%s\":", names[step]);
		bench_json_number(json, (double)o->ns[step] / 1e3);
	}
	fprintf(json, ",\"sleep_hidden\":%.4f,\"compute_hidden\":%.4f,\"compute_ratio\":%.4f", o->sleep_hidden,
		o->compute_hidden, o->compute_ratio);
	if (o->disturbance != BENCH_NOT_JUDGED)
		fprintf(json, ",\"disturbed\":%s", o->disturbance == BENCH_DISTURBED ? "true" : "false");
	fputs("}\n", json);
}

static int measure_size(struct session *s, uint64_t bytes, struct bench_samples samples[STEPS])
{
	struct bench_run run;
	struct outcome outcome;
	const int unfit = bench_session_prepare(&s->base, &run, bytes);
	if (unfit != 0)
		return unfit;
	for (enum step step = CALL; step < STEPS; step++)
		samples[step].count = 0;
	struct bench_load_mark before, after;
	bench_load_read_self(&before);
	int failed = run_rounds(s, &run, samples);
	bench_load_read_self(&after);
	failed = failed || bench_session_judge(&s->base, &before, &after, &outcome.disturbance);
	if (!failed) {
		summarise(samples, &outcome);
		s->any_disturbed |= outcome.disturbance == BENCH_DISTURBED;
		if (s->base.table != NULL)
			print_row(s->base.table, bench_session_bytes(&s->base, &run), &outcome);
		if (s->base.json != NULL)
			print_json(s, &run, &outcome);
	}
	bench_run_deinit(&run);
	return failed;
}

/* A process that is bound to one core has its progress thread there. */
static void print_header(const struct session *s)
{
	FILE *out = s->base.table;
	fprintf(out, "# %s, %u ranks, progress thread; medians of %u rounds in us, slowest rank\n",
		bench_session_collective(&s->base), s->base.collet.library.size, s->base.options->repeats);
	if (bench_is_pinned())
		fputs("# a rank and its progress thread share a core, so computing hides only what needs no core\n",
			out);
	fprintf(out, "%14s%12s%12s%12s%10s%12s%12s%10s%8s\n", "bytes", "call", "sleep", "both", "hidden", "compute",
		"both", "hidden", "ratio");
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->base.options;
	struct bench_samples samples[STEPS];
	int64_t *memory = calloc((size_t)STEPS * ROUNDS_MOST, sizeof(memory[0]));
	if (memory == NULL)
		return 1;
	for (enum step step = CALL; step < STEPS; step++)
		samples[step] = (struct bench_samples){ .ns = memory + step * ROUNDS_MOST, .capacity = ROUNDS_MOST };
	if (s->base.table != NULL)
		print_header(s);
	calibrate(s);
	int failed = 0;
	for (size_t i = 0; i < o->sizes.count && !failed; i++)
		failed = measure_size(s, o->sizes.bytes[i], samples);
	if (s->base.table != NULL && s->any_disturbed)
		bench_table_footnote(s->base.table);
	free(memory);
	return failed;
}

int bench_overlap(const struct bench_options *options)
{
	struct session *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return 1;
	setenv("COLLET_PROGRESS_THREAD", "1", 1);
	int status = bench_session_begin(&s->base, options, 1);
	if (status == 0)
		status = bench_session_end(&s->base, measure_sizes(s));
	free(s);
	return status;
}
