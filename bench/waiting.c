/* In each round all ranks but one make the call at once, and that one 100 ms later: another one each time. What the
 * others use of the processor meanwhile is what waiting costs. CPU time is the whole process's, the library's threads
 * included. */
#include "waiting.h"

#include <stdlib.h>
#include <time.h>

#include "collet_side.h"
#include "output.h"

static const int64_t late_ns = 100000000;

struct session {
	const struct bench_options *options;
	struct collet_side side;
	struct bench_samples worst;   /* of each round: the rank that used most, in parts per million of a core */
	FILE *table, *json;           /* on rank 0; NULL: not wanted */
};

static int complain(const char *what)
{
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

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
	const struct bench_library *library = &s->side.library;
	const bool is_late = round % library->size == library->rank;
	int64_t used = 0, most;
	if (bench_run_barrier(run))
		return complain("a barrier");
	if (is_late)
		be_late();
	const int64_t cpu_before = cpu_ns(), before = bench_clock_ns();
	if (library->run[run->work.collective](library->context, &run->call))
		return complain("the call");
	if (!is_late)
		used = (cpu_ns() - cpu_before) * 1000000 / (bench_clock_ns() - before);
	if (collet_allreduce(s->side.comm, &used, &most, 1, COLLET_I64, COLLET_MAX, NULL) != COLLET_OK)
		return complain("collecting the times");
	s->worst.ns[s->worst.count++] = most;
	return 0;
}

static void print(const struct session *s, uint64_t bytes, double median, double most)
{
	const char *transport = s->side.plan.transport[0] != '\0' ? s->side.plan.transport : s->options->transport;
	const char *collective = bench_collective_name((enum bench_collective)s->options->work.collective);
	if (s->table != NULL)
		printf("%s of %llu bytes over %s, %u ranks, one of them %lld ms late: the others use %.2f %% of a core "
		       "(the worst rank; median of %u rounds), %.2f %% at most\n",
			collective, (unsigned long long)bytes, transport != NULL ? transport : "?",
			s->side.library.size, (long long)(late_ns / 1000000), median * 100, s->options->repeats,
			most * 100);
	if (s->json == NULL)
		return;
	bench_json_begin(s->json);
	fprintf(s->json, ",\"collective\":\"%s\",\"transport\":", collective);
	bench_json_string(s->json, transport);
	fprintf(s->json, ",\"ranks\":%u,\"bytes\":%llu,\"late_ms\":%lld,\"core_median\":%.5f,\"core_most\":%.5f}\n",
		s->side.library.size, (unsigned long long)bytes, (long long)(late_ns / 1000000), median, most);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	const struct bench_options *o = s->options;
	const struct bench_library *library = &s->side.library;
	const uint64_t count = bench_count(&o->work, library->size, bytes);
	struct bench_run run;
	s->side.piece_bytes = o->piece_bytes;
	s->side.channels = o->channels;
	const void *how = collet_side_plan(&s->side, &o->work, count, o->algorithm);
	const char *problem = bench_run_init(&run, library, &o->work, count, o->manner.buffers, o->manner.cold, how);
	if (problem != NULL) {
		fprintf(stderr, "collet-bench: %llu bytes: %s\n", (unsigned long long)bytes, problem);
		return 1;
	}
	int failed = 0;
	s->worst.count = 0;
	for (uint32_t round = 0; round < o->repeats && !failed; round++)
		failed = run_round(s, &run, round);
	if (!failed)
		print(s, bench_bytes(&o->work, library->size, count),
			(double)bench_percentile(&s->worst, 0.5) / 1e6, (double)bench_percentile(&s->worst, 1) / 1e6);
	bench_run_deinit(&run);
	return failed;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->options;
	if (s->side.library.size < 2) {
		fprintf(stderr, "collet-bench: waiting needs two ranks or more\n");
		return 1;
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
	struct session s = { .options = options };
	bool failed = false;
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
