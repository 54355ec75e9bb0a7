/* Which bytes really crossed the loopback interface: the proof that a library used the transport it was told to. */
#ifndef BENCH_LOOPBACK_H
#define BENCH_LOOPBACK_H

#include <stdint.h>

/* Bytes that `lo` has received since the machine started, all processes'; 0 when the kernel does not tell. */
uint64_t bench_loopback_bytes(void);

/* Does a call of so many bytes over lo contradict the transport that was asked for? "tcp" must carry at least half of
 * the message there, "shm" less than that; small messages and other transports prove nothing. Returns what is wrong, or
 * NULL. */
const char *bench_loopback_contradiction(const char *transport, uint64_t message_bytes, double loopback_bytes);

#endif
