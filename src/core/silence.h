/* Tells a host that is switched off from a peer that only reads slowly. */
#ifndef COLLET_CORE_SILENCE_H
#define COLLET_CORE_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

/* True if a TCP connection has unacknowledged bytes and the peer's host has not answered many probes for this long.
 * The kernel of a stopped or slow peer answers. False for other sockets. */
bool collet_host_is_silent(int socket, uint32_t silence_ms);

#endif
