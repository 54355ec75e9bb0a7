/* How fast the network is that an interface is on, as its driver says. */
#ifndef COLLET_BOOTSTRAP_INTERFACE_SPEED_H
#define COLLET_BOOTSTRAP_INTERFACE_SPEED_H

#include "bootstrap/address.h"

/* Of the interface that has this address, in Mb/s; 0: it is not known, for there is none, its link is down, or nobody
 * but software is behind it. */
uint32_t collet_interface_mbps(const struct collet_address *address);

/* What is believed of a driver's word; 0: nothing. Pure. */
uint32_t collet_driver_mbps(const char *driver, uint32_t mbps);

#endif
