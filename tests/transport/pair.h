/* Connects two ends of an endpoint pair for the tests of transports. A transport that reaches only the rank itself has
 * one endpoint, which is both ends. */
#ifndef TESTS_TRANSPORT_PAIR_H
#define TESTS_TRANSPORT_PAIR_H

#include "transport/registry.h"

struct end {
	struct collet_peer_info peer_info;
	struct collet_transport_set set;  /* the tested transport, and self; from pair_begin() on */
	const struct collet_transport_instance *instance;
	struct collet_wake wake;
	struct collet_log log;
	struct collet_arena *arena;  /* NULL, or set between pair_connect() and pair_begin() */
	struct collet_endpoint *endpoint;
};

struct pair {
	const char *name;
	const struct collet_transport *transport;  /* of the end that was begun last */
	bool single;              /* both ends share one endpoint */
	int sockets[2];           /* -1 once an endpoint owns it */
	int socket_buffer_bytes; /* if not 0: the kernel's buffer size for both directions, set before pair_connect() */
	struct end ends[2];
};

/* Rank 10 is on "alpha" and rank 11 on "beta". Both have the same host id; the names only appear in sentences. */
enum { FIRST_RANK = 10 };

/* Makes peer infos, wakes and connected sockets, for a transport named as in COLLET_TRANSPORT. processes: the ends will
 * be in two processes. */
void pair_connect(struct pair *pair, const char *name, bool processes);
/* Makes only the sockets of a loopback TCP connection. */
void pair_connect_tcp(struct pair *pair);
/* Opens one end in this process. pair_await() waits until it is ready, and drives the other end too if it is open
 * here. */
void pair_begin(struct pair *pair, int which);
collet_status pair_await(struct pair *pair, int which);
/* Connects, begins and awaits both ends in this process. */
void pair_open(struct pair *pair, const char *name);
void pair_close(struct pair *pair);

/* Calls progress() on the ends open here until the transfer has completed. False after 20 s. */
bool pair_complete(struct pair *pair, const struct collet_transfer *transfer);
/* Does the same for one end only. */
bool end_complete(struct end *end, const struct collet_transfer *transfer);
/* Does the same asleep. It never spins, so a lost wake-up is a failure. */
bool end_complete_asleep(struct end *end, const struct collet_transfer *transfer);
/* Peeks until there is a message, or the endpoint has ended: then returns false. */
bool end_peek(struct end *end, struct collet_message *message, bool asleep);

/* Returns a transfer of a message with signature 7 and this sequence number. */
struct collet_transfer transfer_of(uint64_t sequence, void *data, size_t bytes);

/* Fills memory with bytes that depend on the seed and their offset. */
void pattern_fill(void *data, size_t bytes, uint64_t seed);
bool pattern_is(const void *data, size_t bytes, uint64_t seed);

/* What a transport may lack. */
enum {
	HAS_PEERS = 1 << 0,          /* it reaches other ranks, too */
	HAS_RECV_READY = 1 << 1,     /* is_recv_ready() */
	HAS_TRIES = 1 << 2,          /* try_send() and try_recv() */
	HAS_RETURNED_VIEWS = 1 << 3, /* some messages arrive as views that may be sent back */
	HAS_ALL = (1 << 4) - 1
};

struct subject {
	const char *name;         /* as in COLLET_TRANSPORT */
	unsigned has;             /* HAS_* */
};

/* Opens a pair in a child process and returns what the transport has. If that fails, it returns HAS_ALL: then the
 * transport's rows fail too, each with its reason. */
unsigned transport_features(const char *name);

/* A test that runs on every requested transport that has what it needs, as row TRANSPORT/NAME. *state is the
 * transport's name. */
struct promise {
	const char *name;
	void (*run)(void **state);
	unsigned needs;           /* HAS_* */
};
/* Runs the promises; the last subject has no name. Returns the number of failed rows. */
int run_on_transports(const char *group, const struct promise *promises, size_t count, const struct subject *subjects);

#endif
