/* A store answers one question: where does rank 0 listen? Four kinds behind one table: "tcp" and "unix" know it from
 * the launch itself, "file" and the user's callbacks carry a short text from rank 0 to the others. */
#ifndef COLLET_BOOTSTRAP_STORE_STORE_H
#define COLLET_BOOTSTRAP_STORE_STORE_H

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"

enum { COLLET_MAX_ROOT_ADDRESSES = 64, COLLET_SCAN_PORTS = 16 };

/* Where rank 0 listens, or may listen; tried in order. */
struct collet_root_addresses {
	bool has_unix;
	uint64_t host_id;                /* of whom the Unix name is; 0: of everybody's host, there is only one */
	char unix_name[64];              /* abstract Unix name */
	struct collet_address tcp[COLLET_MAX_ROOT_ADDRESSES]; /* TCP */
	uint32_t tcp_count;
};

struct collet_store {
	const struct collet_store_kind *kind;
	const struct collet_launch *launch;
	char key[320];                   /* file: its path; callbacks: the key */
	char announced[1024];            /* rank 0: what it has written, to take away only that */
};

struct collet_store_kind {
	const char *name;
	bool is_fixed; /* find() tells rank 0 too where to listen; else rank 0 chooses and announces */
	bool is_shared; /* others may legitimately listen where find() points: another job there is passed by */
	/* COLLET_PENDING: not known yet. May wait, but not beyond a second or so. */
	collet_status (*find)(struct collet_store *store, struct collet_root_addresses *addresses);
	collet_status (*announce)(struct collet_store *store, const struct collet_root_addresses *addresses);
	void (*withdraw)(struct collet_store *store);
};

collet_status collet_store_init(struct collet_store *store, const struct collet_launch *launch);

/* "unix:NAME" -> the abstract name that this user's ranks meet at. */
collet_status collet_store_unix_name(const char *name, char unix_name[64]);
/* The i-th port tried above a port that the launcher holds, i < COLLET_SCAN_PORTS: it depends on the job, so that jobs
 * seldom try the same ones; documented in collet(7). */
uint16_t collet_store_scan_port(uint16_t port, const char *job, uint32_t i);

/* May ranks of other hosts come there? Then no listener may be on loopback, even if the way to rank 0 is: Debian gives
 * a host's own name the address 127.0.1.1. */
bool collet_store_spans_hosts(const struct collet_launch *launch);

/* For error texts: "tcp://node7:29500", "the caller's store". */
const char *collet_store_describe(const struct collet_launch *launch);

#endif
