/* Reduces times taken in turns to one time each. */
#ifndef BENCH_TUNE_POLISH_H
#define BENCH_TUNE_POLISH_H

#include <stdbool.h>
#include <stddef.h>

/* Sorts the values and returns their median; of an even number, the mean of the middle two. */
double tune_median(double *values, size_t count);

/* time[i * turns + k] is the time of thing i in turn k; 0: it did not take part. Sets out[i] to the time of i in a
 * turn better than most; 0 if it never took part. Returns false without memory. */
bool tune_polish(const double *time, size_t things, size_t turns, double *out);

#endif
