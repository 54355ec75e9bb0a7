/* The parent's side of `tune limits`. */
#ifndef BENCH_TUNE_LIMITS_RUN_H
#define BENCH_TUNE_LIMITS_RUN_H

#include <stdio.h>

#include <collet/tools.h>

#include "options.h"
#include "tune_limits.h"

/* A folder of tunings that only this tune's ranks read. */
struct tune_folder {
	char path[64];               /* "": there is none */
};

/* Returns false, after printing why, if it cannot be made. */
bool tune_folder_init(struct tune_folder *folder);
void tune_folder_deinit(struct tune_folder *folder);

/* A world's limits, measured. */
struct tune_limits {
	struct tune_limit_point points[TUNE_LIMIT_POINTS];
	size_t count;
	uint32_t cores;              /* that the ranks had together */
};

/* Measures the limits of ranks that choose by these links, options->repeats times. Nonzero after printing the
 * reason. */
int tune_limits_measure(struct tune_limits *limits, const struct tune_folder *folder, const collet_link_cost *links,
	size_t count, const char *transport, uint32_t ranks, const struct bench_options *options, char **argv);

/* Prints the points, and what the limits of this link are by them beside what it has. */
void tune_limits_show(const struct tune_limits *limits, const collet_link_cost *link);

void tune_limits_write_json(FILE *json, const struct tune_limits *limits, const char *transport, uint32_t ranks);

/* Sets the link's limits by the points. */
void tune_limits_set(const struct tune_limits *limits, collet_link_cost *link);

/* Writes links into the folder; path is that of the file. Returns false after printing the reason. */
bool tune_folder_write(const struct tune_folder *folder, const char *name, const collet_link_cost *links, size_t count,
	char path[96]);

#endif
