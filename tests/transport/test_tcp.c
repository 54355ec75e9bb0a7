/* Tests tcp alone: how the kernel splits and merges an endpoint's bytes, and which system calls an endpoint makes.
 * test_tcp_bytes.c tests what a peer may send. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/address.h"
#include "core/clock.h"
#include "pair.h"
#include "transport/tcp/tcp_endpoint.h"

extern const struct collet_transport collet_tcp_transport;
static const struct collet_transport *const tcp = &collet_tcp_transport;

static int raw(struct end *end)
{
	return ((struct tcp_endpoint *)end->endpoint)->socket;
}

/* ---- Bytes that come slowly --------------------------------------------------------------------------------- */

/* Forwards at most one byte. */
static bool forward(int from, int to, uint8_t *held, bool *holding)
{
	if (!*holding)
		*holding = recv(from, held, 1, MSG_DONTWAIT) == 1;
	if (!*holding || send(to, held, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
		return false;
	*holding = false;
	return true;
}

/* Connects two endpoints by a proxy that passes one byte each way at a time. */
static void bytes_may_come_one_by_one(void **state)
{
	enum { COUNT = 6 };
	static const size_t sizes[COUNT] = { 0, 1, 31, 200, 5000, 0 };
	struct pair left = { 0 }, right = { 0 };
	pair_connect(&left, "tcp", false);
	pair_connect(&right, "tcp", false);
	const int proxy[2] = { left.sockets[1], right.sockets[0] };
	left.sockets[1] = right.sockets[1];
	right.sockets[0] = right.sockets[1] = -1;
	pair_begin(&left, 0);
	pair_begin(&left, 1);
	uint8_t held[2], out[2][COUNT][5000], in[2][COUNT][5000];
	bool holding[2] = { false, false };
	struct collet_transfer sends[2][COUNT], receives[2][COUNT];
	bool ready = false, done = false;
	for (const int64_t deadline = collet_deadline_after(INT64_C(20000000000)); !ready;) {
		assert_false(collet_deadline_passed(deadline));
		ready = true;
		for (int i = 0; i < 2; i++) {
			forward(proxy[i], proxy[!i], &held[i], &holding[i]);
			ready &= tcp->open_progress(left.ends[i].endpoint) == COLLET_OK;
		}
	}
	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < COUNT; k++) {
			pattern_fill(out[i][k], sizes[k], k + 100 * (unsigned)i);
			sends[i][k] = transfer_of(k, out[i][k], sizes[k]);
			receives[i][k] = transfer_of(k, in[i][k], sizes[k]);
			tcp->post_recv(left.ends[i].endpoint, &receives[i][k]);
			tcp->post_send(left.ends[i].endpoint, &sends[i][k]);
		}
	}
	for (const int64_t deadline = collet_deadline_after(INT64_C(20000000000)); !done;) {
		assert_false(collet_deadline_passed(deadline));
		for (int i = 0; i < 2; i++) {
			forward(proxy[i], proxy[!i], &held[i], &holding[i]);
			tcp->progress(left.ends[i].endpoint);
		}
		done = receives[0][COUNT - 1].status != COLLET_PENDING &&
		       receives[1][COUNT - 1].status != COLLET_PENDING;
	}
	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < COUNT; k++) {
			assert_int_equal(receives[i][k].status, COLLET_OK);
			assert_true(pattern_is(in[i][k], sizes[k], k + 100 * (unsigned)!i));
		}
		close(proxy[i]);
	}
	pair_close(&left);
	pair_close(&right);
}

/* Small socket buffers make most writes and reads partial. */
static void small_socket_buffers_only_slow_down(void **state)
{
	enum { COUNT = 40, LARGE = 300000 };
	struct pair pair = { .socket_buffer_bytes = 4096 };
	pair_open(&pair, "tcp");
	uint8_t *out = malloc(LARGE), *in[2] = { malloc(LARGE), malloc(LARGE) };
	pattern_fill(out, LARGE, 5);
	for (uint64_t k = 0; k < COUNT; k += 4) {
		struct collet_transfer sends[2][4], receives[2][4];
		for (int i = 0; i < 2; i++) {
			for (unsigned m = 0; m < 4; m++) {
				const size_t bytes = m == 1 ? LARGE - k : m == 3 ? 2000 + k * 13 : 8 * m;
				uint8_t *place = in[i] + (m == 3 ? 0 : m);
				receives[i][m] = transfer_of(k + m, m == 1 ? in[i] : place, bytes);
				sends[i][m] = transfer_of(k + m, out, bytes);
				tcp->post_send(pair.ends[i].endpoint, &sends[i][m]);
			}
		}
		for (unsigned m = 0; m < 4; m++) {
			for (int i = 0; i < 2; i++)
				tcp->post_recv(pair.ends[i].endpoint, &receives[i][m]);
			for (int i = 0; i < 2; i++) {
				assert_true(pair_complete(&pair, &receives[i][m]));
				assert_int_equal(receives[i][m].status, COLLET_OK);
				assert_true(pattern_is(receives[i][m].data, receives[i][m].message.bytes, 5));
			}
		}
		for (int i = 0; i < 2; i++)
			assert_true(pair_complete(&pair, &sends[i][3]));
	}
	free(out);
	free(in[0]);
	free(in[1]);
	pair_close(&pair);
}

/* ---- Congestion --------------------------------------------------------------------------------------------- */

static void assert_congestion_control(int socket, const char *expected)
{
	char name[16] = "";
	socklen_t bytes = sizeof(name);
	assert_int_equal(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
	assert_string_equal(name, expected);
}

/* Between hosts the congestion control is the administrator's choice. */
static void pacing_is_disabled_within_a_host_only(void **state)
{
	for (uint64_t hosts = 1; hosts <= 2; hosts++) {
		struct pair pair = { 0 };
		char usual[16] = "";
		socklen_t bytes = sizeof(usual);
		pair_connect(&pair, "tcp", true);
		pair.ends[1].peer_info.host_id = hosts;
		assert_int_equal(getsockopt(pair.sockets[0], IPPROTO_TCP, TCP_CONGESTION, usual, &bytes), 0);
		for (int i = 0; i < 2; i++)
			pair_begin(&pair, i);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(pair_await(&pair, i), COLLET_OK);
			assert_congestion_control(raw(&pair.ends[i]), hosts == 1 ? "reno" : usual);
		}
		pair_close(&pair);
	}
}

/* ---- Idle connections --------------------------------------------------------------------------------------- */

static int option(int socket, int level, int name)
{
	int value = -1;
	socklen_t bytes = sizeof(value);
	assert_int_equal(getsockopt(socket, level, name, &value, &bytes), 0);
	return value;
}

/* 64 ranks of one host have 4032 connection ends. When all were idle they probed each other at one moment, the kernel
 * dropped most probes, and after half a minute all ranks were lost. */
static void keepalive_is_for_other_hosts_only(void **state)
{
	(void)state;
	enum { PEERS = 5, GIVEN_UP_S = 35 };
	unsigned begins = 0;
	for (uint64_t hosts = 1; hosts <= 2; hosts++) {
		for (uint32_t peer = 0; peer < PEERS; peer++) {
			struct pair pair = { 0 };
			pair_connect(&pair, "tcp", true);
			pair.ends[1].peer_info.host_id = hosts;
			pair.ends[1].peer_info.rank += peer;
			collet_socket_tune(pair.sockets[0]);
			pair_begin(&pair, 0);
			const int socket = raw(&pair.ends[0]);
			/* A peer that reads 25 s late is not lost. */
			assert_int_equal(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
			assert_int_equal(option(socket, SOL_SOCKET, SO_KEEPALIVE), hosts == 2);
			if (hosts == 2) {
				const int idle = option(socket, IPPROTO_TCP, TCP_KEEPIDLE);
				begins |= 1U << idle;
				assert_true(idle + option(socket, IPPROTO_TCP, TCP_KEEPINTVL) *
							   option(socket, IPPROTO_TCP, TCP_KEEPCNT) <=
					    GIVEN_UP_S);
			}
			pair_close(&pair);
		}
	}
	assert_int_equal(__builtin_popcount(begins), PEERS);
}

/* ---- System calls ------------------------------------------------------------------------------------------- */

static void a_small_message_costs_one_call_each_end(void **state)
{
	enum { COUNT = 100, BYTES = 64 };
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	uint8_t out[BYTES] = { 0 }, in[BYTES];
	for (uint64_t i = 0; i < COUNT; i++) {
		struct collet_transfer send = transfer_of(i, out, BYTES), receive = transfer_of(i, in, BYTES);
		const uint64_t before[2] = {
			pair.ends[0].endpoint->stats.system_calls, pair.ends[1].endpoint->stats.system_calls};
		pair.ends[0].wake.empty_polls++; /* not a burst, see test_tcp_delayed_ack.c */
		tcp->post_recv(pair.ends[1].endpoint, &receive);
		tcp->post_send(pair.ends[0].endpoint, &send);
		assert_int_equal(send.status, COLLET_OK);
		struct pollfd readable = { .fd = raw(&pair.ends[1]), .events = POLLIN };
		assert_int_equal(poll(&readable, 1, 20000), 1);
		assert_int_equal(tcp->progress(pair.ends[1].endpoint), 1);
		assert_int_equal(pair.ends[0].endpoint->stats.system_calls - before[0], 1);
		assert_int_equal(pair.ends[1].endpoint->stats.system_calls - before[1], 1);
	}
	pair_close(&pair);
}

/* Small messages queue up behind a large one; many of them are then sent and received by one call. */
static void queued_messages_share_calls(void **state)
{
	enum { COUNT = 200, BYTES = 64, LARGE = 32 << 20 };
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	uint8_t *large = calloc(1, LARGE), *into = malloc(LARGE), out[BYTES] = { 0 }, in[COUNT][BYTES];
	struct collet_transfer first = transfer_of(0, large, LARGE), first_in = transfer_of(0, into, LARGE);
	struct collet_transfer sends[COUNT], receives[COUNT];
	tcp->post_send(pair.ends[0].endpoint, &first);
	for (uint64_t i = 0; i < COUNT; i++) {
		sends[i] = transfer_of(i + 1, out, BYTES);
		tcp->post_send(pair.ends[0].endpoint, &sends[i]);
		assert_int_equal(sends[i].status, COLLET_PENDING);
	}
	tcp->post_recv(pair.ends[1].endpoint, &first_in);
	assert_true(pair_complete(&pair, &first_in) && pair_complete(&pair, &sends[COUNT - 1]));
	const uint64_t before = pair.ends[1].endpoint->stats.system_calls;
	for (uint64_t i = 0; i < COUNT; i++) {
		receives[i] = transfer_of(i + 1, in[i], BYTES);
		tcp->post_recv(pair.ends[1].endpoint, &receives[i]);
	}
	struct pollfd readable = { .fd = raw(&pair.ends[1]), .events = POLLIN };
	while (receives[COUNT - 1].status == COLLET_PENDING) {
		assert_int_equal(poll(&readable, 1, 20000), 1);
		tcp->progress(pair.ends[1].endpoint);
	}
	assert_int_equal(receives[COUNT - 1].status, COLLET_OK);
	assert_true(pair.ends[1].endpoint->stats.system_calls - before < COUNT / 8);
	free(large);
	free(into);
	pair_close(&pair);
}

/* A message that nobody waits for must not wake the rank repeatedly: the sleeper would spin. */
static void unexpected_messages_wake_once(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	uint8_t out[8] = { 0 };
	struct collet_transfer send = transfer_of(0, out, 8);
	assert_true(tcp->arm(pair.ends[0].endpoint)); /* it has slept before */
	tcp->disarm(pair.ends[0].endpoint);
	tcp->post_send(pair.ends[1].endpoint, &send);
	struct epoll_event event;
	int wakes = 0;
	while (wakes < 10 && epoll_wait(pair.ends[0].wake.epoll_fd, &event, 1, 20) == 1) {
		assert_ptr_equal(event.data.ptr, pair.ends[0].endpoint);
		wakes++;
	}
	assert_true(wakes > 0 && wakes < 3);
	struct collet_message message;
	assert_false(tcp->arm(pair.ends[0].endpoint)); /* but a rank that waits for it does not sleep */
	assert_true(tcp->peek(pair.ends[0].endpoint, &message));
	pair_close(&pair);
}

/* True if the end's socket is in its epoll set, given that a message from the other end has come. */
static bool is_watched(struct end *end)
{
	struct epoll_event event;
	struct collet_message message;
	while (!tcp->peek(end->endpoint, &message))
		;
	return epoll_wait(end->wake.epoll_fd, &event, 1, 0) == 1;
}

/* A socket in an epoll set makes each of the peer's sends slower. So a rank that does not sleep leaves the set, and one
 * that is about to sleep is always in it. */
static void an_awake_rank_leaves_the_epoll_set(void **state)
{
	enum { MANY = 1000 };
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	struct end *end = &pair.ends[0];
	uint8_t out[8] = { 0 }, in[8];
	for (unsigned i = 0; i < 2 * MANY; i++) {
		struct collet_transfer send = transfer_of(i, out, 8), receive = transfer_of(i, in, 8);
		if (i % MANY == MANY / 2) {  /* it sleeps until the message comes */
			tcp->post_recv(end->endpoint, &receive);
			assert_true(tcp->arm(end->endpoint));
			tcp->post_send(pair.ends[1].endpoint, &send);
			struct epoll_event event;
			assert_int_equal(epoll_wait(end->wake.epoll_fd, &event, 1, 20000), 1);
			tcp->disarm(end->endpoint);
		} else {
			tcp->post_send(pair.ends[1].endpoint, &send);
			const bool watched = is_watched(end);
			if (i < MANY / 2 || i == MANY)
				assert_false(watched);
			if (i % MANY == MANY / 2 + 1)  /* it may sleep again soon */
				assert_true(watched);
			tcp->post_recv(end->endpoint, &receive);
		}
		assert_true(end_complete(end, &receive));
		assert_int_equal(receive.status, COLLET_OK);
	}
	pair_close(&pair);
}

/* A child forked by the application may free what it inherited. Its parent's connection and sleep are unaffected. */
static void a_forked_child_closes_only_its_own(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	const pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 2; i++)
			tcp->close(pair.ends[i].endpoint);
		_exit(0);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	uint8_t out[8] = { 0 }, in[8];
	struct collet_transfer send = transfer_of(0, out, 8), receive = transfer_of(0, in, 8);
	tcp->post_recv(pair.ends[0].endpoint, &receive);
	assert_true(tcp->arm(pair.ends[0].endpoint));
	struct epoll_event event;
	while (epoll_wait(pair.ends[0].wake.epoll_fd, &event, 1, 0) == 1)
		;  /* earlier edges */
	tcp->post_send(pair.ends[1].endpoint, &send);
	assert_int_equal(epoll_wait(pair.ends[0].wake.epoll_fd, &event, 1, 20000), 1);
	assert_true(end_complete(&pair.ends[0], &receive));
	assert_int_equal(receive.status, COLLET_OK);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_may_come_one_by_one),
		cmocka_unit_test(small_socket_buffers_only_slow_down),
		cmocka_unit_test(pacing_is_disabled_within_a_host_only),
		cmocka_unit_test(keepalive_is_for_other_hosts_only),
		cmocka_unit_test(a_small_message_costs_one_call_each_end),
		cmocka_unit_test(queued_messages_share_calls),
		cmocka_unit_test(unexpected_messages_wake_once),
		cmocka_unit_test(an_awake_rank_leaves_the_epoll_set),
		cmocka_unit_test(a_forked_child_closes_only_its_own),
	};
	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
