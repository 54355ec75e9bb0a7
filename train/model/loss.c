#include "model/loss.h"

#include <math.h>

void loss_cross_entropy(const float *outputs, const uint8_t *labels, uint32_t count, uint32_t classes,
	struct outcome *outcome, float *gradient)
{
	*outcome = (struct outcome){ 0 };
	for (uint32_t i = 0; i < count; i++) {
		const float *row = outputs + (size_t)i * classes;
		uint32_t best = 0;
		for (uint32_t c = 1; c < classes; c++)
			if (row[c] > row[best])
				best = c;
		double sum = 0;  /* at least 1: the largest output is subtracted, so that exp() cannot overflow */
		for (uint32_t c = 0; c < classes; c++)
			sum += exp((double)row[c] - (double)row[best]);
		const double log_sum = log(sum) + (double)row[best];
		outcome->loss += log_sum - (double)row[labels[i]];
		outcome->correct += best == labels[i];
		for (uint32_t c = 0; gradient && c < classes; c++) {
			double share = exp((double)row[c] - log_sum) - (c == labels[i]);
			gradient[(size_t)i * classes + c] = (float)(share / count);
		}
	}
}
