/* The connection manager: opens endpoints to peers as they are needed. */
#ifndef COLLET_ENGINE_CONNECTION_MANAGER_H
#define COLLET_ENGINE_CONNECTION_MANAGER_H

#include <stdint.h>

#include <collet/collet.h>

#include "control/control.h"

struct collet_comm_state;
struct collet_engine;
struct collet_peer_queue;

/* The route to peer on channel, made if there is none yet; NULL when out of memory (which ends the group).
 * Under lock. */
struct collet_peer_queue *collet_connections_get_queue(
	struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Makes sure that somebody dials. Under lock. */
void collet_connections_request(struct collet_peer_queue *peer_queue);
/* From here on peers reach the group. Under lock. */
void collet_connections_add(struct collet_comm_state *state);
/* No conduit of the group is open or opening any more, and no control event reaches it. Under lock. */
void collet_connections_remove(struct collet_comm_state *state);
/* In a forked child: frees the child's copies. Takes no lock: who held it at the fork is not here to let go of it. */
void collet_connections_atfork_child(struct collet_comm_state *state);
/* Tells the other ranks that the group has ended. Any thread. */
void collet_connections_notify_end(
	const struct collet_comm_state *state, enum collet_status status, const char *sentence);
/* Tells its members that this rank has left the group, unless that has ended: then they have been told why. Nothing
 * comes from this rank any more. Needed where some of them wait for it without a connection that closes. */
void collet_connections_notify_left(const struct collet_comm_state *state);
void collet_connections_deinit(struct collet_engine *engine);
extern const struct collet_control_events collet_connections_events;

#endif
