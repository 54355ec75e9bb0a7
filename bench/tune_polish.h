/* From times taken in turns to one time each. */
#ifndef BENCH_TUNE_POLISH_H
#define BENCH_TUNE_POLISH_H

#include <stdbool.h>
#include <stddef.h>

/* time[i * turns + k]: of thing i in turn k; 0: it did not take part. Sets out[i] to what i would have taken in a turn
 * that is better than most; 0 where it never took part. False: no memory. */
bool tune_polish(const double *time, size_t things, size_t turns, double *out);

#endif
