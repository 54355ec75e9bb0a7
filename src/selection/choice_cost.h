/* Predicts how long a program takes, and chooses how to cut its messages, for the choice of programs. Times come from
 * the formulas and what was measured of a link. Where ranks share cores, they come from the total work of all ranks. */
#ifndef COLLET_SELECTION_CHOICE_COST_H
#define COLLET_SELECTION_CHOICE_COST_H

#include "selection/choice.h"
#include "selection/total_work.h"

/* The models that a program's cost for one shape is computed from. */
struct collet_cost_models {
	struct collet_cost_model model, local;
};

/* Cache of all ranks' total work, by program index, and of what else a table asks for many times. */
struct collet_work_cache {
	struct collet_total_work work[COLLET_TUNING_ALGORITHMS];
	bool is_counted[COLLET_TUNING_ALGORITHMS];
	/* Traffic through a host's link, for programs that are told of hosts and for those that are not. */
	double network_ratios[2][COLLET_TUNING_ALGORITHMS];
	uint32_t host_most, host_least; /* as in collet_shape */
	bool is_network_known[2][COLLET_TUNING_ALGORITHMS];
};

/* Returns the inputs for one collective: with the link of far cores where the bits of results do not depend on the
 * choice. Programs add the operands of more than two ranks in different orders, and a job must give the same bits
 * wherever its cores are. */
struct collet_choice_inputs collet_choice_inputs_for(
	const struct collet_choice_inputs *inputs, enum collet_collective collective);
/* Sets the models for calls of so many bytes. */
void collet_choice_set_models(
	struct collet_cost_models *models, const struct collet_choice_inputs *inputs, uint64_t bytes);
/* Returns true if measured factors and segmentations apply. They hold for the world they were measured in. If ranks
 * share cores, the number of context switches outweighs the number of ranks, and formulas know little of it. Then the
 * nearest measured world with as many cores is better than none. */
bool collet_choice_has_factors(const struct collet_choice_inputs *inputs);
/* Chooses how to cut this program's messages, and returns the cost: the measured optimum if there is one, else that of
 * the formulas. */
double collet_choice_best_segmentation(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, const struct collet_choice_inputs *inputs, const struct collet_cost_models *models,
	struct collet_work_cache *cache, struct collet_segmentation *segmentation, bool *measured);
/* Returns a program's predicted time. alone: by the formula and this world's link. Between two measured worlds it is
 * the geometric mean of what both predict, weighted by how near they are in the logarithm of ranks. */
double collet_choice_predicted_time(const struct collet_program *program, const struct collet_shape *shape,
	size_t element_bytes, uint64_t bytes, const struct collet_choice_inputs *inputs,
	const struct collet_cost_models *models, struct collet_segmentation segmentation,
	struct collet_work_cache *cache, double alone);

#endif
