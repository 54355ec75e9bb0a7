/* Measures each size: allocate, check, warm up, time calls back to back, sample single calls, check again. All ranks
 * must make equally many calls, so they agree on the slowest one's times by collet itself. */
#include "measure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collet_library.h"
#include "compare/load.h"
#include "pin.h"
#include "preflight.h"
#include "ranks/device.h"
#include "report/output.h"
#include "stream_calls.h"

enum { SAMPLES = 20000 };

/* The state of one rank while it measures. */
struct session {
	const struct bench_options *options;
	struct collet_library collet;
	struct bench_samples samples;
	FILE *table, *json;   /* on rank 0; NULL: not wanted */
	char host[65];
	bool pinned;          /* on all ranks */
	struct bench_device device;  /* with --device cuda */
	struct bench_stream_calls stream_calls;  /* of a size, with --stream or --graph */
	double copy_gbs;      /* on rank 0 */
	uint64_t wrong;       /* elements so far */
	bool header_done, any_disturbed;
};

static int complain(const char *what)
{
	bench_progress_clear();
	fprintf(stderr, "collet-bench: %s: %s\n", what, collet_last_error());
	return 1;
}

/* All ranks' largest and sum, place by place. */
static int agree(struct session *s, const uint64_t *mine, uint64_t *all, size_t count, collet_op op)
{
	return collet_allreduce(s->collet.comm, mine, all, count, COLLET_U64, op, NULL) != COLLET_OK;
}

/* ---- Each as calls block, or as a stream has them ---- */

static bool uses_stream(const struct session *s)
{
	return s->options->mode.calling != BENCH_BLOCKING;
}

static int run_batch(struct session *s, struct bench_run *run, uint64_t iterations, struct bench_times *times)
{
	if (uses_stream(s))
		return bench_stream_calls_batch(&s->stream_calls, iterations, times);
	return bench_run_batch(run, iterations, times) ? complain("timed calls") : 0;
}

static int run_samples(struct session *s, struct bench_run *run, uint64_t iterations)
{
	if (uses_stream(s))
		return bench_stream_calls_samples(&s->stream_calls, iterations, &s->samples);
	return bench_run_samples(run, iterations, &s->samples) ? complain("the calls timed one by one") : 0;
}

static int run_checked(struct session *s, struct bench_run *run, uint64_t *wrong, uint64_t *first)
{
	if (uses_stream(s))
		return bench_stream_calls_checked(&s->stream_calls, wrong, first);
	return bench_run_checked(run, wrong, first) ?
		complain(bench_collective_name((enum bench_collective)run->work.collective)) : 0;
}

/* ---- A size ---- */

/* *iterations fill the time on the slowest rank. */
static int calibrate(struct session *s, struct bench_run *run, uint64_t *iterations)
{
	struct bench_calibration calibration = bench_calibration_begin(s->options->mode.seconds);
	for (*iterations = 0; *iterations == 0;) {
		struct bench_times times;
		uint64_t elapsed[1];
		if (run_batch(s, run, calibration.batch, &times))
			return 1;
		const uint64_t mine[1] = { (uint64_t)times.elapsed_ns };
		if (agree(s, mine, elapsed, 1, COLLET_MAX))
			return complain("agreeing on the time");
		*iterations = bench_calibration_next(&calibration, (int64_t)elapsed[0]);
	}
	if (s->options->mode.iterations > 0)
		*iterations = s->options->mode.iterations;
	return 0;
}

/* Checks once, adding this rank's wrong elements to *wrong, and says where the first one is. */
static int check(struct session *s, struct bench_run *run, uint64_t *wrong)
{
	uint64_t here = 0, first = 0;
	if (run_checked(s, run, &here, &first))
		return 1;
	*wrong += here;
	if (here == 0)
		return 0;
	bench_progress_clear();
	fprintf(stderr, "collet-bench: rank %u: %llu wrong elements of %llu, the first is element %llu\n",
		s->collet.library.rank, (unsigned long long)here,
		(unsigned long long)bench_recv_count(
			&run->work, s->collet.library.rank, s->collet.library.size, run->count),
		(unsigned long long)first);
	return 0;
}

/* One rank's numbers of one size, to be merged. */
struct numbers {
	uint64_t elapsed_ns, p50_ns, p99_ns, rewritten_ns, host_ns;   /* the largest counts */
	uint64_t cpu_ns, wrong, page_faults, switches;   /* the sum counts */
	struct bench_load load;   /* while the calls were timed: the host's on this rank, and the sum of the ranks' */
};

static int run_rewritten(struct session *s, struct bench_run *run, uint64_t iterations, struct numbers *mine)
{
	uint64_t wrong;
	if (bench_run_rewritten(run, bench_rewritten_iterations(iterations), &s->samples, &wrong))
		return complain("the calls with rewritten inputs");
	mine->rewritten_ns = (uint64_t)bench_percentile(&s->samples, 0.5);
	mine->wrong += wrong;
	return 0;
}

/* The timed calls, and what else the machine did meanwhile. Threads share a process: its CPU time is rank 0's. */
static int run_timed(struct session *s, struct bench_run *run, struct numbers *mine, uint64_t iterations,
	struct bench_times *times)
{
	struct bench_load_mark before, after;
	bench_load_read_self(&before);
	if (s->options->mode.sync ? bench_run_synced_batch(run, iterations, times) && complain("timed calls")
		: run_batch(s, run, iterations, times))
		return 1;
	bench_load_read_self(&after);
	/* A rank that shares its core waits for its neighbour, and not for others. */
	const bool has_core = s->pinned && s->collet.plan.cores >= s->collet.library.size;
	mine->load = bench_load_between(&before, &after, has_core);
	if (s->options->mode.threads && s->collet.library.rank != 0)
		mine->load.own_ns = 0;
	return 0;
}

static int run_size(struct session *s, struct bench_run *run, struct numbers *mine, uint64_t *iterations)
{
	struct bench_times times;
	if (check(s, run, &mine->wrong) || calibrate(s, run, iterations)
		|| run_batch(s, run, bench_warm_iterations(*iterations), &times)
		|| run_timed(s, run, mine, *iterations, &times))
		return 1;
	const uint64_t samples = *iterations < SAMPLES ? *iterations : SAMPLES;
	if (run_samples(s, run, samples))
		return 1;
	mine->elapsed_ns = (uint64_t)times.elapsed_ns;
	/* These are the process's: of threads, one speaks for all. */
	if (!s->options->mode.threads || s->collet.library.rank == 0) {
		mine->cpu_ns = (uint64_t)times.cpu_ns;
		mine->page_faults = (uint64_t)times.page_faults;
		mine->switches = (uint64_t)times.switches;
	}
	mine->p50_ns = (uint64_t)bench_percentile(&s->samples, 0.5);
	mine->p99_ns = (uint64_t)bench_percentile(&s->samples, 0.99);
	if (s->options->mode.rewrite && run_rewritten(s, run, *iterations, mine))
		return 1;
	int64_t host_ns = 0;
	if (s->options->mode.calling == BENCH_ON_STREAM &&
		bench_stream_calls_host(&s->stream_calls, &s->samples, &host_ns))
		return 1;
	mine->host_ns = (uint64_t)host_ns;
	return check(s, run, &mine->wrong);
}

/* The clocks of a process and of its threads are not read at one time, so a difference may be below 0. */
static uint64_t whole(double ns)
{
	return ns > 0 ? (uint64_t)ns : 0;
}

static int merge(struct session *s, const struct numbers *mine, struct numbers *all)
{
	const uint64_t largest[5] = { mine->elapsed_ns, mine->p50_ns, mine->p99_ns, mine->rewritten_ns, mine->host_ns },
		       sums[8] = { mine->cpu_ns, mine->wrong, mine->page_faults, mine->switches,
			       whole(mine->load.own_ns), whole(mine->load.waited_ns),
			       whole(mine->load.helpers_ns), mine->load.starts };
	uint64_t all_largest[5], all_sums[8];
	if (agree(s, largest, all_largest, 5, COLLET_MAX) || agree(s, sums, all_sums, 8, COLLET_SUM))
		return complain("collecting the times");
	*all = (struct numbers){ all_largest[0], all_largest[1], all_largest[2], all_largest[3], all_largest[4],
		all_sums[0], all_sums[1], all_sums[2], all_sums[3], mine->load };
	all->load.own_ns = (double)all_sums[4];
	all->load.waited_ns = (double)all_sums[5];
	all->load.helpers_ns = (double)all_sums[6];
	all->load.starts = all_sums[7];
	return 0;
}

/* Of several hosts, no rank knows which ranks' CPU time belongs to which host. */
static enum bench_disturbance judge(const struct session *s, const struct numbers *all)
{
	if (!s->collet.library.one_host)
		return BENCH_NOT_JUDGED;
	return bench_is_disturbed(&all->load) ? BENCH_DISTURBED : BENCH_UNDISTURBED;
}

/* Returns the least bytes that a GPU copies: every rank reads its input and writes its result. Ranks that share a
 * GPU do so there. */
static double copied_bytes(const struct session *s, const struct bench_run *run)
{
	const uint32_t ranks = s->collet.library.size, local = collet_comm_local_size(s->collet.comm),
		       gpus = (uint32_t)s->device.device.count, sharing = (local + gpus - 1) / gpus;
	uint64_t elements = 0;
	for (uint32_t r = 0; r < ranks; r++)
		elements += bench_send_count(&run->work, r, ranks, run->count) +
			bench_recv_count(&run->work, r, ranks, run->count);
	const double bytes = (double)elements * (double)collet_dtype_bytes((collet_dtype)run->work.dtype);
	return bytes / ranks * sharing / 2;
}

static void print(struct session *s, const struct bench_run *run, const struct numbers *all, uint64_t iterations)
{
	const uint32_t ranks = s->collet.library.size;
	static const char *const callings[] = { [BENCH_ON_STREAM] = "stream", [BENCH_IN_GRAPH] = "graph" };
	const bool device = s->options->mode.device, hosts = s->options->mode.calling == BENCH_ON_STREAM;
	const struct bench_on_device on = { .name = s->device.device.name, .copy_gbs = s->copy_gbs,
		.copy_bytes = device ? copied_bytes(s, run) : 0, .calling = callings[s->options->mode.calling],
		.host_ns = hosts ? (double)all->host_ns : -1 };
	const struct bench_measurement m = {
		.library = "collet",
		.version = collet_version(),
		.host = s->host,
		.algorithm =
			device && s->collet.plan.gpu_path ? s->collet.plan.gpu_algorithm : s->collet.plan.algorithm,
		.transport = s->collet.plan.transport[0] != '\0' ? s->collet.plan.transport : s->options->transport,
		.work = run->work,
		.buffers = run->buffers.kind,
		.ranks = ranks,
		.pinned = s->pinned,
		.bytes = bench_bytes(&run->work, ranks, run->count),
		.count = run->count,
		.time_ns = (double)all->elapsed_ns / (double)iterations,
		.p50_ns = (double)all->p50_ns,
		.p99_ns = (double)all->p99_ns,
		.rewritten_ns = s->options->mode.rewrite ? (double)all->rewritten_ns : -1,
		.cpu_ns = (double)all->cpu_ns / (double)iterations,
		.page_faults = (double)all->page_faults / (double)iterations,
		.switches = (double)all->switches / (double)iterations,
		.predicted_ns = s->collet.plan.predicted_ns,
		.wrong = all->wrong,
		.threads = s->options->mode.threads,
		.disturbance = judge(s, all),
		.device = device ? &on : NULL,
	};
	bench_progress_clear();
	if (s->table != NULL && !s->header_done)
		bench_table_header(s->table, &m);
	s->header_done = true;
	s->any_disturbed |= m.disturbance == BENCH_DISTURBED;
	if (s->table != NULL)
		bench_table_row(s->table, &m);
	if (s->json != NULL)
		bench_json_measurement(s->json, &m);
}

static int measure_size(struct session *s, uint64_t bytes)
{
	const struct bench_options *o = s->options;
	const struct bench_library *library = &s->collet.library;
	const uint64_t count = bench_count(&o->work, library->size, bytes);
	char text[24];
	struct bench_run run;
	struct numbers mine = { 0 }, all;
	uint64_t iterations = 1;
	if (library->rank == 0)
		bench_progress("%s, %s: measuring", bench_collective_name((enum bench_collective)o->work.collective),
			bench_bytes_text(bytes, text));
	s->collet.segment_bytes = o->segment_bytes;
	s->collet.channels = o->channels;
	const void *how = collet_library_plan(&s->collet, &o->work, count, o->algorithm);
	const int refused = bench_preflight_algorithm(&s->collet, o->algorithm, bytes);
	if (refused != 0)
		return refused;
	/* On a GPU always cold: what its cache holds between two calls of a bench is nobody's else. */
	const char *problem = bench_run_init(&run, library, &o->work, count,
		o->mode.device ? BENCH_DEVICE : o->mode.buffers, o->mode.cold || o->mode.device, how);
	if (problem != NULL) {
		bench_progress_clear();
		fprintf(stderr, "collet-bench: %s: %s%s%s\n", bench_bytes_text(bytes, text), problem,
			o->mode.buffers == BENCH_ALLOC ? ": " : "",
			o->mode.buffers == BENCH_ALLOC ? collet_last_error() : "");
		return 1;
	}
	int failed = uses_stream(s) && bench_stream_calls_init(&s->stream_calls, &s->collet, &s->device, &run,
		o->mode.calling == BENCH_IN_GRAPH);
	failed = failed || run_size(s, &run, &mine, &iterations) || merge(s, &mine, &all);
	if (!failed) {
		s->wrong += all.wrong;
		if (library->rank == 0)
			print(s, &run, &all, iterations);
	}
	bench_stream_calls_deinit(&s->stream_calls);
	bench_run_deinit(&run);
	/* Freeing GPU memory waits for all streams of the process. So no thread may enqueue the next size's calls until
	 * all have freed theirs. */
	return failed || (o->mode.device && collet_barrier(s->collet.comm, NULL) != COLLET_OK);
}

/* Rank 0 copies, while the others wait for it. */
static int begin_device(struct session *s)
{
	const struct bench_sizes *sizes = &s->options->sizes;
	uint64_t bytes = 0;
	s->collet.library.allocator = &s->device.allocator;
	if (uses_stream(s))
		s->collet.stream = s->device.stream;
	for (size_t i = 0; i < sizes->count; i++)
		bytes = bytes < sizes->bytes[i] ? sizes->bytes[i] : bytes;
	if (bytes < 2 * s->device.device.cache_bytes)
		bytes = 2 * s->device.device.cache_bytes;
	if (s->collet.library.rank == 0 &&
		!bench_device_copy(&s->device, bytes, s->options->mode.seconds / 3, &s->copy_gbs))
		return 1;
	return collet_barrier(s->collet.comm, NULL) != COLLET_OK ? complain("the first call") : 0;
}

static int measure_sizes(struct session *s)
{
	const struct bench_options *o = s->options;
	const int unfit = bench_preflight(&s->collet, o, 1);
	if (unfit != 0)
		return unfit;
	const uint64_t mine[1] = { bench_is_pinned() };
	uint64_t all[1];
	if (agree(s, mine, all, 1, COLLET_MIN))
		return complain("the first call");
	s->pinned = all[0] != 0;
	const size_t sizes =
		bench_collective_takes_bytes((enum bench_collective)o->work.collective) ? o->sizes.count : 1;
	int status = 0;
	for (size_t i = 0; i < sizes && status == 0; i++)
		status = measure_size(s, o->sizes.bytes[i]);
	if (s->any_disturbed && s->table != NULL)
		bench_table_footnote(s->table);
	if (status != 0)
		return status;
	if (s->wrong > 0 && s->collet.library.rank == 0)
		fprintf(stderr, "collet-bench: %llu wrong elements\n", (unsigned long long)s->wrong);
	return s->wrong > 0;
}

/* Only rank 0 writes. */
static bool open_outputs(struct session *s)
{
	bool failed = false;
	if (s->collet.library.rank != 0)
		return true;
	s->json = bench_json_open(s->options->json, &failed);
	s->table = s->json == stdout ? NULL : stdout;
	return !failed;
}

int bench_measure_as(const struct bench_options *options, const collet_options *comm_options)
{
	struct session s = { .options = options, .samples.capacity = SAMPLES };
	int status = 1;
	gethostname(s.host, sizeof(s.host) - 1);
	if (options->mode.device && !bench_device_open_for_rank(&s.device, comm_options)) {
		if (options->mode.threads)
			_Exit(1);   /* the others wait for this one */
		bench_device_close(&s.device);
		return 1;
	}
	if (collet_library_init_with(&s.collet, comm_options) != COLLET_OK) {
		bench_device_close(&s.device);
		return complain("creating the communicator");
	}
	s.samples.ns = calloc(SAMPLES, sizeof(s.samples.ns[0]));
	if (s.samples.ns != NULL && open_outputs(&s) && (!options->mode.device || begin_device(&s) == 0))
		status = measure_sizes(&s);
	if (!bench_json_close(s.json))
		status = 1;
	free(s.samples.ns);
	/* A process's end is seen by the others; a thread's is not. */
	if (status != 0 && options->mode.threads)
		collet_comm_abort(s.collet.comm);
	/* The order matters: the communicator has streams and events in the GPU's context. */
	collet_library_deinit(&s.collet);
	bench_device_close(&s.device);
	return status;
}

int bench_measure(const struct bench_options *options)
{
	const collet_options comm_options = { .transport = options->transport };
	return bench_measure_as(options, &comm_options);
}
