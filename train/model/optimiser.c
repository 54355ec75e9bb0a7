#include "model/optimiser.h"

#include <math.h>

static void update_sgd(const struct element_range *range, const struct optimiser_inputs *inputs)
{
	float *restrict value = range->value, *restrict velocity = range->velocity;
	const float *restrict gradient = range->gradient;
	const float rate = inputs->rate, momentum = inputs->momentum, decay = inputs->weight_decay;
	for (uint64_t i = 0; i < range->count; i++) {
		const float slope = decay > 0 ? gradient[i] + decay * value[i] : gradient[i];
		velocity[i] = momentum * velocity[i] + slope;
		value[i] -= rate * (inputs->nesterov ? slope + momentum * velocity[i] : velocity[i]);
	}
}

static void update_adamw(const struct element_range *range, const struct optimiser_inputs *inputs)
{
	static const float mean_keeps = 0.9F, square_keeps = 0.999F, epsilon = 1e-8F;
	float *restrict value = range->value, *restrict mean = range->velocity,
			*restrict square = range->squares;
	const float *restrict gradient = range->gradient;
	const float shrink = 1 - inputs->rate * inputs->weight_decay;
	const float rate = (float)(inputs->rate / (1 - pow((double)mean_keeps, inputs->step)));
	const float root = (float)sqrt(1 - pow((double)square_keeps, inputs->step));
	for (uint64_t i = 0; i < range->count; i++) {
		mean[i] = mean_keeps * mean[i] + (1 - mean_keeps) * gradient[i];
		square[i] = square_keeps * square[i] + (1 - square_keeps) * gradient[i] * gradient[i];
		value[i] = value[i] * shrink - rate * mean[i] / (sqrtf(square[i]) / root + epsilon);
	}
}

void optimiser_update_range(const struct element_range *range, const struct optimiser_inputs *inputs)
{
	if (inputs->optimiser == OPTIMISER_SGD)
		update_sgd(range, inputs);
	else
		update_adamw(range, inputs);
}

void optimiser_update(const struct model *model, const struct optimiser_inputs *inputs)
{
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		const struct element_range range = { parameter->value, parameter->velocity, parameter->squares,
			parameter->gradient, parameter->count };
		optimiser_update_range(&range, inputs);
	}
}

float schedule_rate(const struct schedule *schedule, uint64_t step)
{
	double rate = schedule->rate;
	if (step < schedule->warmup)
		return (float)(rate * (double)(step + 1) / (double)(schedule->warmup + 1));
	switch (schedule->kind) {
	case SCHEDULE_CONSTANT:
		break;
	case SCHEDULE_STEP:
		rate *= pow((double)schedule->factor, (double)(step / schedule->every));
		break;
	case SCHEDULE_COSINE:
		if (step >= schedule->steps)
			return 0;
		rate *= (1 + cos(3.14159265358979323846 * (double)(step - schedule->warmup) /
				 (double)(schedule->steps - schedule->warmup))) / 2;
		break;
	}
	return (float)rate;
}
