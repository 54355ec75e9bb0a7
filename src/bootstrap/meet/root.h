/* What rank 0 knows during a rendezvous: root.c runs it, root_clients.c has its guests, missing_ranks.c says who
 * is missing. */
#ifndef COLLET_BOOTSTRAP_MEET_ROOT_H
#define COLLET_BOOTSTRAP_MEET_ROOT_H

#include "bootstrap/meet/host_table.h"
#include "bootstrap/meet/internal.h"
#include "core/status.h"

enum { COLLET_MISSING_REPORT_MS = 250 };

enum collet_client_stage { CLIENT_HANDSHAKE, CLIENT_REGISTERING, CLIENT_REGISTERED };

/* A connection: a stranger at first, a member when its card is there. */
struct collet_root_client {
	struct collet_root_client *next, *previous; /* all of them, newest first */
	enum collet_client_stage stage;
	int64_t deadline;
	struct collet_handshake handshake;
	struct collet_link link;
	struct collet_address from;
	uint32_t rank;
	bool wants_write;
};

struct collet_bootstrap_root {
	struct collet_bootstrap_state *state;
	int epoll_fd;
	struct collet_root_listeners listeners;
	struct collet_root_client *newest, *oldest;
	uint32_t unregistered_count;     /* guests that are no members yet */
	struct collet_root_client **registered; /* by rank */
	uint32_t registered_count;       /* this rank included */
	struct collet_host_table hosts;
	int64_t report_at;
	uint32_t reported_count;         /* members_count when news were sent last */
	char last_rejected[COLLET_ERROR_BYTES / 2]; /* the last one, and why */
};

/* ---- root_clients.c. Each may drop guests, the one it is given too. */
/* Somebody has connected; the socket is the guest's. */
void collet_root_accept_client(struct collet_bootstrap_root *root, int socket, const struct collet_address *from);
/* Its socket has something to say. */
void collet_root_serve_client(struct collet_bootstrap_root *root, struct collet_root_client *client);
/* Turns away strangers whose time is up; when the next one's is. */
int64_t collet_root_expire_clients(struct collet_bootstrap_root *root);
void collet_root_drop_client(struct collet_bootstrap_root *root, struct collet_root_client *client);

/* ---- missing_ranks.c */
/* "ranks 3, 5-7 and 12 of 16 have not come to STORE, job 'x'". */
void collet_missing_describe(const struct collet_bootstrap_root *root, char *text, size_t bytes);
/* All are there, but one that was asked about its host. */
void collet_missing_describe_machine(const struct collet_bootstrap_root *root, char *text, size_t bytes);
/* To those who wait, when it has changed, and not too often. */
void collet_missing_report(struct collet_bootstrap_root *root);

#endif
