/* Authenticates a new connection. Both ends check that they have the same byte order, version, job, world size and key.
 * Control links use the job's secret as key, and endpoints the session key.
 *
 *   initiator -> acceptor   ask:     both ranks, the purpose and a nonce
 *   acceptor -> initiator   answer:  its rank and a nonce, or which of these differs
 *   initiator -> acceptor   proof:   HMAC(key, "initiator", ask, answer)
 *   acceptor -> initiator   verdict: HMAC(key, "acceptor", ask, answer), or that the proof was wrong
 *
 * The MACs cover all messages and both fresh nonces. So a recorded handshake cannot be replayed, and a MAC cannot be
 * reflected to its author. The initiator proves first: a stranger who connects gets nothing from which to guess a weak
 * secret. Each message has one fixed size, and no byte beyond the handshake is read. Nothing blocks: the caller waits
 * for the socket and enforces its own deadline. */
#ifndef COLLET_BOOTSTRAP_MEET_HANDSHAKE_H
#define COLLET_BOOTSTRAP_MEET_HANDSHAKE_H

#include <collet/collet.h>

#include "bootstrap/crypto.h"

enum collet_purpose { COLLET_PURPOSE_CONTROL = 1, COLLET_PURPOSE_ENDPOINT };

enum { COLLET_HANDSHAKE_PAYLOAD_BYTES = 64, COLLET_JOB_BYTES = 64 };

struct collet_handshake_config {
	const uint8_t *key;              /* must live as long as the handshake */
	uint32_t key_bytes;              /* 0: no authentication; for Unix sockets between processes of one user */
	const char *job;
	uint32_t purpose;                /* enum collet_purpose */
	uint32_t from, to;               /* the ranks of initiator and acceptor; an acceptor ignores from */
	uint32_t size;                   /* of the world */
	uint8_t payload[COLLET_HANDSHAKE_PAYLOAD_BYTES];  /* initiator: any data for the acceptor */
};

/* The reason why an acceptor refuses. Sent as it is. */
enum collet_refusal {
	COLLET_REFUSAL_NONE, COLLET_REFUSAL_VERSION, COLLET_REFUSAL_JOB, COLLET_REFUSAL_WORLD, COLLET_REFUSAL_SECRET,
	COLLET_REFUSAL_PURPOSE, COLLET_REFUSAL_RANK, COLLET_REFUSAL_COUNT
};

/* The messages as sent, in the byte order of the machine. The field byte_order detects a different one. */
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
	int socket;                      /* owned by the caller */
	uint32_t state;
	size_t moved;                    /* bytes of the current message */
	uint32_t from;                   /* acceptor: the initiator's rank, valid when the handshake is done */
	enum collet_refusal refusal;     /* the reason of the failure, if known */
	bool connected;                  /* initiator: the socket was connected */
	bool is_proof_sent;              /* initiator: the whole proof is sent, so the acceptor may have accepted */
	struct {                         /* the bytes that the MACs cover, contiguous */
		char role[16];
		struct collet_handshake_ask ask;
		struct collet_handshake_answer answer;
	} transcript;
	struct collet_handshake_proof proof;
	struct collet_handshake_verdict verdict;
};

/* Starts a handshake as initiator. The socket may still be connecting. */
collet_status collet_handshake_dial(
	struct collet_handshake *handshake, int socket, const struct collet_handshake_config *config);
/* Starts a handshake as acceptor. */
collet_status collet_handshake_accept(
	struct collet_handshake *handshake, int socket, const struct collet_handshake_config *config);

/* Continues as far as possible without waiting.
 *   COLLET_OK             done: handshake->from and transcript.ask.payload are authenticated
 *   COLLET_PENDING        wait for the socket, see below
 *   COLLET_ERR_AUTH, COLLET_ERR_CONFIG (another world size or rank)  refused; refusal is the reason
 *   COLLET_ERR_TRANSPORT  the connection broke, or the other end speaks another protocol */
collet_status collet_handshake_step(struct collet_handshake *handshake);
/* While pending: true if the caller must wait until the socket is writable, false if until it is readable. */
bool collet_handshake_wants_write(const struct collet_handshake *handshake);

#endif
