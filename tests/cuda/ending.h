/* Ways of being told that a call on GPU memory has ended: by its return, by a request, or by on_end(). */
#ifndef TESTS_CUDA_ENDING_H
#define TESTS_CUDA_ENDING_H

#include <stdatomic.h>

#include "ranks.h"

struct ending {
	collet_request *request;
	atomic_bool is_told;
	collet_status status;
};

/* Has the call return at once: as a request, or told by on_end(). Must stay valid until ending_wait(). */
void ending_use(struct ending *ending, collet_how *how, bool by_on_end);
/* Waits for the end, whatever was asked for. False, and reported, if the call has failed. */
bool ending_wait(struct rank *rank, struct ending *ending, const collet_how *how);

#endif
