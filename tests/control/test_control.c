/* Tests the control plane: messages arrive once and in order, all others learn of a lost rank once, connections are
 * established and refused, and nothing is left behind. Ranks are threads here; test_control_processes.c kills real
 * processes. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../bootstrap/world.h"
#include "bootstrap/address.h"
#include "bootstrap/meet/handshake.h"
#include "control/control.h"
#include "core/clock.h"
#include "core/status.h"

enum { SIZE_MOST = 64, RECORDS_MOST = 4096 };
#define PATIENCE_S 20

enum record_kind { MESSAGE, GONE, LEFT, CONNECTED, DIAL_FAILED, TICK };
struct record {
	enum record_kind kind;
	uint32_t peer, type;
	uint32_t bytes;
	int socket;
	bool dialed;
	collet_status status;
	struct collet_hello hello;
	char text[128];
};

/* A rank with its control plane, and a record of all events in order. */
struct node {
	struct test_rank rank;
	struct collet_control *control;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct record records[RECORDS_MOST];
	uint32_t count;
	bool held;                 /* the control thread waits in message() */
};

enum { HOLD = 77 };            /* a type of message */

static void record(struct node *node, const struct record *what)
{
	pthread_mutex_lock(&node->mutex);
	if (node->count < RECORDS_MOST)
		node->records[node->count++] = *what;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->mutex);
}

static void connected(void *context, const struct collet_hello *hello, bool dialed, int socket)
{
	struct record what = { .kind = CONNECTED,
		.peer = dialed ? hello->to : hello->from,
		.socket = socket,
		.dialed = dialed,
		.hello = *hello };
	record(context, &what);
}

static void dial_failed(void *context, const struct collet_hello *hello, collet_status status, const char *sentence)
{
	struct record what = { .kind = DIAL_FAILED, .peer = hello->to, .status = status, .hello = *hello };
	snprintf(what.text, sizeof(what.text), "%s", sentence);
	record(context, &what);
}

static void peer_gone(void *context, uint32_t rank, bool left, const char *sentence)
{
	struct record what = { .kind = left ? LEFT : GONE, .peer = rank };
	snprintf(what.text, sizeof(what.text), "%s", sentence);
	record(context, &what);
}

static void message(void *context, uint32_t from, uint32_t type, const void *data, size_t bytes)
{
	struct record what = { .kind = MESSAGE, .peer = from, .type = type, .bytes = (uint32_t)bytes };
	if (bytes)
		memcpy(what.text, data, bytes < sizeof(what.text) ? bytes : sizeof(what.text));
	record(context, &what);
	struct node *node = context;
	pthread_mutex_lock(&node->mutex);
	while (type == HOLD && node->held)
		pthread_cond_wait(&node->changed, &node->mutex);
	pthread_mutex_unlock(&node->mutex);
}

static void tick(void *context)
{
	struct record what = { .kind = TICK };
	record(context, &what);
}

static const struct collet_control_events events = {
	.connected = connected, .dial_failed = dial_failed, .peer_gone = peer_gone, .message = message, .tick = tick,
};

/* Waits for the index-th record of this kind, and fails the test if it does not arrive. */
static struct record await(struct node *node, enum record_kind kind, uint32_t index)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&node->mutex);
	for (;;) {
		uint32_t seen = 0;
		for (uint32_t i = 0; i < node->count; i++) {
			if (node->records[i].kind == kind && seen++ == index) {
				struct record found = node->records[i];
				pthread_mutex_unlock(&node->mutex);
				return found;
			}
		}
		if (pthread_cond_timedwait(&node->changed, &node->mutex, &until))
			break;
	}
	pthread_mutex_unlock(&node->mutex);
	fail_msg("rank %u: record %u of kind %d did not come", node->rank.launch.rank, index, kind);
	return (struct record){ 0 };
}

static uint32_t count_of(struct node *node, enum record_kind kind)
{
	uint32_t seen = 0;
	pthread_mutex_lock(&node->mutex);
	for (uint32_t i = 0; i < node->count; i++)
		seen += node->records[i].kind == kind;
	pthread_mutex_unlock(&node->mutex);
	return seen;
}

static struct node *world_create_at(uint32_t size, const char *store, int64_t stranger_ns)
{
	struct node *nodes = calloc(size, sizeof(*nodes));
	for (uint32_t r = 0; r < size; r++) {
		test_rank_set(&nodes[r].rank, r, size, store, NULL, 20000);
		pthread_mutex_init(&nodes[r].mutex, NULL);
		pthread_cond_init(&nodes[r].changed, NULL);
		test_rank_start(&nodes[r].rank);
	}
	for (uint32_t r = 0; r < size; r++) {
		test_rank_join(&nodes[r].rank);
		if (nodes[r].rank.status)
			fail_msg("rank %u: %s", r, nodes[r].rank.sentence);
		const struct collet_control_config config = {
			.rank = r,
			.size = size,
			.launch = &nodes[r].rank.launch,
			.bootstrap = &nodes[r].rank.bootstrap,
			.events = &events,
			.context = &nodes[r],
			.log = &nodes[r].rank.log,
			.handshake_timeout_ns = stranger_ns,
		};
		assert_int_equal(collet_control_create(&nodes[r].control, &config), COLLET_OK);
	}
	return nodes;
}

static struct node *world_create_for(uint32_t size, int64_t stranger_ns)
{
	char name[32], store[64];
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	return world_create_at(size, store, stranger_ns);
}

static struct node *world_create(uint32_t size)
{
	return world_create_for(size, 0);
}

static void world_destroy(struct node *nodes, uint32_t size)
{
	for (uint32_t r = 0; r < size; r++) {
		collet_control_destroy(&nodes[r].control);
		collet_control_destroy(&nodes[r].control);  /* a second call is fine */
		collet_bootstrap_deinit(&nodes[r].rank.bootstrap);
		pthread_mutex_destroy(&nodes[r].mutex);
		pthread_cond_destroy(&nodes[r].changed);
	}
	free(nodes);
}

static void messages_arrive_once_and_in_order(void **state)
{
	enum { SIZE = 4, EACH = 100 };
	struct node *nodes = world_create(SIZE);
	for (uint32_t i = 0; i < EACH; i++)
		for (uint32_t from = 0; from < SIZE; from++)
			for (uint32_t to = 0; to < SIZE; to++)
				collet_control_send(nodes[from].control, to, i, &i, sizeof(i));
	for (uint32_t to = 0; to < SIZE; to++) {
		uint32_t next[SIZE] = { 0 };
		await(&nodes[to], MESSAGE, SIZE * EACH - 1);
		for (uint32_t i = 0; i < SIZE * EACH; i++) {
			const struct record got = await(&nodes[to], MESSAGE, i);
			assert_int_equal(got.type, next[got.peer]++);
			assert_int_equal(got.bytes, sizeof(uint32_t));
			assert_memory_equal(got.text, &got.type, sizeof(uint32_t));
		}
		for (uint32_t from = 0; from < SIZE; from++)
			assert_int_equal(next[from], EACH);
	}
	world_destroy(nodes, SIZE);
}

static void a_broadcast_reaches_all_others(void **state)
{
	enum { SIZE = 5 };
	struct node *nodes = world_create(SIZE);
	char longest[COLLET_CONTROL_MESSAGE_BYTES];
	memset(longest, 'x', sizeof(longest));
	for (uint32_t from = 0; from < SIZE; from++)
		collet_control_send(nodes[from].control, COLLET_CONTROL_ALL_RANKS, 7, longest, sizeof(longest));
	for (uint32_t to = 0; to < SIZE; to++) {
		uint32_t heard = 0;
		for (uint32_t i = 0; i < SIZE - 1; i++) {
			const struct record got = await(&nodes[to], MESSAGE, i);
			assert_int_equal(got.bytes, sizeof(longest));
			assert_int_not_equal(got.peer, to);
			heard |= 1u << got.peer;
		}
		assert_int_equal(heard, ((1u << SIZE) - 1) & ~(1u << to));
	}
	world_destroy(nodes, SIZE);
}

static void who_closes_in_order_has_left(void **state)
{
	enum { SIZE = 4 };
	struct node *nodes = world_create(SIZE);
	/* is still sent before the bye */
	collet_control_send(nodes[2].control, COLLET_CONTROL_ALL_RANKS, 1, NULL, 0);
	collet_control_destroy(&nodes[2].control);
	static const uint32_t others[] = { 0, 1, 3 };
	for (uint32_t i = 0; i < 3; i++) {
		struct node *node = &nodes[others[i]];
		assert_int_equal(await(node, LEFT, 0).peer, 2);
		assert_int_equal(await(node, MESSAGE, 0).peer, 2);
	}
	collet_control_destroy(&nodes[0].control);
	assert_int_equal(await(&nodes[1], LEFT, 1).peer, 0);
	assert_int_equal(await(&nodes[3], LEFT, 1).peer, 0);
	assert_int_equal(count_of(&nodes[1], GONE), 0);
	world_destroy(nodes, SIZE);
}

static struct collet_hello hello_between(uint32_t from, uint32_t to, uint32_t channel)
{
	return (struct collet_hello){
		.communicator = 0x1122334455667788, .from = from, .to = to, .channel = channel, .purpose = 9};
}

static void dials_connect_both_ways_at_once(void **state)
{
	enum { SIZE = 3 };
	struct node *nodes = world_create(SIZE);
	for (int local = 0; local < 2; local++)
		for (uint32_t from = 0; from < SIZE; from++)
			for (uint32_t to = 0; to < SIZE; to++) {
				const struct collet_hello hello = hello_between(from, to, (uint32_t)local);
				if (from != to)
					collet_control_dial(nodes[from].control, &hello, local);
			}
	for (uint32_t r = 0; r < SIZE; r++) {
		uint32_t dialed = 0;
		for (uint32_t i = 0; i < 4 * (SIZE - 1); i++) {
			const struct record got = await(&nodes[r], CONNECTED, i);
			struct sockaddr_storage address;
			socklen_t bytes = sizeof(address);
			dialed += got.dialed;
			assert_int_equal(got.dialed ? got.hello.from : got.hello.to, r);
			assert_int_equal(got.hello.communicator, 0x1122334455667788);
			assert_int_equal(got.hello.purpose, 9);
			assert_int_equal(getsockname(got.socket, (struct sockaddr *)&address, &bytes), 0);
			assert_int_equal(address.ss_family == AF_UNIX, got.hello.channel == 1);
			close(got.socket);
		}
		assert_int_equal(dialed, 2 * (SIZE - 1));
		assert_int_equal(count_of(&nodes[r], DIAL_FAILED), 0);
	}
	world_destroy(nodes, SIZE);
}

static void hold(struct node *node, bool held)
{
	pthread_mutex_lock(&node->mutex);
	node->held = held;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->mutex);
}

enum { QUESTION = 1, ANNOUNCEMENT, LAST, QUESTIONS = 4000, BETWEEN = 100 };

/* Sends many questions, some announcements between them, and a last message to all ranks. */
static void send_more_than_is_read(struct node *from, uint32_t to)
{
	static const char data[COLLET_CONTROL_MESSAGE_BYTES];
	for (uint32_t i = 0; i < QUESTIONS; i++) {
		collet_control_send_droppable(from->control, to, QUESTION, data, sizeof(data));
		if (i % BETWEEN == 0)
			collet_control_send(from->control, to, ANNOUNCEMENT, &i, sizeof(i));
	}
	collet_control_send(from->control, COLLET_CONTROL_ALL_RANKS, LAST, NULL, 0);
}

/* Waits for the last message. Counts the questions before it, and checks that no announcement is missing. */
static uint32_t await_last(struct node *node, uint32_t from)
{
	uint32_t questions = 0, announcements = 0;
	for (uint32_t i = 0;; i++) {
		const struct record got = await(node, MESSAGE, i);
		const uint32_t wanted = announcements * BETWEEN;
		if (got.peer != from)
			continue;
		if (got.type == LAST)
			break;
		questions += got.type == QUESTION;
		announcements += got.type == ANNOUNCEMENT;
		if (got.type == ANNOUNCEMENT)
			assert_memory_equal(got.text, &wanted, sizeof(wanted));
	}
	assert_int_equal(announcements, QUESTIONS / BETWEEN);
	return questions;
}

/* One rank does not read. The links to it, and to rank 0, drop questions, and nothing else. Nobody counts as lost. */
static void a_full_queue_drops_questions_alone(void **state)
{
	enum { SIZE = 4 };
	static const struct { uint32_t reader, sender; } rows[] = { { 2, 1 }, { 0, 1 }, { 2, 0 } };
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint32_t reader = rows[i].reader, sender = rows[i].sender, watcher = 3;
		struct node *nodes = world_create(SIZE);
		nodes[reader].held = true;
		collet_control_send(nodes[watcher].control, reader, HOLD, NULL, 0);
		(void)await(&nodes[reader], MESSAGE, 0);
		send_more_than_is_read(&nodes[sender], reader);
		/* Tells when all has been sent: the sender itself, or who gets it relayed. */
		struct node *const witness = &nodes[reader == 0 ? sender : watcher];
		collet_control_send(nodes[sender].control, witness->rank.launch.rank, LAST, NULL, 0);
		assert_int_equal(await(witness, MESSAGE, 0).type, LAST);
		hold(&nodes[reader], false);
		const uint32_t questions = await_last(&nodes[reader], sender);
		assert_true(questions > 0 && questions < QUESTIONS);
		for (uint32_t r = 0; r < SIZE; r++)
			assert_int_equal(count_of(&nodes[r], GONE), 0);
		world_destroy(nodes, SIZE);
	}
}

/* Without this the kernel ends the connection to a rank that has read nothing for 25 s. */
static void links_outlast_slow_readers(void **state)
{
	char store[64];
	int value = 1;
	socklen_t bytes = sizeof(value);
	snprintf(store, sizeof(store), "tcp://127.0.0.1:%u", test_free_port());
	struct test_rank ranks[2];
	for (uint32_t r = 0; r < 2; r++)
		test_rank_set(&ranks[r], r, 2, store, "a secret", 20000);
	test_world_meet(ranks, 2);
	const int link = dup(ranks[1].bootstrap.control_sockets[0]);
	assert_int_equal(getsockopt(link, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &bytes), 0);
	assert_int_not_equal(value, 0);
	struct node node = { 0 };
	pthread_mutex_init(&node.mutex, NULL);
	pthread_cond_init(&node.changed, NULL);
	const struct collet_control_config config = { .rank = 1, .size = 2, .launch = &ranks[1].launch,
		.bootstrap = &ranks[1].bootstrap, .events = &events, .context = &node, .log = &ranks[1].log };
	assert_int_equal(collet_control_create(&node.control, &config), COLLET_OK);
	assert_int_equal(getsockopt(link, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &bytes), 0);
	assert_int_equal(value, 0);
	close(link);
	collet_control_destroy(&node.control);
	test_world_deinit(ranks, 2);
}

/* Rank 1 dials rank 0 and sends its proof while rank 0's control thread is held for longer than the handshake may take.
 * Returns false if rank 0 was too fast: it had accepted or refused before it was held. */
static bool is_let_in_late(int stranger_ms)
{
	struct node *nodes = world_create_for(2, (int64_t)stranger_ms * 1000000);
	const struct collet_bootstrap *bootstrap = &nodes[1].rank.bootstrap;
	struct collet_handshake_config config = { .key = bootstrap->session_key,
		.key_bytes = sizeof(bootstrap->session_key), .job = nodes[1].rank.launch.job,
		.purpose = COLLET_PURPOSE_ENDPOINT, .from = 1, .to = 0, .size = 2 };
	const struct collet_hello hello = hello_between(1, 0, 3);
	memcpy(config.payload, &hello, sizeof(hello));
	struct collet_address endpoint;
	struct collet_handshake handshake;
	int fd;
	collet_address_unix(&endpoint, bootstrap->peer_infos[0].unix_name);
	assert_int_equal(collet_socket_dial(&endpoint, &fd), COLLET_OK);
	assert_int_equal(collet_handshake_dial(&handshake, fd, &config), COLLET_OK);
	const bool begun = collet_handshake_step(&handshake) == COLLET_PENDING;
	struct pollfd waiting = { .fd = fd, .events = POLLIN };
	if (begun)
		assert_int_equal(poll(&waiting, 1, PATIENCE_S * 1000), 1);  /* the answer */
	nodes[0].held = true;
	collet_control_send(nodes[1].control, 0, HOLD, NULL, 0);
	(void)await(&nodes[0], MESSAGE, 0);
	const bool proved = begun && collet_handshake_step(&handshake) == COLLET_PENDING;
	const bool in_time = proved && poll(&waiting, 1, stranger_ms + 10) == 0;
	hold(&nodes[0], false);
	if (in_time) {
		collet_status status;
		while ((status = collet_handshake_step(&handshake)) == COLLET_PENDING)
			assert_int_equal(poll(&waiting, 1, PATIENCE_S * 1000), 1);
		assert_int_equal(status, COLLET_OK);
		const struct record got = await(&nodes[0], CONNECTED, 0);
		assert_int_equal(got.hello.channel, 3);
		close(got.socket);
	}
	close(fd);
	world_destroy(nodes, 2);
	return in_time;
}

/* A rank may get no processor for longer than a handshake may take. It must not blame the dialing rank for that. */
static void a_caller_is_not_late_when_the_rank_is(void **state)
{
	const int64_t deadline_ns = collet_clock_ns() + INT64_C(1000000000) * PATIENCE_S;
	int attempts = 0;
	bool let_in = false;
	while (!let_in && collet_clock_ns() < deadline_ns) {
		let_in = is_let_in_late(50 << (attempts < 12 ? attempts / 2 : 6));
		attempts++;
	}
	if (!let_in)
		fail_msg("in none of %d attempts was rank 0 held while it should have listened", attempts);
}

static void a_dial_to_who_left_is_reported(void **state)
{
	struct node *nodes = world_create(3);
	const struct collet_hello hello = hello_between(1, 2, 0);
	collet_control_destroy(&nodes[2].control);
	collet_control_dial(nodes[1].control, &hello, true);
	struct record got = await(&nodes[1], DIAL_FAILED, 0);
	assert_int_equal(got.peer, 2);
	assert_true(got.status == COLLET_ERR_TRANSPORT || got.status == COLLET_ERR_PEER_LOST);
	assert_non_null(strstr(got.text, "rank 2"));
	await(&nodes[1], LEFT, 0);
	collet_control_dial(nodes[1].control, &hello, false);
	assert_int_equal(await(&nodes[1], DIAL_FAILED, 1).status, COLLET_ERR_PEER_LOST);
	world_destroy(nodes, 3);
}

static void ticks_come_only_while_asked_for(void **state)
{
	struct node *nodes = world_create(1);
	collet_control_tick(nodes[0].control, 1);
	await(&nodes[0], TICK, 5);
	collet_control_tick(nodes[0].control, 0);
	/* A message to the rank itself passes through the same thread: when it has arrived, the tick is off. */
	collet_control_send(nodes[0].control, 0, 1, NULL, 0);
	await(&nodes[0], MESSAGE, 0);
	const uint32_t before = count_of(&nodes[0], TICK);
	collet_control_send(nodes[0].control, 0, 2, NULL, 0);
	await(&nodes[0], MESSAGE, 1);
	assert_int_equal(count_of(&nodes[0], TICK), before);
	world_destroy(nodes, 1);
}

static void nothing_is_left_behind(void **state)
{
	enum { SIZE = 16 };
	world_destroy(world_create(2), 2);  /* libraries open some descriptors only once */
	const uint32_t descriptors = test_count_descriptors(), threads = test_count_threads();
	struct node *nodes = world_create(SIZE);
	for (uint32_t r = 1; r < SIZE; r++) {
		const struct collet_hello hello = hello_between(r, r - 1, 0);
		collet_control_dial(nodes[r].control, &hello, r % 2);
	}
	for (uint32_t r = 0; r < SIZE; r++)
		for (uint32_t i = 0; i < (r == 0 || r == SIZE - 1 ? 1 : 2); i++)
			close(await(&nodes[r], CONNECTED, i).socket);
	assert_int_equal(test_count_threads(), threads + SIZE);
	world_destroy(nodes, SIZE);
	assert_int_equal(test_count_threads(), threads);
	assert_int_equal(test_count_descriptors(), descriptors);
}

static void a_forked_child_forgets_without_harm(void **state)
{
	struct node *nodes = world_create(2);
	int status;
	fflush(NULL);
	const pid_t child = fork();
	if (child == 0) {
		const uint32_t before = test_count_descriptors();
		collet_control_atfork_child(&nodes[1].control);
		collet_control_atfork_child(&nodes[1].control); /* a second call is fine */
		/* The epoll set, wake descriptor, control link and two listeners. */
		_exit(nodes[1].control == NULL && test_count_descriptors() == before - 5 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	const struct collet_hello hello = hello_between(0, 1, 0);
	collet_control_send(nodes[0].control, 1, 5, NULL, 0);
	assert_int_equal(await(&nodes[1], MESSAGE, 0).type, 5);
	collet_control_dial(nodes[0].control, &hello, true);
	close(await(&nodes[0], CONNECTED, 0).socket);
	close(await(&nodes[1], CONNECTED, 0).socket);
	assert_int_equal(count_of(&nodes[0], GONE), 0);
	world_destroy(nodes, 2);
}

/* An endpoint that is open when it has read a byte and has been polled often enough. */
struct opening {
	struct node *node;
	int socket;
	_Atomic uint32_t asked;
	bool begun;
};

static bool is_ready(void *context)
{
	struct opening *opening = context;
	char byte;
	opening->asked++;
	if (recv(opening->socket, &byte, 1, MSG_DONTWAIT) != 1)
		return true;
	record(opening->node, &(struct record){ .kind = CONNECTED, .socket = opening->socket });
	return false;
}

static void begin_watch(void *context)
{
	struct opening *opening = context;
	if (!opening->begun)
		collet_control_watch(opening->node->control, opening->socket, is_ready, opening);
	opening->begun = true;
}

static void a_new_connection_is_watched_until_it_says_no(void **state)
{
	struct collet_control_events with_watch = events;
	struct test_rank rank;
	static struct node node;
	struct opening opening = { .node = &node };
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	opening.socket = pair[0];
	pthread_mutex_init(&node.mutex, NULL);
	pthread_cond_init(&node.changed, NULL);
	with_watch.tick = begin_watch;  /* runs on the control thread, as collet_control_watch() requires */
	test_rank_set(&rank, 0, 1, "", NULL, 1000);
	test_world_meet(&rank, 1);
	const struct collet_control_config config = {
		.rank = 0,
		.size = 1,
		.launch = &rank.launch,
		.bootstrap = &rank.bootstrap,
		.events = &with_watch,
		.context = &opening,
		.log = &rank.log,
	};
	assert_int_equal(collet_control_create(&node.control, &config), COLLET_OK);
	collet_control_tick(node.control, 1);
	while (opening.asked < 3)  /* polled although nothing is readable; meson's timeout limits this */
		sched_yield();
	collet_control_tick(node.control, 0);
	assert_int_equal(send(pair[1], "x", 1, 0), 1);
	await(&node, CONNECTED, 0);
	collet_control_destroy(&node.control);
	test_world_deinit(&rank, 1);
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_once_and_in_order),
		cmocka_unit_test(a_broadcast_reaches_all_others),
		cmocka_unit_test(who_closes_in_order_has_left),
		cmocka_unit_test(dials_connect_both_ways_at_once),
		cmocka_unit_test(a_full_queue_drops_questions_alone),
		cmocka_unit_test(links_outlast_slow_readers),
		cmocka_unit_test(a_caller_is_not_late_when_the_rank_is),
		cmocka_unit_test(a_dial_to_who_left_is_reported),
		cmocka_unit_test(ticks_come_only_while_asked_for),
		cmocka_unit_test(nothing_is_left_behind),
		cmocka_unit_test(a_forked_child_forgets_without_harm),
		cmocka_unit_test(a_new_connection_is_watched_until_it_says_no),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
