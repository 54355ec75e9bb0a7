/* Times calls on a CUDA stream, one by one or captured in a graph. Events of that stream give the GPU's time, not
 * the host's. The functions match those of bench/common/loop.h. */
#ifndef BENCH_STREAM_CALLS_H
#define BENCH_STREAM_CALLS_H

#include "collet_library.h"
#include "ranks/device.h"

enum { BENCH_STREAM_EVENTS = 257 };

struct bench_stream_calls {
	struct collet_library *collet;          /* whose how has the stream */
	struct bench_device *device;
	struct bench_run *run;
	gpu_graph_exec one, many;          /* NULL: no graphs */
	uint32_t calls;                    /* of `many`; else 1 */
	uint32_t window;                   /* launches that are under way at most, so that memory does not run out */
	gpu_event events[BENCH_STREAM_EVENTS];
};

/* All give nonzero after a line on standard error. A run that has been made, and is used until deinit(). */
int bench_stream_calls_init(struct bench_stream_calls *s, struct collet_library *collet, struct bench_device *device,
	struct bench_run *run, bool graph);
void bench_stream_calls_deinit(struct bench_stream_calls *s);

int bench_stream_calls_checked(struct bench_stream_calls *s, uint64_t *wrong, uint64_t *first);
/* elapsed_ns is the stream's. Launches of whole graphs: for their time what these iterations would have taken. */
int bench_stream_calls_batch(struct bench_stream_calls *s, uint64_t iterations, struct bench_times *times);
/* Samples the time from one event to the next, with a call between them; for a graph, the mean of its calls. */
int bench_stream_calls_samples(struct bench_stream_calls *s, uint64_t iterations, struct bench_samples *samples);
/* Sets *ns to the median time that a call takes of the caller's time. Not for graphs. */
int bench_stream_calls_host(struct bench_stream_calls *s, struct bench_samples *samples, int64_t *ns);

#endif
