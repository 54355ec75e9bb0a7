#include "api/named_algorithm.h"

#include "core/status.h"
#include "core/suggestion.h"
#include "engine/comm_state.h"
#include "selection/choice.h"

collet_status collet_named_find(const char *function, enum collet_collective collective, const char *name,
	const struct collet_program **program)
{
	const struct collet_program *found = collet_program_find(collective, name);
	if (!found)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: there is no algorithm \"%s\"%s for %s; see collet-bench list", function, name,
			collet_suggest(collet_program_closest(collective, name)).text,
			collet_collective_name(collective));
	*program = found;
	return COLLET_OK;
}

collet_status collet_named_check(
	const char *function, const struct collet_program *program, const struct collet_shape *shape, bool commutes)
{
	const bool is_vector = shape->input.kind == COLLET_PARTITION_VECTOR ||
			       shape->result.kind == COLLET_PARTITION_VECTOR;
	const char *why = collet_program_refusal(program, shape);
	if (!why && !commutes && !program->rank_ordered)
		why = "does not combine in rank order, and the operation does not commute";
	if (!why && is_vector && !program->has_vector_form)
		why = "does not do v-forms";
	return why ? collet_fail(COLLET_ERR_UNSUPPORTED, "%s: algorithm %s %s", function, program->name, why)
		   : COLLET_OK;
}

collet_status collet_named_check_scratch(const char *function, const struct collet_program *program,
	const struct collet_shape *shape, bool commutes, size_t element_bytes)
{
	const collet_status status = collet_named_check(function, program, shape, commutes);
	if (status != COLLET_OK)
		return status;
	const uint64_t scratch = collet_program_max_scratch(program, *shape);
	if (scratch > COLLET_SCRATCH_BYTES / element_bytes)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: algorithm %s needs %llu elements of scratch for this call, more than "
			"the %d MiB there are; it is for smaller messages",
			function, program->name, (unsigned long long)scratch, COLLET_SCRATCH_BYTES >> 20);
	return COLLET_OK;
}
