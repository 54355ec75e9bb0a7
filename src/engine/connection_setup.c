/* How a conduit comes to be.
 *
 * It is made when a lane first needs it. Whoever needs it dials, over the best transport that both ranks have; a rank
 * that is dialed answers with one byte: ACCEPT, MINE (both dialed at once, and the lower rank's connection is the one
 * that counts: wait for it) or GONE (it has left that communicator). Then the transport opens it, on both sides'
 * control threads, so that it does not depend on where the user's thread is. If that fails the dialing side goes on to
 * the next transport. The open conduit is published with one release store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/connection_setup.h"

enum verdict { VERDICT_ACCEPT = 'A', VERDICT_MINE = 'M', VERDICT_GONE = 'G' };

void collet_conduit_free(struct collet_endpoint *conduit)
{
	if (!conduit)
		return;
	conduit->transport->close(conduit);
	free(conduit);
}

struct collet_opening *collet_opening_new(
	struct collet_engine *engine, const struct collet_hello *hello, bool dialed, int socket)
{
	struct collet_opening *opening = calloc(1, sizeof(*opening));
	if (!opening)
		return NULL;
	opening->engine = engine;
	opening->hello = *hello;
	opening->transport = hello->transport + 1;  /* if dialed; else who has accepted it finds it out */
	opening->dialed = dialed;
	opening->socket = socket;
	opening->next_opening = engine->openings;
	opening->previous_opening = &engine->openings;
	if (engine->openings)
		engine->openings->previous_opening = &opening->next_opening;
	engine->openings = opening;
	return opening;
}

void collet_opening_free(struct collet_opening *opening)
{
	*opening->previous_opening = opening->next_opening;
	if (opening->next_opening)
		opening->next_opening->previous_opening = opening->previous_opening;
	collet_conduit_free(opening->conduit);
	if (opening->socket >= 0)
		close(opening->socket);
	free(opening);
}

static void publish(struct collet_route *route, struct collet_endpoint *conduit)
{
	/* Pairs with collet_route_pump's acquire load. */
	atomic_store_explicit(&route->conduit, conduit, memory_order_release);
	collet_engine_wake(route->group->engine);
}

static collet_status make_conduit(struct collet_engine *engine, const struct collet_route *route, uint32_t transport,
	bool dialed, int socket, struct collet_endpoint **conduit)
{
	const struct collet_transport_instance *offer = engine->transports->instances[transport];
	const struct collet_transport *table = offer->transport;
	const size_t bytes = (table->endpoint_bytes + 63) & ~(size_t)63;
	struct collet_endpoint *made = aligned_alloc(64, bytes);
	*conduit = NULL;
	if (!made) {
		if (socket >= 0)
			close(socket);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a connection");
	}
	memset(made, 0, bytes);
	made->transport = table;
	made->peer = collet_group_world_rank(route->group, route->peer);
	made->channel = route->channel;
	const struct collet_endpoint_config config = {
		.self = &engine->cards[engine->rank],
		.peer = &engine->cards[made->peer],
		.channel = route->channel,
		.dialed = dialed,
		.socket = socket,
		.wake = &engine->wake,
		.arena = engine->arena,
		.log = &engine->log,
		.services = &collet_transport_services,
		.device = offer->device,
	};
	const enum collet_status status = table->open(made, &config);
	/* Not before: a user's thread may fork at any time, and the child closes what it finds. */
	*conduit = made;
	return status;
}

/* The best transport that this pair has not tried in vain; false: none. */
static bool choose_transport(const struct collet_engine *engine, const struct collet_route *route, uint32_t *index)
{
	const struct collet_peer_info *self = &engine->cards[engine->rank];
	const struct collet_peer_info *peer = &engine->cards[collet_group_world_rank(route->group, route->peer)];
	for (uint32_t i = 0; i < engine->transports->count; i++) {
		if (!(route->refused >> i & 1) &&
			collet_transport_instance_reaches(engine->transports->instances[i], self, peer)) {
			*index = i;
			return true;
		}
	}
	return false;
}

static void end_unreachable(struct collet_route *route, enum collet_status status, const char *why)
{
	struct collet_engine *engine = route->group->engine;
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "no connection to rank %u on %s: %s", route->peer,
		engine->cards[collet_group_world_rank(route->group, route->peer)].host, why);
	collet_board_doubt(route->group, route->peer, status, sentence);
}

void collet_opening_dial(struct collet_route *route, enum collet_status status, const char *why)
{
	struct collet_engine *engine = route->group->engine;
	uint32_t transport;
	route->wanted = true;
	if (!choose_transport(engine, route, &transport)) {
		end_unreachable(route, status, why);
		return;
	}
	const struct collet_hello hello = {
		.communicator = route->group->id,
		.from = engine->rank,
		.to = collet_group_world_rank(route->group, route->peer),
		.channel = route->channel,
		.transport = transport - 1,  /* self, which is first, is not on the card */
	};
	const bool local = engine->transports->instances[transport]->transport->caps & COLLET_CAP_LOCAL;
	collet_control_dial(engine->control, &hello, local);
}

static bool watch_opening(void *context);

/* Under fabric_lock, on the control thread. A failure shows at the next look. */
static void begin_opening(struct collet_opening *opening)
{
	const int socket = opening->socket;
	opening->stage = OPENING;
	opening->socket = -1;
	opening->begin_failed = make_conduit(
		opening->engine, opening->route, opening->transport, opening->dialed, socket, &opening->conduit);
}

/* The transport would not do. Under fabric_lock, on the control thread. */
static void opening_failed(struct collet_opening *opening, enum collet_status status)
{
	struct collet_route *route = opening->route;
	route->opening = NULL;
	collet_log(&opening->engine->log, COLLET_LOG_INFO, "%s to rank %u: %s",
		opening->engine->transports->instances[opening->transport]->name, route->peer, collet_last_error());
	if (!opening->dialed)
		return;  /* the dialing side tries the next transport */
	route->refused |= (uint32_t)1 << opening->transport;
	collet_opening_dial(route, status, collet_last_error());
}

static void log_opened(const struct collet_opening *opening)
{
	const struct collet_route *route = opening->route;
	collet_log(&opening->engine->log, COLLET_LOG_INFO, "rank %u: %s, channel %u", route->peer,
		opening->engine->transports->instances[opening->transport]->name, route->channel);
}

/* One look at a connection; false: it needs no more looking after, and opening is gone. Under fabric_lock. */
static bool advance_opening(struct collet_opening *opening)
{
	struct collet_route *route = opening->route;
	if (!route) {
		collet_opening_free(opening);
		return false;
	}
	if (opening->stage == AWAITING_VERDICT) {
		char verdict = 0;
		const ssize_t got = recv(opening->socket, &verdict, 1, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return true;
		if (got == 1 && verdict == VERDICT_ACCEPT) {
			begin_opening(opening);
			return true;
		}
		route->opening = NULL;
		if (got != 1 || verdict != VERDICT_MINE)
			end_unreachable(route, COLLET_ERR_PEER_LOST,
				got == 1 ? "it has left this communicator" : "it closed the connection; did it end?");
		collet_opening_free(opening);
		return false;
	}
	const collet_status status = opening->begin_failed != COLLET_OK ? opening->begin_failed :
		opening->conduit->transport->open_progress(opening->conduit);
	if (status == COLLET_PENDING)
		return true;
	if (status == COLLET_OK) {
		log_opened(opening);
		route->opening = NULL;
		/* In this order: from then on a user's thread may fork, and the child frees what it finds. */
		struct collet_endpoint *open = opening->conduit;
		opening->conduit = NULL;
		publish(route, open);
	} else {
		opening_failed(opening, status);
	}
	collet_opening_free(opening);
	return false;
}

static bool watch_opening(void *context)
{
	struct collet_opening *opening = context;
	struct collet_engine *engine = opening->engine;
	pthread_mutex_lock(&engine->fabric_lock);
	const bool more = advance_opening(opening);
	pthread_mutex_unlock(&engine->fabric_lock);
	return more;
}

static void watch(struct collet_opening *opening, int socket)
{
	struct collet_route *route = opening->route;
	if (collet_control_watch(opening->engine->control, socket, watch_opening, opening))
		return;
	route->opening = NULL;
	end_unreachable(route, COLLET_ERR_MEMORY, "no memory to watch the connection");
	collet_opening_free(opening);
}

static void answer(const struct collet_opening *opening, enum verdict verdict)
{
	const char byte = (char)verdict;
	/* The socket is new and its buffer empty; should it fail all the same, the dialing side sees it close. */
	const ssize_t sent = send(opening->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
}

void collet_opening_claim(struct collet_opening *opening, struct collet_route *route)
{
	struct collet_engine *engine = opening->engine;
	if (!route || atomic_load_explicit(&route->conduit, memory_order_relaxed)) {
		collet_opening_free(opening);
		return;
	}
	const bool dialing = route->wanted && !(route->opening && !route->opening->dialed);
	if (dialing && engine->rank < opening->hello.from) {
		answer(opening, VERDICT_MINE);
		collet_opening_free(opening);
		return;
	}
	if (route->opening)
		route->opening->route = NULL;
	answer(opening, VERDICT_ACCEPT);
	opening->route = route;
	route->opening = opening;
	const int socket = opening->socket;
	begin_opening(opening);
	watch(opening, socket);
}

void collet_opening_refuse(struct collet_opening *opening)
{
	answer(opening, VERDICT_GONE);
	collet_opening_free(opening);
}

void collet_opening_await(struct collet_opening *opening, struct collet_route *route)
{
	/* The peer's own connection may have won meanwhile, or nobody wants it any more. */
	if (!route || route->opening || atomic_load_explicit(&route->conduit, memory_order_relaxed)) {
		collet_opening_free(opening);
		return;
	}
	opening->route = route;
	opening->stage = AWAITING_VERDICT;
	route->opening = opening;
	watch(opening, opening->socket);
}

void collet_opening_to_self(struct collet_route *route)
{
	struct collet_engine *engine = route->group->engine;
	struct collet_endpoint *conduit;
	uint32_t transport;
	route->wanted = true;
	if (choose_transport(engine, route, &transport) &&
		make_conduit(engine, route, transport, true, -1, &conduit) == COLLET_OK)
		publish(route, conduit);
	else
		end_unreachable(route, COLLET_ERR_TRANSPORT, collet_last_error());
}
