/* A call's buffers on a GPU that transports reach themselves: a carrier, the owner of engine/gdr.h. */
#ifndef COLLET_COMM_REACHED_H
#define COLLET_COMM_REACHED_H

#include "comm/carrier.h"

extern const struct collet_carrier collet_reached_carrier;

/* Would the connections to all other ranks of the group take GPU memory, as far as their cards tell? */
bool collet_reached_all(const struct collet_group *group);

#endif
