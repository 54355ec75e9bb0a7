/* Declares what the parts of the control plane share. Only the control thread uses struct collet_control, except for
 * the members that the mutex guards. */
#ifndef COLLET_CONTROL_INTERNAL_H
#define COLLET_CONTROL_INTERNAL_H

#include "control/control.h"

#include <pthread.h>

#include "bootstrap/framed_socket.h"
#include "bootstrap/meet/handshake.h"
#include "core/clock.h"

/* The kind of an epoll event's source. It is the first member of every registered object. */
enum source_kind { SOURCE_WAKE, SOURCE_LISTENER, SOURCE_LINK, SOURCE_PENDING, SOURCE_WATCH, SOURCE_LIVENESS };
struct source {
	enum source_kind kind;
};

struct listener {
	struct source source;
	int socket;                      /* -1: none */
	bool registered;
};

/* The connection between rank 0 and one other rank. */
struct control_link {
	struct source source;
	uint32_t rank;                   /* at the other end */
	struct collet_framed_socket connection;
	bool wants_write;
	bool is_tcp;                     /* to another host, or as if */
	bool awaits_ack;                 /* its host is checked for silence */
	bool failed;                     /* to be closed by control_hub_handle_failures(), for the reason below */
	bool said_bye;                   /* the other end closed in order */
	bool is_send_broken;             /* sending failed; frames that arrived before are still read */
	char reason[256];
};

/* A connection that is being established, dialed or accepted. */
struct pending_connection {
	struct source source;
	struct pending_connection *next, *previous; /* newest first */
	bool dialed, is_local, wants_write;
	int socket;                      /* -1: to be dialed at retry_at */
	uint32_t attempts;
	int64_t retry_at, deadline;
	struct collet_hello hello;       /* only if dialed */
	struct collet_handshake handshake;
};

struct watch {
	struct source source;
	struct watch *next;
	int socket;                      /* a duplicate: it can leave the epoll set after the original is closed */
	bool (*ready)(void *context);
	void *context;
};

/* Watches the process of another rank of this host. */
struct liveness_watch {
	struct source source;
	uint32_t rank;
	int pidfd;                       /* -1: none, or the process has ended */
	int64_t report_at;               /* COLLET_NEVER: nothing to report */
};

enum { CONTROL_LIVENESS_WATCHES = 2 };   /* the next rank of this host; rank 0 */

/* A request of another thread to the control thread: a dial or a message. */
struct control_command {
	struct control_command *next;
	bool is_dial, is_local;
	struct collet_hello hello;
	struct collet_frame frame;
	uint8_t data[];
};

struct collet_control {
	struct collet_control_config config;
	int epoll_fd, wake_fd;
	struct source wake_source;
	pthread_t thread;

	pthread_mutex_t mutex;           /* guards the next four */
	struct control_command *commands, **commands_end;
	uint32_t tick_ms;
	bool stopping;

	struct control_link *links;      /* rank 0: by rank, its own unused; others: one, to rank 0 */
	uint32_t link_count;
	uint32_t failed_count;
	bool *gone;                      /* by rank: reported as gone */
	int64_t silence_check_at;        /* COLLET_NEVER: all that was sent has been acknowledged */

	struct listener listeners[2];    /* Unix, TCP */
	int64_t listeners_resume_at;     /* COLLET_NEVER: not paused; they pause when no descriptor is free */
	struct pending_connection *pending, *pending_oldest;
	uint32_t accepted_count;         /* pending connections that were accepted */
	struct watch *watches;
	int64_t watches_at, tick_at;
	struct liveness_watch liveness[CONTROL_LIVENESS_WATCHES];
};

/* ---- control.c ---- */
bool control_register(struct collet_control *control, int fd, uint32_t events, struct source *source);
void control_modify(struct collet_control *control, int fd, uint32_t events, struct source *source);
void control_unregister(struct collet_control *control, int fd);

/* ---- hub.c ---- */
/* Sends a frame of this rank. */
void control_hub_send(struct collet_control *control, const struct collet_frame *frame, const void *data);
/* Handles an event of a control link. */
void control_hub_serve(struct collet_control *control, struct control_link *link);
/* Looks for silent hosts among those that have not acknowledged everything. Returns when to call it again. */
int64_t control_hub_timers(struct collet_control *control);
/* Closes the failed links, and reports their ranks as gone here and, from rank 0, to all others. */
void control_hub_handle_failures(struct collet_control *control);
/* Says bye on all links, and waits a short time until it is sent. */
void control_hub_say_bye(struct collet_control *control);
/* Fails the link of a rank whose process has ended. Only rank 0 may call it for other ranks than rank 0. */
void control_hub_process_died(struct collet_control *control, uint32_t rank);

/* ---- liveness.c ---- */
/* Starts the watches. Called before the thread starts. */
void control_liveness_start(struct collet_control *control);
void control_liveness_stop(struct collet_control *control);
/* Handles the end of a watched process. */
void control_liveness_serve(struct collet_control *control, struct liveness_watch *liveness);
/* Reports deaths that are due. Returns when to call it again. */
int64_t control_liveness_timers(struct collet_control *control);

/* ---- pending_connections.c ---- */
void control_listener_accept(struct collet_control *control, struct listener *listener);
void control_pending_dial(struct collet_control *control, const struct collet_hello *hello, bool local);
void control_pending_serve(struct collet_control *control, struct pending_connection *pending);
/* Handles deadlines and retries. Returns when to call it again. */
int64_t control_pending_timers(struct collet_control *control);
/* Fails all dials to a rank that is gone. */
void control_pending_cancel(struct collet_control *control, uint32_t rank, const char *error_text);
void control_pending_close(struct collet_control *control);

#endif
