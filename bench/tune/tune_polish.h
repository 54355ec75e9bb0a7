/* From times taken in turns to one time each. */
#ifndef BENCH_TUNE_POLISH_H
#define BENCH_TUNE_POLISH_H

#include <stdbool.h>
#include <stddef.h>

/* Of one or more; of an even number the mean of both in the middle. Sorts them. */
double tune_median(double *values, size_t count);

/* time[i * turns + k]: of thing i in turn k; 0: it did not take part. Sets out[i] to what i would have taken in a turn
 * that is better than most; 0 where it never took part. False: no memory. */
bool tune_polish(const double *time, size_t things, size_t turns, double *out);

#endif
