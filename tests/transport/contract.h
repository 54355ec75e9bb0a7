/* Declares the contract suite, which tests what collet/transport.h promises on any transport. */
#ifndef TESTS_TRANSPORT_CONTRACT_H
#define TESTS_TRANSPORT_CONTRACT_H

#include "pair.h"

/* Each runs one part on these transports, without the rows that need what a transport does not have. The last subject
 * has no name. Returns the number of failed rows. */
int contract_messages(const struct subject *subjects);
int contract_ends(const struct subject *subjects);
int contract_threads(const struct subject *subjects);

#endif
