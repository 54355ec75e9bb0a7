/* Opens endpoints.
 *
 * An endpoint is opened when a task first needs it. The rank that needs it dials, over the best transport that both
 * ranks have. The control thread authenticates the connection (bootstrap/meet/handshake.h), with struct collet_hello as
 * its payload. Then the dialed rank replies with one byte:
 *   ACCEPT    this connection is used
 *   USE_MINE  both ranks dialed at the same time: the lower rank's connection is used, and the other rank waits for it
 *   LEFT      the dialed rank has left the communicator
 * After ACCEPT the transport opens the endpoint, on the control threads of both ranks, so that no user's thread is
 * needed. If that fails, the dialing rank tries the next transport. One release store publishes the open endpoint. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/connection_setup.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/peer_queue.h"
#include "engine/sleep.h"
#include "transport/registry.h"

enum setup_reply { SETUP_REPLY_ACCEPT = 'A', SETUP_REPLY_USE_MINE = 'M', SETUP_REPLY_LEFT = 'G' };

void collet_endpoint_destroy(struct collet_endpoint *endpoint)
{
	if (!endpoint)
		return;
	endpoint->transport->close(endpoint);
	free(endpoint);
}

struct collet_connection_setup *collet_connection_setup_create(
	struct collet_engine *engine, const struct collet_hello *hello, bool dialed, int socket)
{
	struct collet_connection_setup *setup = calloc(1, sizeof(*setup));
	if (!setup)
		return NULL;
	setup->engine = engine;
	setup->hello = *hello;
	/* If dialed: hello->transport does not count self, which is first. Else handle_accepted() sets it. */
	setup->transport = hello->transport + 1;
	setup->dialed = dialed;
	setup->socket = socket;
	setup->next_setup = engine->setups;
	setup->previous_setup = &engine->setups;
	if (engine->setups)
		engine->setups->previous_setup = &setup->next_setup;
	engine->setups = setup;
	return setup;
}

void collet_connection_setup_destroy(struct collet_connection_setup *setup)
{
	*setup->previous_setup = setup->next_setup;
	if (setup->next_setup)
		setup->next_setup->previous_setup = setup->previous_setup;
	collet_endpoint_destroy(setup->endpoint);
	if (setup->socket >= 0)
		close(setup->socket);
	free(setup);
}

static void publish_endpoint(struct collet_peer_queue *peer_queue, struct collet_endpoint *endpoint)
{
	/* Pairs with collet_peer_queue_post_ready()'s acquire load. */
	atomic_store_explicit(&peer_queue->endpoint, endpoint, memory_order_release);
	collet_engine_wake(peer_queue->state->engine);
}

static collet_status create_endpoint(struct collet_engine *engine, const struct collet_peer_queue *peer_queue,
	uint32_t transport, bool dialed, int socket, struct collet_endpoint **endpoint)
{
	const struct collet_transport_instance *instance = engine->transports->instances[transport];
	const struct collet_transport *table = instance->transport;
	const size_t bytes = (table->endpoint_bytes + 63) & ~(size_t)63;
	struct collet_endpoint *made = aligned_alloc(64, bytes);
	*endpoint = NULL;
	if (!made) {
		if (socket >= 0)
			close(socket);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a connection");
	}
	memset(made, 0, bytes);
	made->transport = table;
	made->peer = collet_comm_state_world_rank(peer_queue->state, peer_queue->peer);
	made->channel = peer_queue->channel;
	const struct collet_endpoint_config config = {
		.self = &engine->peer_infos[engine->rank],
		.peer = &engine->peer_infos[made->peer],
		.channel = peer_queue->channel,
		.dialed = dialed,
		.socket = socket,
		.wake = &engine->wake,
		.arena = engine->arena,
		.log = &engine->log,
		.services = &collet_transport_services,
		.device = instance->device,
	};
	const enum collet_status status = table->open(made, &config);
	/* Set only after open(): a user's thread may fork at any time, and the child closes the endpoints that it
	 * finds. */
	*endpoint = made;
	return status;
}

/* Chooses the best transport that has not failed for this pair. False if there is none. */
static bool choose_transport(
	const struct collet_engine *engine, const struct collet_peer_queue *peer_queue, uint32_t *index)
{
	const struct collet_peer_info *self = &engine->peer_infos[engine->rank];
	const struct collet_peer_info *peer =
		&engine->peer_infos[collet_comm_state_world_rank(peer_queue->state, peer_queue->peer)];
	for (uint32_t i = 0; i < engine->transports->count; i++) {
		if (!(peer_queue->failed_transports >> i & 1) &&
			collet_transport_instance_reaches(engine->transports->instances[i], self, peer)) {
			*index = i;
			return true;
		}
	}
	return false;
}

static void end_unreachable(struct collet_peer_queue *peer_queue, enum collet_status status, const char *why)
{
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "no connection to rank %u on %s: %s", peer_queue->peer,
		collet_comm_state_host(peer_queue->state, peer_queue->peer), why);
	collet_mismatch_suspect_loss(peer_queue->state, peer_queue->peer, status, error_text);
}

void collet_connection_setup_dial(struct collet_peer_queue *peer_queue, enum collet_status status, const char *why)
{
	struct collet_engine *engine = peer_queue->state->engine;
	uint32_t transport;
	peer_queue->has_dialed = true;
	if (!choose_transport(engine, peer_queue, &transport)) {
		end_unreachable(peer_queue, status, why);
		return;
	}
	const struct collet_hello hello = {
		.communicator = peer_queue->state->id,
		.from = engine->rank,
		.to = collet_comm_state_world_rank(peer_queue->state, peer_queue->peer),
		.channel = peer_queue->channel,
		.transport = transport - 1,  /* the peer info does not list self, which is first */
	};
	const bool local = engine->transports->instances[transport]->transport->caps & COLLET_CAP_LOCAL;
	collet_control_dial(engine->control, &hello, local);
}

static bool watch_setup(void *context);

/* Begins to open the endpoint. advance_setup() finds out whether that failed. On the control thread. */
static void begin_open(struct collet_connection_setup *setup)
{
	const int socket = setup->socket;
	setup->stage = SETUP_OPENING;
	setup->socket = -1;
	setup->open_status = create_endpoint(
		setup->engine, setup->peer_queue, setup->transport, setup->dialed, socket, &setup->endpoint);
}

/* Handles a transport that failed to open: the dialing rank tries the next one. On the control thread. */
static void open_failed(struct collet_connection_setup *setup, enum collet_status status)
{
	struct collet_peer_queue *peer_queue = setup->peer_queue;
	peer_queue->setup = NULL;
	collet_log(&setup->engine->log, COLLET_LOG_INFO, "%s to rank %u: %s",
		setup->engine->transports->instances[setup->transport]->name, peer_queue->peer, collet_last_error());
	if (!setup->dialed)
		return;  /* the dialing side tries the next transport */
	peer_queue->failed_transports |= (uint32_t)1 << setup->transport;
	collet_connection_setup_dial(peer_queue, status, collet_last_error());
}

static void log_opened(const struct collet_connection_setup *setup)
{
	const struct collet_peer_queue *peer_queue = setup->peer_queue;
	collet_log(&setup->engine->log, COLLET_LOG_INFO, "rank %u: %s, channel %u", peer_queue->peer,
		setup->engine->transports->instances[setup->transport]->name, peer_queue->channel);
}

/* Advances a setup as far as it can go now. False if it is finished and destroyed. */
static bool advance_setup(struct collet_connection_setup *setup)
{
	struct collet_peer_queue *peer_queue = setup->peer_queue;
	if (!peer_queue) {
		collet_connection_setup_destroy(setup);
		return false;
	}
	if (setup->stage == SETUP_AWAITS_REPLY) {
		char reply = 0;
		const ssize_t got = recv(setup->socket, &reply, 1, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return true;
		if (got != 1 || reply != SETUP_REPLY_ACCEPT) {
			peer_queue->setup = NULL;
			if (got != 1 || reply != SETUP_REPLY_USE_MINE)
				end_unreachable(peer_queue, COLLET_ERR_PEER_LOST,
					got == 1 ? "it has left this communicator"
						 : "it closed the connection; did it end?");
			collet_connection_setup_destroy(setup);
			return false;
		}
		begin_open(setup);
	}
	/* Also right after begin_open(): both ends may have something to say first, and no event would follow. */
	const collet_status status = setup->open_status != COLLET_OK ? setup->open_status :
		setup->endpoint->transport->open_progress(setup->endpoint);
	if (status == COLLET_PENDING)
		return true;
	if (status == COLLET_OK) {
		log_opened(setup);
		peer_queue->setup = NULL;
		/* In this order: after it is published a user's thread may fork, and the child frees what it finds. */
		struct collet_endpoint *open = setup->endpoint;
		setup->endpoint = NULL;
		publish_endpoint(peer_queue, open);
	} else {
		open_failed(setup, status);
	}
	collet_connection_setup_destroy(setup);
	return false;
}

static bool watch_setup(void *context)
{
	struct collet_connection_setup *setup = context;
	struct collet_engine *engine = setup->engine;
	pthread_mutex_lock(&engine->connections_lock);
	const bool keep_watching = advance_setup(setup);
	pthread_mutex_unlock(&engine->connections_lock);
	return keep_watching;
}

static void watch_socket(struct collet_connection_setup *setup, int socket)
{
	struct collet_peer_queue *peer_queue = setup->peer_queue;
	if (collet_control_watch(setup->engine->control, socket, watch_setup, setup))
		return;
	peer_queue->setup = NULL;
	end_unreachable(peer_queue, COLLET_ERR_MEMORY, "no memory to watch the connection");
	collet_connection_setup_destroy(setup);
}

static void send_reply(const struct collet_connection_setup *setup, enum setup_reply reply)
{
	const char byte = (char)reply;
	/* The socket is new and its buffer empty. If this fails anyway, the dialing rank sees the socket close. */
	const ssize_t sent = send(setup->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
}

void collet_connection_setup_accept(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue)
{
	struct collet_engine *engine = setup->engine;
	if (!peer_queue || atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed)) {
		collet_connection_setup_destroy(setup);
		return;
	}
	const bool dialing = peer_queue->has_dialed && !(peer_queue->setup && !peer_queue->setup->dialed);
	if (dialing && engine->rank < setup->hello.from) {
		send_reply(setup, SETUP_REPLY_USE_MINE);
		collet_connection_setup_destroy(setup);
		return;
	}
	if (peer_queue->setup)
		peer_queue->setup->peer_queue = NULL;
	send_reply(setup, SETUP_REPLY_ACCEPT);
	setup->peer_queue = peer_queue;
	peer_queue->setup = setup;
	const int socket = setup->socket;
	begin_open(setup);
	if (advance_setup(setup))
		watch_socket(setup, socket);
}

void collet_connection_setup_reject(struct collet_connection_setup *setup)
{
	send_reply(setup, SETUP_REPLY_LEFT);
	collet_connection_setup_destroy(setup);
}

void collet_connection_setup_await_reply(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue)
{
	/* The peer's own connection may have been accepted meanwhile, or the connection is not needed any more. */
	if (!peer_queue || peer_queue->setup || atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed)) {
		collet_connection_setup_destroy(setup);
		return;
	}
	setup->peer_queue = peer_queue;
	setup->stage = SETUP_AWAITS_REPLY;
	peer_queue->setup = setup;
	watch_socket(setup, setup->socket);
}

void collet_connection_setup_to_self(struct collet_peer_queue *peer_queue)
{
	struct collet_engine *engine = peer_queue->state->engine;
	struct collet_endpoint *endpoint;
	uint32_t transport;
	peer_queue->has_dialed = true;
	if (choose_transport(engine, peer_queue, &transport) &&
		create_endpoint(engine, peer_queue, transport, true, -1, &endpoint) == COLLET_OK)
		publish_endpoint(peer_queue, endpoint);
	else
		end_unreachable(peer_queue, COLLET_ERR_TRANSPORT, collet_last_error());
}
