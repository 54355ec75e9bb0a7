/* Finds where rank 0 listens. There are four kinds of stores, behind one table of functions. "tcp" and "unix" compute
 * the addresses from struct collet_launch. "file" and the user's callbacks carry a short text from rank 0 to the
 * others. */
#ifndef COLLET_BOOTSTRAP_STORE_STORE_H
#define COLLET_BOOTSTRAP_STORE_STORE_H

#include "bootstrap/address.h"
#include "bootstrap/environment/launch.h"
#include "bootstrap/secret.h"

enum { COLLET_MAX_ROOT_ADDRESSES = 64, COLLET_SCAN_PORTS = 16 };

/* The addresses where rank 0 listens or may listen. Clients try them in order. */
struct collet_root_addresses {
	bool has_unix;
	uint64_t host_id;                /* host of the Unix socket; 0 if all ranks are on one host */
	char unix_name[64];              /* abstract Unix name */
	struct collet_address tcp[COLLET_MAX_ROOT_ADDRESSES];
	uint32_t tcp_count;
	char secret[COLLET_MADE_SECRET_BYTES]; /* made by rank 0 and handed on by the store; "": none */
};

struct collet_store {
	const struct collet_store_kind *kind;
	struct collet_launch *launch;
	char key[320];                   /* file: its path; callbacks: the key */
	char announced[1024];            /* rank 0: the text it wrote; withdraw() removes only that */
	char made_secret[COLLET_MADE_SECRET_BYTES]; /* rank 0: the secret that it has made; "": none */
	bool hands_secret_on;            /* others: the secret came by the store */
};

struct collet_store_kind {
	const char *name;
	bool is_fixed;                   /* find() also tells rank 0 where to listen; else it chooses and announces */
	bool is_shared;                  /* other jobs may listen at these addresses; clients skip them */
	/* Finds the addresses, and gives the launch a secret that the store hands on. Returns COLLET_PENDING if they
	 * are not known yet. May wait for about a second. */
	collet_status (*find)(struct collet_store *store, struct collet_root_addresses *addresses);
	/* On rank 0: publishes its addresses. */
	collet_status (*announce)(struct collet_store *store, const struct collet_root_addresses *addresses);
	/* On rank 0: removes what announce() has written. */
	void (*withdraw)(struct collet_store *store);
};

/* The launch gets a secret if it has none and the store may hand one on. */
collet_status collet_store_init(struct collet_store *store, struct collet_launch *launch);
/* Wipes what it knows of secrets. */
void collet_store_deinit(struct collet_store *store);

/* Computes the abstract name for "unix:NAME", which contains the user's number. */
collet_status collet_store_unix_name(const char *name, char unix_name[64]);
/* Returns the i-th port to try above a port that the launcher uses, i < COLLET_SCAN_PORTS. It depends on the job, so
 * two jobs seldom try the same ports. Documented in collet(7). */
uint16_t collet_store_scan_port(uint16_t port, const char *job, uint32_t i);

/* True if ranks of other hosts may use this store. Then no listener may be on loopback, even if rank 0's name resolves
 * to it: Debian gives a host's own name the address 127.0.1.1. */
bool collet_store_spans_hosts(const struct collet_launch *launch);

/* Returns a name for error texts: "tcp://node7:29500", "the caller's store". */
const char *collet_store_describe(const struct collet_launch *launch);

#endif
