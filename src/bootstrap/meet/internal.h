/* The parts of a rendezvous: rank 0 gathers, the others visit. Internal to src/bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_INTERNAL_H
#define COLLET_BOOTSTRAP_MEET_INTERNAL_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/link.h"
#include "bootstrap/meet/handshake.h"
#include "bootstrap/store/store.h"
#include "core/clock.h"

enum {
	COLLET_TABLE_LIMIT = 256 << 20,        /* bytes of a table that a rank accepts */
};
/* How long a stranger may keep a connection without proving anything. */
#define COLLET_HANDSHAKE_NS ((int64_t)10000000000)

struct collet_meeting {
	struct collet_bootstrap *bootstrap;
	const struct collet_launch *launch;
	struct collet_card *card;
	collet_make_blob make_blob;
	void *context;
	const struct collet_log *log;
	struct collet_store store;
	int64_t deadline;
};

enum { COLLET_DOORS = 3 };

/* The listeners of a rendezvous. */
struct collet_doors {
	int sockets[COLLET_DOORS];       /* Unix, TCP, TCP on a second address; -1: none */
	struct collet_endpoint tcp_at;   /* bytes 0: none */
};

/* Where the store says, or where this rank likes and the store is told. Again while the address is taken, until the
 * meeting's deadline. On failure what was opened is left for close. */
collet_status collet_doors_open(struct collet_doors *doors, struct collet_meeting *meeting);
void collet_doors_close(struct collet_doors *doors);

collet_status collet_meet_as_root(struct collet_meeting *meeting);
collet_status collet_meet_as_guest(struct collet_meeting *meeting);

/* Opens this rank's listeners and writes them into its card. at: the address to listen on, NULL: loopback. */
collet_status collet_meeting_listen(struct collet_meeting *meeting, const struct collet_endpoint *at);

/* May this connection go on to the handshake? Without a secret only a process of the same user on this host. */
collet_status collet_meeting_admit(const struct collet_launch *launch, int socket);

/* The table: what rank 0 sends to all in the end. sentence: NULL on success. *frame and *data (malloc) are filled. */
collet_status collet_table_pack(struct collet_frame *frame, void **data, collet_status outcome, const char *sentence,
	const struct collet_bootstrap *bootstrap, uint32_t size, const uint8_t nonce[32]);
/* Fills the bootstrap's cards, blob and session key. Returns the outcome that rank 0 sent, with its sentence. */
collet_status collet_table_unpack(const struct collet_frame *frame, const void *data,
	const struct collet_launch *launch, struct collet_bootstrap *bootstrap);
/* session_key = HMAC(secret, nonce): with a secret the nonce may be seen by all. */
collet_status collet_session_key(uint8_t key[32], const struct collet_launch *launch, const uint8_t nonce[32]);

#endif
