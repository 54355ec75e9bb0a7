/* collet-bench limits measures the best that the machine can do, as a scale for the times of collectives.
 *
 * Each limit is a step that repeats in this process. Most have a partner process on another core that serves until
 * it is told to stop. limits.c times and prints. limits_memory.c and limits_wire.c have the steps; limits_verbs.c
 * has those of a module. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "options.h"

/* Shared between both processes. */
struct limit_page {
	_Alignas(64) _Atomic uint64_t ping;   /* written here, read by the partner */
	_Alignas(64) _Atomic uint64_t pong;   /* written by the partner, read here */
	_Alignas(64) _Atomic uint32_t stop;
	_Atomic uint32_t ready;               /* the partner has published what it has */
	uint64_t partner_address;             /* of its buffer, in its own memory */
	int32_t partner_pid;
};

/* The data that a step works with. */
struct limit {
	uint64_t bytes;
	uint8_t *a, *b;            /* of bytes each, page-aligned, touched; in both processes */
	struct limit_page *page;
	int fd;                    /* a TCP connection between the two, for kinds that want one */
	void *own;                 /* what begin() made */
};

struct limit_kind {
	const char *name, *what;
	enum { LIMIT_GBS, LIMIT_ONE_WAY_US, LIMIT_US } unit;  /* bytes / time, half of a round trip, or time */
	uint64_t small_bytes[4];   /* measured at these; ends with 0 */
	bool by_size;              /* and at --sizes */
	bool wants_tcp;
	const char *transport;     /* whose limit it is; NULL: of memory */
	/* Optional, in both processes when they are connected; and its end, also where it has failed. */
	int (*begin)(struct limit *limit, bool partner);
	void (*end)(struct limit *limit);
	/* Once here; nonzero: it failed, errno says why. */
	int (*step)(struct limit *limit);
	/* Runs in the partner until page->stop is set or the connection ends. NULL: no partner. */
	void (*serve)(struct limit *limit);
};

extern const struct limit_kind bench_limit_memcpy, bench_limit_add, bench_limit_cross_memory_read;
extern const struct limit_kind bench_limit_tcp_stream, bench_limit_tcp_exchange, bench_limit_tcp_allreduce,
	bench_limit_tcp_ping_pong, bench_limit_flag;

/* Two connected loopback sockets without delay, non-blocking. 0, or -1: errno. */
int bench_limit_connect(int fds[2]);

/* Limits that need a library which collet-bench does not: collet-limits-NAME.so exports one as bench_limits_module. */
struct limits_module {
	bool (*is_there)(void);    /* a device to measure */
	const struct limit_kind *const *kinds;  /* ends with NULL */
};
#define BENCH_LIMITS_MODULE_SYMBOL "bench_limits_module"

int bench_limits(const struct bench_options *options);

#endif
