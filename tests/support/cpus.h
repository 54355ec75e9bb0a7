/* Finds hardware threads to which a test's ranks can be bound. */
#ifndef COLLET_TESTS_SUPPORT_CPUS_H
#define COLLET_TESTS_SUPPORT_CPUS_H

#include <stdbool.h>

/* Returns the first two that this process may use; false if it may use only one. */
bool test_two_cpus(int cpus[2]);

#endif
