/* Reads the machine's load and the ranks' part in it from the kernel. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <sys/types.h>

#include "judge.h"

/* Counters at one moment. */
struct bench_load_mark {
	double clock_ns, idle_ns, own_ns, waited_ns, helpers_ns;
	uint64_t starts;
	uint64_t loopback_bytes;   /* that lo has received, all processes' */
};

/* Reads them for the ranks with these process ids; what the kernel does not tell stays 0. */
void bench_load_read(struct bench_load_mark *mark, const pid_t *ranks, uint32_t count);
/* Reads them for the calling thread, which is a rank's main thread; own_ns is all of its process. */
void bench_load_read_self(struct bench_load_mark *mark);
/* Fills the activity between two marks of the same ranks. */
struct bench_load bench_load_between(
	const struct bench_load_mark *before, const struct bench_load_mark *after, bool pinned);

#endif
