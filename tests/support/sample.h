/* A share of a test's rows: where all of them would take too long, as under sanitizers.
 *
 * COLLET_TEST_SAMPLE=k/n: of n rows about k are run; which, COLLET_TEST_SEED says. Without it all are. */
#ifndef COLLET_TESTS_SUPPORT_SAMPLE_H
#define COLLET_TESTS_SUPPORT_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* Does the sample have this row? Numbers are the test's own; the same ones get the same answer in every process. */
bool sample_has(uint64_t row);
/* The first row from this one on that the sample has. */
uint64_t sample_from(uint64_t row);
/* How many of `rows` are to be expected in a sample, rounded down. */
uint64_t sample_share(uint64_t rows);

#endif
