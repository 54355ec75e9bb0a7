#include "bootstrap/meet/handshake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/status.h"

enum { BYTE_ORDER_MARK = 0x01020304, HANDSHAKE_VERSION = 2 };
static const char magic[8] = { 'c', 'o', 'l', 'l', 'e', 't', '\r', '\n' };

_Static_assert(sizeof(struct collet_handshake_ask) == 216, "no padding on the wire");
_Static_assert(sizeof(struct collet_handshake_answer) == 144, "no padding on the wire");
_Static_assert(sizeof(struct collet_handshake_verdict) == 40, "no padding on the wire");

/* Each state names what the handshake waits for. advance() relies on the order within each role, and fail_refused() on
 * the initiator's states being first. */
enum handshake_state {
	CONNECTING, SENDING_ASK, AWAITING_ANSWER, SENDING_PROOF, AWAITING_VERDICT,  /* initiator */
	AWAITING_ASK, SENDING_ANSWER, AWAITING_PROOF, SENDING_VERDICT,              /* acceptor */
	DONE
};

static collet_status make_mac(struct collet_handshake *h, const char *role, uint8_t mac[COLLET_MAC_BYTES])
{
	memset(h->transcript.role, 0, sizeof(h->transcript.role));
	memcpy(h->transcript.role, role, strlen(role));
	return collet_mac(mac, h->config.key, h->config.key_bytes, &h->transcript, sizeof(h->transcript));
}

/* Makes a peer's text printable, and returns it. */
static const char *sanitize(char *text, size_t bytes)
{
	text[bytes - 1] = 0;
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return text;
}

static collet_status fail_refused(struct collet_handshake *h, enum collet_refusal why)
{
	h->refusal = why;
	const bool dialing = h->state < AWAITING_ASK;
	struct collet_handshake_ask *ask = &h->transcript.ask;
	struct collet_handshake_answer *answer = &h->transcript.answer;
	char *version = dialing ? answer->version : ask->version, *job = dialing ? answer->job : ask->job;
	char who[48];
	if (dialing)
		snprintf(who, sizeof(who), "rank %u", h->config.to);
	else
		snprintf(who, sizeof(who), "the connecting rank %u", ask->from);
	switch (why) {
	case COLLET_REFUSAL_VERSION:
		return collet_fail(COLLET_ERR_AUTH,
			"%s runs collet %s, this rank %s: all ranks need the same version (and byte order)", who,
			sanitize(version, sizeof(ask->version)), COLLET_VERSION_TEXT);
	case COLLET_REFUSAL_JOB:
		return collet_fail(COLLET_ERR_AUTH, "%s belongs to job '%s', this rank to job '%s' (COLLET_JOB)", who,
			sanitize(job, COLLET_JOB_BYTES), h->config.job);
	case COLLET_REFUSAL_WORLD:
		return collet_fail(COLLET_ERR_CONFIG, "%s has world size %u, this rank %u", who,
			dialing ? answer->size : ask->size, h->config.size);
	case COLLET_REFUSAL_SECRET:
		if (dialing && answer->has_key != (h->config.key_bytes != 0))
			return collet_fail(COLLET_ERR_AUTH,
				"%s has %s secret, this rank has %s: set COLLET_SECRET or COLLET_SECRET_FILE "
				"to the same everywhere",
				who, answer->has_key ? "a" : "no", h->config.key_bytes ? "one" : "none");
		return collet_fail(COLLET_ERR_AUTH, "%s has another secret (COLLET_SECRET, COLLET_SECRET_FILE)", who);
	case COLLET_REFUSAL_RANK:
		return collet_fail(COLLET_ERR_CONFIG, "%s refuses rank %u, which wants to connect to rank %u of %u",
			dialing ? "the listener" : "this rank", ask->from, ask->to, ask->size);
	case COLLET_REFUSAL_PURPOSE:
	default:
		return collet_fail(COLLET_ERR_TRANSPORT, "%s does not expect this kind of connection here", who);
	}
}

collet_status collet_handshake_dial(
	struct collet_handshake *h, int socket, const struct collet_handshake_config *config)
{
	memset(h, 0, sizeof(*h));
	h->config = *config;
	h->socket = socket;
	h->state = CONNECTING;
	h->from = config->from;
	struct collet_handshake_ask *ask = &h->transcript.ask;
	memcpy(ask->magic, magic, sizeof(magic));
	ask->byte_order = BYTE_ORDER_MARK;
	ask->protocol = HANDSHAKE_VERSION;
	snprintf(ask->version, sizeof(ask->version), "%s", COLLET_VERSION_TEXT);
	snprintf(ask->job, sizeof(ask->job), "%s", config->job);
	ask->purpose = config->purpose;
	ask->from = config->from;
	ask->to = config->to;
	ask->size = config->size;
	ask->has_key = config->key_bytes != 0;
	memcpy(ask->payload, config->payload, sizeof(ask->payload));
	return collet_random(ask->nonce, sizeof(ask->nonce));
}

collet_status collet_handshake_accept(
	struct collet_handshake *h, int socket, const struct collet_handshake_config *config)
{
	memset(h, 0, sizeof(*h));
	h->config = *config;
	h->socket = socket;
	h->state = AWAITING_ASK;
	struct collet_handshake_answer *answer = &h->transcript.answer;
	memcpy(answer->magic, magic, sizeof(magic));
	answer->byte_order = BYTE_ORDER_MARK;
	answer->protocol = HANDSHAKE_VERSION;
	snprintf(answer->version, sizeof(answer->version), "%s", COLLET_VERSION_TEXT);
	snprintf(answer->job, sizeof(answer->job), "%s", config->job);
	answer->rank = config->to;
	answer->size = config->size;
	answer->has_key = config->key_bytes != 0;
	return collet_random(answer->nonce, sizeof(answer->nonce));
}

/* ---- Moving bytes ---- */

static collet_status fail_broken(void)
{
	return collet_fail(COLLET_ERR_TRANSPORT, "the connection broke during the handshake: %s", strerror(errno));
}

static collet_status send_bytes(struct collet_handshake *h, const void *message, size_t bytes)
{
	while (h->moved < bytes) {
		ssize_t sent = send(h->socket, (const uint8_t *)message + h->moved, bytes - h->moved, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		h->moved += (size_t)sent;
	}
	h->moved = 0;
	return COLLET_OK;
}

/* Receives one message. With check_magic it must start with the magic bytes. These are checked as they arrive, so
 * another protocol is detected within the first 8 bytes. */
static collet_status receive_bytes(struct collet_handshake *h, void *message, size_t bytes, bool check_magic)
{
	while (h->moved < bytes) {
		ssize_t got = recv(h->socket, (uint8_t *)message + h->moved, bytes - h->moved, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? COLLET_PENDING : fail_broken();
		if (got == 0)
			return collet_fail(
				COLLET_ERR_TRANSPORT, "the other end closed the connection during the handshake");
		h->moved += (size_t)got;
		size_t known = h->moved < sizeof(magic) ? h->moved : sizeof(magic);
		if (check_magic && memcmp(message, magic, known) != 0)
			return collet_fail(COLLET_ERR_TRANSPORT, "the other end does not speak collet");
	}
	h->moved = 0;
	return COLLET_OK;
}

/* ---- The steps ---- */

static collet_status check_connected(struct collet_handshake *h)
{
	int error = 0;
	socklen_t bytes = sizeof(error);
	if (getsockopt(h->socket, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0)
		error = errno;
	if (error)
		return collet_fail(COLLET_ERR_TRANSPORT, "cannot connect: %s", strerror(error));
	struct sockaddr_storage peer, self;
	socklen_t peer_bytes = sizeof(peer), self_bytes = sizeof(self);
	/* There may be no error yet although the socket is not connected. */
	if (getpeername(h->socket, (struct sockaddr *)&peer, &peer_bytes) < 0)
		return errno == ENOTCONN ? COLLET_PENDING : fail_broken();
	/* If nobody listens on a port of this host, the kernel may choose that very port as our own. TCP then connects
	 * the socket to itself. */
	if (peer.ss_family != AF_UNIX && getsockname(h->socket, (struct sockaddr *)&self, &self_bytes) == 0 &&
	    self_bytes == peer_bytes && memcmp(&self, &peer, peer_bytes) == 0)
		return collet_fail(COLLET_ERR_TRANSPORT, "cannot connect: nobody listens there");
	return COLLET_OK;
}

static collet_status check_answer(struct collet_handshake *h)
{
	const struct collet_handshake_answer *answer = &h->transcript.answer;
	if (answer->byte_order != BYTE_ORDER_MARK || answer->protocol != HANDSHAKE_VERSION)
		return fail_refused(h, COLLET_REFUSAL_VERSION);
	if (answer->refusal != COLLET_REFUSAL_NONE)
		return fail_refused(h, answer->refusal < COLLET_REFUSAL_COUNT ? (enum collet_refusal)answer->refusal :
			COLLET_REFUSAL_PURPOSE);
	/* Without this check, the other end could turn the authentication off. */
	if (answer->has_key != (h->config.key_bytes != 0))
		return fail_refused(h, COLLET_REFUSAL_SECRET);
	return make_mac(h, "initiator", h->proof.mac);
}

static collet_status check_verdict(struct collet_handshake *h)
{
	uint8_t expected[COLLET_MAC_BYTES];
	if (h->verdict.refusal != COLLET_REFUSAL_NONE)
		return fail_refused(h, COLLET_REFUSAL_SECRET);
	collet_status status = make_mac(h, "acceptor", expected);
	if (status)
		return status;
	return collet_mac_equal(expected, h->verdict.mac) ? COLLET_OK : fail_refused(h, COLLET_REFUSAL_SECRET);
}

static enum collet_refusal check_ask(const struct collet_handshake *h)
{
	const struct collet_handshake_ask *ask = &h->transcript.ask;
	if (ask->byte_order != BYTE_ORDER_MARK || ask->protocol != HANDSHAKE_VERSION ||
	    strncmp(ask->version, h->transcript.answer.version, sizeof(ask->version)) != 0)
		return COLLET_REFUSAL_VERSION;
	if (strncmp(ask->job, h->transcript.answer.job, sizeof(ask->job)) != 0)
		return COLLET_REFUSAL_JOB;
	if (ask->purpose != h->config.purpose)
		return COLLET_REFUSAL_PURPOSE;
	if (ask->size != h->config.size)
		return COLLET_REFUSAL_WORLD;
	if (ask->to != h->config.to || ask->from >= ask->size)
		return COLLET_REFUSAL_RANK;
	return ask->has_key == (h->config.key_bytes != 0) ? COLLET_REFUSAL_NONE : COLLET_REFUSAL_SECRET;
}

static collet_status check_proof(struct collet_handshake *h)
{
	uint8_t expected[COLLET_MAC_BYTES];
	collet_status status = make_mac(h, "initiator", expected);
	if (status)
		return status;
	if (!collet_mac_equal(expected, h->proof.mac)) {
		h->verdict.refusal = COLLET_REFUSAL_SECRET;
		return COLLET_OK;
	}
	return make_mac(h, "acceptor", h->verdict.mac);
}

/* Executes the current state. COLLET_OK: it is done, and *next is the state that follows. */
static collet_status advance(struct collet_handshake *h, uint32_t *next)
{
	collet_status status;
	*next = h->state + 1;
	switch ((enum handshake_state)h->state) {
	case CONNECTING:
		return check_connected(h);
	case SENDING_ASK:
		h->connected = true;
		return send_bytes(h, &h->transcript.ask, sizeof(h->transcript.ask));
	case AWAITING_ANSWER:
		status = receive_bytes(h, &h->transcript.answer, sizeof(h->transcript.answer), true);
		return status ? status : check_answer(h);
	case SENDING_PROOF:
		status = send_bytes(h, &h->proof, sizeof(h->proof));
		h->is_proof_sent = status == COLLET_OK;
		return status;
	case AWAITING_VERDICT:
		*next = DONE;
		status = receive_bytes(h, &h->verdict, sizeof(h->verdict), false);
		return status ? status : check_verdict(h);
	case AWAITING_ASK:
		status = receive_bytes(h, &h->transcript.ask, sizeof(h->transcript.ask), true);
		if (!status)
			h->transcript.answer.refusal = check_ask(h);
		return status;
	case SENDING_ANSWER:
		status = send_bytes(h, &h->transcript.answer, sizeof(h->transcript.answer));
		if (!status && h->transcript.answer.refusal)
			return fail_refused(h, (enum collet_refusal)h->transcript.answer.refusal);
		return status;
	case AWAITING_PROOF:
		status = receive_bytes(h, &h->proof, sizeof(h->proof), false);
		return status ? status : check_proof(h);
	case SENDING_VERDICT:
		*next = DONE;
		status = send_bytes(h, &h->verdict, sizeof(h->verdict));
		if (!status && h->verdict.refusal)
			return fail_refused(h, COLLET_REFUSAL_SECRET);
		h->from = h->transcript.ask.from;
		return status;
	case DONE:
		break;
	}
	return COLLET_OK;
}

collet_status collet_handshake_step(struct collet_handshake *h)
{
	while (h->state != DONE) {
		uint32_t next;
		collet_status status = advance(h, &next);
		if (status)
			return status;
		h->state = next;
	}
	return COLLET_OK;
}

bool collet_handshake_wants_write(const struct collet_handshake *h)
{
	return h->state == CONNECTING || h->state == SENDING_ASK || h->state == SENDING_PROOF ||
	       h->state == SENDING_ANSWER || h->state == SENDING_VERDICT;
}
