/* Declares the parts of a bootstrap: rank 0 is the root and gathers, the others are its clients. Internal to
 * src/bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_INTERNAL_H
#define COLLET_BOOTSTRAP_MEET_INTERNAL_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/link.h"
#include "bootstrap/meet/handshake.h"
#include "bootstrap/store/store.h"
#include "core/clock.h"

enum {
	COLLET_MAX_PEER_TABLE_BYTES = 256 << 20, /* longest peer table that a rank accepts */
};
/* The time that an unauthenticated connection has to finish the handshake. */
#define COLLET_HANDSHAKE_TIMEOUT_NS ((int64_t)10000000000)

struct collet_bootstrap_state {
	struct collet_bootstrap *bootstrap;
	const struct collet_launch *launch;
	struct collet_peer_info *peer_info;
	collet_make_blob make_blob;
	void *context;
	const struct collet_log *log;
	struct collet_store store;
	int64_t deadline;
};

enum { COLLET_ROOT_LISTENERS = 3 };

/* The listeners of rank 0 during the bootstrap. */
struct collet_root_listeners {
	int sockets[COLLET_ROOT_LISTENERS]; /* Unix, TCP, TCP on a second address; -1: none */
	struct collet_address tcp_address; /* bytes is 0 if there is none */
};

/* Listens where the store says, or chooses an address and announces it by the store. Retries while the address is in
 * use, until the deadline. After a failure the caller closes what was opened. */
collet_status collet_root_listeners_open(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state);
void collet_root_listeners_close(struct collet_root_listeners *listeners);

collet_status collet_bootstrap_run_root(struct collet_bootstrap_state *state);
collet_status collet_bootstrap_run_client(struct collet_bootstrap_state *state);

/* Opens this rank's own listeners and writes their addresses into its peer info. Listens on the address at, or on
 * loopback if it is NULL. */
collet_status collet_bootstrap_listen(struct collet_bootstrap_state *state, const struct collet_address *at);

/* Returns COLLET_OK if this connection may start the handshake. Without a secret it must come from a process of the
 * same user on this host. */
collet_status collet_bootstrap_check_socket(const struct collet_launch *launch, int socket);

/* Packs the peer table, which rank 0 sends to all ranks at the end: the outcome, and on success all peer infos and the
 * blob, else the sentence. Fills *frame and *data (malloc). */
collet_status collet_peer_table_pack(struct collet_frame *frame, void **data, collet_status outcome,
	const char *sentence, const struct collet_bootstrap *bootstrap, uint32_t size, const uint8_t nonce[32]);
/* Unpacks the table into the bootstrap's peer infos, blob and session key. Returns the outcome that rank 0 sent, with
 * its sentence. */
collet_status collet_peer_table_unpack(const struct collet_frame *frame, const void *data,
	const struct collet_launch *launch, struct collet_bootstrap *bootstrap);
/* Computes HMAC(secret, nonce). With a secret, the nonce need not be secret. */
collet_status collet_session_key(uint8_t key[32], const struct collet_launch *launch, const uint8_t nonce[32]);

#endif
