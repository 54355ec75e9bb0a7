/* Chooses the path of a checked collective to its buffers, which may be the host's or a GPU's. call_path.c has the
 * paths in the order in which they are asked, and nowhere else is that decided. path_rules.h has the sizes that they
 * depend on, and says what an algorithm is chosen by. */
#ifndef COLLET_CUDA_CALL_PATH_H
#define COLLET_CUDA_CALL_PATH_H

#include "api/call.h"

/* Runs, starts or enqueues the call, as api/offload.h says. */
collet_status collet_call_dispatch(collet_comm *comm, struct collet_checked_call *call);

#endif
