/* Runs ranks as threads of a test. */
#ifndef TESTS_THREAD_RANKS_H
#define TESTS_THREAD_RANKS_H

#include <collet/collet.h>

/* Runs body(comm, context) once for each rank, on a thread of its own, and returns when all have ended. Only the
 * caller's thread may assert: bodies leave their results in context. */
void thread_ranks_run(uint32_t ranks, void (*body)(collet_comm *comm, void *context), void *context);

#endif
