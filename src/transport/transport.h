/* The transports that are built in. What a transport is: <collet/transport.h>, the contract. */
#ifndef COLLET_TRANSPORT_TRANSPORT_H
#define COLLET_TRANSPORT_TRANSPORT_H

#include <collet/transport.h>

#include "core/log.h"
#include "topology/spot.h"

/* Every transport built in, best first; NULL ends. The index is the bit in collet_card.transport_bits. */
extern const struct collet_transport *const collet_transports[];

/* What transports may call. */
extern const struct collet_host collet_host_functions;

/* "shm,tcp" -> bits, all when NULL; COLLET_ERR_CONFIG naming those there are. */
collet_status collet_transports_parse(const char *text, uint32_t *bits);

#endif
