/* The hierarchical all-reduce of hosts whose ranks share a GPU: the host's first rank, its leader, has the GPU combine
 * what all of them have, exchanges the sum with the other hosts' leaders, and has the GPU hand out the result; all
 * three piece by piece, at the same time. */
#ifndef COLLET_COMM_HOSTED_H
#define COLLET_COMM_HOSTED_H

#include "comm/comm.h"
#include "device/direct.h"

/* The event `share` of device/direct.h. */
collet_status collet_hosted_share(struct collet_request *request, const struct collet_direct_local *local);

#endif
