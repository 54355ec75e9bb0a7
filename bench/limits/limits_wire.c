/* Measures limits between two processes: a loopback TCP connection, an all-reduce over it, and a flag in shared
 * memory. Both sides spin, as a library tuned for latency would. After a while they yield, for machines with one
 * core. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "limits.h"

enum { SPINS_BEFORE_YIELD = 20000 };

static void relax(uint32_t *spins)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
	if (++*spins > SPINS_BEFORE_YIELD)
		sched_yield();
}

static bool would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Moves what can be moved now; the new total, or -1 when the connection has ended. */
static int64_t try_send(struct limit *l, uint64_t done)
{
	const ssize_t sent = send(l->fd, l->a + done, l->bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent >= 0 ? (int64_t)done + sent : would_block() ? (int64_t)done : -1;
}

static int64_t try_receive(struct limit *l, uint64_t done)
{
	const ssize_t got = recv(l->fd, l->b + done, l->bytes - done, MSG_DONTWAIT);
	return got > 0 ? (int64_t)done + got : got < 0 && would_block() ? (int64_t)done : -1;
}

/* A message each way at once; either may be left out. */
static int exchange(struct limit *l, bool sending, bool receiving)
{
	int64_t sent = sending ? 0 : (int64_t)l->bytes, got = receiving ? 0 : (int64_t)l->bytes;
	uint32_t spins = 0;
	while (sent < (int64_t)l->bytes || got < (int64_t)l->bytes) {
		const int64_t before = sent + got;
		if (sent < (int64_t)l->bytes && (sent = try_send(l, (uint64_t)sent)) < 0)
			return -1;
		if (got < (int64_t)l->bytes && (got = try_receive(l, (uint64_t)got)) < 0)
			return -1;
		if (sent + got == before)
			relax(&spins);
	}
	return 0;
}

static int receive_message(struct limit *l)
{
	return exchange(l, false, true);
}

static void send_for_ever(struct limit *l)
{
	while (exchange(l, true, false) == 0)
		;
}

static int exchange_message(struct limit *l)
{
	return exchange(l, true, true);
}

static void exchange_for_ever(struct limit *l)
{
	while (exchange(l, true, true) == 0)
		;
}

static int round_trip(struct limit *l)
{
	return exchange(l, true, false) || exchange(l, false, true);
}

static void echo_for_ever(struct limit *l)
{
	while (exchange(l, false, true) == 0 && exchange(l, true, false) == 0)
		;
}

static int flag_round_trip(struct limit *l)
{
	const uint64_t turn = atomic_load_explicit(&l->page->pong, memory_order_relaxed) + 1;
	uint32_t spins = 0;
	/* release and acquire pair with flag_echo()'s: what a message would carry travels with its flag */
	atomic_store_explicit(&l->page->ping, turn, memory_order_release);
	while (atomic_load_explicit(&l->page->pong, memory_order_acquire) != turn)
		relax(&spins);
	return 0;
}

static void flag_echo(struct limit *l)
{
	uint64_t seen = 0;
	uint32_t spins = 0;
	while (atomic_load_explicit(&l->page->stop, memory_order_relaxed) == 0) {
		const uint64_t turn = atomic_load_explicit(&l->page->ping, memory_order_acquire);
		if (turn == seen) {
			relax(&spins);
			continue;
		}
		atomic_store_explicit(&l->page->pong, turn, memory_order_release);
		seen = turn;
		spins = 0;
	}
}

/* ---- An all-reduce of two ranks, written by hand ----
 *
 * Each rank adds up one half and sends the other rank the sum. That is the least an all-reduce must send and add. a
 * is the rank's input, b the result. */

struct by_hand {
	struct limit *limit;
	uint64_t half;         /* bytes */
	uint64_t mine, other;  /* where this rank's half starts, and the other's */
	uint64_t sent, got;    /* of 2 * half: inputs, then sums */
	uint64_t staged;       /* of the input that has come, what is not added up yet */
};

/* The bytes of one receive; they stay in a cache until they are added. Larger sends take a fifth longer. */
enum { MOVED_MOST = 256 << 10 };

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Adds what has arrived to the rank's own input. */
static void add_staged(struct by_hand *h, const float *staging)
{
	const uint64_t done = h->got - h->staged;
	const float *input = (const float *)(const void *)(h->limit->a + h->mine + done);
	float *sum = (float *)(void *)(h->limit->b + h->mine + done);
	for (uint64_t i = 0; i < h->staged / sizeof(float); i++)
		sum[i] = input[i] + staging[i];
	h->staged = 0;
}

/* Bytes moved now, or -1. Sums are sent as far as they are there. */
static int64_t send_some(struct by_hand *h)
{
	const uint64_t summed = least(h->got, h->half) - h->staged;
	const bool input = h->sent < h->half;
	const uint64_t end = input ? h->half : h->half + summed;
	const uint8_t *from = input ? h->limit->a + h->other + h->sent : h->limit->b + h->mine + h->sent - h->half;
	if (h->sent == end)
		return 0;
	const ssize_t sent = send(h->limit->fd, from, least(end - h->sent, MOVED_MOST), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return would_block() ? 0 : -1;
	h->sent += (uint64_t)sent;
	return sent;
}

static int64_t receive_some(struct by_hand *h, float *staging)
{
	const bool input = h->got < h->half;
	uint8_t *into = input ? (uint8_t *)staging + h->staged : h->limit->b + h->other + h->got - h->half;
	const uint64_t room = input ? least(h->half - h->got, MOVED_MOST - h->staged) : 2 * h->half - h->got;
	if (room == 0)
		return 0;
	const ssize_t got = recv(h->limit->fd, into, room, MSG_DONTWAIT);
	if (got <= 0)
		return got < 0 && would_block() ? 0 : -1;
	h->got += (uint64_t)got;
	h->staged += input ? (uint64_t)got : 0;
	if (h->staged == MOVED_MOST || (input && h->got == h->half))
		add_staged(h, staging);
	return got;
}

static int allreduce(struct limit *l, bool first)
{
	static _Alignas(64) float staging[MOVED_MOST / sizeof(float)];
	const uint64_t half = l->bytes / 2 / sizeof(float) * sizeof(float);
	struct by_hand h = { .limit = l, .half = half, .mine = first ? 0 : half, .other = first ? half : 0 };
	uint32_t spins = 0;
	while (h.sent < 2 * half || h.got < 2 * half) {
		const int64_t sent = send_some(&h);
		const int64_t got = h.got < 2 * half && sent >= 0 ? receive_some(&h, staging) : 0;
		if (sent < 0 || got < 0)
			return -1;
		if (sent + got == 0)
			relax(&spins);
	}
	return 0;
}

static int allreduce_first(struct limit *l)
{
	return allreduce(l, true);
}

static void allreduce_second_for_ever(struct limit *l)
{
	while (allreduce(l, false) == 0)
		;
}

static int connect_to(const struct sockaddr_in *address)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

int bench_limit_connect(int fds[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	const int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fds[0] = fds[1] = -1;
	if (listener < 0)
		return -1;
	if (bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 1) == 0
		&& getsockname(listener, (struct sockaddr *)&address, &length) == 0
		&& (fds[0] = connect_to(&address)) >= 0)
		fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	close(listener);
	for (int i = 0; i < 2 && fds[1] >= 0; i++) {
		(void)setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		/* The congestion control of collet's ranks. A paced one, such as BBR, has limits of its own. */
		(void)setsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	}
	if (fds[1] < 0 && fds[0] >= 0)
		close(fds[0]);
	return fds[1] >= 0 ? 0 : -1;
}

const struct limit_kind bench_limit_tcp_stream = { .name = "tcp_stream",
	.what = "loopback TCP, one way",
	.unit = LIMIT_GBS,
	.by_size = true,
	.wants_tcp = true,
	.transport = "tcp",
	.step = receive_message,
	.serve = send_for_ever };
const struct limit_kind bench_limit_tcp_exchange = { .name = "tcp_exchange",
	.what = "loopback TCP, each way of both at once",
	.unit = LIMIT_GBS,
	.by_size = true,
	.wants_tcp = true,
	.transport = "tcp",
	.step = exchange_message,
	.serve = exchange_for_ever };
const struct limit_kind bench_limit_tcp_allreduce = { .name = "tcp_allreduce",
	.what = "all-reduce of two over loopback TCP, by hand",
	.unit = LIMIT_GBS,
	.by_size = true,
	.wants_tcp = true,
	.transport = "tcp",
	.step = allreduce_first,
	.serve = allreduce_second_for_ever };
const struct limit_kind bench_limit_tcp_ping_pong = { .name = "tcp_ping_pong",
	.what = "loopback TCP, spinning, one way",
	.unit = LIMIT_ONE_WAY_US,
	.small_bytes = { 8, 1024, 16384 },
	.wants_tcp = true,
	.transport = "tcp",
	.step = round_trip,
	.serve = echo_for_ever };
const struct limit_kind bench_limit_flag = { .name = "flag_ping_pong", .what = "a flag in shared memory, one way",
	.unit = LIMIT_ONE_WAY_US, .small_bytes = { 8 }, .transport = "shm",
	.step = flag_round_trip, .serve = flag_echo };
