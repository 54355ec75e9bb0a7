/* Reads the link speed of a network interface from its driver. */
#ifndef COLLET_BOOTSTRAP_INTERFACE_SPEED_H
#define COLLET_BOOTSTRAP_INTERFACE_SPEED_H

#include "bootstrap/address.h"

/* Returns the speed in Mb/s of the interface with this address. Returns 0 if it is unknown: there is no such
 * interface, its link is down, or it is virtual. */
uint32_t collet_interface_mbps(const struct collet_address *address);

/* Returns the speed that a driver reports, or 0 if that driver's reports mean nothing. Pure. */
uint32_t collet_driver_mbps(const char *driver, uint32_t mbps);

#endif
