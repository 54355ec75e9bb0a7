/* Packs and unpacks the peer table, which rank 0 sends to all ranks at the end of the bootstrap. */
#ifndef COLLET_BOOTSTRAP_MEET_PEER_TABLE_H
#define COLLET_BOOTSTRAP_MEET_PEER_TABLE_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/framed_socket.h"

enum { COLLET_MAX_PEER_TABLE_BYTES = 256 << 20 }; /* longest peer table that a rank accepts */

/* Packs the outcome, and on success the peer infos of all ranks and the blob, else the sentence. Fills *frame and *data
 * (malloc). */
collet_status collet_peer_table_pack(struct collet_frame *frame, void **data, collet_status outcome,
	const char *error_text, const struct collet_bootstrap *bootstrap, uint32_t size, const uint8_t nonce[32]);
/* Unpacks a table into the bootstrap's peer infos, blob and session key. Returns the outcome that rank 0 sent, with
 * its sentence. */
collet_status collet_peer_table_unpack(const struct collet_frame *frame, const void *data,
	const struct collet_launch *launch, struct collet_bootstrap *bootstrap);
/* Computes HMAC(secret, nonce). With a secret, the nonce need not be secret. */
collet_status collet_session_key(uint8_t key[32], const struct collet_launch *launch, const uint8_t nonce[32]);

#endif
