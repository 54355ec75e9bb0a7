/* How sure it is which of two things takes longer, by times taken in turns. */
#ifndef BENCH_TUNE_VERDICT_H
#define BENCH_TUNE_VERDICT_H

#include <stddef.h>

enum { TUNE_VERDICT_TURNS = 64 };   /* at most */

/* a[k] and b[k]: in turn k; 0: was not in it. The standard error of the logarithm of how many times as long the one
 * takes as the other; INFINITY if they have met in fewer than three turns. */
double tune_standard_error(const double *a, const double *b, size_t turns);

/* What to do about a lead (the logarithm of a ratio) of which a `limit` is of interest. */
enum tune_verdict { TUNE_WITHIN, TUNE_OPEN, TUNE_BEYOND };
enum tune_verdict tune_verdict(double lead, double standard_error, double limit);

#endif
