/* Asks the library whether it knows the transports of --transport, before any rank is started. */
#ifndef BENCH_TRANSPORT_CHECK_H
#define BENCH_TRANSPORT_CHECK_H

/* Creates a communicator of one rank in a process of its own, so that nothing of the library is used here. Returns 2
 * after the library's sentence if it refuses the names. Else returns 0: other failures are the ranks' to report. */
int bench_transport_check(const char *transports);

#endif
