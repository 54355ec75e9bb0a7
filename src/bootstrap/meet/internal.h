/* Declares what the parts of a bootstrap share: rank 0 is the root and gathers, the others are its clients. Internal to
 * src/bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_INTERNAL_H
#define COLLET_BOOTSTRAP_MEET_INTERNAL_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/meet/handshake.h"
#include "bootstrap/store/store.h"
#include "core/clock.h"

/* The time that an unauthenticated connection has to finish the handshake. */
#define COLLET_HANDSHAKE_TIMEOUT_NS ((int64_t)10000000000)

/* The state of one rank during the bootstrap. */
struct collet_bootstrap_state {
	struct collet_bootstrap *bootstrap;
	struct collet_launch *launch;
	struct collet_peer_info *peer_info;
	collet_make_blob make_blob;
	void *context;
	const struct collet_log *log;
	struct collet_store store;
	int64_t deadline;
};

collet_status collet_bootstrap_run_root(struct collet_bootstrap_state *state);
collet_status collet_bootstrap_run_client(struct collet_bootstrap_state *state);

/* Opens this rank's own listeners and writes their addresses into its peer info. Listens on the address at, or on
 * loopback if it is NULL. */
collet_status collet_bootstrap_listen(struct collet_bootstrap_state *state, const struct collet_address *at);

/* Returns COLLET_OK if this connection may start the handshake. Without a secret it must come from a process of the
 * same user on this host. */
collet_status collet_bootstrap_check_socket(const struct collet_launch *launch, int socket);

#endif
