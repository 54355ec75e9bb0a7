/* Keeps the communicators that peers may reach and their peer queues, and handles the events of the control thread for
 * them: connections, which connection_setup.c turns into endpoints, lost peers, and ends. All of this is under
 * engine.connections_lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/connection_setup.h"
#include "engine/control_msg.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/peer_queue.h"
#include "transport/registry.h"

/* The end of a communicator that this rank has not created yet. */
struct collet_early_end {
	struct collet_early_end *next;
	struct collet_control_msg_end message;
};

enum { UNEXPECTED_SETUPS_MAX = 4096, EARLY_ENDS_MAX = 256 };

/* ---- Finding ---- */

static struct collet_comm_state *find_state(struct collet_engine *engine, uint64_t id)
{
	struct collet_comm_state *state = engine->reachable_states;
	while (state && state->id != id)
		state = state->next_reachable;
	return state;
}

static bool was_destroyed(const struct collet_engine *engine, uint64_t id)
{
	for (size_t i = 0; i < engine->destroyed_count; i++)
		if (engine->destroyed_ids[i] == id)
			return true;
	return false;
}

/* Returns a world rank's rank in the communicator; state->size if it is not in it. */
static uint32_t comm_rank_of(const struct collet_comm_state *state, uint32_t world_rank)
{
	if (!state->world_ranks)
		return world_rank < state->size ? world_rank : state->size;
	for (uint32_t i = 0; i < state->size; i++)
		if (state->world_ranks[i] == world_rank)
			return i;
	return state->size;
}

/* Returns the queue, creating it if needed. NULL if there is no such channel or peer, or no memory. */
static struct collet_peer_queue *get_peer_queue(struct collet_comm_state *state, uint32_t channel, uint32_t peer)
{
	if (channel >= COLLET_CHANNELS || peer >= state->size)
		return NULL;
	_Atomic(struct collet_peer_queue *) *place = &state->peer_queues[(size_t)channel * state->size + peer];
	struct collet_peer_queue *peer_queue = atomic_load_explicit(place, memory_order_relaxed);
	if (peer_queue)
		return peer_queue;
	peer_queue = calloc(1, sizeof(*peer_queue));
	if (!peer_queue)
		return NULL;
	peer_queue->state = state;
	peer_queue->peer = peer;
	peer_queue->channel = channel;
	peer_queue->next_in_state = state->all_peer_queues;
	state->all_peer_queues = peer_queue;
	/* Pairs with collet_peer_queue_find()'s acquire load. */
	atomic_store_explicit(place, peer_queue, memory_order_release);
	return peer_queue;
}

/* ---- Events, on the control thread ---- */

/* Finds this rank's transport that a dialer names by its index in the dialer's peer info. False if there is none. */
static bool find_dialed_transport(const struct collet_engine *engine, const struct collet_hello *hello, uint32_t *index)
{
	char name[COLLET_TRANSPORT_NAME_BYTES];
	if (hello->transport >= COLLET_PEER_TRANSPORTS)
		return false;
	memcpy(name, engine->peer_infos[hello->from].transports[hello->transport].name, sizeof(name));
	name[sizeof(name) - 1] = '\0';
	return name[0] && collet_transports_find(engine->transports, name, index);
}

static void handle_accepted(struct collet_engine *engine, struct collet_connection_setup *setup)
{
	const struct collet_hello *hello = &setup->hello;
	const bool is_valid = hello->to == engine->rank && hello->from < engine->size && hello->from != engine->rank &&
		find_dialed_transport(engine, hello, &setup->transport);
	struct collet_comm_state *state = is_valid ? find_state(engine, hello->communicator) : NULL;
	if (state) {
		collet_connection_setup_accept(
			setup, get_peer_queue(state, hello->channel, comm_rank_of(state, hello->from)));
	} else if (is_valid && !was_destroyed(engine, hello->communicator) &&
		   engine->unexpected_count < UNEXPECTED_SETUPS_MAX) {
		setup->next_unexpected = engine->unexpected_setups;
		engine->unexpected_setups = setup;
		engine->unexpected_count++;
	} else {
		collet_connection_setup_reject(setup);
	}
}

static void handle_connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->connections_lock);
	struct collet_connection_setup *setup = collet_connection_setup_create(engine, hello, dialed, socket);
	if (!setup) {
		close(socket);  /* the peer sees it close; our deadline names the rank */
	} else if (!dialed) {
		handle_accepted(engine, setup);
	} else {
		struct collet_comm_state *state = find_state(engine, hello->communicator);
		collet_connection_setup_await_reply(
			setup, state ? get_peer_queue(state, hello->channel, comm_rank_of(state, hello->to)) : NULL);
	}
	pthread_mutex_unlock(&engine->connections_lock);
}

static void handle_dial_failed(
	void *context, const struct collet_hello *hello, collet_status status, const char *error_text)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->connections_lock);
	struct collet_comm_state *state = find_state(engine, hello->communicator);
	struct collet_peer_queue *peer_queue =
		state ? get_peer_queue(state, hello->channel, comm_rank_of(state, hello->to)) : NULL;
	if (peer_queue && !peer_queue->setup && !atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed)) {
		/* hello->transport does not count self, which is the engine's transport 0. */
		peer_queue->failed_transports |= (uint32_t)2 << hello->transport;
		collet_connection_setup_dial(peer_queue, status, error_text);
	}
	pthread_mutex_unlock(&engine->connections_lock);
}

/* Marks a rank that has left in order: it has closed its context or destroyed the communicator. Messages that it sent
 * can still be read. A rank that needs more sees its connections close. A GPU waits without a connection, so
 * departed_word tells it. */
static void mark_left(struct collet_comm_state *state, uint32_t peer)
{
	collet_mismatch_peer_left(state, peer);
	pthread_mutex_lock(&state->engine->end_lock);
	if (state->left_ranks)
		atomic_fetch_or_explicit(state->left_ranks, UINT64_C(1) << peer, memory_order_release);
	pthread_mutex_unlock(&state->engine->end_lock);
}

static void handle_peer_gone(void *context, uint32_t rank, bool left, const char *error_text)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->connections_lock);
	if (!left && !engine->first_death[0])
		snprintf(engine->first_death, sizeof(engine->first_death), "%s", error_text);
	for (struct collet_comm_state *state = engine->reachable_states; state; state = state->next_reachable) {
		const uint32_t peer = comm_rank_of(state, rank);
		if (peer == state->size)
			continue;
		if (left)
			mark_left(state, peer);
		else
			collet_comm_state_end(state, COLLET_ERR_PEER_LOST, false, error_text);
	}
	pthread_mutex_unlock(&engine->connections_lock);
}

static void match_unexpected(struct collet_engine *engine)
{
	struct collet_connection_setup *waiting = engine->unexpected_setups;
	engine->unexpected_setups = NULL;
	engine->unexpected_count = 0;
	while (waiting) {
		struct collet_connection_setup *setup = waiting;
		waiting = setup->next_unexpected;
		handle_accepted(engine, setup);
	}
}

/* Stores an end for later. A rank may have created a communicator and ended it while this one is still in the call that
 * creates it. */
static void store_early_end(struct collet_engine *engine, uint64_t id, const void *data)
{
	struct collet_early_end *early = NULL;
	if (!was_destroyed(engine, id) && engine->early_ends_count < EARLY_ENDS_MAX)
		early = malloc(sizeof(*early));
	if (!early)
		return;  /* the rank's own deadline will end it */
	memcpy(&early->message, data, sizeof(early->message));
	early->next = engine->early_ends;
	engine->early_ends = early;
	engine->early_ends_count++;
}

/* Ends a new communicator if its end has already arrived. */
static void apply_early_end(struct collet_engine *engine, struct collet_comm_state *state)
{
	for (struct collet_early_end **at = &engine->early_ends; *at;) {
		struct collet_early_end *early = *at;
		if (early->message.communicator != state->id) {
			at = &early->next;
			continue;
		}
		*at = early->next;
		engine->early_ends_count--;
		collet_mismatch_handle_message(
			state, engine->rank, COLLET_CONTROL_MSG_END, &early->message, sizeof(early->message));
		free(early);
	}
}

static void handle_left(struct collet_comm_state *state, uint32_t from)
{
	const uint32_t peer = comm_rank_of(state, from);
	if (peer != state->size)
		mark_left(state, peer);
}

static void handle_message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	struct collet_engine *engine = context;
	pthread_mutex_lock(&engine->connections_lock);
	if (type == COLLET_CONTROL_MSG_CREATED) {
		match_unexpected(engine);
	} else if (bytes >= sizeof(uint64_t)) {
		uint64_t id;
		memcpy(&id, data, sizeof(id));
		struct collet_comm_state *state = find_state(engine, id);
		if (state && type == COLLET_CONTROL_MSG_DESTROYED)
			handle_left(state, from);
		else if (state)
			collet_mismatch_handle_message(state, from, type, data, bytes);
		else if (type == COLLET_CONTROL_MSG_END && bytes == sizeof(struct collet_control_msg_end))
			store_early_end(engine, id, data);
		else if (type == COLLET_CONTROL_MSG_QUERY && !was_destroyed(engine, id))
			collet_mismatch_reply_unknown(engine, from, data, bytes);
	}
	pthread_mutex_unlock(&engine->connections_lock);
}

const struct collet_control_events collet_connections_events = {
	.connected = handle_connected,
	.dial_failed = handle_dial_failed,
	.peer_gone = handle_peer_gone,
	.message = handle_message,
};

/* ---- Requests of the engine ---- */

struct collet_peer_queue *collet_connections_get_queue(struct collet_comm_state *state, uint32_t channel, uint32_t peer)
{
	struct collet_engine *engine = state->engine;
	pthread_mutex_lock(&engine->connections_lock);
	struct collet_peer_queue *peer_queue = get_peer_queue(state, channel, peer);
	if (peer_queue && peer == state->rank && !peer_queue->has_dialed)
		collet_connection_setup_to_self(peer_queue);
	pthread_mutex_unlock(&engine->connections_lock);
	if (!peer_queue)
		collet_comm_state_end(state, COLLET_ERR_MEMORY, true, "no memory for a connection");
	return peer_queue;
}

void collet_connections_request(struct collet_peer_queue *peer_queue)
{
	if (peer_queue->connection_requested)
		return;
	peer_queue->connection_requested = true;
	struct collet_engine *engine = peer_queue->state->engine;
	pthread_mutex_lock(&engine->connections_lock);
	if (!peer_queue->has_dialed && !peer_queue->setup &&
		!atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed))
		collet_connection_setup_dial(peer_queue, COLLET_ERR_TRANSPORT,
			"the two ranks have no transport in common; see COLLET_TRANSPORT");
	pthread_mutex_unlock(&engine->connections_lock);
}

void collet_connections_add(struct collet_comm_state *state)
{
	struct collet_engine *engine = state->engine;
	pthread_mutex_lock(&engine->connections_lock);
	state->next_reachable = engine->reachable_states;
	engine->reachable_states = state;
	apply_early_end(engine, state);
	const bool waiting = engine->unexpected_setups;
	pthread_mutex_unlock(&engine->connections_lock);
	state->next_in_all = engine->all_states;
	engine->all_states = state;
	if (waiting)
		collet_control_send(engine->control, engine->rank, COLLET_CONTROL_MSG_CREATED, NULL, 0);
}

void collet_connections_remove(struct collet_comm_state *state)
{
	struct collet_engine *engine = state->engine;
	pthread_mutex_lock(&engine->connections_lock);
	for (struct collet_comm_state **at = &engine->reachable_states; *at; at = &(*at)->next_reachable) {
		if (*at == state) {
			*at = state->next_reachable;
			break;
		}
	}
	uint64_t *left = realloc(engine->destroyed_ids, (engine->destroyed_count + 1) * sizeof(*left));
	if (left) {  /* else late dialers wait for their own deadline instead of being told */
		engine->destroyed_ids = left;
		left[engine->destroyed_count++] = state->id;
	}
	for (struct collet_peer_queue *peer_queue = state->all_peer_queues, *next; peer_queue; peer_queue = next) {
		next = peer_queue->next_in_state;
		if (peer_queue->setup)
			peer_queue->setup->peer_queue = NULL;
		collet_peer_queue_deactivate(peer_queue);
		collet_endpoint_destroy(collet_peer_queue_endpoint(peer_queue));
		free(peer_queue);
	}
	state->all_peer_queues = NULL;
	for (size_t i = 0; i < (size_t)COLLET_CHANNELS * state->size; i++)
		atomic_store_explicit(&state->peer_queues[i], NULL, memory_order_relaxed);
	pthread_mutex_unlock(&engine->connections_lock);
}

void collet_connections_atfork_child(struct collet_comm_state *state)
{
	for (struct collet_peer_queue *peer_queue = state->all_peer_queues, *next; peer_queue; peer_queue = next) {
		next = peer_queue->next_in_state;
		collet_endpoint_destroy(atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed));
		free(peer_queue);
	}
	state->all_peer_queues = NULL;
}

/* Sends a message to the other members of a communicator, and to no other rank: it must keep the message for one that
 * does not read, and there is no bound on the communicators of others. */
static void tell_members(
	const struct collet_comm_state *state, enum collet_control_msg_type type, const void *data, size_t bytes)
{
	struct collet_control *control = state->engine->control;
	if (!state->world_ranks) {
		collet_control_send(control, COLLET_CONTROL_ALL_RANKS, type, data, bytes);
		return;
	}
	for (uint32_t r = 0; r < state->size; r++)
		if (r != state->rank)
			collet_control_send(control, state->world_ranks[r], type, data, bytes);
}

void collet_connections_notify_end(
	const struct collet_comm_state *state, enum collet_status status, const char *error_text)
{
	struct collet_control_msg_end end = { .communicator = state->id, .status = (uint32_t)status };
	snprintf(end.error_text, sizeof(end.error_text), "rank %u on %s: %s", state->rank,
		collet_comm_state_host(state, state->rank), error_text);
	tell_members(state, COLLET_CONTROL_MSG_END, &end, sizeof(end));
}

void collet_connections_notify_left(const struct collet_comm_state *state)
{
	const struct collet_control_msg_destroyed left = { .communicator = state->id };
	if (atomic_load_explicit(&state->end_status, memory_order_acquire) != COLLET_OK)
		return;
	tell_members(state, COLLET_CONTROL_MSG_DESTROYED, &left, sizeof(left));
}

/* Frees what the control thread has left. It has ended. */
void collet_connections_deinit(struct collet_engine *engine)
{
	while (engine->setups)
		collet_connection_setup_destroy(engine->setups);
	engine->unexpected_setups = NULL;
	for (struct collet_early_end *early = engine->early_ends, *next; early; early = next) {
		next = early->next;
		free(early);
	}
	engine->early_ends = NULL;
	free(engine->destroyed_ids);
	engine->destroyed_ids = NULL;
}
