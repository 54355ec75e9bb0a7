/* Sweeps kept in a file, so that a tuning can be made of several that were measured at different times. */
#ifndef BENCH_TUNE_POINTS_H
#define BENCH_TUNE_POINTS_H

#include "tune_fit.h"

/* Appends one sweep, making the file if there is none. Nonzero, having said why: it could not. */
int tune_points_add(
	const char *path, const char *transport, uint32_t ranks, const struct tune_point *points, size_t count);

/* Merges the file's sweeps of this transport and number of ranks (tune_merge()); *sweeps of them, 0 if there is no
 * file. *points is to be freed; NULL for none. Nonzero, having said why: the file cannot be read. */
int tune_points_read(const char *path, const char *transport, uint32_t ranks, struct tune_point **points, size_t *count,
	uint32_t *sweeps);

#endif
