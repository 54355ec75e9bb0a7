/* Decides which of two things takes longer, by times taken in turns. */
#ifndef BENCH_TUNE_VERDICT_H
#define BENCH_TUNE_VERDICT_H

#include <stddef.h>

enum { TUNE_VERDICT_TURNS = 64 };   /* at most */

/* a[k] and b[k] are times in turn k; 0: not in it. Returns the standard error of the logarithm of their ratio;
 * INFINITY with fewer than three common turns. */
double tune_standard_error(const double *a, const double *b, size_t turns);

/* Compares a lead (the logarithm of a ratio) with a limit of interest. */
enum tune_verdict { TUNE_WITHIN, TUNE_OPEN, TUNE_BEYOND };
enum tune_verdict tune_verdict(double lead, double standard_error, double limit);

#endif
