/* Times three forms of a call in turns: blocking; as a request that is waited for at once; and as requests of which
 * many are in flight. These are started one after the other, each with buffers of its own, and then all waited for. A
 * batch takes a tenth of the time. It begins at a barrier, and the slowest rank counts. */
#include "request.h"

#include <sched.h>
#include <stdlib.h>

#include "limits/core_latency.h"
#include "session.h"

enum form { BLOCKING, REQUESTED, IN_FLIGHT, FORMS };

struct session {
	struct bench_session base;
	struct bench_run *runs;         /* one for each request in flight; the other forms use the first */
	collet_request **requests;
	uint64_t calls[FORMS];          /* in a batch */
	struct bench_samples times[FORMS]; /* of a batch */
	struct bench_samples ratios[FORMS]; /* of a call's time to that of a blocking call in the same round, in 1e-6 */
};

/* ---- A batch ---- */

static int start(const struct session *s, const struct bench_run *run, collet_request **request)
{
	const struct bench_library *library = &s->base.collet.library;
	collet_how how = s->base.collet.how;
	struct bench_call call = run->call;
	how.request = request;
	call.how = &how;
	return library->run[run->work.collective](library->context, &call);
}

/* Starts a request for each run, and waits for all. */
static int start_and_wait(const struct session *s, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (start(s, &s->runs[i], &s->requests[i]))
			return 1;
	return collet_request_wait_all(s->requests, count) != COLLET_OK;
}

static int run_form(struct session *s, enum form form)
{
	const uint32_t together = form == IN_FLIGHT ? s->base.options->in_flight : 1;
	for (uint64_t i = 0; i < s->calls[form]; i += together)
		if (form == BLOCKING ? bench_run_call(&s->runs[0]) : start_and_wait(s, together))
			return 1;
	return 0;
}

/* The slowest rank's time of a batch. */
static int run_batch(struct session *s, enum form form, int64_t *slowest_ns)
{
	if (bench_run_barrier(&s->runs[0]))
		return bench_session_complain("a barrier");
	const int64_t before = bench_clock_ns();
	if (run_form(s, form))
		return bench_session_complain("the timed calls");
	const int64_t elapsed_ns = bench_clock_ns() - before;
	if (collet_allreduce(s->base.collet.comm, &elapsed_ns, slowest_ns, 1, COLLET_I64, COLLET_MAX, NULL) !=
		COLLET_OK)
		return bench_session_complain("agreeing on the time");
	return 0;
}

/* Doubles a batch until it takes long enough. Connections are opened and requests made meanwhile. */
static int calibrate(struct session *s, enum form form)
{
	const double enough_ns = s->base.options->mode.seconds * 1e8;
	int64_t ns = 0;
	for (s->calls[form] = form == IN_FLIGHT ? s->base.options->in_flight : 1;; s->calls[form] *= 2) {
		if (run_batch(s, form, &ns))
			return 1;
		if ((double)ns >= enough_ns || s->calls[form] >= BENCH_ITERATIONS_MAX)
			return 0;
	}
}

/* ---- A size ---- */

static int run_rounds(struct session *s)
{
	for (enum form form = BLOCKING; form < FORMS; form++) {
		s->times[form].count = s->ratios[form].count = 0;
		if (calibrate(s, form))
			return 1;
	}
	for (uint32_t round = 0; round < s->base.options->repeats; round++) {
		double call_ns[FORMS];
		for (enum form turn = BLOCKING; turn < FORMS; turn++) {
			const enum form form = round % 2 ? FORMS - 1 - turn : turn;
			int64_t *ns = &s->times[form].ns[s->times[form].count++];
			if (run_batch(s, form, ns))
				return 1;
			call_ns[form] = (double)*ns / (double)s->calls[form];
		}
		for (enum form form = BLOCKING; form < FORMS; form++)
			s->ratios[form].ns[s->ratios[form].count++] =
				(int64_t)(call_ns[form] / call_ns[BLOCKING] * 1e6);
	}
	return 0;
}

/* Checks the results of requests in flight together. */
static int check_results(struct session *s)
{
	const uint32_t count = s->base.options->in_flight;
	for (uint32_t i = 0; i < count; i++)
		if (bench_run_fill(&s->runs[i]))
			return bench_session_complain("filling the buffers");
	if (start_and_wait(s, count))
		return bench_session_complain("the checked calls");
	for (uint32_t i = 0; i < count; i++) {
		uint64_t wrong, first;
		if (bench_run_verify(&s->runs[i], &wrong, &first))
			return bench_session_complain("checking the results");
		if (wrong) {
			fprintf(stderr, "collet-bench: %llu elements are wrong, the first is %llu\n",
				(unsigned long long)wrong, (unsigned long long)first);
			return 1;
		}
	}
	return 0;
}

/* Returns the time of a flag between the first two cores of this host, in ns. This rank may be bound to one. */
static double flag_ns(void)
{
	cpu_set_t bound, all;
	if (sched_getaffinity(0, sizeof(bound), &bound) != 0)
		return 0;
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		CPU_SET(cpu, &all);
	(void)sched_setaffinity(0, sizeof(all), &all);
	const double ns = bench_core_latency_ns();
	(void)sched_setaffinity(0, sizeof(bound), &bound);
	return ns;
}

static void print(struct session *s)
{
	const struct bench_run *run = &s->runs[0];
	const double flag = flag_ns();
	double us[FORMS], ratio[FORMS];
	for (enum form form = BLOCKING; form < FORMS; form++) {
		us[form] = (double)bench_percentile(&s->times[form], 0.5) / (double)s->calls[form] / 1e3;
		ratio[form] = (double)bench_percentile(&s->ratios[form], 0.5) / 1e6;
	}
	const double more_ns = (ratio[REQUESTED] - 1) * us[BLOCKING] * 1e3, rate_ratio = 1 / ratio[IN_FLIGHT];
	if (s->base.table != NULL) {
		fprintf(s->base.table, "%14llu", (unsigned long long)bench_session_bytes(&s->base, run));
		for (enum form form = BLOCKING; form < FORMS; form++)
			bench_table_number(s->base.table, us[form], 12);
		fprintf(s->base.table, "%9.1f ns%9.3f%9.3f%9.0f ns\n", more_ns, ratio[REQUESTED], rate_ratio, flag);
		fflush(s->base.table);
	}
	if (s->base.json == NULL)
		return;
	bench_session_json(&s->base, run);
	fprintf(s->base.json,
		",\"call_us\":%.4f,\"request_us\":%.4f,\"more_ns\":%.1f,\"request_ratio\":%.4f,\"in_flight\":%u,"
		"\"in_flight_us\":%.4f,\"rate_ratio\":%.4f,\"flag_ns\":%.1f}\n",
		us[BLOCKING], us[REQUESTED], more_ns, ratio[REQUESTED], s->base.options->in_flight, us[IN_FLIGHT],
		rate_ratio, flag);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	uint32_t prepared = 0;
	int failed = 0;
	while (prepared < s->base.options->in_flight && !failed) {
		failed = bench_session_prepare(&s->base, &s->runs[prepared], bytes);
		prepared += !failed;
	}
	if (!failed)
		failed = check_results(s) || run_rounds(s);
	if (!failed && s->base.collet.library.rank == 0)
		print(s);
	while (prepared > 0)
		bench_run_deinit(&s->runs[--prepared]);
	return failed;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->base.options;
	if (s->base.table != NULL)
		fprintf(s->base.table,
			"# %s, %u ranks; medians of %u rounds in us, slowest rank; %u requests in flight\n"
			"%14s%12s%12s%12s%12s%9s%9s%12s\n",
			bench_session_collective(&s->base), s->base.collet.library.size, o->repeats, o->in_flight,
			"bytes", "call", "request", "in flight", "more", "ratio", "rate", "flag");
	int failed = 0;
	for (size_t i = 0; i < o->sizes.count && !failed; i++)
		failed = measure_size(s, o->sizes.bytes[i]);
	return failed;
}

int bench_request(const struct bench_options *options)
{
	struct session s = { .runs = calloc(options->in_flight, sizeof(s.runs[0])),
		.requests = calloc(options->in_flight, sizeof(s.requests[0])) };
	int64_t ns[2 * FORMS][BENCH_REPEATS_MAX];
	for (enum form form = BLOCKING; form < FORMS; form++) {
		s.times[form] = (struct bench_samples){ .ns = ns[form], .capacity = BENCH_REPEATS_MAX };
		s.ratios[form] = (struct bench_samples){ .ns = ns[FORMS + form], .capacity = BENCH_REPEATS_MAX };
	}
	const bool has_memory = s.runs != NULL && s.requests != NULL;
	int status = has_memory ? bench_session_begin(&s.base, options, options->in_flight) : 1;
	if (status == 0)
		status = bench_session_end(&s.base, measure_sizes(&s));
	free(s.runs);
	free(s.requests);
	return status;
}
