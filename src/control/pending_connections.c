/* Establishes connections for endpoints, dialed or accepted. A connection is reported only after the handshake with the
 * session key. Accepted connections are limited in number, and in the time for the handshake. Nothing blocks the
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bootstrap/address.h"
#include "control/internal.h"
#include "core/status.h"

_Static_assert(sizeof(struct collet_hello) <= COLLET_HANDSHAKE_PAYLOAD_BYTES, "travels in the handshake");

#define HANDSHAKE_TIMEOUT_NS ((int64_t)10000000000)
#define LISTENERS_PAUSE_NS ((int64_t)50000000)
#define RETRY_NS ((int64_t)5000000)
enum { MAX_ATTEMPTS = 8, MAX_ACCEPTS_PER_EVENT = 64 };

static void add_pending(struct collet_control *control, struct pending_connection *pending)
{
	pending->source.kind = SOURCE_PENDING;
	pending->next = control->pending;
	if (control->pending)
		control->pending->previous = pending;
	else
		control->pending_oldest = pending;
	control->pending = pending;
	control->accepted_count += !pending->dialed;
}

static void close_socket(struct collet_control *control, struct pending_connection *pending)
{
	if (pending->socket >= 0) {
		control_unregister(control, pending->socket);
		close(pending->socket);
	}
	pending->socket = -1;
	pending->wants_write = false;
}

static void free_pending(struct collet_control *control, struct pending_connection *pending)
{
	close_socket(control, pending);
	if (pending->next)
		pending->next->previous = pending->previous;
	else
		control->pending_oldest = pending->previous;
	if (pending->previous)
		pending->previous->next = pending->next;
	else
		control->pending = pending->next;
	control->accepted_count -= !pending->dialed;
	free(pending);
}

static void handshake_config(const struct collet_control *control, struct collet_handshake_config *config)
{
	*config = (struct collet_handshake_config){
		.key = control->config.bootstrap->session_key,
		.key_bytes = sizeof(control->config.bootstrap->session_key),
		.job = control->config.launch->job,
		.purpose = COLLET_PURPOSE_ENDPOINT,
		.size = control->config.size,
	};
}

/* ---- Outcomes ---- */

static void fail_pending(struct collet_control *control, struct pending_connection *pending, collet_status status,
	const char *error_text)
{
	const struct collet_control_config *config = &control->config;
	const struct collet_hello hello = pending->hello;
	const bool dialed = pending->dialed;
	free_pending(control, pending);
	if (dialed) {
		collet_log(config->log, COLLET_LOG_INFO, "%s", error_text);
		config->events->dial_failed(config->context, &hello, status, error_text);
	} else {
		collet_log(config->log, COLLET_LOG_INFO, "rejected a connection: %s", error_text);
	}
}

/* Fails a dial with this thread's sentence. */
static void fail_dial(struct collet_control *control, struct pending_connection *pending, collet_status status)
{
	char error_text[COLLET_ERROR_BYTES];
	const struct collet_peer_info *info = &control->config.bootstrap->peer_infos[pending->hello.to];
	snprintf(error_text, sizeof(error_text), "cannot connect to rank %u on %s: %.800s", pending->hello.to,
		info->host, collet_last_error());
	fail_pending(control, pending, status, error_text);
}

static void report_connected(struct collet_control *control, struct pending_connection *pending)
{
	const struct collet_control_config *config = &control->config;
	struct collet_hello hello = pending->hello;
	const bool dialed = pending->dialed;
	const int socket = pending->socket;
	if (!dialed) {
		uint32_t uid;
		memcpy(&hello, pending->handshake.transcript.ask.payload, sizeof(hello));
		if (hello.from != pending->handshake.from || hello.to != config->rank || hello.from == config->rank) {
			fail_pending(control, pending, COLLET_ERR_AUTH, "it names different ranks in one handshake");
			return;
		}
		if (collet_socket_peer_uid(socket, &uid) && uid != config->bootstrap->peer_infos[hello.from].uid) {
			fail_pending(control, pending, COLLET_ERR_AUTH, "it belongs to another user than its rank");
			return;
		}
	}
	control_unregister(control, socket);
	pending->socket = -1;
	free_pending(control, pending);
	config->events->connected(config->context, &hello, dialed, socket);
}

static void retry_later(struct collet_control *control, struct pending_connection *pending)
{
	close_socket(control, pending);
	pending->retry_at = collet_deadline_after(RETRY_NS << (pending->attempts < 4 ? pending->attempts : 4));
}

void control_pending_serve(struct collet_control *control, struct pending_connection *pending)
{
	collet_status status = collet_handshake_step(&pending->handshake);
	if (status == COLLET_OK) {
		report_connected(control, pending);
	} else if (status == COLLET_PENDING) {
		const bool write = collet_handshake_wants_write(&pending->handshake);
		if (write != pending->wants_write)
			control_modify(control, pending->socket, EPOLLIN | (write ? EPOLLOUT : 0u), &pending->source);
		pending->wants_write = write;
	} else if (!pending->dialed) {
		fail_pending(control, pending, status, collet_last_error());
	} else if (status == COLLET_ERR_TRANSPORT && pending->handshake.connected &&
		   !pending->handshake.is_proof_sent && pending->attempts < MAX_ATTEMPTS) {
		retry_later(control, pending);  /* it closed the connection, perhaps because it had too many */
	} else {
		fail_dial(control, pending, status);
	}
}

/* ---- Dialing ---- */

static bool find_address(const struct collet_peer_info *info, bool local, struct collet_address *address)
{
	if (!local)
		return info->port &&
		       collet_address_ip(address, info->family, info->address, info->scope_id, info->port);
	if (!info->unix_name[0])
		return false;
	collet_address_unix(address, info->unix_name);
	return true;
}

static void dial(struct collet_control *control, struct pending_connection *pending)
{
	struct collet_address address;
	struct collet_handshake_config config;
	pending->retry_at = COLLET_NEVER;
	if (!find_address(&control->config.bootstrap->peer_infos[pending->hello.to], pending->is_local, &address)) {
		fail_dial(control, pending, collet_fail(COLLET_ERR_TRANSPORT, "it listens on no %s",
			pending->is_local ? "Unix socket" : "TCP port"));
		return;
	}
	collet_status status = collet_socket_dial(&address, &pending->socket);
	if (status == COLLET_PENDING) {
		pending->socket = -1;
		retry_later(control, pending);  /* its queue is full: does not count as an attempt */
		return;
	}
	if (!status) {
		handshake_config(control, &config);
		config.from = pending->hello.from;
		config.to = pending->hello.to;
		memcpy(config.payload, &pending->hello, sizeof(pending->hello));
		status = collet_handshake_dial(&pending->handshake, pending->socket, &config);
	}
	pending->wants_write = true;
	if (!status && !control_register(control, pending->socket, EPOLLIN | EPOLLOUT, &pending->source))
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	pending->attempts++;
	if (status)
		fail_dial(control, pending, status);
}

void control_pending_dial(struct collet_control *control, const struct collet_hello *hello, bool local)
{
	const struct collet_control_config *config = &control->config;
	struct pending_connection *pending = control->gone[hello->to] ? NULL : calloc(1, sizeof(*pending));
	if (!pending) {
		char error_text[128];
		const bool gone = control->gone[hello->to];
		snprintf(error_text, sizeof(error_text), "cannot connect to rank %u: %s", hello->to,
			gone ? "it is gone" : "no memory");
		config->events->dial_failed(
			config->context, hello, gone ? COLLET_ERR_PEER_LOST : COLLET_ERR_MEMORY, error_text);
		return;
	}
	pending->dialed = true;
	pending->is_local = local;
	pending->socket = -1;
	pending->hello = *hello;
	/* A stopped rank does not answer but may continue later: it has the time of a collective. */
	pending->deadline = collet_deadline_after(config->launch->timeout_ns);
	add_pending(control, pending);
	dial(control, pending);
}

void control_pending_cancel(struct collet_control *control, uint32_t rank, const char *error_text)
{
	for (struct pending_connection *pending = control->pending, *next; pending; pending = next) {
		next = pending->next;
		if (pending->dialed && pending->hello.to == rank)
			fail_pending(control, pending, COLLET_ERR_PEER_LOST, error_text);
	}
}

/* ---- Accepting ---- */

static void accept_one(struct collet_control *control, int socket)
{
	struct collet_handshake_config config;
	struct pending_connection *pending = calloc(1, sizeof(*pending));
	if (!pending) {
		close(socket);
		return;
	}
	if (control->accepted_count >= 4 * control->config.size + 256)
		for (struct pending_connection *old = control->pending_oldest; old; old = old->previous)
			if (!old->dialed) {
				fail_pending(control, old, COLLET_ERR_TRANSPORT,
					"too many connections are pending, and this one was the oldest");
				break;
			}
	pending->socket = socket;
	pending->retry_at = COLLET_NEVER;
	pending->deadline = collet_deadline_after(
		control->config.handshake_timeout_ns ? control->config.handshake_timeout_ns : HANDSHAKE_TIMEOUT_NS);
	add_pending(control, pending);
	handshake_config(control, &config);
	config.to = control->config.rank;
	collet_status status = collet_handshake_accept(&pending->handshake, socket, &config);
	if (!status && !control_register(control, socket, EPOLLIN, &pending->source))
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	if (status)
		fail_pending(control, pending, status, collet_last_error());
}

void control_listener_accept(struct collet_control *control, struct listener *listener)
{
	struct collet_address from;
	for (int i = 0; i < MAX_ACCEPTS_PER_EVENT; i++) {
		int socket = collet_socket_accept(listener->socket, &from);
		if (socket >= 0) {
			accept_one(control, socket);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
			return;
		/* No descriptor is free. The listener stays readable, so without a pause this thread would spin. */
		for (uint32_t d = 0; d < 2; d++) {
			if (control->listeners[d].registered)
				control_unregister(control, control->listeners[d].socket);
			control->listeners[d].registered = false;
		}
		control->listeners_resume_at = collet_deadline_after(LISTENERS_PAUSE_NS);
		return;
	}
}

int64_t control_pending_timers(struct collet_control *control)
{
	int64_t next_at = COLLET_NEVER;
	if (collet_deadline_passed(control->listeners_resume_at)) {
		control->listeners_resume_at = COLLET_NEVER;
		for (uint32_t d = 0; d < 2; d++) {
			struct listener *listener = &control->listeners[d];
			if (listener->socket >= 0)
				listener->registered =
					control_register(control, listener->socket, EPOLLIN, &listener->source);
		}
	}
	/* fail_dial(), fail_pending() and dial() remove at most the connection that they are given, and events only
	 * queue commands. So next stays valid. */
	for (struct pending_connection *pending = control->pending, *next; pending; pending = next) {
		next = pending->next;
		/* On a busy machine this thread may be late itself, so unread input is served first. */
		if (collet_deadline_passed(pending->deadline) &&
			!(pending->socket >= 0 && collet_socket_has_input(pending->socket))) {
			if (pending->dialed)
				fail_dial(control, pending,
					collet_fail(COLLET_ERR_TIMEOUT, "it did not answer within %.3g s",
						(double)control->config.launch->timeout_ns / 1e9));
			else
				fail_pending(control, pending, COLLET_ERR_TIMEOUT,
					"it did not finish the handshake in time");
			continue;
		}
		if (pending->deadline < next_at)
			next_at = pending->deadline;
		if (pending->retry_at < next_at)
			next_at = pending->retry_at;
		if (collet_deadline_passed(pending->retry_at))
			dial(control, pending);
	}
	return control->listeners_resume_at < next_at ? control->listeners_resume_at : next_at;
}

void control_pending_close(struct collet_control *control)
{
	while (control->pending)
		free_pending(control, control->pending);
	for (uint32_t d = 0; d < 2; d++)
		if (control->listeners[d].socket >= 0)
			close(control->listeners[d].socket);
}
