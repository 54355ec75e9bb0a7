/* Declares the contract suite, which tests what collet/transport.h promises on any transport. */
#ifndef TESTS_TRANSPORT_CONTRACT_H
#define TESTS_TRANSPORT_CONTRACT_H

#include "pair.h"

/* Each runs one part on these transports (terminated by NULL), and returns the number of failed rows. */
int contract_messages(const char *const *names);
int contract_ends(const char *const *names);
int contract_threads(const char *const *names);

#endif
