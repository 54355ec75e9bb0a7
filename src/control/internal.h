/* What the parts of the control plane share. Everything in struct collet_control belongs to the control thread, but for
 * what the mutex guards. */
#ifndef COLLET_CONTROL_INTERNAL_H
#define COLLET_CONTROL_INTERNAL_H

#include "control/control.h"

#include <pthread.h>

#include "bootstrap/link.h"
#include "bootstrap/meet/handshake.h"
#include "core/clock.h"

/* What an epoll event is about: first member of everything that is registered. */
enum source_kind { SOURCE_WAKE, SOURCE_LISTENER, SOURCE_LINK, SOURCE_PENDING, SOURCE_WATCH, SOURCE_LIVENESS };
struct source {
	enum source_kind kind;
};

/* A listener. */
struct listener {
	struct source source;
	int socket;                      /* -1: none */
	bool registered;
};

/* One end of the star. */
struct control_link {
	struct source source;
	uint32_t rank;                   /* the other end */
	struct collet_link connection;
	bool wants_write;
	bool failed;                     /* to be buried by the next sweep, for the reason below */
	bool said_bye;                   /* it said good-bye */
	bool is_send_broken;             /* the way out broke; what it said before is still to be read */
	char reason[256];
};

/* A connection that is being made, by us or by somebody. */
struct pending_connection {
	struct source source;
	struct pending_connection *next, *previous; /* newest first */
	bool dialed, is_local, wants_write;
	int socket;                      /* -1: to be dialed (again) at retry_at */
	uint32_t attempts;
	int64_t retry_at, deadline;
	struct collet_hello hello;       /* dialed: what was asked for */
	struct collet_handshake handshake;
};

struct watch {
	struct source source;
	struct watch *next;
	/* Our own duplicate, so that it can leave the epoll set whatever became of the original. */
	int socket;
	bool (*ready)(void *context);
	void *context;
};

/* A neighbour's process. */
struct liveness_watch {
	struct source source;
	uint32_t rank;
	int pidfd;                       /* -1: none, or it has ended */
	int64_t report_at;               /* COLLET_NEVER: there is nothing to report */
};

enum { CONTROL_LIVENESS_WATCHES = 2 };   /* the next rank of this host; rank 0 */

/* What other threads ask for. */
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
	bool *gone;                      /* by rank: told already */

	struct listener listeners[2];    /* Unix, TCP */
	int64_t listeners_resume_at;     /* COLLET_NEVER: they are open; else no descriptor was free */
	struct pending_connection *pending, *pending_oldest;
	uint32_t accepted_count;         /* callers that we did not dial */
	struct watch *watches;
	int64_t watches_at, tick_at;
	struct liveness_watch liveness[CONTROL_LIVENESS_WATCHES];
};

/* ---- control.c ---- */
bool control_register(struct collet_control *control, int fd, uint32_t events, struct source *source);
void control_modify(struct collet_control *control, int fd, uint32_t events, struct source *source);
void control_unregister(struct collet_control *control, int fd);

/* ---- hub.c ---- */
/* From this rank. */
void control_hub_send(struct collet_control *control, const struct collet_frame *frame, const void *data);
void control_hub_serve(struct collet_control *control, struct control_link *link);
/* Tells of, and to, everybody about rays that have failed. */
void control_hub_handle_failures(struct collet_control *control);
/* Says good-bye and waits a moment for it to leave. */
void control_hub_say_bye(struct collet_control *control);
/* Its process has ended. Rank 0; or any rank, of rank 0. */
void control_hub_process_died(struct collet_control *control, uint32_t rank);

/* ---- liveness.c ---- */
/* Before the thread starts. */
void control_liveness_start(struct collet_control *control);
void control_liveness_stop(struct collet_control *control);
void control_liveness_serve(struct collet_control *control, struct liveness_watch *liveness);
/* When to be called again. */
int64_t control_liveness_timers(struct collet_control *control);

/* ---- pending_connections.c ---- */
void control_listener_accept(struct collet_control *control, struct listener *listener);
void control_pending_dial(struct collet_control *control, const struct collet_hello *hello, bool local);
void control_pending_serve(struct collet_control *control, struct pending_connection *pending);
/* Deadlines and retries; returns when to call again. */
int64_t control_pending_timers(struct collet_control *control);
/* Gives up dials to a rank that is gone. */
void control_pending_cancel(struct collet_control *control, uint32_t rank, const char *sentence);
void control_pending_close(struct collet_control *control);

#endif
