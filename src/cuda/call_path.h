/* Chooses the path of a checked collective whose buffers may be in host or GPU memory. Only call_path.c decides in
 * which order paths are tried. path_rules.h has the sizes that paths depend on, and the inputs of the choice of an
 * algorithm. */
#ifndef COLLET_CUDA_CALL_PATH_H
#define COLLET_CUDA_CALL_PATH_H

#include "api/call.h"

/* Runs, starts or enqueues the call, as api/offload.h says. */
collet_status collet_call_dispatch(collet_comm *comm, struct collet_checked_call *call);

#endif
