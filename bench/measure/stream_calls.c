#include "stream_calls.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Of calls in graphs, few are under way: a launch for which the driver has no room blocks the process, and the library
 * with it (collet/cuda.h, Graphs). */
enum { GRAPH_CALLS = 8, GRAPH_WINDOW_CALLS = 24, WINDOW_CALLS = 256, HOST_CALLS = 32, HOST_ROUNDS = 16 };

/* The bytes of calls in flight, on a stream or in a graph; the library may keep as much memory. */
static const uint64_t bytes_under_way = UINT64_C(256) << 20;

static int complain(const char *what)
{
	fprintf(stderr, "collet-bench: %s on a stream: %s\n", what, collet_last_error());
	return 1;
}

static int check(const struct bench_stream_calls *s, gpu_result result, const char *what)
{
	return !bench_device_check(s->device, result, what);
}

static int call(struct bench_stream_calls *s)
{
	return bench_run_call(s->run) ? complain("a call") : 0;
}

/* Waits for all of it; what went wrong on the way is the communicator's. */
static int drain(struct bench_stream_calls *s)
{
	if (check(s, s->device->device.gpu.cuStreamSynchronize(s->device->stream), "waiting for the stream"))
		return 1;
	return collet_comm_error(s->collet->comm) != COLLET_OK ? complain("calls") : 0;
}

/* Relaxed: what the library allocates and registers on the way is no part of the graph. */
static int capture(struct bench_stream_calls *s, uint32_t calls, gpu_graph_exec *exec)
{
	const struct gpu *gpu = &s->device->device.gpu;
	gpu_graph graph = NULL;
	int failed = check(s, gpu->cuStreamBeginCapture(s->device->stream, GPU_CAPTURE_RELAXED), "beginning a capture");
	if (failed)
		return 1;
	for (uint32_t i = 0; !failed && i < calls; i++) {
		failed = call(s);
		bench_run_next(s->run);
	}
	/* Ended in any case: the stream is used again. */
	failed = check(s, gpu->cuStreamEndCapture(s->device->stream, &graph), "ending a capture") || failed;
	failed = failed || check(s, gpu->cuGraphInstantiateWithFlags(exec, graph, 0), "instantiating a graph");
	if (graph != NULL)
		(void)gpu->cuGraphDestroy(graph);
	return failed;
}

static uint32_t at_most(uint64_t bytes, uint32_t most)
{
	const uint64_t fit = bytes > 0 ? bytes_under_way / bytes : most;
	return fit < 1 ? 1 : fit > most ? most : (uint32_t)fit;
}

int bench_stream_calls_init(struct bench_stream_calls *s, struct collet_library *collet, struct bench_device *device,
	struct bench_run *run, bool graph)
{
	*s = (struct bench_stream_calls){ .collet = collet, .device = device, .run = run, .calls = 1 };
	for (int e = 0; e < BENCH_STREAM_EVENTS; e++)
		if (check(s, device->device.gpu.cuEventCreate(&s->events[e], 0), "an event"))
			return 1;
	const uint64_t bytes = run->buffers.slot_bytes;
	s->window = at_most(bytes, graph ? GRAPH_WINDOW_CALLS : WINDOW_CALLS);
	if (!graph)
		return 0;
	s->calls = at_most(bytes, GRAPH_CALLS);
	s->window = s->window / s->calls > 0 ? s->window / s->calls : 1;
	bench_run_select(run, 0);
	if (capture(s, 1, &s->one))
		return 1;
	bench_run_select(run, 0);
	return capture(s, s->calls, &s->many);
}

void bench_stream_calls_deinit(struct bench_stream_calls *s)
{
	if (s->device == NULL)
		return;
	const struct gpu *gpu = &s->device->device.gpu;
	(void)gpu->cuStreamSynchronize(s->device->stream);
	gpu_graph_exec const execs[] = { s->one, s->many };
	for (int e = 0; e < 2; e++)
		if (execs[e] != NULL)
			(void)gpu->cuGraphExecDestroy(execs[e]);
	for (int e = 0; e < BENCH_STREAM_EVENTS; e++)
		if (s->events[e] != NULL)
			(void)gpu->cuEventDestroy(s->events[e]);
	memset(s, 0, sizeof(*s));
}

static int launch(struct bench_stream_calls *s)
{
	if (s->many != NULL)
		return check(s, s->device->device.gpu.cuGraphLaunch(s->many, s->device->stream), "launching a graph");
	bench_run_next(s->run);
	return call(s);
}

int bench_stream_calls_checked(struct bench_stream_calls *s, uint64_t *wrong, uint64_t *first)
{
	if (bench_run_fill(s->run))
		return 1;
	const int failed = s->one != NULL ?
		check(s, s->device->device.gpu.cuGraphLaunch(s->one, s->device->stream), "launching a graph") : call(s);
	return failed || drain(s) || bench_run_verify(s->run, wrong, first);
}

/* Splits a window in two, with an event behind each half. When the previous half has passed, the next one may start. */
static int launch_all(struct bench_stream_calls *s, uint64_t launches)
{
	const struct gpu *gpu = &s->device->device.gpu;
	const uint64_t half = s->window / 2 > 0 ? s->window / 2 : 1;
	for (uint64_t i = 0; i < launches; i++) {
		gpu_event mark = s->events[2 + i / half % 2];
		if (i % half == 0 && i >= 2 * half && check(s, gpu->cuEventSynchronize(mark), "calls on a stream"))
			return 1;
		if (launch(s))
			return 1;
		if (i % half == half - 1 && check(s, gpu->cuEventRecord(mark, s->device->stream), "an event"))
			return 1;
	}
	return 0;
}

static int64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int elapsed(const struct bench_stream_calls *s, int from, int to, double *ns)
{
	float ms = 0;
	const int failed = check(s, s->device->device.gpu.cuEventElapsedTime(&ms, s->events[from], s->events[to]),
		"reading times");
	*ns = (double)ms * 1e6;
	return failed;
}

int bench_stream_calls_batch(struct bench_stream_calls *s, uint64_t iterations, struct bench_times *times)
{
	const struct gpu *gpu = &s->device->device.gpu;
	const uint64_t launches = (iterations + s->calls - 1) / s->calls;
	const double part = (double)iterations / ((double)launches * s->calls);
	struct rusage before, after;
	double ns = 0;
	memset(times, 0, sizeof(*times));
	if (bench_run_barrier(s->run))
		return complain("a barrier");
	getrusage(RUSAGE_SELF, &before);
	const int64_t cpu = cpu_ns();
	if (check(s, gpu->cuEventRecord(s->events[0], s->device->stream), "an event") || launch_all(s, launches) ||
		check(s, gpu->cuEventRecord(s->events[1], s->device->stream), "an event") || drain(s) ||
		elapsed(s, 0, 1, &ns))
		return 1;
	times->elapsed_ns = (int64_t)(ns * part);
	times->cpu_ns = (int64_t)((double)(cpu_ns() - cpu) * part);
	getrusage(RUSAGE_SELF, &after);
	times->page_faults = after.ru_minflt - before.ru_minflt;
	times->switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw;
	return 0;
}

int bench_stream_calls_samples(struct bench_stream_calls *s, uint64_t iterations, struct bench_samples *samples)
{
	const struct gpu *gpu = &s->device->device.gpu;
	const uint64_t wanted = (iterations + s->calls - 1) / s->calls;
	int most = BENCH_STREAM_EVENTS - 1;
	most = s->window < (uint32_t)most ? (int)s->window : most;
	samples->count = 0;
	if (bench_run_barrier(s->run))
		return complain("a barrier");
	while (samples->count < wanted && samples->count + (size_t)most <= samples->capacity) {
		const int round = wanted - samples->count < (uint64_t)most ? (int)(wanted - samples->count) : most;
		int failed = check(s, gpu->cuEventRecord(s->events[0], s->device->stream), "an event");
		for (int i = 0; !failed && i < round; i++)
			failed = launch(s) ||
				check(s, gpu->cuEventRecord(s->events[i + 1], s->device->stream), "an event");
		if (failed || drain(s))
			return 1;
		for (int i = 0; i < round; i++) {
			double ns;
			if (elapsed(s, i, i + 1, &ns))
				return 1;
			samples->ns[samples->count++] = (int64_t)(ns / s->calls);
		}
	}
	return 0;
}

int bench_stream_calls_host(struct bench_stream_calls *s, struct bench_samples *samples, int64_t *ns)
{
	const uint32_t calls = s->window < HOST_CALLS ? s->window : HOST_CALLS;
	samples->count = 0;
	for (int round = 0; round < HOST_ROUNDS; round++) {
		for (uint32_t i = 0; i < calls && samples->count < samples->capacity; i++) {
			bench_run_next(s->run);
			const int64_t before = bench_clock_ns();
			if (call(s))
				return 1;
			samples->ns[samples->count++] = bench_clock_ns() - before;
		}
		if (drain(s))
			return 1;
	}
	*ns = bench_percentile(samples, 0.5);
	return 0;
}
