#include "strategy.h"

struct descent strategy_descent(const struct trainer *trainer)
{
	const struct options *options = trainer->options;
	return (struct descent){ .optimiser = options->optimiser, .weight_decay = options->weight_decay,
		.rate = schedule_rate(&trainer->schedule, trainer->steps_done), .momentum = options->momentum,
		.nesterov = options->nesterov, .step = trainer->steps_done + 1 };
}
