/* Turns a connection into an endpoint. Internal to the connection manager. Everything is under engine.connections_lock;
 * what follows from a peer's connection runs on the control thread. */
#ifndef COLLET_ENGINE_CONNECTION_SETUP_H
#define COLLET_ENGINE_CONNECTION_SETUP_H

#include "control/control.h"

struct collet_engine;
struct collet_peer_queue;

enum collet_connection_stage {
	SETUP_AWAITS_COMM,  /* a peer dialed before this rank created the communicator */
	SETUP_AWAITS_REPLY, /* this rank dialed, and waits for the byte that connection_setup.c describes */
	SETUP_OPENING       /* the transport opens the endpoint */
};

/* Owned by the control thread's watch, or by engine.unexpected_setups; after the control thread's end, by
 * engine.setups. */
struct collet_connection_setup {
	struct collet_connection_setup *next_unexpected; /* in engine.unexpected_setups */
	struct collet_connection_setup *next_setup, **previous_setup;
	struct collet_engine *engine;
	struct collet_peer_queue *peer_queue; /* NULL: abandoned; the watch destroys it */
	struct collet_hello hello;
	uint32_t transport;              /* index in this rank's set */
	bool dialed;
	enum collet_connection_stage stage;
	int socket;                      /* -1 once the endpoint owns it */
	struct collet_endpoint *endpoint;
	enum collet_status open_status;  /* what the transport's open() returned */
};

/* Returns NULL if there is no memory; then the caller keeps the socket. */
struct collet_connection_setup *collet_connection_setup_create(
	struct collet_engine *engine, const struct collet_hello *hello, bool dialed, int socket);
void collet_connection_setup_destroy(struct collet_connection_setup *setup);

/* Dials over the best transport that has not been tried. If there is none, the peer is unreachable; status and why tell
 * how the last attempt failed. */
void collet_connection_setup_dial(struct collet_peer_queue *peer_queue, enum collet_status status, const char *why);
/* Opens an endpoint from a rank to itself, which needs no reply. */
void collet_connection_setup_to_self(struct collet_peer_queue *peer_queue);

/* The next three functions decide about a new connection and take ownership of its setup. */
/* Waits for the reply to a connection that this rank dialed. peer_queue NULL: it is not needed any more. */
void collet_connection_setup_await_reply(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue);
/* Accepts a connection that a peer dialed as the queue's endpoint, unless a connection of this rank takes precedence.
 * peer_queue NULL: there is no memory for it. */
void collet_connection_setup_accept(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue);
/* Rejects a connection that a peer dialed for a communicator that this rank has left. */
void collet_connection_setup_reject(struct collet_connection_setup *setup);

/* Closes and frees an endpoint. NULL is fine. */
void collet_endpoint_destroy(struct collet_endpoint *endpoint);

#endif
