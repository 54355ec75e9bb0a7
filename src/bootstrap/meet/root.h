/* What rank 0 knows during a rendezvous: root.c runs it, root_clients.c has its guests, missing_ranks.c says who
 * is missing. */
#ifndef COLLET_BOOTSTRAP_MEET_ROOT_H
#define COLLET_BOOTSTRAP_MEET_ROOT_H

#include "bootstrap/meet/host_table.h"
#include "bootstrap/meet/internal.h"
#include "core/status.h"

enum { COLLET_NEWS_EVERY_MS = 250 };

enum collet_meet_stage { SHAKING, HANDING_IN, WAITING };

/* A connection: a stranger at first, a member when its card is there. */
struct collet_meet_guest {
	struct collet_meet_guest *next, *previous;  /* all of them, newest first */
	enum collet_meet_stage stage;
	int64_t deadline;
	struct collet_handshake handshake;
	struct collet_link link;
	struct collet_endpoint from;
	uint32_t rank;
	bool wants_write;
};

struct collet_meet_host {
	struct collet_meeting *meeting;
	int epoll_fd;
	struct collet_doors doors;
	struct collet_meet_guest *newest, *oldest;
	uint32_t strangers;              /* guests that are no members yet */
	struct collet_meet_guest **members;  /* by rank */
	uint32_t members_count;          /* this rank included */
	struct collet_sites sites;
	int64_t news_at;
	uint32_t news_count;             /* members_count when news were sent last */
	char turned_away[COLLET_ERROR_BYTES / 2];  /* the last one, and why */
};

/* ---- root_clients.c. Each may drop guests, the one it is given too. */
/* Somebody has connected; the socket is the guest's. */
void collet_reception_welcome(struct collet_meet_host *host, int socket, const struct collet_endpoint *from);
/* Its socket has something to say. */
void collet_reception_serve(struct collet_meet_host *host, struct collet_meet_guest *guest);
/* Turns away strangers whose time is up; when the next one's is. */
int64_t collet_reception_expire(struct collet_meet_host *host);
void collet_reception_drop(struct collet_meet_host *host, struct collet_meet_guest *guest);

/* ---- missing_ranks.c */
/* "ranks 3, 5-7 and 12 of 16 have not come to STORE, job 'x'". */
void collet_absent_describe(const struct collet_meet_host *host, char *text, size_t bytes);
/* All are there, but one that was asked about its host. */
void collet_absent_describe_silent(const struct collet_meet_host *host, char *text, size_t bytes);
/* To those who wait, when it has changed, and not too often. */
void collet_absent_tell(struct collet_meet_host *host);

#endif
