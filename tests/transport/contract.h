/* The contract suite: what collet/transport.h promises, held against any transport. One body, a row for each. */
#ifndef TESTS_TRANSPORT_CONTRACT_H
#define TESTS_TRANSPORT_CONTRACT_H

#include "pair.h"

/* Each runs a part on these transports (NULL ends); how many rows failed. */
int contract_messages(const char *const *names);
int contract_ends(const char *const *names);
int contract_threads(const char *const *names);

#endif
