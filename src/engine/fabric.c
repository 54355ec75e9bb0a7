/* The fabric: which conduits there are, and how they come to be.
 *
 * A conduit is made when a lane first needs it. Whoever needs it dials, over the best transport that both ranks have; a
 * rank that is dialed answers with one byte: ACCEPT, MINE (both dialed at once, and the lower rank's connection is the
 * one that counts: wait for it) or GONE (it has left that communicator). Then the transport opens it, on both sides'
 * control threads, so that it does not depend on where the user's thread is. If that fails the dialing side goes on to
 * the next transport. All of this is under fabric_lock; the open conduit is published with one release store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/messages.h"

enum verdict { VERDICT_ACCEPT = 'A', VERDICT_MINE = 'M', VERDICT_GONE = 'G' };

enum stage { AWAITING_GROUP, AWAITING_VERDICT, OPENING };

/* A connection on its way to become a conduit. Belongs to the control thread's watch, or to engine.unclaimed; when the
 * control thread has ended, to engine.openings. */
struct collet_opening {
	struct collet_opening *next;     /* in unclaimed */
	struct collet_opening *next_opening, **previous_opening;
	struct collet_engine *engine;
	struct collet_route *route;        /* NULL: given up; the watch cleans up */
	struct collet_hello hello;
	uint32_t transport;              /* in this rank's set */
	bool dialed;
	enum stage stage;
	int socket;                      /* -1 once the conduit has it */
	struct collet_conduit *conduit;
	enum collet_status begin_failed; /* what open() itself returned */
};

/* The news that a group has ended, which came before this rank has made it. */
struct collet_early_end {
	struct collet_early_end *next;
	struct collet_message_end message;
};

enum { UNCLAIMED_MOST = 4096, EARLY_ENDS_MOST = 256 };

static void free_conduit(struct collet_conduit *conduit)
{
	if (!conduit)
		return;
	conduit->transport->close(conduit);
	free(conduit);
}

static void free_opening(struct collet_opening *opening)
{
	*opening->previous_opening = opening->next_opening;
	if (opening->next_opening)
		opening->next_opening->previous_opening = opening->previous_opening;
	free_conduit(opening->conduit);
	if (opening->socket >= 0)
		close(opening->socket);
	free(opening);
}

/* ---- Finding ---- */

static struct collet_group *find_group(struct collet_engine *engine, uint64_t id)
{
	struct collet_group *group = engine->groups;
	while (group && group->id != id)
		group = group->next;
	return group;
}

static bool was_here(const struct collet_engine *engine, uint64_t id)
{
	for (size_t i = 0; i < engine->left_count; i++)
		if (engine->left[i] == id)
			return true;
	return false;
}

/* The rank in the group of a world rank; group->size if it is not in it. */
static uint32_t rank_in(const struct collet_group *group, uint32_t world_rank)
{
	if (!group->world)
		return world_rank < group->size ? world_rank : group->size;
	for (uint32_t i = 0; i < group->size; i++)
		if (group->world[i] == world_rank)
			return i;
	return group->size;
}

/* Under fabric_lock. NULL: no such channel or peer, or no memory. */
static struct collet_route *get_route(struct collet_group *group, uint32_t channel, uint32_t peer)
{
	if (channel >= COLLET_CHANNELS || peer >= group->size)
		return NULL;
	_Atomic(struct collet_route *) *place = &group->routes[(size_t)channel * group->size + peer];
	struct collet_route *route = atomic_load_explicit(place, memory_order_relaxed);
	if (route)
		return route;
	route = calloc(1, sizeof(*route));
	if (!route)
		return NULL;
	route->group = group;
	route->peer = peer;
	route->channel = channel;
	route->next_in_group = group->all_routes;
	group->all_routes = route;
	/* Pairs with collet_route_peek's acquire load. */
	atomic_store_explicit(place, route, memory_order_release);
	return route;
}

/* ---- Making a conduit ---- */

static void publish(struct collet_route *route, struct collet_conduit *conduit)
{
	/* Pairs with collet_route_pump's acquire load. */
	atomic_store_explicit(&route->conduit, conduit, memory_order_release);
	collet_engine_wake(route->group->engine);
}

static collet_status make_conduit(struct collet_engine *engine, const struct collet_route *route, uint32_t transport,
	bool dialed, int socket, struct collet_conduit **conduit)
{
	const struct collet_offer *offer = engine->transports->offer[transport];
	const struct collet_transport *table = offer->transport;
	const size_t bytes = (table->conduit_bytes + 63) & ~(size_t)63;
	struct collet_conduit *made = aligned_alloc(64, bytes);
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
	const struct collet_conduit_config config = {
		.self = &engine->cards[engine->rank],
		.peer = &engine->cards[made->peer],
		.channel = route->channel,
		.dialed = dialed,
		.socket = socket,
		.wake = &engine->wake,
		.arena = engine->arena,
		.log = &engine->log,
		.host = &collet_host_functions,
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
	const struct collet_card *self = &engine->cards[engine->rank];
	const struct collet_card *peer = &engine->cards[collet_group_world_rank(route->group, route->peer)];
	for (uint32_t i = 0; i < engine->transports->count; i++) {
		if (!(route->refused >> i & 1) && collet_offer_reaches(engine->transports->offer[i], self, peer)) {
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

/* Under fabric_lock. why: what became of the last attempt. */
static void dial(struct collet_route *route, enum collet_status status, const char *why)
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
	const bool local = engine->transports->offer[transport]->transport->caps & COLLET_CAP_LOCAL;
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
		opening->engine->transports->offer[opening->transport]->name, route->peer, collet_last_error());
	if (!opening->dialed)
		return;  /* the dialing side tries the next transport */
	route->refused |= (uint32_t)1 << opening->transport;
	dial(route, status, collet_last_error());
}

static void log_opened(const struct collet_opening *opening)
{
	const struct collet_route *route = opening->route;
	collet_log(&opening->engine->log, COLLET_LOG_INFO, "rank %u: %s, channel %u", route->peer,
		opening->engine->transports->offer[opening->transport]->name, route->channel);
}

/* One look at a connection; false: it needs no more looking after, and opening is gone. Under fabric_lock. */
static bool advance_opening(struct collet_opening *opening)
{
	struct collet_route *route = opening->route;
	if (!route) {
		free_opening(opening);
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
		free_opening(opening);
		return false;
	}
	const collet_status status = opening->begin_failed != COLLET_OK ? opening->begin_failed :
		opening->conduit->transport->opening(opening->conduit);
	if (status == COLLET_PENDING)
		return true;
	if (status == COLLET_OK) {
		log_opened(opening);
		route->opening = NULL;
		/* In this order: from then on a user's thread may fork, and the child frees what it finds. */
		struct collet_conduit *open = opening->conduit;
		opening->conduit = NULL;
		publish(route, open);
	} else {
		opening_failed(opening, status);
	}
	free_opening(opening);
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
	free_opening(opening);
}

static void answer(const struct collet_opening *opening, enum verdict verdict)
{
	const char byte = (char)verdict;
	/* The socket is new and its buffer empty; should it fail all the same, the dialing side sees it close. */
	const ssize_t sent = send(opening->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
}

/* A peer's connection to a group of ours. Under fabric_lock, on the control thread. */
static void claim(struct collet_opening *opening, struct collet_group *group)
{
	struct collet_engine *engine = opening->engine;
	struct collet_route *route = get_route(group, opening->hello.channel, rank_in(group, opening->hello.from));
	if (!route || atomic_load_explicit(&route->conduit, memory_order_relaxed)) {
		free_opening(opening);
		return;
	}
	const bool dialing = route->wanted && !(route->opening && !route->opening->dialed);
	if (dialing && engine->rank < opening->hello.from) {
		answer(opening, VERDICT_MINE);
		free_opening(opening);
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

/* ---- Events, on the control thread ---- */

/* Which of this rank's transports a dialer means by a row of its own card; false: none. */
static bool translate(const struct collet_engine *engine, const struct collet_hello *hello, uint32_t *index)
{
	char name[COLLET_TRANSPORT_NAME_BYTES];
	if (hello->transport >= COLLET_CARD_TRANSPORTS)
		return false;
	memcpy(name, engine->cards[hello->from].transports[hello->transport].name, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	return name[0] && collet_offer_find(engine->transports, name, index);
}

static void accepted(struct collet_engine *engine, struct collet_opening *opening)
{
	const struct collet_hello *hello = &opening->hello;
	const bool sane = hello->to == engine->rank && hello->from < engine->size && hello->from != engine->rank &&
		translate(engine, hello, &opening->transport);
	struct collet_group *group = sane ? find_group(engine, hello->communicator) : NULL;
	if (group) {
		claim(opening, group);
	} else if (sane && !was_here(engine, hello->communicator) && engine->unclaimed_count < UNCLAIMED_MOST) {
		opening->next = engine->unclaimed;
		engine->unclaimed = opening;
		engine->unclaimed_count++;
	} else {
		answer(opening, VERDICT_GONE);
		free_opening(opening);
	}
}

static void connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	struct collet_engine *engine = context;
	struct collet_opening *opening = calloc(1, sizeof(*opening));
	if (!opening) {
		close(socket);  /* the other side sees it close; our deadline names the rank */
		return;
	}
	opening->engine = engine;
	opening->hello = *hello;
	opening->transport = hello->transport + 1;  /* if dialed; else accepted() finds it out */
	opening->dialed = dialed;
	opening->socket = socket;
	pthread_mutex_lock(&engine->fabric_lock);
	opening->next_opening = engine->openings;
	opening->previous_opening = &engine->openings;
	if (engine->openings)
		engine->openings->previous_opening = &opening->next_opening;
	engine->openings = opening;
	if (!dialed) {
		accepted(engine, opening);
	} else {
		struct collet_group *group = find_group(engine, hello->communicator);
		struct collet_route *route = group ? get_route(group, hello->channel, rank_in(group, hello->to)) : NULL;
		if (!route || route->opening || atomic_load_explicit(&route->conduit, memory_order_relaxed)) {
			free_opening(
				opening); /* the peer's own connection has won meanwhile, or nobody wants it any more */
		} else {
			opening->route = route;
			opening->stage = AWAITING_VERDICT;
			route->opening = opening;
			watch(opening, socket);
		}
	}
	pthread_mutex_unlock(&engine->fabric_lock);
}

static void dial_failed(void *context, const struct collet_hello *hello, collet_status status, const char *sentence)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->fabric_lock);
	struct collet_group *group = find_group(engine, hello->communicator);
	struct collet_route *route = group ? get_route(group, hello->channel, rank_in(group, hello->to)) : NULL;
	if (route && !route->opening && !atomic_load_explicit(&route->conduit, memory_order_relaxed)) {
		route->refused |= (uint32_t)2 << hello->transport;
		dial(route, status, sentence);
	}
	pthread_mutex_unlock(&engine->fabric_lock);
}

static void peer_gone(void *context, uint32_t rank, bool left, const char *sentence)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->fabric_lock);
	if (!left && !engine->first_death[0])
		snprintf(engine->first_death, sizeof(engine->first_death), "%s", sentence);
	for (struct collet_group *group = engine->groups; group; group = group->next) {
		const uint32_t peer = rank_in(group, rank);
		if (peer == group->size)
			continue;
		/* What a rank that has left has sent may still be read; who needs more of it sees its connections
		 * close. */
		if (left)
			collet_board_left(group, peer);
		else
			collet_group_end(group, COLLET_ERR_PEER_LOST, false, sentence);
	}
	pthread_mutex_unlock(&engine->fabric_lock);
}

static void claim_unclaimed(struct collet_engine *engine)
{
	struct collet_opening *waiting = engine->unclaimed;
	engine->unclaimed = NULL;
	engine->unclaimed_count = 0;
	while (waiting) {
		struct collet_opening *opening = waiting;
		waiting = opening->next;
		accepted(engine, opening);
	}
}

/* A rank may have made a communicator, and ended it, while another is on its way out of the call that makes it. */
static void keep_early_end(struct collet_engine *engine, uint64_t id, const void *data)
{
	struct collet_early_end *early = NULL;
	if (!was_here(engine, id) && engine->early_ends_count < EARLY_ENDS_MOST)
		early = malloc(sizeof(*early));
	if (!early)
		return;  /* the rank's own deadline will end it */
	memcpy(&early->message, data, sizeof(early->message));
	early->next = engine->early_ends;
	engine->early_ends = early;
	engine->early_ends_count++;
}

/* Tells a new group of its end, if that has come already. */
static void take_early_end(struct collet_engine *engine, struct collet_group *group)
{
	for (struct collet_early_end **at = &engine->early_ends; *at;) {
		struct collet_early_end *early = *at;
		if (early->message.group != group->id) {
			at = &early->next;
			continue;
		}
		*at = early->next;
		engine->early_ends_count--;
		collet_board_message(group, engine->rank, COLLET_MESSAGE_END, &early->message, sizeof(early->message));
		free(early);
	}
}

static void message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->fabric_lock);
	if (type == COLLET_MESSAGE_CLAIM) {
		claim_unclaimed(engine);
	} else if (bytes >= sizeof(uint64_t)) {
		uint64_t id;
		memcpy(&id, data, sizeof(id));
		struct collet_group *group = find_group(engine, id);
		if (group)
			collet_board_message(group, from, type, data, bytes);
		else if (type == COLLET_MESSAGE_END && bytes == sizeof(struct collet_message_end))
			keep_early_end(engine, id, data);
	}
	pthread_mutex_unlock(&engine->fabric_lock);
}

const struct collet_control_events collet_fabric_events = {
	.connected = connected,
	.dial_failed = dial_failed,
	.peer_gone = peer_gone,
	.message = message,
};

/* ---- What the engine asks for ---- */

struct collet_route *collet_fabric_route(struct collet_group *group, uint32_t channel, uint32_t peer)
{
	struct collet_engine *engine = group->engine;
	pthread_mutex_lock(&engine->fabric_lock);
	struct collet_route *route = get_route(group, channel, peer);
	if (route && peer == group->rank && !route->wanted) {
		route->wanted = true;
		struct collet_conduit *conduit;
		uint32_t transport;
		if (choose_transport(engine, route, &transport) &&
			make_conduit(engine, route, transport, true, -1, &conduit) == COLLET_OK)
			publish(route, conduit);
		else
			end_unreachable(route, COLLET_ERR_TRANSPORT, collet_last_error());
	}
	pthread_mutex_unlock(&engine->fabric_lock);
	if (!route)
		collet_group_end(group, COLLET_ERR_MEMORY, true, "no memory for a connection");
	return route;
}

void collet_fabric_want(struct collet_route *route)
{
	if (route->asked)
		return;
	route->asked = true;
	struct collet_engine *engine = route->group->engine;
	pthread_mutex_lock(&engine->fabric_lock);
	if (!route->wanted && !route->opening && !atomic_load_explicit(&route->conduit, memory_order_relaxed))
		dial(route, COLLET_ERR_TRANSPORT, "the two ranks have no transport in common; see COLLET_TRANSPORT");
	pthread_mutex_unlock(&engine->fabric_lock);
}

void collet_fabric_add(struct collet_group *group)
{
	struct collet_engine *engine = group->engine;
	pthread_mutex_lock(&engine->fabric_lock);
	group->next = engine->groups;
	engine->groups = group;
	take_early_end(engine, group);
	const bool waiting = engine->unclaimed;
	pthread_mutex_unlock(&engine->fabric_lock);
	group->next_used = engine->used_groups;
	engine->used_groups = group;
	if (waiting)
		collet_control_send(engine->control, engine->rank, COLLET_MESSAGE_CLAIM, NULL, 0);
}

void collet_fabric_remove(struct collet_group *group)
{
	struct collet_engine *engine = group->engine;
	pthread_mutex_lock(&engine->fabric_lock);
	for (struct collet_group **at = &engine->groups; *at; at = &(*at)->next) {
		if (*at == group) {
			*at = group->next;
			break;
		}
	}
	uint64_t *left = realloc(engine->left, (engine->left_count + 1) * sizeof(*left));
	if (left) {  /* else late dialers wait for their own deadline instead of being told */
		engine->left = left;
		left[engine->left_count++] = group->id;
	}
	for (struct collet_route *route = group->all_routes, *next; route; route = next) {
		next = route->next_in_group;
		if (route->opening)
			route->opening->route = NULL;
		collet_route_stop(route);
		free_conduit(atomic_load_explicit(&route->conduit, memory_order_acquire));
		free(route);
	}
	group->all_routes = NULL;
	for (size_t i = 0; i < (size_t)COLLET_CHANNELS * group->size; i++)
		atomic_store_explicit(&group->routes[i], NULL, memory_order_relaxed);
	pthread_mutex_unlock(&engine->fabric_lock);
}

void collet_fabric_forget(struct collet_group *group)
{
	for (struct collet_route *route = group->all_routes, *next; route; route = next) {
		next = route->next_in_group;
		free_conduit(atomic_load_explicit(&route->conduit, memory_order_relaxed));
		free(route);
	}
	group->all_routes = NULL;
}

void collet_fabric_tell_end(const struct collet_group *group, enum collet_status status, const char *sentence)
{
	struct collet_message_end end = { .group = group->id, .status = (uint32_t)status };
	snprintf(end.sentence, sizeof(end.sentence), "rank %u on %s: %s", group->rank,
		group->engine->cards[group->engine->rank].host, sentence);
	collet_control_send(group->engine->control, COLLET_CONTROL_EVERYBODY, COLLET_MESSAGE_END, &end, sizeof(end));
}

/* After the control thread has ended: what it left. */
void collet_fabric_deinit(struct collet_engine *engine)
{
	while (engine->openings)
		free_opening(engine->openings);
	engine->unclaimed = NULL;
	for (struct collet_early_end *early = engine->early_ends, *next; early; early = next) {
		next = early->next;
		free(early);
	}
	engine->early_ends = NULL;
	free(engine->left);
	engine->left = NULL;
}
