/* Tests bursts and delayed acknowledgements of tcp. Small messages of a burst are held together, and come at once when
 * the receiver misses one. The kernel alone would delay them by 40 ms: the rounds here would take ten times longer than
 * allowed. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "core/clock.h"
#include "pair.h"
#include "transport/tcp/tcp_endpoint.h"

extern const struct collet_transport collet_tcp_transport;
static const struct collet_transport *const tcp = &collet_tcp_transport;

enum { BYTES = 64, ENOUGH = 4 * TCP_BURST_COUNT, ROUNDS = 500 };
static const int64_t rounds_most_ns = INT64_C(2000000000);

static bool holds(const struct end *end)
{
	int immediate = -1;
	socklen_t bytes = sizeof(immediate);
	const struct tcp_endpoint *endpoint = (const struct tcp_endpoint *)end->endpoint;
	assert_int_equal(getsockopt(endpoint->socket, IPPROTO_TCP, TCP_NODELAY, &immediate, &bytes), 0);
	return !immediate;
}

static void send_one(struct end *end, uint64_t sequence, size_t bytes)
{
	static uint8_t data[TCP_BUFFERED_MAX + 1];
	struct collet_transfer send = transfer_of(sequence, data, bytes);
	tcp->post_send(end->endpoint, &send);
	assert_int_equal(send.status, COLLET_OK);
}

static void receive_one(struct end *end, uint64_t sequence, size_t bytes, bool asleep)
{
	static uint8_t data[TCP_BUFFERED_MAX + 1];
	struct collet_transfer receive = transfer_of(sequence, data, bytes);
	tcp->post_recv(end->endpoint, &receive);
	assert_true(asleep ? end_complete_asleep(end, &receive) : end_complete(end, &receive));
	assert_int_equal(receive.status, COLLET_OK);
}

static void held_messages_come_when_missed(void **state)
{
	for (int asleep = 0; asleep < 2; asleep++) {
		struct pair pair = { 0 };
		pair_open(&pair, "tcp");
		uint64_t sent = 0, received = 0;
		const int64_t begun = collet_clock_ns();
		for (int round = 0; round < ROUNDS; round++) {
			for (int i = 0; i < 1 + round % 5; i++)
				send_one(&pair.ends[0], sent++, BYTES);
			while (received < sent)
				receive_one(&pair.ends[1], received++, BYTES, asleep);
			assert_true(holds(&pair.ends[0]) == (sent > TCP_BURST_COUNT + 1) || sent < ENOUGH);
		}
		assert_true(collet_clock_ns() - begun < rounds_most_ns);
		pair_close(&pair);
	}
}

/* The kernel of a receiver that sometimes answers delays acknowledgements, which could travel with the next answer. The
 * sender receives the answers only at the end, since waiting for them would end the burst. */
static void held_messages_come_after_answers(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	uint64_t sent = 0, received = 0, answers = 0;
	const int64_t begun = collet_clock_ns();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 3; i++)
			send_one(&pair.ends[0], sent++, BYTES);
		while (received < sent)
			receive_one(&pair.ends[1], received++, BYTES, round % 2);
		pair.ends[1].wake.empty_polls++;
		send_one(&pair.ends[1], answers++, BYTES);
	}
	assert_true(holds(&pair.ends[0]));
	for (uint64_t i = 0; i < answers; i++)
		receive_one(&pair.ends[0], i, BYTES, false);
	assert_false(holds(&pair.ends[0]));
	assert_true(collet_clock_ns() - begun < rounds_most_ns);
	pair_close(&pair);
}

static void a_waiting_sender_holds_nothing_back(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	for (uint64_t i = 0; i < 2 * ENOUGH; i++) {
		pair.ends[0].wake.empty_polls += i % 2;
		send_one(&pair.ends[0], i, BYTES);
		assert_false(holds(&pair.ends[0]));
		receive_one(&pair.ends[1], i, BYTES, false);
	}
	pair_close(&pair);
}

/* One wait, for example for room in the socket, does not end a burst. Waits at every turn do, and so does a large
 * message. */
static void waits_end_a_burst(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	uint64_t sequence = 0;
	for (int variant = 0; variant < 2; variant++) {
		while (sequence % 100 < ENOUGH) {
			send_one(&pair.ends[0], sequence, BYTES);
			receive_one(&pair.ends[1], sequence++, BYTES, false);
		}
		pair.ends[0].wake.empty_polls++;
		send_one(&pair.ends[0], sequence, BYTES);
		receive_one(&pair.ends[1], sequence++, BYTES, false);
		assert_true(holds(&pair.ends[0]));
		for (; sequence % 100 != 0; sequence++) {
			const size_t bytes = variant == 0 ? BYTES : TCP_BUFFERED_MAX + 1;
			pair.ends[0].wake.empty_polls += variant == 0;
			send_one(&pair.ends[0], sequence, bytes);
			receive_one(&pair.ends[1], sequence, bytes, false);
		}
		assert_false(holds(&pair.ends[0]));
	}
	pair_close(&pair);
}

static void between_hosts_nothing_is_held_back(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, "tcp", true);
	pair.ends[0].peer_info.host_id = 1;
	pair.ends[1].peer_info.host_id = 2;
	for (int i = 0; i < 2; i++)
		pair_begin(&pair, i);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_await(&pair, i), COLLET_OK);
	for (uint64_t i = 0; i < ENOUGH; i++)
		send_one(&pair.ends[0], i, BYTES);
	assert_false(holds(&pair.ends[0]));
	pair_close(&pair);
}

/* Completed sends that the kernel still holds when the sender closes are delivered. */
static void held_messages_outlive_their_sender(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	for (uint64_t i = 0; i < ENOUGH; i++)
		send_one(&pair.ends[0], i, BYTES);
	assert_true(holds(&pair.ends[0]));
	tcp->close(pair.ends[0].endpoint);
	for (uint64_t i = 0; i < ENOUGH; i++)
		receive_one(&pair.ends[1], i, BYTES, false);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(held_messages_come_when_missed),
		cmocka_unit_test(held_messages_come_after_answers),
		cmocka_unit_test(a_waiting_sender_holds_nothing_back),
		cmocka_unit_test(waits_end_a_burst),
		cmocka_unit_test(between_hosts_nothing_is_held_back),
		cmocka_unit_test(held_messages_outlive_their_sender),
	};
	return cmocka_run_group_tests_name("tcp delayed ack", tests, NULL, NULL);
}
