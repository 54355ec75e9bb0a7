/* Chooses the algorithm for averages of narrow floats. Programs that send partial sums send them as f32, so their
 * messages are longer than the table thinks. Programs that reduce once send the elements themselves. */
#include "core/types.h"
#include "selection/choice.h"

size_t collet_message_element_bytes(
	const struct collet_program *program, const struct collet_shape *shape, collet_dtype dtype, collet_op op)
{
	const bool is_wide = collet_collective_is_reduction(program->collective) &&
			     collet_op_averages_narrow(op, dtype) && !collet_program_reduces_once(program, shape);
	return is_wide ? sizeof(float) : collet_dtype_bytes(dtype);
}

static double cost_of(const struct collet_choice_inputs *inputs, const struct collet_decision *decision,
	const struct collet_shape *shape, size_t element_bytes)
{
	const struct collet_segmentation segmentation = { decision->segment_bytes, decision->channels };
	return collet_choice_cost(inputs, decision->program, shape, element_bytes, segmentation);
}

struct collet_decision collet_choose_average(const struct collet_choice_inputs *inputs,
	struct collet_choice_table *table, enum collet_collective collective, const struct collet_shape *given,
	size_t element_bytes, bool once)
{
	struct collet_shape first = *given;
	const struct collet_shape *shape = &first;
	first.rank = 0; /* all ranks choose alike */
	const bool is_vector = given->result.kind == COLLET_PARTITION_VECTOR;
	struct collet_decision best = collet_choose(table, collective, true, shape, element_bytes);
	if (collet_program_reduces_once(best.program, shape))
		return best;
	best = collet_choose(table, collective, true, shape, sizeof(float));
	bool found = !once && !is_vector;
	double least = found ? cost_of(inputs, &best, shape, sizeof(float)) : 0;
	size_t count;
	const struct collet_program *const *programs = collet_programs(collective, &count);
	for (size_t i = 0; i < count; i++) {
		if (!collet_program_reduces_once(programs[i], shape) || !collet_program_fits(programs[i], shape) ||
			(is_vector && !programs[i]->has_vector_form))
			continue;
		const struct collet_decision other =
			collet_choose_segmentation(inputs, programs[i], shape, element_bytes);
		const double cost = cost_of(inputs, &other, shape, element_bytes);
		if (found && cost >= least)
			continue;
		found = true;
		least = cost;
		best = other;
	}
	return best;
}
