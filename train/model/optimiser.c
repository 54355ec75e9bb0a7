#include "model/optimiser.h"

#include <math.h>

static void descend_sgd(const struct stretch *stretch, const struct descent *descent)
{
	float *restrict value = stretch->value, *restrict velocity = stretch->velocity;
	const float *restrict gradient = stretch->gradient;
	const float rate = descent->rate, momentum = descent->momentum, decay = descent->weight_decay;
	for (uint64_t i = 0; i < stretch->count; i++) {
		const float slope = decay > 0 ? gradient[i] + decay * value[i] : gradient[i];
		velocity[i] = momentum * velocity[i] + slope;
		value[i] -= rate * (descent->nesterov ? slope + momentum * velocity[i] : velocity[i]);
	}
}

static void descend_adamw(const struct stretch *stretch, const struct descent *descent)
{
	static const float mean_keeps = 0.9F, square_keeps = 0.999F, epsilon = 1e-8F;
	float *restrict value = stretch->value, *restrict mean = stretch->velocity,
			*restrict square = stretch->squares;
	const float *restrict gradient = stretch->gradient;
	const float shrink = 1 - descent->rate * descent->weight_decay;
	const float rate = (float)(descent->rate / (1 - pow((double)mean_keeps, descent->step)));
	const float root = (float)sqrt(1 - pow((double)square_keeps, descent->step));
	for (uint64_t i = 0; i < stretch->count; i++) {
		mean[i] = mean_keeps * mean[i] + (1 - mean_keeps) * gradient[i];
		square[i] = square_keeps * square[i] + (1 - square_keeps) * gradient[i] * gradient[i];
		value[i] = value[i] * shrink - rate * mean[i] / (sqrtf(square[i]) / root + epsilon);
	}
}

void optimiser_descend_stretch(const struct stretch *stretch, const struct descent *descent)
{
	if (descent->optimiser == OPTIMISER_SGD)
		descend_sgd(stretch, descent);
	else
		descend_adamw(stretch, descent);
}

void optimiser_descend(const struct model *model, const struct descent *descent)
{
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		const struct stretch stretch = { parameter->value, parameter->velocity, parameter->squares,
			parameter->gradient, parameter->count };
		optimiser_descend_stretch(&stretch, descent);
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
