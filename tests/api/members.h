/* Checks who is in a communicator, for tests of those that are made of some ranks of another. */
#ifndef COLLET_TESTS_API_MEMBERS_H
#define COLLET_TESTS_API_MEMBERS_H

#include "ranks.h"

/* Checks the members, all of one host, and their order: each contributes its rank in the whole. */
bool members_are(struct rank *rank, collet_comm *comm, const uint32_t *wanted, uint32_t count);

#endif
