/* A connection on its way to become a conduit. All under fabric_lock, and what follows from a peer's connection on the
 * control thread. Internal to the fabric. */
#ifndef COLLET_ENGINE_CONNECTION_SETUP_H
#define COLLET_ENGINE_CONNECTION_SETUP_H

#include "engine/engine.h"

enum collet_opening_stage { AWAITING_GROUP, AWAITING_VERDICT, OPENING };

/* Belongs to the control thread's watch, or to engine.unclaimed; when the control thread has ended, to
 * engine.openings. */
struct collet_opening {
	struct collet_opening *next;     /* in unclaimed */
	struct collet_opening *next_opening, **previous_opening;
	struct collet_engine *engine;
	struct collet_route *route;      /* NULL: given up; the watch cleans up */
	struct collet_hello hello;
	uint32_t transport;              /* in this rank's set */
	bool dialed;
	enum collet_opening_stage stage;
	int socket;                      /* -1 once the conduit has it */
	struct collet_endpoint *conduit;
	enum collet_status begin_failed; /* what open() itself returned */
};

/* NULL: no memory; the socket is the caller's then. */
struct collet_opening *collet_opening_new(
	struct collet_engine *engine, const struct collet_hello *hello, bool dialed, int socket);
void collet_opening_free(struct collet_opening *opening);

/* Dials over the best transport that has not been tried. If there is none the route's peer is out of reach: why is what
 * became of the last attempt. */
void collet_opening_dial(struct collet_route *route, enum collet_status status, const char *why);
/* A conduit from a rank to itself needs nobody's answer. */
void collet_opening_to_self(struct collet_route *route);

/* What becomes of a connection; each takes the opening. */
/* This rank has dialed: wait for the answer. route NULL: it is not needed any more. */
void collet_opening_await(struct collet_opening *opening, struct collet_route *route);
/* A peer has: it becomes route's conduit, or one of ours is preferred. route NULL: there is no memory for it. */
void collet_opening_claim(struct collet_opening *opening, struct collet_route *route);
/* A peer has, for a communicator that this rank has left. */
void collet_opening_refuse(struct collet_opening *opening);

/* NULL is fine. */
void collet_conduit_free(struct collet_endpoint *conduit);

#endif
