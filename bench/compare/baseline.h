/* Compares with a run of compare that --json wrote earlier, to find out whether collet became slower. The machine
 * may have changed between two runs, so times are not comparable. The ratio of collet to the same peer is. */
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H

#include <stdio.h>

#include "judge.h"

/* The case that a ratio belongs to. Two cases are equal if all members are. */
struct bench_case {
	char collective[32], transport[32], dtype[16], op[16], buffers[16];
	char cores[8];         /* "near", "far"; "": unknown */
	uint32_t ranks;
	uint64_t bytes;
	bool in_place;
};

/* collet's time to one peer variant's. */
struct bench_standing {
	char peer[64];
	struct bench_case at;
	struct bench_ratio ratio;
};

struct bench_baseline {
	struct bench_standing *standings;
	size_t count, capacity;
};

/* Reads every line that has a ratio. Returns false after printing the reason: no file, or no ratio in it. */
bool bench_baseline_read(struct bench_baseline *baseline, const char *path);
void bench_baseline_deinit(struct bench_baseline *baseline);
/* Keeps a copy. False: out of memory. */
bool bench_baseline_add(struct bench_baseline *baseline, const struct bench_standing *standing);

/* Compares every case with the earlier run, and prints the result. Returns how many became slower, or -1, after a
 * message, if the runs have no case and peer in common. */
int bench_baseline_compare(const struct bench_baseline *then, const struct bench_baseline *now, FILE *out);

#endif
