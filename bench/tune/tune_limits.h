/* Fits the limits of a tuning that no formula gives. Messages between two ranks up to `eager` are sent eagerly;
 * longer ones use a rendezvous. Calls up to `inline` run inline; longer ones run as tasks. Both protocols are
 * measured at sizes around a possible limit, and the times decide. */
#ifndef BENCH_TUNE_LIMITS_H
#define BENCH_TUNE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tune_limit { TUNE_EAGER, TUNE_INLINE, TUNE_LIMITS };

enum {
	TUNE_LIMIT_LEAST = 16 << 10,      /* the least and the most bytes that are measured, powers of two between */
	TUNE_LIMIT_MOST = 256 << 10,
	TUNE_LIMIT_USUAL = 64 << 10,      /* of a tuning without such a line */
	TUNE_LIMIT_NONE = 1 << 10,        /* the least that a tuning may say: below all that is measured */
	TUNE_LIMIT_POINTS = 64
};

/* One call of one size, with both protocols. */
struct tune_limit_point {
	char call[24];               /* "sendrecv": of TUNE_EAGER; any other: of TUNE_INLINE */
	uint64_t bytes;
	double once_ns;              /* at once, in one go: as up to the limit */
	double otherwise_ns;         /* as beyond it */
	uint32_t runs;               /* so often: the geometric means */
};

/* "eager", "inline": as the tuning has it. */
const char *tune_limit_name(enum tune_limit limit);

/* Reads what rank 0 printed of one point. False: it is no such line. */
bool tune_limit_read(const char *line, struct tune_limit_point *point);

/* Takes in one more run's point; returns how many there are then, at most `most`. */
size_t tune_limit_merge(struct tune_limit_point *points, size_t count, size_t most,
	const struct tune_limit_point *more);

/* Is the point one by which this limit is set? */
bool tune_limit_has(enum tune_limit limit, const struct tune_limit_point *point);

/* Returns the geometric mean of times with the limit `to` over times with `from`, for calls that differ between the
 * two. 1 if none was measured. */
double tune_limit_between(
	const struct tune_limit_point *points, size_t count, enum tune_limit limit, uint64_t from, uint64_t to);

/* Returns the limit with which all points together take the least. The usual limit stays unless another takes
 * TUNE_GAIN of its time or less. 0 without points. */
uint32_t tune_limit_choose(const struct tune_limit_point *points, size_t count, enum tune_limit limit);

#endif
