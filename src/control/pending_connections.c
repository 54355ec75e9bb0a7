/* Connections for conduits, made by us or by others. Each has to pass the handshake with the session's key before
 * anybody hears of it; strangers get a while for it and are bounded in number, and none of this ever blocks the thread.
 */
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

#define STRANGER_NS ((int64_t)10000000000)
#define DOORS_SHUT_NS ((int64_t)50000000)
#define RETRY_NS ((int64_t)5000000)
enum { ATTEMPTS_MOST = 8, ACCEPT_AT_ONCE = 64 };

static void enlist(struct collet_control *control, struct caller *caller)
{
	caller->source.kind = SOURCE_CALLER;
	caller->next = control->callers;
	if (control->callers)
		control->callers->previous = caller;
	else
		control->callers_oldest = caller;
	control->callers = caller;
	control->strangers += !caller->dialed;
}

static void hang_up(struct collet_control *control, struct caller *caller)
{
	if (caller->socket >= 0) {
		control_unregister(control, caller->socket);
		close(caller->socket);
	}
	caller->socket = -1;
	caller->wants_write = false;
}

static void drop(struct collet_control *control, struct caller *caller)
{
	hang_up(control, caller);
	if (caller->next)
		caller->next->previous = caller->previous;
	else
		control->callers_oldest = caller->previous;
	if (caller->previous)
		caller->previous->next = caller->next;
	else
		control->callers = caller->next;
	control->strangers -= !caller->dialed;
	free(caller);
}

static void handshake_config(const struct collet_control *control, struct collet_handshake_config *config)
{
	*config = (struct collet_handshake_config){
		.key = control->config.bootstrap->session_key,
		.key_bytes = sizeof(control->config.bootstrap->session_key),
		.job = control->config.launch->job,
		.purpose = COLLET_PURPOSE_CONDUIT,
		.size = control->config.size,
	};
}

/* ---- Outcomes ---- */

static void give_up(struct collet_control *control, struct caller *caller, collet_status status, const char *sentence)
{
	const struct collet_control_config *config = &control->config;
	const struct collet_hello hello = caller->hello;
	const bool dialed = caller->dialed;
	drop(control, caller);
	if (dialed) {
		collet_log(config->log, COLLET_LOG_INFO, "%s", sentence);
		config->events->dial_failed(config->context, &hello, status, sentence);
	} else {
		collet_log(config->log, COLLET_LOG_INFO, "turned a connection away: %s", sentence);
	}
}

/* With this thread's sentence. */
static void give_up_dial(struct collet_control *control, struct caller *caller, collet_status status)
{
	char sentence[COLLET_ERROR_BYTES];
	const struct collet_card *card = &control->config.bootstrap->cards[caller->hello.to];
	snprintf(sentence, sizeof(sentence), "cannot connect to rank %u on %s: %.800s", caller->hello.to, card->host,
		collet_last_error());
	give_up(control, caller, status, sentence);
}

static void hand_over(struct collet_control *control, struct caller *caller)
{
	const struct collet_control_config *config = &control->config;
	struct collet_hello hello = caller->hello;
	const bool dialed = caller->dialed;
	const int socket = caller->socket;
	if (!dialed) {
		uint32_t uid;
		memcpy(&hello, caller->handshake.transcript.ask.payload, sizeof(hello));
		if (hello.from != caller->handshake.from || hello.to != config->rank || hello.from == config->rank) {
			give_up(control, caller, COLLET_ERR_AUTH, "it says that it is several ranks");
			return;
		}
		if (collet_socket_peer_uid(socket, &uid) && uid != config->bootstrap->cards[hello.from].uid) {
			give_up(control, caller, COLLET_ERR_AUTH, "it belongs to another user than its rank");
			return;
		}
	}
	control_unregister(control, socket);
	caller->socket = -1;
	drop(control, caller);
	config->events->connected(config->context, &hello, dialed, socket);
}

static void retry_later(struct collet_control *control, struct caller *caller)
{
	hang_up(control, caller);
	caller->retry_at = collet_deadline_after(RETRY_NS << (caller->attempts < 4 ? caller->attempts : 4));
}

void control_caller_serve(struct collet_control *control, struct caller *caller)
{
	collet_status status = collet_handshake_step(&caller->handshake);
	if (status == COLLET_OK) {
		hand_over(control, caller);
	} else if (status == COLLET_PENDING) {
		const bool write = collet_handshake_wants_write(&caller->handshake);
		if (write != caller->wants_write)
			control_modify(control, caller->socket, EPOLLIN | (write ? EPOLLOUT : 0u), &caller->source);
		caller->wants_write = write;
	} else if (!caller->dialed) {
		give_up(control, caller, status, collet_last_error());
	} else if (status == COLLET_ERR_TRANSPORT && caller->handshake.connected && !caller->handshake.committed &&
	           caller->attempts < ATTEMPTS_MOST) {
		retry_later(control, caller);  /* it was there and cut us short: too many at its door, perhaps */
	} else {
		give_up_dial(control, caller, status);
	}
}

/* ---- Dialing ---- */

static bool find_endpoint(const struct collet_card *card, bool local, struct collet_endpoint *endpoint)
{
	if (!local)
		return card->port &&
		       collet_endpoint_ip(endpoint, card->family, card->address, card->scope_id, card->port);
	if (!card->unix_name[0])
		return false;
	collet_endpoint_unix(endpoint, card->unix_name);
	return true;
}

static void dial(struct collet_control *control, struct caller *caller)
{
	struct collet_endpoint endpoint;
	struct collet_handshake_config config;
	caller->retry_at = COLLET_NEVER;
	if (!find_endpoint(&control->config.bootstrap->cards[caller->hello.to], caller->local, &endpoint)) {
		give_up_dial(control, caller, collet_fail(COLLET_ERR_TRANSPORT, "it listens on no %s",
			caller->local ? "Unix socket" : "TCP port"));
		return;
	}
	collet_status status = collet_socket_dial(&endpoint, &caller->socket);
	if (status == COLLET_PENDING) {
		caller->socket = -1;
		retry_later(control, caller);  /* its queue is full; no attempt lost, only the deadline counts */
		return;
	}
	if (!status) {
		handshake_config(control, &config);
		config.from = caller->hello.from;
		config.to = caller->hello.to;
		memcpy(config.payload, &caller->hello, sizeof(caller->hello));
		status = collet_handshake_dial(&caller->handshake, caller->socket, &config);
	}
	caller->wants_write = true;
	if (!status && !control_register(control, caller->socket, EPOLLIN | EPOLLOUT, &caller->source))
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	caller->attempts++;
	if (status)
		give_up_dial(control, caller, status);
}

void control_door_dial(struct collet_control *control, const struct collet_hello *hello, bool local)
{
	const struct collet_control_config *config = &control->config;
	struct caller *caller = control->gone[hello->to] ? NULL : calloc(1, sizeof(*caller));
	if (!caller) {
		char sentence[128];
		const bool gone = control->gone[hello->to];
		snprintf(sentence, sizeof(sentence), "cannot connect to rank %u: %s", hello->to,
			gone ? "it is gone" : "no memory");
		config->events->dial_failed(
			config->context, hello, gone ? COLLET_ERR_PEER_LOST : COLLET_ERR_MEMORY, sentence);
		return;
	}
	caller->dialed = true;
	caller->local = local;
	caller->socket = -1;
	caller->hello = *hello;
	/* A rank that is stopped does not answer, and may go on later: it has as long as a collective. */
	caller->deadline = collet_deadline_after(config->launch->timeout_ns);
	enlist(control, caller);
	dial(control, caller);
}

void control_door_forsake(struct collet_control *control, uint32_t rank, const char *sentence)
{
	for (struct caller *caller = control->callers, *next; caller; caller = next) {
		next = caller->next;
		if (caller->dialed && caller->hello.to == rank)
			give_up(control, caller, COLLET_ERR_PEER_LOST, sentence);
	}
}

/* ---- Accepting ---- */

static void welcome(struct collet_control *control, int socket)
{
	struct collet_handshake_config config;
	struct caller *caller = calloc(1, sizeof(*caller));
	if (!caller) {
		close(socket);
		return;
	}
	if (control->strangers >= 4 * control->config.size + 256)
		for (struct caller *old = control->callers_oldest; old; old = old->previous)
			if (!old->dialed) {
				give_up(control, old, COLLET_ERR_TRANSPORT,
					"too many at once, and this was the oldest");
				break;
			}
	caller->socket = socket;
	caller->retry_at = COLLET_NEVER;
	caller->deadline =
		collet_deadline_after(control->config.stranger_ns ? control->config.stranger_ns : STRANGER_NS);
	enlist(control, caller);
	handshake_config(control, &config);
	config.to = control->config.rank;
	collet_status status = collet_handshake_accept(&caller->handshake, socket, &config);
	if (!status && !control_register(control, socket, EPOLLIN, &caller->source))
		status = collet_fail(COLLET_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	if (status)
		give_up(control, caller, status, collet_last_error());
}

void control_door_accept(struct collet_control *control, struct door *door)
{
	struct collet_endpoint from;
	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		int socket = collet_socket_accept(door->socket, &from);
		if (socket >= 0) {
			welcome(control, socket);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
			return;
		/* No descriptor is free. The listener stays readable; look away, or this thread spins. */
		for (uint32_t d = 0; d < 2; d++) {
			if (control->doors[d].registered)
				control_unregister(control, control->doors[d].socket);
			control->doors[d].registered = false;
		}
		control->doors_open_at = collet_deadline_after(DOORS_SHUT_NS);
		return;
	}
}

int64_t control_door_timers(struct collet_control *control)
{
	int64_t next_at = COLLET_NEVER;
	if (collet_deadline_passed(control->doors_open_at)) {
		control->doors_open_at = COLLET_NEVER;
		for (uint32_t d = 0; d < 2; d++) {
			struct door *door = &control->doors[d];
			if (door->socket >= 0)
				door->registered = control_register(control, door->socket, EPOLLIN, &door->source);
		}
	}
	/* What an event may make of the list it makes at once; these two calls end or restart one caller only. */
	for (struct caller *caller = control->callers, *next; caller; caller = next) {
		next = caller->next;
		/* It may be this thread that is late, on a machine with much to do: what has come is heard first. */
		if (collet_deadline_passed(caller->deadline) &&
			!(caller->socket >= 0 && collet_socket_has_input(caller->socket))) {
			if (caller->dialed)
				give_up_dial(control, caller,
					collet_fail(COLLET_ERR_TIMEOUT, "it did not answer within %.3g s",
						(double)control->config.launch->timeout_ns / 1e9));
			else
				give_up(control, caller, COLLET_ERR_TIMEOUT, "it did not finish the handshake in time");
			continue;
		}
		if (caller->deadline < next_at)
			next_at = caller->deadline;
		if (caller->retry_at < next_at)
			next_at = caller->retry_at;
		if (collet_deadline_passed(caller->retry_at))
			dial(control, caller);
	}
	return control->doors_open_at < next_at ? control->doors_open_at : next_at;
}

void control_door_close(struct collet_control *control)
{
	while (control->callers)
		drop(control, control->callers);
	for (uint32_t d = 0; d < 2; d++)
		if (control->doors[d].socket >= 0)
			close(control->doors[d].socket);
}
