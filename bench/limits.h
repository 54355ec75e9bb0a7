/* collet-bench limits: what the machine can do at best, beside which a collective's time means something.
 *
 * Each limit is a step that repeats in this process, most with a partner process on another core that serves until it
 * is told to stop. limits.c times and prints; limits_memory.c and limits_wire.c are the steps. */
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

/* What a step works with. */
struct limit {
	uint64_t bytes;
	uint8_t *a, *b;            /* of bytes each, page-aligned, touched; in both processes */
	struct limit_page *page;
	int fd;                    /* a TCP connection between the two, for kinds that want one; non-blocking */
};

struct limit_kind {
	const char *name, *what;
	enum { LIMIT_GBS, LIMIT_ONE_WAY_US } unit;  /* bytes / time, or half of a round trip */
	bool by_size;              /* measured at --sizes; else at small_bytes */
	uint64_t small_bytes[4];   /* ends with 0 */
	bool wants_tcp;
	/* Once here; nonzero: it failed, errno says why. */
	int (*step)(struct limit *limit);
	/* In the partner: until page->stop or the connection's end. NULL: no partner. */
	void (*serve)(struct limit *limit);
};

extern const struct limit_kind bench_limit_memcpy, bench_limit_add, bench_limit_cross_memory_read;
extern const struct limit_kind bench_limit_tcp_stream, bench_limit_tcp_exchange, bench_limit_tcp_allreduce,
	bench_limit_tcp_ping_pong, bench_limit_flag;

/* Two connected loopback sockets without delay, non-blocking. 0, or -1: errno. */
int bench_limit_connect(int fds[2]);

int bench_limits(const struct bench_options *options);

#endif
