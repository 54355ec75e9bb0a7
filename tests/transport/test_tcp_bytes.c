/* Tests what a peer's bytes can do to a tcp endpoint. The test takes over the second end's socket and sends what it
 * likes. */
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/config.h"
#include "pair.h"
#include "skip.h"
#include "transport/tcp/tcp_endpoint.h"

extern const struct collet_transport collet_tcp_transport;
static const struct collet_transport *const tcp = &collet_tcp_transport;

static int raw(struct end *end)
{
	return ((struct tcp_endpoint *)end->endpoint)->socket;
}

static void raw_send(int socket, const void *bytes, size_t count)
{
	assert_int_equal(send(socket, bytes, count, MSG_NOSIGNAL), count);
}

static struct tcp_header header_of(uint64_t sequence, uint64_t bytes)
{
	struct tcp_header header = { .magic = TCP_MESSAGE_MAGIC, .message = { 7, sequence, bytes } };
	header.checksum = collet_tcp_checksum(&header.message);
	return header;
}

static void assert_named(void)
{
	assert_non_null(strstr(collet_last_error(), "rank 11"));
	assert_non_null(strstr(collet_last_error(), "beta"));
}

static void an_invalid_header_ends_the_endpoint(void **state)
{
	static const char *const rows[] = { "magic", "check", "signature", "length", "too long" };
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair = { 0 };
		pair_open(&pair, "tcp");
		struct tcp_header header = header_of(1, 16);
		switch (row) {
		case 0: header.magic ^= 1; break;
		case 1: header.checksum ^= 1; break;
		case 2: header.message.signature ^= UINT64_C(1) << 63; break;
		case 3: header.message.bytes ^= 1; break;
		case 4: header = header_of(1, UINT64_MAX); break;
		}
		uint8_t into[16], untouched[16];
		memset(into, 0xab, 16);
		memset(untouched, 0xab, 16);
		struct collet_transfer receive = transfer_of(1, into, 16), pending = transfer_of(2, into, 16);
		tcp->post_recv(pair.ends[0].endpoint, &receive);
		tcp->post_recv(pair.ends[0].endpoint, &pending);
		raw_send(raw(&pair.ends[1]), &header, sizeof(header));
		raw_send(raw(&pair.ends[1]), "sixteen bytes of", 16);
		assert_true(end_complete(&pair.ends[0], &receive));
		assert_int_equal(receive.status, COLLET_ERR_TRANSPORT);
		assert_int_equal(pending.status, COLLET_ERR_TRANSPORT);
		assert_int_equal(pair.ends[0].endpoint->status, COLLET_ERR_TRANSPORT);
		assert_named();
		assert_memory_equal(into, untouched, 16);
		pair_close(&pair);
	}
}

/* A valid header may announce more bytes than there is memory: nothing is allocated or touched for it. */
static void a_huge_length_is_a_mismatch(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, "tcp");
	const struct tcp_header header = header_of(1, INT64_MAX);
	uint8_t into[16];
	struct collet_transfer receive = transfer_of(1, into, 16);
	tcp->post_recv(pair.ends[0].endpoint, &receive);
	raw_send(raw(&pair.ends[1]), &header, sizeof(header));
	assert_true(end_complete(&pair.ends[0], &receive));
	assert_int_equal(receive.status, COLLET_ERR_MISMATCH);
	assert_int_equal(receive.message.bytes, INT64_MAX);
	/* The next message would follow those bytes, which never come. */
	struct collet_transfer next = transfer_of(2, into, 16);
	tcp->post_recv(pair.ends[0].endpoint, &next);
	shutdown(raw(&pair.ends[1]), SHUT_WR);
	assert_true(end_complete(&pair.ends[0], &next));
	assert_int_equal(next.status, COLLET_ERR_PEER_LOST);
	pair_close(&pair);
}

/* The stream is cut within the first header, after it, and within the payload. Messages completed before the cut are
 * delivered. */
static void a_cut_stream_is_a_lost_peer(void **state)
{
	enum { BYTES = 100, WHOLE = sizeof(struct tcp_header) + BYTES };
	uint8_t stream[2 * WHOLE];
	for (uint64_t i = 0; i < 2; i++) {
		const struct tcp_header header = header_of(i, BYTES);
		memcpy(stream + i * WHOLE, &header, sizeof(header));
		pattern_fill(stream + i * WHOLE + sizeof(header), BYTES, i);
	}
	for (size_t cut = 0; cut < 2 * WHOLE; cut++) {
		struct pair pair = { 0 };
		pair_open(&pair, "tcp");
		uint8_t into[2][BYTES];
		struct collet_transfer receives[2];
		raw_send(raw(&pair.ends[1]), stream, cut);
		shutdown(raw(&pair.ends[1]), SHUT_WR);
		for (uint64_t i = 0; i < 2; i++) {
			receives[i] = transfer_of(i, into[i], BYTES);
			tcp->post_recv(pair.ends[0].endpoint, &receives[i]);
		}
		assert_true(end_complete(&pair.ends[0], &receives[1]));
		assert_int_equal(receives[0].status, cut < WHOLE ? COLLET_ERR_PEER_LOST : COLLET_OK);
		assert_int_equal(receives[1].status, COLLET_ERR_PEER_LOST);
		assert_named();
		if (cut >= WHOLE)
			assert_true(pattern_is(into[0], BYTES, 0));
		pair_close(&pair);
	}
}

static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Makes a valid stream of messages with some bytes changed, removed or repeated. */
static size_t noisy_stream(uint8_t *stream, size_t capacity, uint64_t *random)
{
	size_t bytes = 0;
	for (uint64_t i = 0; bytes < capacity / 2; i++) {
		const struct tcp_header header = header_of(i, next_random(random) % 400);
		memcpy(stream + bytes, &header, sizeof(header));
		pattern_fill(stream + bytes + sizeof(header), header.message.bytes, i);
		bytes += sizeof(header) + header.message.bytes;
	}
	for (uint64_t changes = next_random(random) % 6; changes > 0; changes--) {
		const size_t at = next_random(random) % bytes, length = next_random(random) % 64 % (bytes - at);
		switch (next_random(random) % 3) {
		case 0:
			stream[at] ^= (uint8_t)(1 << next_random(random) % 8);
			break;
		case 1:
			memmove(stream + at, stream + at + length, bytes - at - length);
			bytes -= length;
			break;
		case 2:
			for (size_t i = 0; i < length; i++)
				stream[at + i] = (uint8_t)next_random(random);
			break;
		}
	}
	return bytes;
}

static void noise_never_writes_where_it_must_not(void **state)
{
	enum { STREAM = 8192, GUARD = 64, ROUNDS = 400 };
	uint64_t random = 0;
	if (collet_env_u64("COLLET_TEST_SEED", UINT64_MAX, &random) != COLLET_OK || !random)
		assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
	random |= 1;
	print_message("COLLET_TEST_SEED=%llu\n", (unsigned long long)random);
	uint8_t stream[STREAM], into[512 + GUARD];
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pair pair = { 0 };
		pair_open(&pair, "tcp");
		struct collet_endpoint *endpoint = pair.ends[0].endpoint;
		const size_t bytes = noisy_stream(stream, STREAM, &random);
		for (size_t at = 0; endpoint->status == COLLET_OK;) {
			const size_t part = 1 + next_random(&random) % 2000, left = bytes - at;
			const size_t now = part < left ? part : left;
			if (now)
				raw_send(raw(&pair.ends[1]), stream + at, now);
			else
				shutdown(raw(&pair.ends[1]), SHUT_WR);
			at += now;
			/* Receive what is announced if it fits, else expect another message. */
			struct collet_message message;
			while (tcp->peek(endpoint, &message)) {
				const size_t expected = message.bytes <= 512 ? message.bytes : 512;
				memset(into, 0xcd, sizeof(into));
				struct collet_transfer receive = { .data = into,
					.message = { message.signature, message.sequence, expected } };
				tcp->post_recv(endpoint, &receive);
				for (int i = 0; i < 3 && receive.status == COLLET_PENDING; i++)
					tcp->progress(endpoint);
				if (receive.status == COLLET_PENDING) {
					shutdown(raw(&pair.ends[1]), SHUT_WR);
					assert_true(end_complete(&pair.ends[0], &receive));
				}
				for (size_t i = expected; i < sizeof(into); i++)
					assert_int_equal(into[i], 0xcd);
			}
		}
		assert_true(endpoint->status == COLLET_ERR_PEER_LOST || endpoint->status == COLLET_ERR_TRANSPORT);
		assert_named();
		pair_close(&pair);
	}
}

static void a_wrong_hello_is_refused(void **state)
{
	static const char *const rows[] = {
		"magic", "version", "from", "to", "channel", "accepted too early", "cut", "text"};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair = { 0 };
		pair_connect(&pair, "tcp", false);
		pair_begin(&pair, 0);
		struct tcp_hello hello;
		for (int i = 0; i < 1000 && tcp->open_progress(pair.ends[0].endpoint) == COLLET_PENDING; i++) {
			struct pollfd readable = { .fd = pair.sockets[1], .events = POLLIN };
			if (poll(&readable, 1, 10) > 0)
				break;
		}
		assert_int_equal(recv(pair.sockets[1], &hello, sizeof(hello), 0), sizeof(hello));
		const uint32_t from = hello.from;
		hello.from = hello.to;
		hello.to = from;
		size_t bytes = sizeof(hello);
		switch (row) {
		case 0: hello.magic++; break;
		case 1: hello.version++; break;
		case 2: hello.from++; break;
		case 3: hello.to++; break;
		case 4: hello.channel++; break;
		case 5: hello.is_accepted = 1; break;
		case 6: bytes = 5; break;
		case 7: memcpy(&hello, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", sizeof(hello)); break;
		}
		raw_send(pair.sockets[1], &hello, bytes);
		shutdown(pair.sockets[1], SHUT_WR);
		assert_int_equal(pair_await(&pair, 0), COLLET_ERR_TRANSPORT);
		assert_named();
		pair_close(&pair);
	}
}

static void set_loopback(short flags)
{
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = flags };
	const int any = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(ioctl(any, SIOCSIFFLAGS, &loopback), 0);
	close(any);
}

/* As if a cable were pulled between admission and the hellos. */
static void a_connection_lost_before_the_hellos_is_a_lost_peer(void **state)
{
	const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), soon_ms = 50;
	if (home < 0 || unshare(CLONE_NEWNET))
		skip_because("this process may not create a network namespace");
	struct pair pair = { 0 };
	set_loopback(IFF_UP);
	pair_connect(&pair, "tcp", false);
	pair_begin(&pair, 0);
	assert_int_equal(
		setsockopt(raw(&pair.ends[0]), IPPROTO_TCP, TCP_USER_TIMEOUT, &soon_ms, sizeof(soon_ms)), 0);
	set_loopback(0);
	assert_int_equal(pair_await(&pair, 0), COLLET_ERR_PEER_LOST);
	assert_named();
	pair_close(&pair);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	close(home);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_invalid_header_ends_the_endpoint),
		cmocka_unit_test(a_huge_length_is_a_mismatch),
		cmocka_unit_test(a_cut_stream_is_a_lost_peer),
		cmocka_unit_test(noise_never_writes_where_it_must_not),
		cmocka_unit_test(a_wrong_hello_is_refused),
		cmocka_unit_test(a_connection_lost_before_the_hellos_is_a_lost_peer),
	};
	return cmocka_run_group_tests_name("tcp-bytes", tests, NULL, NULL);
}
