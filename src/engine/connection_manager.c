/* The fabric: which groups and routes there are, and what the control thread has for them: connections, which become
 * conduits in connection_setup.c, lost peers, and ends. All of this is under fabric_lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/connection_setup.h"
#include "engine/control_msg.h"

/* The news that a group has ended, which came before this rank has made it. */
struct collet_early_end {
	struct collet_early_end *next;
	struct collet_control_msg_end message;
};

enum { UNCLAIMED_MOST = 4096, EARLY_ENDS_MOST = 256 };

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

/* ---- Events, on the control thread ---- */

/* Which of this rank's transports a dialer means by a row of its own card; false: none. */
static bool translate(const struct collet_engine *engine, const struct collet_hello *hello, uint32_t *index)
{
	char name[COLLET_TRANSPORT_NAME_BYTES];
	if (hello->transport >= COLLET_PEER_TRANSPORTS)
		return false;
	memcpy(name, engine->cards[hello->from].transports[hello->transport].name, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	return name[0] && collet_transports_find(engine->transports, name, index);
}

static void accepted(struct collet_engine *engine, struct collet_opening *opening)
{
	const struct collet_hello *hello = &opening->hello;
	const bool sane = hello->to == engine->rank && hello->from < engine->size && hello->from != engine->rank &&
		translate(engine, hello, &opening->transport);
	struct collet_group *group = sane ? find_group(engine, hello->communicator) : NULL;
	if (group) {
		collet_opening_claim(opening, get_route(group, hello->channel, rank_in(group, hello->from)));
	} else if (sane && !was_here(engine, hello->communicator) && engine->unclaimed_count < UNCLAIMED_MOST) {
		opening->next = engine->unclaimed;
		engine->unclaimed = opening;
		engine->unclaimed_count++;
	} else {
		collet_opening_refuse(opening);
	}
}

static void connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->fabric_lock);
	struct collet_opening *opening = collet_opening_new(engine, hello, dialed, socket);
	if (!opening) {
		close(socket);  /* the other side sees it close; our deadline names the rank */
	} else if (!dialed) {
		accepted(engine, opening);
	} else {
		struct collet_group *group = find_group(engine, hello->communicator);
		collet_opening_await(
			opening, group ? get_route(group, hello->channel, rank_in(group, hello->to)) : NULL);
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
		collet_opening_dial(route, status, sentence);
	}
	pthread_mutex_unlock(&engine->fabric_lock);
}

/* What a rank that has left has sent may still be read; who needs more of it sees its connections close. Whoever waits
 * for it without a connection, a GPU, sees nothing close. */
static void note_left(struct collet_group *group, uint32_t peer)
{
	collet_board_left(group, peer);
	pthread_mutex_lock(&group->engine->end_lock);
	if (group->left_word)
		atomic_fetch_or_explicit(group->left_word, UINT64_C(1) << peer, memory_order_release);
	pthread_mutex_unlock(&group->engine->end_lock);
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
		if (left)
			note_left(group, peer);
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
		if (early->message.communicator != group->id) {
			at = &early->next;
			continue;
		}
		*at = early->next;
		engine->early_ends_count--;
		collet_board_message(
			group, engine->rank, COLLET_CONTROL_MSG_END, &early->message, sizeof(early->message));
		free(early);
	}
}

static void hear_left(struct collet_group *group, uint32_t from)
{
	const uint32_t peer = rank_in(group, from);
	if (peer != group->size)
		note_left(group, peer);
}

static void message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->fabric_lock);
	if (type == COLLET_CONTROL_MSG_CLAIM) {
		claim_unclaimed(engine);
	} else if (bytes >= sizeof(uint64_t)) {
		uint64_t id;
		memcpy(&id, data, sizeof(id));
		struct collet_group *group = find_group(engine, id);
		if (group && type == COLLET_CONTROL_MSG_DESTROYED)
			hear_left(group, from);
		else if (group)
			collet_board_message(group, from, type, data, bytes);
		else if (type == COLLET_CONTROL_MSG_END && bytes == sizeof(struct collet_control_msg_end))
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
	if (route && peer == group->rank && !route->wanted)
		collet_opening_to_self(route);
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
		collet_opening_dial(
			route, COLLET_ERR_TRANSPORT, "the two ranks have no transport in common; see COLLET_TRANSPORT");
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
		collet_control_send(engine->control, engine->rank, COLLET_CONTROL_MSG_CLAIM, NULL, 0);
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
		collet_conduit_free(atomic_load_explicit(&route->conduit, memory_order_acquire));
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
		collet_conduit_free(atomic_load_explicit(&route->conduit, memory_order_relaxed));
		free(route);
	}
	group->all_routes = NULL;
}

void collet_fabric_tell_end(const struct collet_group *group, enum collet_status status, const char *sentence)
{
	struct collet_control_msg_end end = { .communicator = group->id, .status = (uint32_t)status };
	snprintf(end.sentence, sizeof(end.sentence), "rank %u on %s: %s", group->rank,
		group->engine->cards[group->engine->rank].host, sentence);
	collet_control_send(
		group->engine->control, COLLET_CONTROL_ALL_RANKS, COLLET_CONTROL_MSG_END, &end, sizeof(end));
}

void collet_fabric_tell_left(const struct collet_group *group)
{
	const struct collet_control_msg_destroyed left = { .communicator = group->id };
	if (atomic_load_explicit(&group->ended, memory_order_acquire) != COLLET_OK)
		return;
	for (uint32_t r = 0; r < group->size; r++)
		if (r != group->rank)
			collet_control_send(group->engine->control, collet_group_world_rank(group, r),
				COLLET_CONTROL_MSG_DESTROYED, &left, sizeof(left));
}

/* After the control thread has ended: what it left. */
void collet_fabric_deinit(struct collet_engine *engine)
{
	while (engine->openings)
		collet_opening_free(engine->openings);
	engine->unclaimed = NULL;
	for (struct collet_early_end *early = engine->early_ends, *next; early; early = next) {
		next = early->next;
		free(early);
	}
	engine->early_ends = NULL;
	free(engine->left);
	engine->left = NULL;
}
