/* Judges by ratios. Each turn that both took part in gives one ratio, free of that turn's slowness. The median of
 * the ratios counts (tune_polish.c). So the standard error is that of a median: 1.25 times that of a mean. The
 * standard deviation comes from the median distance to the median, which one disturbed turn does not change. */
#include "tune_verdict.h"

#include <assert.h>
#include <math.h>

#include "tune_polish.h"

/* A median's standard error beside a mean's; a standard deviation beside the median distance. Both of normal errors. */
static const double of_median = 1.2533, of_distance = 1.4826;
/* Turns that agree by chance are no proof. */
static const double least_error = 0.003;
/* This many standard errors decide: one verdict in twenty is wrong. */
static const double sure = 2;

double tune_standard_error(const double *a, const double *b, size_t turns)
{
	double ratio[TUNE_VERDICT_TURNS];
	size_t count = 0;
	assert(turns <= TUNE_VERDICT_TURNS);
	for (size_t k = 0; k < turns; k++)
		if (a[k] > 0 && b[k] > 0)
			ratio[count++] = log(a[k] / b[k]);
	if (count < 3)
		return INFINITY;
	const double middle = tune_median(ratio, count);
	for (size_t k = 0; k < count; k++)
		ratio[k] = fabs(ratio[k] - middle);
	const double standard_error = of_median * of_distance * tune_median(ratio, count) / sqrt((double)count);
	return standard_error > least_error ? standard_error : least_error;
}

enum tune_verdict tune_verdict(double lead, double standard_error, double limit)
{
	if (lead - sure * standard_error > limit)
		return TUNE_BEYOND;
	return lead + sure * standard_error > limit ? TUNE_OPEN : TUNE_WITHIN;
}
