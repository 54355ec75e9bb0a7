/* Which of the host's addresses to listen on: COLLET_INTERFACE, else the one that the route to rank 0 leaves from. */
#ifndef COLLET_BOOTSTRAP_INTERFACE_H
#define COLLET_BOOTSTRAP_INTERFACE_H

#include "bootstrap/address.h"

/* COLLET_ERR_CONFIG when the text is neither names, "^names" nor networks in CIDR form. NULL or "" is fine. */
collet_status collet_interface_check(const char *text);

/* An address (port 0) of this host. text: as above, "" for the default. toward: where others are, to ask the routing
 * table for (nothing is sent), NULL: the default route. Of several that fit, the first in text's order, IPv4 before
 * IPv6. Without any network: loopback. COLLET_ERR_CONFIG: nothing fits text; the sentence lists what there is. */
collet_status collet_interface_choose(
	const char *text, const struct collet_address *toward, struct collet_address *address);

/* Does text allow this address? "" allows all. */
bool collet_interface_allows(const char *text, const struct collet_address *address);

#endif
