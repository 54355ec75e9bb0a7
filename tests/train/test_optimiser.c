/* Optimisers and schedules against their formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/optimiser.h"

enum { COUNT = 37, STEPS = 60 };

/* Something that moves, and turns now and then. */
static double slope_at(uint32_t step, uint32_t i, double value)
{
	return 0.3 * value + sin(0.7 * step + i) * 0.05;
}

struct exact {
	double value[COUNT], velocity[COUNT], square[COUNT];
};

static void exact_step(struct exact *exact, const struct optimiser_inputs *inputs)
{
	for (uint32_t i = 0; i < COUNT; i++) {
		double gradient = slope_at(inputs->step, i, exact->value[i]);
		double *value = &exact->value[i], *velocity = &exact->velocity[i], *square = &exact->square[i];
		const double rate = (double)inputs->rate, decay = (double)inputs->weight_decay;
		const double momentum = (double)inputs->momentum;
		if (inputs->optimiser == OPTIMISER_SGD) {
			gradient += decay * *value;
			*velocity = momentum * *velocity + gradient;
			*value -= rate * (inputs->nesterov ? gradient + momentum * *velocity : *velocity);
			continue;
		}
		*value -= rate * decay * *value;
		*velocity = 0.9 * *velocity + 0.1 * gradient;
		*square = 0.999 * *square + 0.001 * gradient * gradient;
		*value -= rate * (*velocity / (1 - pow(0.9, inputs->step))) /
			(sqrt(*square / (1 - pow(0.999, inputs->step))) + 1e-8);
	}
}

static void steps_follow_the_formulas(void **state)
{
	static const struct optimiser_inputs rows[] = {
		{ .optimiser = OPTIMISER_SGD, .rate = 0.1F },
		{ .optimiser = OPTIMISER_SGD, .rate = 0.1F, .momentum = 0.9F },
		{ .optimiser = OPTIMISER_SGD, .rate = 0.1F, .momentum = 0.9F, .nesterov = true },
		{ .optimiser = OPTIMISER_SGD, .rate = 0.1F, .momentum = 0.5F, .weight_decay = 0.2F },
		{ .optimiser = OPTIMISER_SGD, .rate = 0.1F, .momentum = 0.5F, .weight_decay = 0.2F, .nesterov = true },
		{ .optimiser = OPTIMISER_ADAMW, .rate = 0.01F },
		{ .optimiser = OPTIMISER_ADAMW, .rate = 0.01F, .weight_decay = 0.5F },
	};
	double ends[sizeof(rows) / sizeof(rows[0])];
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		float values[COUNT], gradients[COUNT], velocities[COUNT] = { 0 }, squares[COUNT] = { 0 };
		struct exact exact = { 0 };
		struct model model = { .parameter_count = 1 };
		model.parameters[0] = (struct parameter){ .count = COUNT, .value = values, .gradient = gradients,
			.velocity = velocities, .squares = squares };
		for (uint32_t i = 0; i < COUNT; i++)
			exact.value[i] = values[i] = (float)i / COUNT - 0.5F;
		for (uint32_t step = 1; step <= STEPS; step++) {
			struct optimiser_inputs inputs = rows[row];
			inputs.step = step;
			for (uint32_t i = 0; i < COUNT; i++)
				gradients[i] = (float)slope_at(step, i, values[i]);
			optimiser_update(&model, &inputs);
			exact_step(&exact, &inputs);
		}
		for (uint32_t i = 0; i < COUNT; i++)
			if (!(fabs(values[i] - exact.value[i]) < 2e-5))
				fail_msg("row %zu: value %u is %g, not %g", row, i, values[i], exact.value[i]);
		ends[row] = values[3];
		/* And every option tells. */
		for (size_t other = 0; other < row; other++)
			assert_true(fabs(ends[other] - ends[row]) > 1e-4);
	}
}

static void rates_follow_their_schedules(void **state)
{
	static const struct {
		struct schedule schedule;
		uint64_t step;
		double rate;
	} rows[] = {
		{ { .kind = SCHEDULE_CONSTANT, .rate = 0.5F }, 12345, 0.5 },
		{ { .kind = SCHEDULE_CONSTANT, .rate = 0.5F, .warmup = 4 }, 0, 0.1 },
		{ { .kind = SCHEDULE_CONSTANT, .rate = 0.5F, .warmup = 4 }, 3, 0.4 },
		{ { .kind = SCHEDULE_CONSTANT, .rate = 0.5F, .warmup = 4 }, 4, 0.5 },
		{ { .kind = SCHEDULE_STEP, .rate = 0.5F, .every = 10, .factor = 0.1F }, 9, 0.5 },
		{ { .kind = SCHEDULE_STEP, .rate = 0.5F, .every = 10, .factor = 0.1F }, 10, 0.05 },
		{ { .kind = SCHEDULE_STEP, .rate = 0.5F, .every = 10, .factor = 0.1F }, 29, 0.005 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 100 }, 0, 0.5 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 100 }, 50, 0.25 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 100 }, 75, 0.5 * 0.14644660940672627 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 100 }, 100, 0 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 100, .warmup = 20 }, 60, 0.25 },
		{ { .kind = SCHEDULE_COSINE, .rate = 0.5F, .steps = 10, .warmup = 20 }, 9, 0.5 * 10 / 21 },
	};
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
		if (!(fabs(schedule_rate(&rows[row].schedule, rows[row].step) - rows[row].rate) < 1e-6))
			fail_msg("row %zu: %g, not %g", row, (double)schedule_rate(&rows[row].schedule, rows[row].step),
				rows[row].rate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_follow_the_formulas),
		cmocka_unit_test(rates_follow_their_schedules),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
