/* Tests strangers at every listener, during and after the bootstrap: none gets in, nothing crashes, and no rank is
 * delayed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/address.h"
#include "bootstrap/framed_socket.h"
#include "bootstrap/meet/handshake.h"
#include "control/control.h"
#include "core/status.h"
#include "world.h"

enum { STRANGERS = 12, SIZE = 3 };

static struct collet_address loopback(uint16_t port)
{
	struct collet_address endpoint;
	const struct in_addr v4 = { .s_addr = htonl(INADDR_LOOPBACK) };
	collet_address_ip(&endpoint, AF_INET, &v4, 0, port);
	return endpoint;
}

/* Makes a blocking connection. Waits for the listener to appear. */
static int connect_to(const struct collet_address *endpoint)
{
	const int64_t deadline = collet_deadline_after(10000000000);
	for (;;) {
		int fd = socket(endpoint->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(fd >= 0);
		if (connect(fd, &endpoint->any, endpoint->bytes) == 0)
			return fd;
		close(fd);
		if (collet_deadline_passed(deadline))
			fail_msg("nobody listens");
		poll(NULL, 0, 1);
	}
}

static void set_ask(struct collet_handshake_ask *ask, const char *job, uint32_t purpose, uint32_t from, uint32_t to)
{
	const uint8_t key[32] = { 0 };
	struct collet_handshake maker;
	const struct collet_handshake_config config = {
		.key = key, .key_bytes = 32, .job = job, .purpose = purpose, .from = from, .to = to, .size = SIZE,
	};
	assert_int_equal(collet_handshake_dial(&maker, -1, &config), COLLET_OK);
	*ask = maker.transcript.ask;
}

/* Misbehaves in the index-th way. The connection stays open. */
static void misbehave(int fd, uint32_t index, uint32_t purpose, uint32_t from, uint32_t to)
{
	struct collet_handshake_ask ask;
	uint8_t noise[4096];
	set_ask(&ask, "test", purpose, from, to);
	switch (index) {
	case 0:  /* says nothing */
		return;
	case 1:  /* speaks another protocol */
		(void)!send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
		return;
	case 2:  /* half an ask, and waits */
		(void)!send(fd, &ask, sizeof(ask) / 2, MSG_NOSIGNAL);
		return;
	case 3:  /* one byte */
		(void)!send(fd, &ask, 1, MSG_NOSIGNAL);
		return;
	case 4:  /* no proof after the answer */
		(void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
		return;
	case 5:  /* a wrong proof */
		(void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
		memset(noise, 7, sizeof(noise));
		(void)!send(fd, noise, sizeof(struct collet_handshake_proof), MSG_NOSIGNAL);
		return;
	case 6:  /* noise without end */
		assert_int_equal(collet_random(noise, sizeof(noise)), COLLET_OK);
		(void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
		return;
	case 7:  /* numbers beyond everything */
		ask.from = ask.to = ask.size = UINT32_MAX;
		(void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
		return;
	case 8:  /* text without an end */
		memset(ask.job, 'j', sizeof(ask.job));
		memset(ask.version, 'v', sizeof(ask.version));
		(void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
		return;
	case 9:  /* closes immediately */
		shutdown(fd, SHUT_RDWR);
		return;
	case 10:  /* claims to need no secret */
		ask.has_key = 0;
		(void)!send(fd, &ask, sizeof(ask), MSG_NOSIGNAL);
		return;
	default:  /* a peer info without a handshake */
		(void)!send(fd, &(struct collet_frame){ .kind = COLLET_FRAME_PEER_INFO, .bytes = UINT32_MAX },
			sizeof(struct collet_frame), MSG_NOSIGNAL);
		return;
	}
}

/* True if the other end has not accepted the connection. It may be silent, refuse, or close. */
static bool was_not_let_in(int fd)
{
	struct {
		struct collet_handshake_answer answer;
		struct collet_handshake_verdict verdict;
	} said = { 0 };
	fcntl(fd, F_SETFL, O_NONBLOCK);
	size_t got = 0;
	for (ssize_t n; got < sizeof(said) && (n = recv(fd, (uint8_t *)&said + got, sizeof(said) - got, 0)) > 0;)
		got += (size_t)n;
	return got < sizeof(said) || said.answer.refusal || said.verdict.refusal;
}

static void strangers_do_not_hold_up_a_rendezvous(void **state)
{
	struct test_rank ranks[SIZE];
	int strangers[STRANGERS];
	char store[64];
	const uint32_t descriptors = test_count_descriptors();
	const uint16_t port = test_free_port();
	const struct collet_address root = loopback(port);
	snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", port);
	for (uint32_t r = 0; r < SIZE; r++)
		test_rank_set(&ranks[r], r, SIZE, store, "s3cret", 20000);
	test_rank_start(&ranks[0]);
	for (uint32_t i = 0; i < STRANGERS; i++) {
		strangers[i] = connect_to(&root);
		misbehave(strangers[i], i, COLLET_PURPOSE_CONTROL, 1, 0);
	}
	const int64_t start = collet_clock_ns();
	for (uint32_t r = 1; r < SIZE; r++)
		test_rank_start(&ranks[r]);
	for (uint32_t r = 0; r < SIZE; r++) {
		test_rank_join(&ranks[r]);
		if (ranks[r].status)
			fail_msg("rank %u: %s", r, ranks[r].sentence);
	}
	assert_true(collet_clock_ns() - start < 5000000000);  /* less than any stranger's time */
	for (uint32_t i = 0; i < STRANGERS; i++) {
		assert_true(was_not_let_in(strangers[i]));
		close(strangers[i]);
	}
	test_world_deinit(ranks, SIZE);
	assert_int_equal(test_count_descriptors(), descriptors);
}

/* Records the bytes of a rank through a relay, and replays them to the same rank 0. */
static void a_recorded_rank_is_not_let_in(void **state)
{
	struct test_rank ranks[2];
	char store[64], relayed[64];
	uint8_t said[8192];
	size_t said_bytes = 0;
	const uint16_t port = test_free_port();
	struct collet_address root = loopback(port), relay = loopback(0);
	int listener;
	assert_int_equal(collet_socket_listen(&relay, 0, 0, &listener), COLLET_OK);
	snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", port);
	snprintf(relayed, sizeof(relayed), "tcp://127.0.0.1:%u", collet_address_port(&relay));
	test_rank_set(&ranks[0], 0, 3, store, "s3cret", 3000);
	test_rank_set(&ranks[1], 1, 3, relayed, "s3cret", 3000);
	test_rank_start(&ranks[0]);
	test_rank_start(&ranks[1]);
	struct pollfd knock = { .fd = listener, .events = POLLIN };
	assert_int_equal(poll(&knock, 1, 10000), 1);
	int client = accept(listener, NULL, NULL), host = connect_to(&root);
	assert_true(client >= 0);
	const size_t all = sizeof(struct collet_handshake_ask) + sizeof(struct collet_handshake_proof) +
		sizeof(struct collet_frame) + sizeof(struct collet_peer_info);
	while (said_bytes < all) {
		struct pollfd ends[2] = { { .fd = client, .events = POLLIN }, { .fd = host, .events = POLLIN } };
		uint8_t bytes[1024];
		ssize_t n;
		assert_true(poll(ends, 2, 10000) > 0);
		if (ends[0].revents && (n = recv(client, bytes, sizeof(bytes), 0)) > 0) {
			memcpy(said + said_bytes, bytes, (size_t)n);
			said_bytes += (size_t)n;
			assert_int_equal(send(host, bytes, (size_t)n, MSG_NOSIGNAL), n);
		}
		if (ends[1].revents && (n = recv(host, bytes, sizeof(bytes), 0)) > 0)
			assert_int_equal(send(client, bytes, (size_t)n, MSG_NOSIGNAL), n);
	}
	/* Rank 1 is registered now. Replay its bytes. */
	int replay = connect_to(&root);
	assert_int_equal(send(replay, said, said_bytes, MSG_NOSIGNAL), said_bytes);
	struct collet_handshake_answer answer;
	struct collet_handshake_verdict verdict;
	assert_int_equal(recv(replay, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_int_equal(answer.refusal, COLLET_REFUSAL_NONE);
	assert_int_equal(recv(replay, &verdict, sizeof(verdict), MSG_WAITALL), sizeof(verdict));
	assert_int_equal(verdict.refusal, COLLET_REFUSAL_SECRET);
	close(replay);
	close(client);
	close(host);
	close(listener);
	test_rank_join(&ranks[0]);
	assert_int_equal(ranks[0].status, COLLET_ERR_RENDEZVOUS);
	test_rank_join(&ranks[1]);
	test_world_deinit(ranks, 2);
}

/* ---- The listeners of a running control plane ---- */

struct witness {
	_Atomic uint32_t connected, others;
};

static void saw_connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	struct witness *witness = context;
	close(socket);
	witness->connected++;
}

static void saw_dial_failed(void *context, const struct collet_hello *hello, collet_status status, const char *sentence)
{
	((struct witness *)context)->others++;
}

static void saw_peer_gone(void *context, uint32_t rank, bool left, const char *sentence)
{
	((struct witness *)context)->others++;
}

static void saw_message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	((struct witness *)context)->others++;
}

static void saw_tick(void *context)
{
	((struct witness *)context)->others++;
}

/* SIZE ranks with their control planes. */
struct world {
	struct test_rank ranks[SIZE];
	struct witness witnesses[SIZE];
	struct collet_control *controls[SIZE];
};

static void world_create(struct world *world)
{
	static const struct collet_control_events events = {
		.connected = saw_connected,
		.dial_failed = saw_dial_failed,
		.peer_gone = saw_peer_gone,
		.message = saw_message,
		.tick = saw_tick,
	};
	char name[32], store[64];
	memset(world, 0, sizeof(*world));
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < SIZE; r++)
		test_rank_set(&world->ranks[r], r, SIZE, store, NULL, 20000);
	test_world_meet(world->ranks, SIZE);
	for (uint32_t r = 0; r < SIZE; r++) {
		struct test_rank *rank = &world->ranks[r];
		assert_int_equal(rank->status, COLLET_OK);
		const struct collet_control_config config = {
			.rank = r,
			.size = SIZE,
			.launch = &rank->launch,
			.bootstrap = &rank->bootstrap,
			.events = &events,
			.context = &world->witnesses[r],
			.log = &rank->log,
		};
		assert_int_equal(collet_control_create(&world->controls[r], &config), COLLET_OK);
	}
}

static void world_destroy(struct world *world)
{
	for (uint32_t r = 0; r < SIZE; r++)
		collet_control_destroy(&world->controls[r]);
	test_world_deinit(world->ranks, SIZE);
}

/* Returns the address of a rank's TCP or Unix listener. */
static struct collet_address door_of(const struct world *world, uint32_t rank, bool local)
{
	const struct collet_peer_info *info = &world->ranks[0].bootstrap.peer_infos[rank];
	struct collet_address listener = loopback(info->port);
	if (local)
		collet_address_unix(&listener, info->unix_name);
	return listener;
}

/* Lets each rank dial the next one over TCP and Unix. All must connect soon, and nobody else. */
static void assert_the_honest_connect(struct world *world)
{
	for (uint32_t r = 0; r < SIZE; r++) {
		for (uint32_t d = 0; d < 2; d++) {
			const struct collet_hello hello = { .from = r, .to = (r + 1) % SIZE };
			collet_control_dial(world->controls[r], &hello, d);
		}
	}
	const int64_t deadline = collet_deadline_after(5000000000);
	for (uint32_t r = 0; r < SIZE; r++) {
		while (world->witnesses[r].connected < 4 && !collet_deadline_passed(deadline))
			poll(NULL, 0, 1);
		assert_int_equal(world->witnesses[r].connected, 4);
		assert_int_equal(world->witnesses[r].others, 0);
	}
}

static void strangers_do_not_pass_the_listeners_of_a_rank(void **state)
{
	static struct world world;
	int strangers[SIZE][2][STRANGERS];
	const uint32_t descriptors = test_count_descriptors();
	world_create(&world);
	for (uint32_t r = 0; r < SIZE; r++) {
		for (uint32_t d = 0; d < 2; d++) {
			const struct collet_address listener = door_of(&world, r, d);
			for (uint32_t i = 0; i < STRANGERS; i++) {
				strangers[r][d][i] = connect_to(&listener);
				misbehave(strangers[r][d][i], i, COLLET_PURPOSE_ENDPOINT, (r + 1) % SIZE, r);
			}
		}
	}
	assert_the_honest_connect(&world);
	for (uint32_t r = 0; r < SIZE; r++)
		for (uint32_t d = 0; d < 2; d++)
			for (uint32_t i = 0; i < STRANGERS; i++) {
				assert_true(was_not_let_in(strangers[r][d][i]));
				close(strangers[r][d][i]);
			}
	world_destroy(&world);
	assert_int_equal(test_count_descriptors(), descriptors);
}

/* Opens more connections than may be pending: the oldest are closed. */
static void a_crowd_does_not_keep_the_honest_out(void **state)
{
	enum { CROWD = 4 * SIZE + 256 + 32 };
	static struct world world;
	static int crowd[CROWD];
	world_create(&world);
	const struct collet_address listener = door_of(&world, 1, false);
	for (uint32_t i = 0; i < CROWD; i++)
		crowd[i] = connect_to(&listener);
	assert_the_honest_connect(&world);
	char byte;
	assert_int_equal(recv(crowd[0], &byte, 1, 0), 0);  /* the oldest was closed */
	for (uint32_t i = 0; i < CROWD; i++)
		close(crowd[i]);
	world_destroy(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_do_not_hold_up_a_rendezvous),
		cmocka_unit_test(a_recorded_rank_is_not_let_in),
		cmocka_unit_test(strangers_do_not_pass_the_listeners_of_a_rank),
		cmocka_unit_test(a_crowd_does_not_keep_the_honest_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
