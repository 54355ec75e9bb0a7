/* Which way a checked collective goes to its buffers, which may be the host's or a GPU's: call_path.c has the ways in
 * the order in which they are asked, and nowhere else is that decided. What is large or small for them, and which
 * algorithm they take, path_rules.h says. */
#ifndef COLLET_CUDA_CALL_PATH_H
#define COLLET_CUDA_CALL_PATH_H

#include "cuda/staging/gpu_staging.h"

struct collet_checked_call {
	struct collet_call_arguments *arguments;
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS];
	const struct collet_partition *vector; /* recv is written in these blocks alone; NULL: all of it is */
	const collet_how *how;               /* NULL: the default */
};

/* A way. *taken false: the call is not for it, nothing has happened, and the next is asked. Else this is the call's
 * status: it has been made, or started (how.request), or is on its stream (how.stream), or a mistake has been found. */
typedef collet_status collet_call_path(collet_comm *comm, struct collet_checked_call *call, bool *claimed);

collet_status collet_call_dispatch(collet_comm *comm, struct collet_checked_call *call);

#endif
