/* The control plane of one context: one thread that sleeps in epoll and uses no CPU when idle. It accepts and dials
 * connections for conduits (authenticated, never blocking, each with a deadline, so that strangers can neither pass nor
 * hold it up), watches the star, relays small messages between ranks over it, and watches descriptors for the fabric.
 * Nothing that it does depends on when the user's thread next calls.
 *
 * One thread a context rather than one a process: ranks may be threads, and nothing mutable is global. */
#ifndef COLLET_CONTROL_CONTROL_H
#define COLLET_CONTROL_CONTROL_H

#include "bootstrap/bootstrap.h"

struct collet_control;

/* What a connection is for; travels in the handshake, under its authentication. */
struct collet_hello {
	uint64_t communicator;
	uint32_t from, to;       /* world ranks */
	uint32_t channel;
	uint32_t transport;      /* index into transports of the dialing rank's card */
	uint32_t purpose;        /* the fabric's own */
	uint32_t reserved0;
};

/* Called on the control thread, never with a lock of the control plane held; must not block. */
struct collet_control_events {
	/* A connection stands: socket is the receiver's now, non-blocking. dialed: by us, else the peer did. */
	void (*connected)(void *context, const struct collet_hello *hello, bool dialed, int socket);
	/* A dial failed (refused, timed out, not authenticated): status and sentence. */
	void (*dial_failed)(void *context, const struct collet_hello *hello, collet_status status,
		const char *sentence);
	/* The star says that a rank is gone: it died (left: false) or it closed its context in order (left: true). Told
	 * once a rank. */
	void (*peer_gone)(void *context, uint32_t rank, bool orderly, const char *sentence);
	/* A message from another rank, or this one, by collet_control_send. */
	void (*message)(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes);
	/* About every interval_ms while asked for by collet_control_tick(), else never. */
	void (*tick)(void *context);
};

struct collet_control_config {
	uint32_t rank, size;
	const struct collet_launch *launch;      /* lives as long as the control plane, as do the next ones */
	struct collet_bootstrap *bootstrap;      /* star and listeners are taken over; cards and session key are read */
	const struct collet_control_events *events;
	void *context;
	const struct collet_log *log;
	int64_t handshake_timeout_ns;            /* how long a caller may take to prove itself; 0: ten seconds */
};

collet_status collet_control_create(struct collet_control **control, const struct collet_control_config *config);
/* Says good-bye on the star, gives what is queued a short bounded time to leave, joins the thread. No event comes after
 * it returns. NULL and a second call are fine (*control becomes NULL). Called by another thread than the control's. */
void collet_control_destroy(struct collet_control **control);
/* In a forked child: forgets the thread, closes the child's copies of descriptors. */
void collet_control_atfork_child(struct collet_control **control);

/* Any thread. Dials hello->to, another rank, over a Unix socket when local, else TCP; the outcome comes as an event. A
 * rank that does not answer is waited for as long as the launch's timeout says. */
void collet_control_dial(struct collet_control *control, const struct collet_hello *hello, bool local);

enum { COLLET_CONTROL_ALL_RANKS = UINT32_MAX, COLLET_CONTROL_MESSAGE_BYTES = 1024 };
/* Any thread. Sends to a rank, or to all others, over the star (rank 0 relays), in order; never blocks; at most
 * COLLET_CONTROL_MESSAGE_BYTES. Lost only if its rank is, or rank 0. */
void collet_control_send(struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes);

/* Control thread only: calls ready() on the control thread whenever fd is readable (or hung up), and at the latest
 * every 10 ms, until it returns false. Used while a conduit is opening. False: no memory, and ready() will not be
 * called. */
bool collet_control_watch(struct collet_control *control, int fd, bool (*ready)(void *context), void *context);

/* Any thread: interval 0 stops. */
void collet_control_tick(struct collet_control *control, uint32_t interval_ms);

#endif
