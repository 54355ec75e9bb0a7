/* The rows of the proof: which program, world, count and circumstances, drawn from a seed. */
#ifndef COLLET_TESTS_ROWS_H
#define COLLET_TESTS_ROWS_H

#include "interpret.h"

/* How a row is run besides its program, world and count. */
enum variation {
	VARIATION_PIECES,   /* rendezvous, in many pieces, out of place, root 0 */
	VARIATION_IN_PLACE, /* rendezvous, in many pieces, in place, the rest drawn */
	VARIATION_ONE_SLOT, /* all drawn but the mode */
	VARIATION_REMOTE_READ,
	VARIATION_WHOLE, /* rendezvous, in one piece */
	VARIATIONS
};

/* COLLET_TEST_FULL=1: everything; else a sample. COLLET_TEST_SAMPLE takes a share of either. */
bool rows_all(void);
/* COLLET_TEST_SEED, or a fixed one. */
uint64_t rows_seed(void);

/* A call of this program in these circumstances, everything not given being drawn. */
struct call row_call(
	const struct collet_program *program, uint32_t size, uint64_t count, enum variation variation, uint64_t *seed);
/* Can it be called so? */
bool row_fits(const struct call *call, uint32_t size);
/* Runs it alone; fails the test, naming the row, if there is any defect. */
void row_prove(const struct call *call, uint32_t size, enum transfer_mode mode, uint64_t seed);
/* The same for several calls. */
void row_prove_all(const struct run *run, const char *what);

#endif
