/* Access to the internals of the two ends of a pair that uses verbs. For tests in the virtual machine of tests/vm,
 * which has two RDMA devices. */
#ifndef TESTS_TRANSPORT_VERBS_ENDS_H
#define TESTS_TRANSPORT_VERBS_ENDS_H

#include "pair.h"
#include "transport/verbs/verbs_endpoint.h"

static inline struct verbs_endpoint *verbs_of(const struct pair *pair, int which)
{
	return (struct verbs_endpoint *)pair->ends[which].endpoint;
}

static inline void post_send(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_send(end->endpoint, transfer);
}

static inline void post_recv(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_recv(end->endpoint, transfer);
}

/* Sends a message from end 0 to end 1 and checks it. */
void exchange(struct pair *pair, uint64_t sequence, uint8_t *from, uint8_t *into, size_t bytes);
/* Closes both endpoints and opens new ones on the same devices. */
void reopen(struct pair *pair);

#endif
