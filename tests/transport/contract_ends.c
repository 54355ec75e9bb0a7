/* Tests what collet/transport.h promises about the ends of an endpoint pair: closing, a peer that leaves, and one that
 * is killed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "contract.h"

static const char *name_of(void **state)
{
	return *state;
}

static void post_send(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_send(end->endpoint, transfer);
}

static void post_recv(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_recv(end->endpoint, transfer);
}

static void assert_lost(const struct end *end, const struct collet_transfer *transfer)
{
	assert_int_equal(transfer->status, COLLET_ERR_PEER_LOST);
	assert_int_equal(end->endpoint->status, COLLET_ERR_PEER_LOST);
	char rank[16];
	snprintf(rank, sizeof(rank), "rank %u", end->endpoint->peer);
	assert_non_null(strstr(collet_last_error(), rank));
	assert_non_null(strstr(collet_last_error(), end->endpoint->peer == FIRST_RANK ? "alpha" : "beta"));
}

static void close_cancels_what_is_pending(void **state)
{
	enum { COUNT = 5, BYTES = 32 << 20 };
	uint8_t *buffer = calloc(1, BYTES);
	for (unsigned kind = 0; kind < 3; kind++) {
		struct pair pair = { 0 };
		pair_open(&pair, name_of(state));
		struct collet_transfer transfers[COUNT];
		for (uint64_t i = 0; i < COUNT; i++) {
			transfers[i] = transfer_of(i, buffer, BYTES);
			if (kind == 0 || (kind == 2 && i % 2 && !pair.single))
				post_recv(&pair.ends[0], &transfers[i]);
			else
				post_send(&pair.ends[0], &transfers[i]);
		}
		pair.transport->progress(pair.ends[0].endpoint);
		assert_int_equal(pair.ends[0].endpoint->posted, COUNT);
		pair.transport->close(pair.ends[0].endpoint);
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(transfers[i].status, COLLET_CANCELLED);
		assert_int_equal(pair.ends[0].endpoint->posted, 0);
		pair.transport->close(pair.ends[0].endpoint);
		pair_close(&pair);
	}
	free(buffer);
}

static void close_accepts_an_unopened_endpoint(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, name_of(state), false);
	pair_begin(&pair, 0);  /* for its table only: the test uses another endpoint */
	const size_t bytes = (pair.transport->endpoint_bytes + 63) / 64 * 64;
	struct collet_endpoint *endpoint = aligned_alloc(64, bytes);
	memset(endpoint, 0, bytes);
	endpoint->transport = pair.transport;
	pair.transport->close(endpoint);
	pair.transport->close(endpoint);
	free(endpoint);
	pair_close(&pair);
}

/* The endpoint is open but not ready, as when the other end never came. */
static void close_accepts_an_unready_endpoint(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, name_of(state), false);
	pair_begin(&pair, 0);
	if (!pair.single)
		assert_int_equal(pair.transport->open_progress(pair.ends[0].endpoint), COLLET_PENDING);
	pair_close(&pair);
}

static void opening_fails_when_the_other_end_leaves(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, name_of(state), false);
	pair_begin(&pair, 0);
	close(pair.sockets[1]);
	pair.sockets[1] = -1;
	const collet_status status = pair_await(&pair, 0);
	assert_true(status != COLLET_OK && status != COLLET_ERR_TIMEOUT);
	assert_non_null(strstr(collet_last_error(), "rank 11"));
	pair_close(&pair);
}

/* Receives, or more sends than fit, are pending when the other end closes. */
static void a_closed_peer_is_lost(void **state)
{
	enum { COUNT = 3, BYTES = 32 << 20 };
	uint8_t *buffer = calloc(1, BYTES);
	for (unsigned kind = 0; kind < 3; kind++) {
		struct pair pair = { 0 };
		pair_open(&pair, name_of(state));
		struct end *left = &pair.ends[1];
		struct collet_transfer transfers[COUNT];
		for (uint64_t i = 0; i < COUNT; i++) {
			transfers[i] = transfer_of(i, buffer, BYTES);
			if (kind == 0 || (kind == 2 && i % 2))
				post_recv(left, &transfers[i]);
			else
				post_send(left, &transfers[i]);
		}
		pair.transport->progress(left->endpoint);
		assert_int_equal(left->endpoint->posted, COUNT);
		pair.transport->close(pair.ends[0].endpoint);
		assert_true(end_complete(left, &transfers[COUNT - 1]));
		assert_lost(left, &transfers[COUNT - 1]);
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(transfers[i].status, COLLET_ERR_PEER_LOST);
		assert_int_equal(left->endpoint->posted, 0);

		/* The status is sticky: later posts complete immediately, and nothing else happens. */
		struct collet_transfer send = transfer_of(9, buffer, 1), receive = transfer_of(9, buffer, 1);
		post_send(left, &send);
		post_recv(left, &receive);
		assert_int_equal(send.status, COLLET_ERR_PEER_LOST);
		assert_int_equal(receive.status, COLLET_ERR_PEER_LOST);
		assert_int_equal(left->endpoint->posted, 0);
		assert_int_equal(pair.transport->progress(left->endpoint), 0);
		struct collet_message message;
		assert_false(pair.transport->peek(left->endpoint, &message));
		assert_false(pair.transport->arm(left->endpoint));
		pair_close(&pair);
	}
	free(buffer);
}

/* Nothing is posted and the rank peeks. It sees everything that was sent, and then learns that nothing more will come,
 * awake or asleep. */
static void a_peeking_rank_loses_a_closed_peer(void **state)
{
	enum { BYTES = 100 };
	for (unsigned row = 0; row < 4; row++) {
		const bool asleep = row & 1, unread = row & 2;
		struct pair pair = { 0 };
		uint8_t from[BYTES], into[BYTES];
		struct collet_message message;
		pair_open(&pair, name_of(state));
		struct end *left = &pair.ends[1];
		assert_false(pair.transport->peek(left->endpoint, &message));
		struct collet_transfer send = transfer_of(0, from, BYTES), receive = transfer_of(0, into, BYTES);
		if (unread) {
			post_send(&pair.ends[0], &send);
			assert_true(end_complete(&pair.ends[0], &send));
		}
		struct epoll_event event;
		const bool waits = asleep && !unread;
		if (waits)
			assert_true(pair.transport->arm(left->endpoint));
		pair.transport->close(pair.ends[0].endpoint);
		if (waits)
			assert_int_equal(epoll_wait(left->wake.epoll_fd, &event, 1, 20000), 1);
		pair.transport->disarm(left->endpoint);
		if (unread) {
			assert_true(end_peek(left, &message, asleep));
			post_recv(left, &receive);
			assert_true(end_complete(left, &receive));
			assert_int_equal(receive.status, COLLET_OK);
		}
		assert_false(end_peek(left, &message, asleep));
		assert_int_equal(left->endpoint->status, COLLET_ERR_PEER_LOST);
		assert_non_null(strstr(collet_last_error(), "rank"));
		post_recv(left, &receive);
		assert_int_equal(receive.status, COLLET_ERR_PEER_LOST);
		pair_close(&pair);
	}
}

/* A rank leaves after its calls. What it sent is still delivered, whether or not it had read everything. */
static void completed_sends_outlive_their_sender(void **state)
{
	enum { COUNT = 6, BYTES = 100 };
	for (unsigned unread = 0; unread < 2; unread++) {
		struct pair pair = { 0 };
		pair_open(&pair, name_of(state));
		uint8_t from[BYTES], into[BYTES];
		struct collet_transfer nobody_reads = transfer_of(0, from, BYTES);
		if (unread) {
			post_send(&pair.ends[1], &nobody_reads);
			assert_true(end_complete(&pair.ends[1], &nobody_reads));
		}
		uint64_t completed = 0;
		for (; completed < COUNT; completed++) {
			struct collet_transfer send = transfer_of(completed, from, BYTES);
			pattern_fill(from, BYTES, completed);
			post_send(&pair.ends[0], &send);
			assert_true(end_complete(&pair.ends[0], &send)); /* so few bytes fit without a receive */
			assert_int_equal(send.status, COLLET_OK);
		}
		pair.transport->close(pair.ends[0].endpoint);
		for (uint64_t i = 0; i < completed; i++) {
			struct collet_transfer receive = transfer_of(i, into, BYTES);
			post_recv(&pair.ends[1], &receive);
			assert_true(end_complete(&pair.ends[1], &receive));
			assert_int_equal(receive.status, COLLET_OK);
			assert_true(pattern_is(into, BYTES, i));
		}
		struct collet_transfer receive = transfer_of(completed, into, BYTES);
		post_recv(&pair.ends[1], &receive);
		assert_true(end_complete(&pair.ends[1], &receive));
		assert_lost(&pair.ends[1], &receive);
		pair_close(&pair);
	}
}

/* ---- Processes ---------------------------------------------------------------------------------------------- */

/* Runs in the child: opens the second end, tells the parent, and waits to be killed. */
static void wait_to_be_killed(struct pair *pair, int ready, uint64_t sends, uint8_t *buffer, size_t bytes)
{
	close(pair->sockets[0]);
	pair->sockets[0] = -1;
	pair_begin(pair, 1);
	if (pair_await(pair, 1) != COLLET_OK)
		_exit(1);
	for (uint64_t i = 0; i < sends; i++) {
		struct collet_transfer send = transfer_of(i, buffer, bytes);
		post_send(&pair->ends[1], &send);
		if (!end_complete(&pair->ends[1], &send) || send.status != COLLET_OK)
			_exit(2);
	}
	if (write(ready, "r", 1) != 1)
		_exit(3);
	for (;;)
		pause();
}

static void a_killed_peer_is_lost(void **state)
{
	enum { BEFORE = 3, SMALL = 100, LARGE = 32 << 20 };
	static const struct {
		const char *what;
		bool sending, receiving, asleep;
	} rows[] = {
		{ "receiving", false, true, false },
		{ "receiving asleep", false, true, true },
		{ "sending", true, false, false },
		{ "sending asleep", true, false, true },
		{ "both", true, true, false },
	};
	uint8_t *buffer = calloc(1, LARGE);
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair = { 0 };
		pair_connect(&pair, name_of(state), true);
		int ready[2];
		assert_int_equal(pipe(ready), 0);
		const pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			wait_to_be_killed(&pair, ready[1], BEFORE, buffer, SMALL);
		close(pair.sockets[1]);
		pair.sockets[1] = -1;
		close(ready[1]);
		pair_begin(&pair, 0);
		assert_int_equal(pair_await(&pair, 0), COLLET_OK);
		struct end *survivor = &pair.ends[0];
		for (uint64_t i = 0; i < BEFORE; i++) {
			struct collet_transfer receive = transfer_of(i, buffer, SMALL);
			post_recv(survivor, &receive);
			assert_true(end_complete(survivor, &receive));
			assert_int_equal(receive.status, COLLET_OK);
		}
		char byte;
		assert_int_equal(read(ready[0], &byte, 1), 1);
		close(ready[0]);
		struct collet_transfer send = transfer_of(50, buffer, LARGE), receive = transfer_of(51, buffer, SMALL);
		if (rows[row].sending)
			post_send(survivor, &send);
		if (rows[row].receiving)
			post_recv(survivor, &receive);
		pair.transport->progress(survivor->endpoint);
		struct collet_transfer *last = rows[row].receiving ? &receive : &send;
		assert_int_equal(last->status, COLLET_PENDING);
		assert_int_equal(kill(child, SIGKILL), 0);
		const int64_t killed = collet_clock_ns();
		if (rows[row].asleep)
			assert_true(end_complete_asleep(survivor, last));
		else
			assert_true(end_complete(survivor, last));
		assert_true(collet_clock_ns() - killed < INT64_C(10000000000));
		assert_lost(survivor, last);
		assert_int_equal(survivor->endpoint->posted, 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		pair_close(&pair);
	}
	free(buffer);
}

/* An application forks while a receive is pending, and the child frees what it inherited. The parent continues
 * unaffected, and the child completes nothing. */
static void a_forked_child_closes_only_its_own(void **state)
{
	enum { BYTES = 3000, ROUNDS = 3 };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	uint8_t out[BYTES], in[BYTES];
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct collet_transfer send = transfer_of(round, out, BYTES), receive = transfer_of(round, in, BYTES);
		post_recv(&pair.ends[1], &receive);
		const pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			pair.ends[0].endpoint->transport->close(pair.ends[0].endpoint);
			if (!pair.single)
				pair.ends[1].endpoint->transport->close(pair.ends[1].endpoint);
			_exit(0);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		assert_int_equal(receive.status, COLLET_PENDING);
		pattern_fill(out, BYTES, round);
		post_send(&pair.ends[0], &send);
		assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
		assert_int_equal(receive.status, COLLET_OK);
		assert_int_equal(send.status, COLLET_OK);
		assert_true(pattern_is(in, BYTES, round));
	}
	pair_close(&pair);
}

int contract_ends(const struct subject *subjects)
{
	static const struct promise promises[] = {
		{ "close_cancels_what_is_pending", close_cancels_what_is_pending, 0 },
		{ "close_accepts_an_unopened_endpoint", close_accepts_an_unopened_endpoint, 0 },
		{ "close_accepts_an_unready_endpoint", close_accepts_an_unready_endpoint, 0 },
		{ "opening_fails_when_the_other_end_leaves", opening_fails_when_the_other_end_leaves, HAS_PEERS },
		{ "a_closed_peer_is_lost", a_closed_peer_is_lost, HAS_PEERS },
		{ "a_peeking_rank_loses_a_closed_peer", a_peeking_rank_loses_a_closed_peer, HAS_PEERS },
		{ "completed_sends_outlive_their_sender", completed_sends_outlive_their_sender, HAS_PEERS },
		{ "a_killed_peer_is_lost", a_killed_peer_is_lost, HAS_PEERS },
		{ "a_forked_child_closes_only_its_own", a_forked_child_closes_only_its_own, 0 },
	};
	return run_on_transports(
		"transport contract: ends", promises, sizeof(promises) / sizeof(promises[0]), subjects);
}
