/* Selects a share of a test's rows, where all of them would take too long, as under sanitizers.
 *
 * COLLET_TEST_SAMPLE=k/n runs about k of n rows; COLLET_TEST_SEED selects which. Without it all run. COLLET_TEST_PART
 * is the same, of tests that always run a share of their rows: both multiply. */
#ifndef COLLET_TESTS_SUPPORT_SAMPLE_H
#define COLLET_TESTS_SUPPORT_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* True if the sample has this row. Numbers are the test's own, and have the same answer in every process. */
bool sample_has(uint64_t row);
/* True if the sample of a table of `rows` rows has this one; every sample has at least one of them. */
bool sample_of(uint64_t rows, uint64_t row);
/* Returns the first row of the sample from this one on. */
uint64_t sample_from(uint64_t row);
/* Returns the expected number of rows in a sample of `rows`, rounded down. */
uint64_t sample_share(uint64_t rows);

#endif
