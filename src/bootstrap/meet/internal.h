/* The parts of a rendezvous: rank 0 gathers, the others visit. Internal to src/bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_INTERNAL_H
#define COLLET_BOOTSTRAP_MEET_INTERNAL_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/link.h"
#include "bootstrap/meet/handshake.h"
#include "bootstrap/store/store.h"
#include "core/clock.h"

enum {
	COLLET_MAX_PEER_TABLE_BYTES = 256 << 20, /* bytes of a table that a rank accepts */
};
/* How long a stranger may keep a connection without proving anything. */
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

/* The listeners of a rendezvous. */
struct collet_root_listeners {
	int sockets[COLLET_ROOT_LISTENERS]; /* Unix, TCP, TCP on a second address; -1: none */
	struct collet_address tcp_address; /* bytes 0: none */
};

/* Where the store says, or where this rank likes and the store is told. Again while the address is taken, until the
 * meeting's deadline. On failure what was opened is left for close. */
collet_status collet_root_listeners_open(struct collet_root_listeners *listeners, struct collet_bootstrap_state *state);
void collet_root_listeners_close(struct collet_root_listeners *listeners);

collet_status collet_bootstrap_run_root(struct collet_bootstrap_state *state);
collet_status collet_bootstrap_run_client(struct collet_bootstrap_state *state);

/* Opens this rank's listeners and writes them into its card. at: the address to listen on, NULL: loopback. */
collet_status collet_bootstrap_listen(struct collet_bootstrap_state *state, const struct collet_address *at);

/* May this connection go on to the handshake? Without a secret only a process of the same user on this host. */
collet_status collet_bootstrap_check_socket(const struct collet_launch *launch, int socket);

/* The table: what rank 0 sends to all in the end. sentence: NULL on success. *frame and *data (malloc) are filled. */
collet_status collet_peer_table_pack(struct collet_frame *frame, void **data, collet_status outcome,
	const char *sentence, const struct collet_bootstrap *bootstrap, uint32_t size, const uint8_t nonce[32]);
/* Fills the bootstrap's cards, blob and session key. Returns the outcome that rank 0 sent, with its sentence. */
collet_status collet_peer_table_unpack(const struct collet_frame *frame, const void *data,
	const struct collet_launch *launch, struct collet_bootstrap *bootstrap);
/* session_key = HMAC(secret, nonce): with a secret the nonce may be seen by all. */
collet_status collet_session_key(uint8_t key[32], const struct collet_launch *launch, const uint8_t nonce[32]);

#endif
