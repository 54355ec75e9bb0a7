/* A connection on its way to become a conduit. All under fabric_lock, and what follows from a peer's connection on the
 * control thread. Internal to the fabric. */
#ifndef COLLET_ENGINE_CONNECTION_SETUP_H
#define COLLET_ENGINE_CONNECTION_SETUP_H

#include "control/control.h"

struct collet_engine;
struct collet_peer_queue;

enum collet_connection_stage { SETUP_AWAITS_COMM, SETUP_AWAITS_REPLY, SETUP_OPENING };

/* Belongs to the control thread's watch, or to engine.unclaimed; when the control thread has ended, to
 * engine.openings. */
struct collet_connection_setup {
	struct collet_connection_setup *next_unexpected; /* in unclaimed */
	struct collet_connection_setup *next_setup, **previous_setup;
	struct collet_engine *engine;
	struct collet_peer_queue *peer_queue; /* NULL: given up; the watch cleans up */
	struct collet_hello hello;
	uint32_t transport;              /* in this rank's set */
	bool dialed;
	enum collet_connection_stage stage;
	int socket;                      /* -1 once the conduit has it */
	struct collet_endpoint *endpoint;
	enum collet_status open_status;  /* what open() itself returned */
};

/* NULL: no memory; the socket is the caller's then. */
struct collet_connection_setup *collet_connection_setup_create(
	struct collet_engine *engine, const struct collet_hello *hello, bool dialed, int socket);
void collet_connection_setup_destroy(struct collet_connection_setup *setup);

/* Dials over the best transport that has not been tried. If there is none the route's peer is out of reach: why is what
 * became of the last attempt. */
void collet_connection_setup_dial(struct collet_peer_queue *peer_queue, enum collet_status status, const char *why);
/* A conduit from a rank to itself needs nobody's answer. */
void collet_connection_setup_to_self(struct collet_peer_queue *peer_queue);

/* What becomes of a connection; each takes the opening. */
/* This rank has dialed: wait for the answer. route NULL: it is not needed any more. */
void collet_connection_setup_await_reply(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue);
/* A peer has: it becomes route's conduit, or one of ours is preferred. route NULL: there is no memory for it. */
void collet_connection_setup_accept(struct collet_connection_setup *setup, struct collet_peer_queue *peer_queue);
/* A peer has, for a communicator that this rank has left. */
void collet_connection_setup_reject(struct collet_connection_setup *setup);

/* NULL is fine. */
void collet_endpoint_destroy(struct collet_endpoint *endpoint);

#endif
