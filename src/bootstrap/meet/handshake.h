/* Two ends of a new connection convince each other that they belong together: the same byte order, version, job and
 * world, and the same key. Used for the star (key: the job's secret) and for every conduit (key: the session's).
 *
 *   initiator -> acceptor   ask:     who I am, whom I want, what for, a nonce
 *   acceptor -> initiator   answer:  who I am, a nonce; or which of these differs
 *   initiator -> acceptor   proof:   HMAC(key, "initiator", ask, answer)
 *   acceptor -> initiator   verdict: HMAC(key, "acceptor", ask, answer), or that the proof was wrong
 *
 * Everything is under the MACs, and each side's nonce is fresh, so a recorded conversation is worthless, and a MAC
 * cannot be sent back to who made it. The initiator proves first: whoever connects to a port learns nothing to guess a
 * weak secret from. Messages have one fixed size each; never a byte is read beyond the handshake's own. Nothing blocks:
 * the caller waits for the socket, and gives up at its own deadline. */
#ifndef COLLET_BOOTSTRAP_MEET_HANDSHAKE_H
#define COLLET_BOOTSTRAP_MEET_HANDSHAKE_H

#include <collet/collet.h>

#include "bootstrap/crypto.h"

enum collet_purpose { COLLET_PURPOSE_CONTROL = 1, COLLET_PURPOSE_ENDPOINT };

enum { COLLET_HANDSHAKE_PAYLOAD_BYTES = 64, COLLET_JOB_BYTES = 64 };

struct collet_handshake_config {
	const uint8_t *key;              /* lives as long as the handshake */
	uint32_t key_bytes;              /* 0: nothing is proven; for Unix sockets between processes of one user */
	const char *job;
	uint32_t purpose;                /* enum collet_purpose */
	uint32_t from, to;               /* the initiator's rank, the acceptor's; an acceptor leaves from open */
	uint32_t size;                   /* of the world */
	uint8_t payload[COLLET_HANDSHAKE_PAYLOAD_BYTES];  /* initiator: the caller's own, told to the acceptor */
};

/* Why an acceptor says no. On the wire. */
enum collet_refusal {
	COLLET_REFUSAL_NONE, COLLET_REFUSAL_VERSION, COLLET_REFUSAL_JOB, COLLET_REFUSAL_WORLD, COLLET_REFUSAL_SECRET,
	COLLET_REFUSAL_PURPOSE, COLLET_REFUSAL_RANK, COLLET_REFUSAL_COUNT
};

/* The messages, as they travel: in the byte order of the machine; order_mark tells another one apart. */
struct collet_handshake_ask {
	char magic[8];
	uint32_t byte_order, protocol;
	char version[16];
	char job[COLLET_JOB_BYTES];
	uint32_t purpose, from, to, size;
	uint32_t has_key, reserved0;
	uint8_t payload[COLLET_HANDSHAKE_PAYLOAD_BYTES];
	uint8_t nonce[32];
};

struct collet_handshake_answer {
	char magic[8];
	uint32_t byte_order, protocol;
	char version[16];
	char job[COLLET_JOB_BYTES];
	uint32_t refusal, rank, size, has_key;
	uint8_t nonce[32];
};

struct collet_handshake_proof {
	uint8_t mac[COLLET_MAC_BYTES];
};

struct collet_handshake_verdict {
	uint32_t refusal, reserved0;
	uint8_t mac[COLLET_MAC_BYTES];
};

struct collet_handshake {
	struct collet_handshake_config config;
	int socket;                      /* the caller's */
	uint32_t state;
	size_t moved;                    /* bytes of the current message */
	uint32_t from;                   /* acceptor: who it is; believe it when the handshake is done */
	enum collet_refusal refusal;     /* why it has failed, where that was said */
	bool connected;                  /* initiator: somebody was there */
	bool is_proof_sent;              /* initiator: the whole proof is on its way: the acceptor may have accepted */
	struct {                         /* what the MACs cover, in one piece */
		char role[16];
		struct collet_handshake_ask ask;
		struct collet_handshake_answer answer;
	} transcript;
	struct collet_handshake_proof proof;
	struct collet_handshake_verdict verdict;
};

/* The socket may still be connecting. */
collet_status collet_handshake_dial(
	struct collet_handshake *handshake, int socket, const struct collet_handshake_config *config);
collet_status collet_handshake_accept(
	struct collet_handshake *handshake, int socket, const struct collet_handshake_config *config);

/* Goes on as far as it can. COLLET_PENDING: wait for the socket, see below. COLLET_OK: done; the caller may trust
 * handshake->from and transcript.ask.payload. COLLET_ERR_AUTH, COLLET_ERR_CONFIG (another world size or rank): refused,
 * refusal says why. COLLET_ERR_TRANSPORT: the connection broke, or the other end speaks something else. */
collet_status collet_handshake_step(struct collet_handshake *handshake);
/* Which to wait for while pending: readable, or writable? */
bool collet_handshake_wants_write(const struct collet_handshake *handshake);

#endif
