#include "training_model.h"

#include <string.h>

#include <collet/tools.h>

static const char *const names[TRAINING_STRATEGIES] = {
	[TRAINING_ALLREDUCE] = "allreduce",
	[TRAINING_GATHER] = "gather",
	[TRAINING_DATA_PARALLEL] = "data-parallel",
	[TRAINING_PARAMETER_SERVER] = "parameter-server",
	[TRAINING_ASYNC] = "async",
	[TRAINING_GOSSIP] = "gossip",
	[TRAINING_LOCAL_SGD] = "local-sgd",
	[TRAINING_SHARDED] = "sharded",
};

const char *training_strategy_name(enum training_strategy strategy)
{
	return strategy < TRAINING_STRATEGIES ? names[strategy] : "?";
}

enum training_strategy training_strategy_find(const char *name)
{
	enum training_strategy strategy = 0;
	while (strategy < TRAINING_STRATEGIES && strcmp(names[strategy], name) != 0)
		strategy++;
	return strategy;
}

/* The cheapest algorithm's time; a failure is kept in *fine. bytes as tools.h counts them. */
static double seconds_of(
	const char *collective, uint32_t ranks, double bytes, const char *transport, bool *fine)
{
	collet_algorithm_info algorithms[COLLET_TUNING_ALGORITHMS];
	size_t count;
	const collet_call_shape shape = { .collective = collective, .ranks = ranks, .dtype = COLLET_F32,
		.op = COLLET_SUM, .cores = ranks };
	double best = -1, ns;
	if (ranks == 1 || collet_algorithm_list(collective, algorithms, COLLET_TUNING_ALGORITHMS, &count) != COLLET_OK)
		return 0;
	for (size_t a = 0; a < count; a++)
		if (collet_cost_predict(&shape, algorithms[a].name, transport, NULL, (uint64_t)bytes, &ns) == COLLET_OK
			&& (best < 0 || ns < best))
			best = ns;
	*fine = *fine && best >= 0;
	return best * 1e-9;
}

/* One message between two ranks is what a broadcast is. */
static double message_s(const struct training_facts *facts, double bytes, bool *fine)
{
	return seconds_of("broadcast", 2, bytes, facts->transport, fine);
}

/* Adds up the transfers of a step, one after the other. Gathers count their result, scatters their input. */
static double travel_s(enum training_strategy strategy, const struct training_facts *f, uint32_t n, uint32_t workers,
	bool *fine)
{
	const double m = f->model_bytes;
	const char *t = f->transport;
	switch (strategy) {
	case TRAINING_ALLREDUCE: return seconds_of("allreduce", n, m, t, fine);
	case TRAINING_GATHER: return seconds_of("gather", n, n * m, t, fine) + seconds_of("broadcast", n, m, t, fine);
	case TRAINING_DATA_PARALLEL:
		return seconds_of("broadcast", n, m, t, fine) + seconds_of("scatter", n, n * f->batch_bytes, t, fine) +
			seconds_of("reduce", n, m, t, fine);
	/* A server takes its workers' messages one after the other, and answers likewise. */
	case TRAINING_PARAMETER_SERVER: return 2 * workers * message_s(f, m / f->servers, fine);
	case TRAINING_ASYNC: return 2 * f->servers * message_s(f, m / f->servers, fine);
	case TRAINING_GOSSIP: return (n > 2 ? 2 : n - 1) * message_s(f, m, fine);
	case TRAINING_LOCAL_SGD: return seconds_of("allreduce", n, m, t, fine) / f->local_steps;
	case TRAINING_SHARDED:
		return seconds_of("reduce_scatter", n, m, t, fine) + seconds_of("allgather", n, m, t, fine);
	case TRAINING_STRATEGIES: break;
	}
	return 0;
}

/* The mean over all ranks, servers included. */
static double bytes_sent(enum training_strategy strategy, const struct training_facts *f, uint32_t n, uint32_t workers)
{
	const double m = f->model_bytes, others = (double)(n - 1) / n;
	switch (strategy) {
	case TRAINING_ALLREDUCE:
	case TRAINING_SHARDED:
	case TRAINING_GATHER: return 2 * others * m;
	case TRAINING_DATA_PARALLEL: return others * (2 * m + f->batch_bytes);
	case TRAINING_PARAMETER_SERVER:
	case TRAINING_ASYNC: return 2 * m * workers / n;
	case TRAINING_GOSSIP: return n > 2 ? 2 * m : (n - 1) * m;
	case TRAINING_LOCAL_SGD: return 2 * others * m / f->local_steps;
	case TRAINING_STRATEGIES: break;
	}
	return 0;
}

bool training_predict(enum training_strategy strategy, const struct training_facts *facts, uint32_t ranks,
	struct training_prediction *prediction)
{
	const bool served = strategy == TRAINING_PARAMETER_SERVER || strategy == TRAINING_ASYNC;
	bool fine = true;
	if (served && facts->servers >= ranks)
		return false;
	struct training_prediction p = { .workers = served ? ranks - facts->servers : ranks };
	p.step_s = facts->compute_s + (1 - facts->hidden) * travel_s(strategy, facts, ranks, p.workers, &fine);
	if (strategy == TRAINING_ASYNC) {
		/* Workers do not wait for each other, but a server has only so much time for each. */
		const double served_s = 2 * p.workers * message_s(facts, facts->model_bytes / facts->servers, &fine);
		p.step_s = served_s > p.step_s ? served_s : p.step_s;
	}
	p.efficiency = p.workers * facts->compute_s / (p.step_s * ranks);
	p.bytes = bytes_sent(strategy, facts, ranks, p.workers);
	if (fine)
		*prediction = p;
	return fine;
}
