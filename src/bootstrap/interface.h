/* Chooses the address to listen on: COLLET_INTERFACE, else the source address of the route to rank 0. */
#ifndef COLLET_BOOTSTRAP_INTERFACE_H
#define COLLET_BOOTSTRAP_INTERFACE_H

#include "bootstrap/address.h"

/* Checks an interface list: names, "^names" or networks in CIDR form. Returns COLLET_ERR_CONFIG for anything else.
 * Accepts NULL and "". */
collet_status collet_interface_check(const char *text);

/* Chooses an address (port 0) of this host. text is a list as above, or "" for the default. The default is the source
 * address of the route to toward, or of the default route if toward is NULL; nothing is sent. If several addresses
 * match, text's order decides, then IPv4 comes before IPv6. Without any network it is loopback. Returns
 * COLLET_ERR_CONFIG if nothing matches; the sentence lists the interfaces. */
collet_status collet_interface_choose(
	const char *text, const struct collet_address *toward, struct collet_address *address);

/* True if the list text allows this address. "" allows all. */
bool collet_interface_allows(const char *text, const struct collet_address *address);

#endif
