/* Runs the control plane of one context: one thread that sleeps in epoll and uses no CPU when idle.
 *
 * The thread accepts and dials connections for endpoints. They are authenticated, non-blocking and have a deadline
 * each, so strangers can neither get in nor delay the thread. It relays small messages between ranks through the hub,
 * which is rank 0, and detects lost ranks. It also watches descriptors for the connection manager. Nothing of this
 * depends on when the user's thread next calls the library.
 *
 * There is one thread per context, not per process, because ranks may be threads and nothing mutable is global. */
#ifndef COLLET_CONTROL_CONTROL_H
#define COLLET_CONTROL_CONTROL_H

#include "bootstrap/bootstrap.h"

struct collet_control;

/* Describes a connection. It is sent as the handshake's payload, so it is authenticated. */
struct collet_hello {
	uint64_t communicator;
	uint32_t from, to;       /* world ranks */
	uint32_t channel;
	uint32_t transport;      /* index into transports of the dialing rank's peer info, which does not list self */
	uint32_t purpose;        /* defined by the connection manager */
	uint32_t reserved0;
};

/* Called on the control thread, without any lock of the control plane. They must not block. */
struct collet_control_events {
	/* A connection is established. The receiver owns the non-blocking socket. dialed: true if this rank dialed,
	 * false if the peer did. */
	void (*connected)(void *context, const struct collet_hello *hello, bool dialed, int socket);
	/* A dial failed: refused, timed out or not authenticated. */
	void (*dial_failed)(void *context, const struct collet_hello *hello, collet_status status,
		const char *error_text);
	/* A rank is gone: it left, which means that it closed its context in order (orderly), or it died. Called once
	 * per rank. */
	void (*peer_gone)(void *context, uint32_t rank, bool orderly, const char *error_text);
	/* A message of collet_control_send() arrived, from another rank or this one. */
	void (*message)(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes);
	/* Called about every interval_ms of collet_control_tick(). */
	void (*tick)(void *context);
};

struct collet_control_config {
	uint32_t rank, size;
	const struct collet_launch *launch;      /* these pointers must live as long as the control plane */
	struct collet_bootstrap *bootstrap;      /* its sockets are taken over; peer infos and session key are read */
	const struct collet_control_events *events;
	void *context;
	const struct collet_log *log;
	int64_t handshake_timeout_ns;            /* time limit for accepted connections; 0: ten seconds */
};

collet_status collet_control_create(struct collet_control **control, const struct collet_control_config *config);
/* Says bye on the control links, gives queued bytes a short bounded time, and joins the thread. No event follows its
 * return. Sets *control to NULL, and accepts NULL there. Must not be called by the control thread. */
void collet_control_destroy(struct collet_control **control);
/* In a forked child: forgets the thread and closes the child's copies of the descriptors. */
void collet_control_atfork_child(struct collet_control **control);

/* Dials the rank hello->to, over a Unix socket if local, else over TCP. The outcome is an event. Waits for a rank that
 * does not answer as long as the launch's timeout allows. Any thread. */
void collet_control_dial(struct collet_control *control, const struct collet_hello *hello, bool local);

enum { COLLET_CONTROL_ALL_RANKS = UINT32_MAX, COLLET_CONTROL_MESSAGE_BYTES = 1024 };
/* Sends at most COLLET_CONTROL_MESSAGE_BYTES to a rank, or to all other ranks. Rank 0 relays messages, in order. Never
 * blocks. A message is lost only if its receiver or rank 0 is lost. It is kept for a rank that does not read, for as
 * long as that lives. So send as many as a rank is told once, such as the end of a communicator. Any thread. */
void collet_control_send(struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes);
/* Does the same for a message that is worth nothing later, such as a question that is asked again. A control link on
 * which much is queued drops it, so a rank that does not read costs others neither memory nor time. */
void collet_control_send_droppable(
	struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes);

/* Calls ready() on the control thread whenever fd is readable or hung up, and at least every 10 ms, until it returns
 * false. Used while an endpoint opens. Returns false, and never calls ready(), if there is no memory. Control thread
 * only. */
bool collet_control_watch(struct collet_control *control, int fd, bool (*ready)(void *context), void *context);

/* Sets the interval of the tick event; 0 stops it. Any thread. */
void collet_control_tick(struct collet_control *control, uint32_t interval_ms);

#endif
