/* Two ends of a conduit, connected: what every test of a transport starts from. A transport that reaches only the rank
 * itself has one conduit, which is both ends. */
#ifndef TESTS_TRANSPORT_PAIR_H
#define TESTS_TRANSPORT_PAIR_H

#include "transport/registry.h"

struct end {
	struct collet_peer_info card;
	struct collet_transport_set set;  /* of the one transport, and self; from pair_begin() on */
	const struct collet_transport_instance *offer;
	struct collet_wake wake;
	struct collet_log log;
	struct collet_arena *arena;  /* NULL, or set between pair_connect() and pair_begin() */
	struct collet_endpoint *conduit;
};

struct pair {
	const char *name;
	const struct collet_transport *transport;  /* of the end begun last */
	bool single;              /* ends[1].conduit is ends[0].conduit */
	int sockets[2];           /* not yet given to a conduit, else -1 */
	int socket_buffer_bytes;  /* != 0: asked of the kernel for both directions before pair_connect() */
	struct end ends[2];
};

/* Rank 10 on "alpha" and rank 11 on "beta" (one host by its id; the names only to be found in sentences). */
enum { FIRST_RANK = 10 };

/* Cards, wakes and connected sockets, for a transport named as in COLLET_TRANSPORT. processes: the ends will live in
 * two processes. */
void pair_connect(struct pair *pair, const char *name, bool processes);
/* Only the sockets, of a loopback TCP connection. */
void pair_connect_tcp(struct pair *pair);
/* Opens one end in this process and waits, driving the other end too if it is open here, until it is ready. */
void pair_begin(struct pair *pair, int which);
collet_status pair_await(struct pair *pair, int which);
/* connect, begin both, await both; the ends are used by this process. */
void pair_open(struct pair *pair, const char *name);
void pair_close(struct pair *pair);

/* Calls progress on the ends open here until the transfer is no longer pending; false after 20 s. */
bool pair_settle(struct pair *pair, const struct collet_transfer *transfer);
/* The same for one end only. */
bool end_settle(struct end *end, const struct collet_transfer *transfer);
/* The same, sleeping: never spins, so a wake-up that gets lost is a failure. */
bool end_settle_asleep(struct end *end, const struct collet_transfer *transfer);
/* Peeks until there is a message, true, or the conduit has ended. */
bool end_peek(struct end *end, struct collet_message *message, bool asleep);

/* Transfers with a message of their own: signature 7, this sequence. */
struct collet_transfer transfer_of(uint64_t sequence, void *data, size_t bytes);

/* Bytes that differ by seed and place. */
void pattern_fill(void *data, size_t bytes, uint64_t seed);
bool pattern_is(const void *data, size_t bytes, uint64_t seed);

/* One body, a row for every transport that is asked for: named transport/promise, *state is the transport's name. */
struct promise {
	const char *name;
	void (*run)(void **state);
};
int run_on_transports(const char *group, const struct promise *promises, size_t count, const char *const *names);

#endif
