/* The connection manager opens endpoints to peers when they are needed. */
#ifndef COLLET_ENGINE_CONNECTION_MANAGER_H
#define COLLET_ENGINE_CONNECTION_MANAGER_H

#include <stdint.h>

#include <collet/collet.h>

#include "control/control.h"

struct collet_comm_state;
struct collet_engine;
struct collet_peer_queue;

/* Returns the queue to the peer on a channel, creating it if needed. NULL if there is no memory, which ends the
 * communicator. Under the engine's lock. */
struct collet_peer_queue *collet_connections_get_queue(
	struct collet_comm_state *state, uint32_t channel, uint32_t peer);
/* Requests the connection, which this rank or the peer dials. Under the engine's lock. */
void collet_connections_request(struct collet_peer_queue *peer_queue);
/* Lets peers connect to the communicator from now on. Under the engine's lock. */
void collet_connections_add(struct collet_comm_state *state);
/* Closes all endpoints of the communicator, open or opening; no control event reaches it any more. Under the engine's
 * lock. */
void collet_connections_remove(struct collet_comm_state *state);
/* Frees the copies of a forked child. Takes no lock: a thread that held one at the fork does not exist here. */
void collet_connections_atfork_child(struct collet_comm_state *state);
/* Tells the other ranks that the communicator has ended. Any thread. */
void collet_connections_notify_end(
	const struct collet_comm_state *state, enum collet_status status, const char *error_text);
/* Tells the other ranks that this one has left and sends nothing more. Does nothing if the communicator has ended: they
 * have been told why. Only this message reaches a rank that waits without a connection, as GPU kernels do. */
void collet_connections_notify_left(const struct collet_comm_state *state);
void collet_connections_deinit(struct collet_engine *engine);
extern const struct collet_control_events collet_connections_events;

#endif
