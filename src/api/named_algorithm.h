/* Judges an algorithm that the caller names: whether it exists, and whether it can do a call. Every function that takes
 * a name gives the same reasons. */
#ifndef COLLET_API_NAMED_ALGORITHM_H
#define COLLET_API_NAMED_ALGORITHM_H

#include <collet/collet.h>

#include "collectives/program.h"

/* Finds the program of this name. function is the public function's name, for the error text. COLLET_ERR_ARGUMENT:
 * there is none; *program is unchanged. */
COLLET_MUST_USE collet_status collet_named_find(const char *function, enum collet_collective collective,
	const char *name, const struct collet_program **program);

/* Returns COLLET_OK, or COLLET_ERR_UNSUPPORTED with the reason for which the program cannot do a call of this shape.
 * commutes: the call's operation may combine operands in any order. */
COLLET_MUST_USE collet_status collet_named_check(const char *function, const struct collet_program *program,
	const struct collet_shape *shape, bool commutes);
/* Checks the scratch too that the call needs. */
COLLET_MUST_USE collet_status collet_named_check_scratch(const char *function, const struct collet_program *program,
	const struct collet_shape *shape, bool commutes, size_t element_bytes);

#endif
