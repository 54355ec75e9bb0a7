/* Measures the CPU time of waiting. In each round all ranks but one make the call at once, and that one 100 ms
 * later. The late rank changes every round. CPU time is that of the whole process, with the library's threads. */
#include "waiting.h"

#include <stdlib.h>
#include <time.h>

#include "session.h"

static const int64_t late_ns = 100000000;

struct session {
	struct bench_session base;
	struct bench_samples worst;   /* of each round: the rank that used most, in parts per million of a core */
};

static int64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void be_late(void)
{
	struct timespec left = { .tv_nsec = late_ns };
	while (nanosleep(&left, &left) != 0)
		;
}

static int run_round(struct session *s, struct bench_run *run, uint32_t round)
{
	const struct bench_library *library = &s->base.collet.library;
	const bool is_late = round % library->size == library->rank;
	int64_t used = 0, most;
	if (bench_run_barrier(run))
		return bench_session_complain("a barrier");
	if (is_late)
		be_late();
	const int64_t cpu_before = cpu_ns(), before = bench_clock_ns();
	if (library->run[run->work.collective](library->context, &run->call))
		return bench_session_complain("the call");
	if (!is_late)
		used = (cpu_ns() - cpu_before) * 1000000 / (bench_clock_ns() - before);
	if (collet_allreduce(s->base.collet.comm, &used, &most, 1, COLLET_I64, COLLET_MAX, NULL) != COLLET_OK)
		return bench_session_complain("collecting the times");
	s->worst.ns[s->worst.count++] = most;
	return 0;
}

static void print(const struct session *s, const struct bench_run *run, double median, double most)
{
	if (s->base.table != NULL)
		printf("%s of %llu bytes over %s, %u ranks, one of them %lld ms late: the others use %.2f %% of a core "
		       "(the worst rank; median of %u rounds), %.2f %% at most\n",
			bench_session_collective(&s->base), (unsigned long long)bench_session_bytes(&s->base, run),
			bench_session_transport(&s->base), s->base.collet.library.size, (long long)(late_ns / 1000000),
			median * 100, s->base.options->repeats, most * 100);
	if (s->base.json == NULL)
		return;
	bench_session_json(&s->base, run);
	fprintf(s->base.json, ",\"late_ms\":%lld,\"core_median\":%.5f,\"core_most\":%.5f}\n",
		(long long)(late_ns / 1000000), median, most);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	struct bench_run run;
	int failed = bench_session_prepare(&s->base, &run, bytes);
	if (failed)
		return failed;
	s->worst.count = 0;
	for (uint32_t round = 0; round < s->base.options->repeats && !failed; round++)
		failed = run_round(s, &run, round);
	if (!failed)
		print(s, &run, (double)bench_percentile(&s->worst, 0.5) / 1e6,
			(double)bench_percentile(&s->worst, 1) / 1e6);
	bench_run_deinit(&run);
	return failed;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->base.options;
	if (s->base.collet.library.size < 2) {
		fprintf(stderr, "collet-bench: waiting needs two ranks or more\n");
		return 2;
	}
	s->worst = (struct bench_samples){ .ns = calloc(o->repeats, sizeof(int64_t)), .capacity = o->repeats };
	if (s->worst.ns == NULL)
		return 1;
	int failed = 0;
	for (size_t i = 0; i < o->sizes.count && !failed; i++)
		failed = measure_size(s, o->sizes.bytes[i]);
	free(s->worst.ns);
	return failed;
}

int bench_waiting(const struct bench_options *options)
{
	struct session s = { 0 };
	const int status = bench_session_begin(&s.base, options, 1);
	return status != 0 ? status : bench_session_end(&s.base, measure_sizes(&s));
}
