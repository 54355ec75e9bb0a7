/* Opens and closes the listeners of rank 0 during the bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_ROOT_LISTENERS_H
#define COLLET_BOOTSTRAP_MEET_ROOT_LISTENERS_H

#include "bootstrap/meet/internal.h"

enum { COLLET_ROOT_LISTENERS = 3 };

struct collet_root_listeners {
	int sockets[COLLET_ROOT_LISTENERS]; /* Unix, TCP, TCP on a second address; -1: none */
	struct collet_address tcp_address; /* bytes is 0 if there is none */
};

/* Listens where the store says, or chooses an address and announces it by the store. Retries while the address is in
 * use, until the deadline. After a failure the caller closes what was opened. */
collet_status collet_root_listeners_open(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state);
void collet_root_listeners_close(struct collet_root_listeners *listeners);

#endif
