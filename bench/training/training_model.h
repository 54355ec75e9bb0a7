/* Predicts the cost of a step of data-parallel training with more ranks, by strategy. It is pure arithmetic on the
 * library's cost model. tests/bench/test_training.c checks it, and docs/training.md has the table. */
#ifndef BENCH_TRAINING_MODEL_H
#define BENCH_TRAINING_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum training_strategy {
	TRAINING_ALLREDUCE,
	TRAINING_GATHER,
	TRAINING_DATA_PARALLEL,
	TRAINING_PARAMETER_SERVER,
	TRAINING_ASYNC,
	TRAINING_GOSSIP,
	TRAINING_LOCAL_SGD,
	TRAINING_SHARDED,
	TRAINING_STRATEGIES
};

/* Returns the name as collet-train --strategy spells it; "?" if out of range. */
const char *training_strategy_name(enum training_strategy strategy);
/* TRAINING_STRATEGIES: there is none of this name. */
enum training_strategy training_strategy_find(const char *name);

struct training_facts {
	const char *transport;      /* whose built-in cost counts */
	double model_bytes;         /* of gradients, or weights */
	double batch_bytes;         /* of a rank's images */
	double compute_s;           /* of a step on a rank that is alone */
	double hidden;              /* of what travels, the share that computing hides */
	uint32_t servers, local_steps;
};

struct training_prediction {
	uint32_t workers;           /* ranks that train */
	double step_s;
	double efficiency;          /* images/s by those of as many ranks that would not wait for each other */
	double bytes;               /* that a rank sends in a step, in the mean */
};

/* All ranks on one host, with a core each. False: the strategy cannot do with so few ranks, or (collet_last_error())
 * the transport has no cost. */
bool training_predict(enum training_strategy strategy, const struct training_facts *facts, uint32_t ranks,
	struct training_prediction *prediction);

#endif
