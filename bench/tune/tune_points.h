/* Sweeps kept in a file, so that a tuning can be made of several that were measured at different times. */
#ifndef BENCH_TUNE_POINTS_H
#define BENCH_TUNE_POINTS_H

#include "tune_fit.h"

/* Appends one sweep, making the file if there is none. Nonzero after printing the reason. */
int tune_points_add(
	const char *path, const char *transport, uint32_t ranks, const struct tune_point *points, size_t count);

enum { TUNE_POINTS_MAX = 8192 };  /* of a world */

/* Merges the file's sweeps of this transport and number of ranks into points (tune_merge()), which have room for
 * TUNE_POINTS_MAX. A missing file has none. Nonzero, after printing why, if the file cannot be read. */
int tune_points_read(
	const char *path, const char *transport, uint32_t ranks, struct tune_point *points, size_t *count);

#endif
