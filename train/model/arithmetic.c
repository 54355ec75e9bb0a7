#include "model/arithmetic.h"

#include <stddef.h>

enum { LANES = 8 };

/* A scale that is an f32 is exact in the product of doubles, so that both loops round alike. */
static void add_narrow(float *to, const float *a, const float *b, float scale, uint64_t count)
{
	for (uint64_t i = 0; b && i < count; i++)
		to[i] = (a[i] + b[i]) * scale;
	for (uint64_t i = 0; !b && i < count; i++)
		to[i] = a[i] * scale;
}

void arithmetic_add(float *to, const float *a, const float *b, double scale, uint64_t count)
{
	if ((double)(float)scale == scale) {
		add_narrow(to, a, b, (float)scale, count);
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		const float sum = b ? a[i] + b[i] : a[i];
		to[i] = (float)((double)sum * scale);
	}
}

static double squares(const float *x, uint64_t count)
{
	double sums[LANES] = { 0 };
	uint64_t i = 0;
	for (; i + LANES <= count; i += LANES)
		for (size_t step_comm = 0; step_comm < LANES; step_comm++)
			sums[step_comm] += (double)x[i + step_comm] * (double)x[i + step_comm];
	for (size_t step_comm = 0; i < count; i++, step_comm++)
		sums[step_comm] += (double)x[i] * (double)x[i];
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double arithmetic_squares(const struct array *arrays, uint32_t array_count)
{
	double sum = 0;
	for (uint32_t a = 0; a < array_count; a++)
		sum += squares(arrays[a].first, arrays[a].count);
	return sum;
}
