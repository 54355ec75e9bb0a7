/* Declares the state of rank 0 during the bootstrap. root.c runs it, root_clients.c serves the clients, missing_ranks.c
 * reports which ranks are missing. */
#ifndef COLLET_BOOTSTRAP_MEET_ROOT_H
#define COLLET_BOOTSTRAP_MEET_ROOT_H

#include "bootstrap/framed_socket.h"
#include "bootstrap/meet/host_table.h"
#include "bootstrap/meet/root_listeners.h"
#include "core/status.h"

enum { COLLET_MISSING_REPORT_MS = 250 };

enum collet_client_stage { CLIENT_HANDSHAKE, CLIENT_REGISTERING, CLIENT_REGISTERED };

/* One connection. Its rank is registered when its peer info has arrived. */
struct collet_root_client {
	struct collet_root_client *next, *previous; /* in the list of all clients, newest first */
	enum collet_client_stage stage;
	int64_t deadline;
	struct collet_handshake handshake;
	struct collet_framed_socket connection;
	struct collet_address from;
	uint32_t rank;
	bool wants_write;
};

struct collet_bootstrap_root {
	struct collet_bootstrap_state *state;
	int epoll_fd;
	struct collet_root_listeners listeners;
	struct collet_root_client *newest, *oldest;
	uint32_t unregistered_count;     /* clients that are not registered yet */
	struct collet_root_client **registered; /* by rank */
	uint32_t registered_count;       /* with rank 0 */
	struct collet_host_table hosts;
	int64_t report_at;
	uint32_t reported_count;         /* registered_count at the last report */
	char last_rejected[COLLET_ERROR_BYTES / 2]; /* address and reason of the last rejected client */
};

/* ---- root_clients.c. Each of these may drop any client, also the one in its argument. */
/* Makes a client of a new connection, and takes ownership of the socket. */
void collet_root_accept_client(struct collet_bootstrap_root *root, int socket, const struct collet_address *from);
/* Handles an event of a client's socket. */
void collet_root_serve_client(struct collet_bootstrap_root *root, struct collet_root_client *client);
/* Rejects unregistered clients whose deadline has passed. Returns the next deadline. */
int64_t collet_root_expire_clients(struct collet_bootstrap_root *root);
void collet_root_drop_client(struct collet_bootstrap_root *root, struct collet_root_client *client);

/* ---- missing_ranks.c */
/* Writes "ranks 3, 5-7, 12 of 16 have not connected to STORE, job 'x'". */
void collet_missing_describe(const struct collet_bootstrap_root *root, char *text, size_t bytes);
/* Writes which rank has not answered what its host's topology is. */
void collet_missing_describe_topology(const struct collet_bootstrap_root *root, char *text, size_t bytes);
/* Sends the missing ranks to all registered clients if they have changed, at most every COLLET_MISSING_REPORT_MS. */
void collet_missing_report(struct collet_bootstrap_root *root);

#endif
