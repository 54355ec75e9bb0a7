/* The rows of the proof: program, world, count and circumstances, drawn from a seed. */
#ifndef COLLET_TESTS_ROWS_H
#define COLLET_TESTS_ROWS_H

#include "interpret.h"

/* How a row is run, besides its program, world and count. */
enum variation {
	VARIATION_SEGMENTS, /* rendezvous, many segments, out of place, root 0 */
	VARIATION_IN_PLACE, /* rendezvous, many segments, in place, the rest drawn */
	VARIATION_ONE_SLOT, /* everything drawn but the mode */
	VARIATION_REMOTE_READ,
	VARIATION_WHOLE, /* rendezvous, one segment */
	VARIATIONS
};

/* Returns true if COLLET_TEST_FULL=1 asks for all rows instead of a sample. COLLET_TEST_SAMPLE takes a share of
 * either. */
bool rows_all(void);
/* Returns COLLET_TEST_SEED, or a fixed seed. */
uint64_t rows_seed(void);

/* Returns a call of this program in these circumstances; everything not given is drawn. */
struct call row_call(
	const struct collet_program *program, uint32_t size, uint64_t count, enum variation variation, uint64_t *seed);
/* Returns true if the call is possible. */
bool row_fits(const struct call *call, uint32_t size);
/* Runs one call; on a defect, fails the test and names the row. */
void row_prove(const struct call *call, uint32_t size, enum transfer_mode mode, uint64_t seed);
/* Does the same for several calls. */
void row_prove_all(const struct run *run, const char *what);

#endif
