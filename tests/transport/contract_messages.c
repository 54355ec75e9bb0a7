/* Tests what collet/transport.h promises about messages: order, sizes, mismatches, views, statistics. The tests do not
 * know the transport; each row lists the optional features that it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "contract.h"

static const char *name_of(void **state)
{
	return *state;
}

/* Sizes on both sides of every threshold: headers, buffers, slots, segments, and a large one. */
static const size_t message_sizes[] = {
	0,
	1,
	7,
	8,
	9,
	31,
	32,
	33,
	63,
	64,
	65,
	127,
	128,
	129,
	255,
	256,
	257,
	511,
	512,
	513,
	1023,
	1024,
	1025,
	2047,
	2048,
	2049,
	4064,
	4095,
	4096,
	4097,
	8160,
	8191,
	8192,
	8193,
	16351,
	16352,
	16353,
	16383,
	16384,
	16385,
	32767,
	32768,
	32769,
	65535,
	65536,
	65537,
	131071,
	131072,
	131073,
	262143,
	262144,
	262145,
	1048575,
	1048576,
	1048577,
	3000017,
	64 << 20,
};
enum { SIZE_COUNT = sizeof(message_sizes) / sizeof(message_sizes[0]), LARGEST = 64 << 20 };

static void post_send(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_send(end->endpoint, transfer);
}

static void post_recv(struct end *end, struct collet_transfer *transfer)
{
	end->endpoint->transport->post_recv(end->endpoint, transfer);
}

static void every_size_arrives(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	uint8_t *from = malloc(LARGEST), *into = malloc(LARGEST + 1);
	for (size_t s = 0; s < SIZE_COUNT; s++) {
		const size_t bytes = message_sizes[s];
		for (unsigned variant = 0; variant < 8; variant++) {
			const bool receive_first = variant & 1, view = variant & 2, backwards = variant & 4;
			if (bytes == LARGEST && variant != 0 && variant != 7)
				continue;
			struct end *sender = &pair.ends[backwards], *receiver = &pair.ends[!backwards];
			struct collet_transfer send = transfer_of(s, from, bytes),
					       receive = transfer_of(s, into, bytes);
			receive.flags = view ? COLLET_TRANSFER_VIEW : 0;
			pattern_fill(from, bytes, s * 8 + variant);
			memset(into, 0xee, bytes + 1);
			if (receive_first)
				post_recv(receiver, &receive);
			post_send(sender, &send);
			if (!receive_first)
				post_recv(receiver, &receive);
			assert_true(pair_complete(&pair, &receive));
			assert_int_equal(receive.status, COLLET_OK);
			assert_true(pattern_is(view ? receive.view : into, bytes, s * 8 + variant));
			assert_int_equal(into[bytes], 0xee);
			if (view)
				receiver->endpoint->transport->release_view(receiver->endpoint, &receive);
			assert_true(pair_complete(&pair, &send));
			assert_int_equal(send.status, COLLET_OK);
			assert_int_equal(sender->endpoint->posted, 0);
			assert_int_equal(receiver->endpoint->posted, 0);
		}
	}
	free(from);
	free(into);
	pair_close(&pair);
}

static void no_bytes_need_no_buffer(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	struct collet_transfer send = transfer_of(1, NULL, 0), receive = transfer_of(1, NULL, 0);
	post_send(&pair.ends[0], &send);
	post_recv(&pair.ends[1], &receive);
	assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
	assert_int_equal(receive.status, COLLET_OK);
	assert_int_equal(send.status, COLLET_OK);
	pair_close(&pair);
}

/* ---- Many messages ------------------------------------------------------------------------------------------ */

enum { FLYING = 8, FLOW_MESSAGES = 3000, FLOW_BYTES = 600 };

/* One direction of many messages: message k has flow_bytes(k) bytes and uses slot k % FLYING. */
struct flow {
	struct end *from, *to;
	struct collet_transfer sends[FLYING], receives[FLYING];
	uint8_t out[FLYING][FLOW_BYTES], in[FLYING][FLOW_BYTES];
	uint64_t sent, received;  /* number posted */
	uint64_t send_checked, receive_checked;
	bool has_failed;
};

static size_t flow_bytes(uint64_t k)
{
	return (size_t)(k * 2654435761u >> 7) % (FLOW_BYTES + 1);
}

static void advance_sends(struct flow *flow)
{
	for (; flow->send_checked < flow->sent && flow->sends[flow->send_checked % FLYING].status != COLLET_PENDING;
		flow->send_checked++)
		flow->has_failed |= flow->sends[flow->send_checked % FLYING].status != COLLET_OK;
	for (; flow->sent < FLOW_MESSAGES && flow->sent - flow->send_checked < FLYING; flow->sent++) {
		const uint64_t k = flow->sent, slot = k % FLYING;
		pattern_fill(flow->out[slot], flow_bytes(k), k);
		flow->sends[slot] = transfer_of(k, flow->out[slot], flow_bytes(k));
		post_send(flow->from, &flow->sends[slot]);
	}
}

static void advance_receives(struct flow *flow)
{
	for (; flow->receive_checked < flow->received; flow->receive_checked++) {
		const uint64_t k = flow->receive_checked;
		struct collet_transfer *receive = &flow->receives[k % FLYING];
		if (receive->status == COLLET_PENDING)
			break;
		flow->has_failed |= receive->status != COLLET_OK || !pattern_is(receive->view, flow_bytes(k), k);
		if (receive->flags & COLLET_TRANSFER_VIEW)
			flow->to->endpoint->transport->release_view(flow->to->endpoint, receive);
	}
	for (; flow->received < FLOW_MESSAGES && flow->received - flow->receive_checked < FLYING; flow->received++) {
		const uint64_t k = flow->received, slot = k % FLYING;
		flow->receives[slot] = transfer_of(k, flow->in[slot], flow_bytes(k));
		flow->receives[slot].flags = COLLET_TRANSFER_VIEW;
		post_recv(flow->to, &flow->receives[slot]);
	}
}

static bool is_flow_done(const struct flow *flow)
{
	return flow->has_failed || (flow->send_checked == FLOW_MESSAGES && flow->receive_checked == FLOW_MESSAGES);
}

static void many_messages_pass_both_ways(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	struct flow *flows = calloc(2, sizeof(struct flow));
	const unsigned directions = pair.single ? 1 : 2;
	for (unsigned i = 0; i < directions; i++) {
		flows[i].from = &pair.ends[i];
		flows[i].to = &pair.ends[!i];
	}
	const int64_t deadline = collet_deadline_after(INT64_C(30000000000));
	while (!(is_flow_done(&flows[0]) && (directions == 1 || is_flow_done(&flows[1])))) {
		for (unsigned i = 0; i < directions; i++) {
			advance_sends(&flows[i]);
			advance_receives(&flows[i]);
		}
		for (int i = 0; i < 2; i++)
			pair.transport->progress(pair.ends[i].endpoint);
		assert_false(collet_deadline_passed(deadline));
	}
	for (unsigned i = 0; i < directions; i++)
		assert_false(flows[i].has_failed);
	free(flows);
	pair_close(&pair);
}

/* A sender far ahead has to wait, and loses nothing. */
static void sends_wait_for_their_receives(void **state)
{
	enum { COUNT = 24, BYTES = 1 << 20 };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	uint8_t *from = malloc(COUNT * (size_t)BYTES), *into = malloc(BYTES);
	struct collet_transfer sends[COUNT];
	for (uint64_t i = 0; i < COUNT; i++) {
		pattern_fill(from + i * BYTES, BYTES, i);
		sends[i] = transfer_of(i, from + i * BYTES, BYTES);
		post_send(&pair.ends[0], &sends[i]);
		pair.transport->progress(pair.ends[0].endpoint);
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		struct collet_transfer receive = transfer_of(i, into, BYTES);
		post_recv(&pair.ends[1], &receive);
		assert_true(pair_complete(&pair, &receive));
		assert_int_equal(receive.status, COLLET_OK);
		assert_true(pattern_is(into, BYTES, i));
		assert_true(pair_complete(&pair, &sends[i]));
		for (uint64_t later = i + 1; later < COUNT; later++)  /* sends complete in posting order */
			assert_false(sends[later].status == COLLET_OK && sends[later - 1].status != COLLET_OK);
	}
	free(from);
	free(into);
	pair_close(&pair);
}

static void views_are_released_in_any_order(void **state)
{
	enum { COUNT = 4, ROUNDS = 200, BYTES = 1500 };
	static const unsigned orders[][COUNT] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 }, { 1, 3, 0, 2 } };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	uint8_t out[COUNT][BYTES], in[COUNT][BYTES];
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct collet_transfer sends[COUNT], receives[COUNT];
		for (unsigned i = 0; i < COUNT; i++) {
			receives[i] = transfer_of(round * COUNT + i, in[i], BYTES - i);
			receives[i].flags = COLLET_TRANSFER_VIEW;
			post_recv(&pair.ends[1], &receives[i]);
		}
		for (unsigned i = 0; i < COUNT; i++) {
			pattern_fill(out[i], BYTES - i, round * COUNT + i);
			sends[i] = transfer_of(round * COUNT + i, out[i], BYTES - i);
			post_send(&pair.ends[0], &sends[i]);
		}
		for (unsigned i = 0; i < COUNT; i++)
			assert_true(pair_complete(&pair, &receives[i]));
		for (unsigned i = 0; i < COUNT; i++) {
			const unsigned which = orders[round % 4][i];
			assert_int_equal(receives[which].status, COLLET_OK);
			assert_true(pattern_is(receives[which].view, BYTES - which, round * COUNT + which));
			pair.transport->release_view(pair.ends[1].endpoint, &receives[which]);
		}
		for (unsigned i = 0; i < COUNT; i++)
			assert_true(pair_complete(&pair, &sends[i]) && sends[i].status == COLLET_OK);
	}
	pair_close(&pair);
}

/* ---- Headers ------------------------------------------------------------------------------------------------ */

static void peek_shows_the_next_message(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	struct collet_endpoint *receiver = pair.ends[1].endpoint;
	struct collet_message message;
	uint8_t from[300], into[300];
	assert_false(pair.transport->peek(receiver, &message));
	for (uint64_t round = 0; round < 10; round++) {
		const size_t bytes = round * 30;
		struct collet_transfer send = transfer_of(round, from, bytes),
				       receive = transfer_of(round, into, bytes);
		pattern_fill(from, bytes, round);
		post_send(&pair.ends[0], &send);
		const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
		while (!pair.transport->peek(receiver, &message)) {
			if (send.status == COLLET_PENDING)
				pair.transport->progress(pair.ends[0].endpoint);
			assert_false(collet_deadline_passed(deadline));
		}
		for (int again = 0; again < 2; again++) {
			assert_int_equal(message.signature, 7);
			assert_int_equal(message.sequence, round);
			assert_int_equal(message.bytes, bytes);
			assert_true(pair.transport->peek(receiver, &message));
		}
		if (!pair.single)
			assert_false(pair.transport->arm(receiver));  /* a message has come */
		post_recv(&pair.ends[1], &receive);
		assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
		assert_int_equal(receive.status, COLLET_OK);
		assert_true(pattern_is(into, bytes, round));
		assert_false(pair.transport->peek(receiver, &message));
	}
	pair_close(&pair);
}

/* is_recv_ready() finds every message, also large and mismatched ones, and nothing before it is sent. */
static void is_recv_ready_sees_each_message(void **state)
{
	static const size_t sizes[] = { 0, 4, 300, 5000, 40000, 300000 };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	struct collet_endpoint *receiver = pair.ends[1].endpoint;
	uint8_t *from = malloc(300000), *into = malloc(300000);
	for (uint64_t round = 0; round < 2 * sizeof(sizes) / sizeof(sizes[0]); round++) {
		const size_t bytes = sizes[round / 2];
		const bool wrong = round % 2;
		struct collet_transfer send = transfer_of(round + wrong, from, bytes),
				       receive = transfer_of(round, into, bytes);
		assert_false(bytes <= 300 && pair.transport->is_recv_ready(receiver, bytes));
		pattern_fill(from, bytes, round);
		post_send(&pair.ends[0], &send);
		const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
		while (!pair.transport->is_recv_ready(receiver, bytes)) {
			if (send.status == COLLET_PENDING)
				pair.transport->progress(pair.ends[0].endpoint);
			assert_false(collet_deadline_passed(deadline));
		}
		post_recv(&pair.ends[1], &receive);
		assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
		assert_int_equal(receive.status, wrong ? COLLET_ERR_MISMATCH : COLLET_OK);
		assert_true(wrong || pattern_is(into, bytes, round));
	}
	free(from);
	free(into);
	pair_close(&pair);
}

static void a_transport_has_both_tries_or_neither(void **state)
{
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	assert_int_equal(!pair.transport->try_send, !pair.transport->try_recv);
	pair_close(&pair);
}

/* A tried transfer completes, or is unchanged and can then be posted. Every other receive takes a view, and every third
 * message is a mismatch. */
static void a_try_completes_or_changes_nothing(void **state)
{
	static const size_t sizes[] = { 0, 4, 41, 300, 1024, 2048, 5000, 40000 };
	enum { ROUNDS = 6 * sizeof(sizes) / sizeof(sizes[0]), MOST = 40000 };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	struct collet_endpoint *sender = pair.ends[0].endpoint, *receiver = pair.ends[1].endpoint;
	const struct collet_transport *transport = pair.transport;
	uint8_t *from = malloc(MOST), *into = malloc(MOST);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		const size_t bytes = sizes[round / 6];
		const bool wrong = round % 3 == 2, view = round % 2;
		struct collet_transfer send = transfer_of(round + wrong, from, bytes),
				       receive = transfer_of(round, into, bytes);
		receive.flags = view ? COLLET_TRANSFER_VIEW : 0;
		pattern_fill(from, bytes, round);
		memset(into, 0, bytes);
		assert_int_equal(transport->try_recv(receiver, &receive), COLLET_TRY_AGAIN);
		if (transport->try_send(sender, &send) == COLLET_TRY_POST)
			post_send(&pair.ends[0], &send);
		else
			assert_int_equal(send.status, COLLET_OK);
		const int64_t deadline = collet_deadline_after(INT64_C(20000000000));
		enum collet_try_result now;
		while ((now = transport->try_recv(receiver, &receive)) == COLLET_TRY_AGAIN) {
			if (send.status == COLLET_PENDING)
				transport->progress(sender);
			assert_false(collet_deadline_passed(deadline));
		}
		assert_int_equal(receiver->posted, 0);
		assert_true(now == COLLET_TRY_POST || (!wrong && receive.status == COLLET_OK));
		if (now == COLLET_TRY_POST) {
			for (size_t i = 0; i < bytes; i++)
				assert_int_equal(into[i], 0);
			post_recv(&pair.ends[1], &receive);
		}
		assert_true(pair_complete(&pair, &receive));
		assert_int_equal(receive.status, wrong ? COLLET_ERR_MISMATCH : COLLET_OK);
		assert_true(wrong || pattern_is(view ? receive.view : into, bytes, round));
		if (view && !wrong)
			transport->release_view(receiver, &receive);
		assert_true(pair_complete(&pair, &send));
	}
	free(from);
	free(into);
	pair_close(&pair);
}

static void a_mismatch_touches_nothing(void **state)
{
	static const struct {
		const char *what;
		struct collet_message sent, expected;
	} rows[] = {
		{ "signature", { 8, 1, 100 }, { 7, 1, 100 } },
		{ "sequence", { 7, 2, 100 }, { 7, 1, 100 } },
		{ "longer", { 7, 1, 101 }, { 7, 1, 100 } },
		{ "shorter", { 7, 1, 99 }, { 7, 1, 100 } },
		{ "empty came", { 7, 1, 0 }, { 7, 1, 100 } },
		{ "empty expected", { 7, 1, 100 }, { 7, 1, 0 } },
		{ "large came", { 7, 1, 500000 }, { 7, 1, 100 } },
		{ "large expected", { 7, 1, 100 }, { 7, 1, 500000 } },
		{ "both large", { 7, 9, 500000 }, { 7, 1, 500000 } },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		for (unsigned variant = 0; variant < 4; variant++) {
			const bool receive_first = variant & 1, view = variant & 2;
			struct pair pair = { 0 };
			pair_open(&pair, name_of(state));
			uint8_t *from = calloc(1, 500000), *into = malloc(500000), *untouched = malloc(500000);
			memset(into, 0xab, 500000);
			memset(untouched, 0xab, 500000);
			struct collet_transfer send = { .message = rows[row].sent, .data = from };
			struct collet_transfer receive = { .message = rows[row].expected, .data = into,
				.flags = view ? COLLET_TRANSFER_VIEW : 0 };
			if (receive_first)
				post_recv(&pair.ends[1], &receive);
			post_send(&pair.ends[0], &send);
			if (!receive_first)
				post_recv(&pair.ends[1], &receive);
			assert_true(pair_complete(&pair, &receive));
			assert_int_equal(receive.status, COLLET_ERR_MISMATCH);
			assert_memory_equal(&receive.message, &rows[row].sent, sizeof(receive.message));
			assert_memory_equal(into, untouched, 500000);
			assert_int_equal(pair.ends[1].endpoint->status, COLLET_OK);

			/* Only that receive is a mismatch: the next one matches. */
			struct collet_transfer next_send = transfer_of(3, from, 64),
					       next_receive = transfer_of(3, into, 64);
			pattern_fill(from, 64, row);
			post_send(&pair.ends[0], &next_send);
			post_recv(&pair.ends[1], &next_receive);
			assert_true(pair_complete(&pair, &next_receive) && pair_complete(&pair, &next_send) &&
				    pair_complete(&pair, &send));
			assert_int_equal(next_receive.status, COLLET_OK);
			assert_true(pattern_is(into, 64, row));
			free(from);
			free(into);
			free(untouched);
			pair_close(&pair);
		}
	}
}

/* Sends contiguous messages of all sizes but the largest, which arrive in views. With may_return, views are sent back
 * where the transport allows it. Returns how many. */
static unsigned exchange_views(const char *name, bool may_return)
{
	struct pair pair = { 0 };
	pair_open(&pair, name);
	unsigned returned = 0;
	uint8_t *from = malloc(LARGEST), *into = malloc(LARGEST), *back = malloc(LARGEST);
	for (size_t at = 0; at < 2 * (size_t)(SIZE_COUNT - 1); at++) {
		const size_t bytes = message_sizes[at / 2];
		const bool asks_first = at % 2;
		struct collet_transfer send = transfer_of(at, from, bytes), view = transfer_of(at, into, bytes),
				       answer = transfer_of(at, back, bytes);
		send.flags = COLLET_TRANSFER_CONTIGUOUS;
		view.flags = COLLET_TRANSFER_VIEW;
		pattern_fill(from, bytes, at);
		post_send(&pair.ends[0], &send);
		post_recv(&pair.ends[1], &view);
		assert_true(pair_complete(&pair, &view) && pair_complete(&pair, &send));
		assert_true(view.status == COLLET_OK && pattern_is(view.view, bytes, at));
		if (!may_return || !(view.flags & COLLET_TRANSFER_RETURNABLE)) {
			pair.transport->release_view(pair.ends[1].endpoint, &view);
			continue;
		}
		assert_ptr_not_equal(view.view, into);
		struct collet_transfer reply = transfer_of(at, (void *)(uintptr_t)view.view, bytes);
		reply.flags = COLLET_TRANSFER_RETURN;
		pattern_fill(reply.data, bytes, at + 1000);
		if (asks_first)
			post_recv(&pair.ends[0], &answer);
		post_send(&pair.ends[1], &reply);
		if (!asks_first)
			post_recv(&pair.ends[0], &answer);
		assert_true(pair_complete(&pair, &answer) && pair_complete(&pair, &reply));
		assert_true(answer.status == COLLET_OK && reply.status == COLLET_OK);
		assert_true(pattern_is(back, bytes, at + 1000));
		returned++;
	}
	free(from);
	free(into);
	free(back);
	pair_close(&pair);
	return returned;
}

static void contiguous_messages_arrive_in_views(void **state)
{
	exchange_views(name_of(state), false);
}

/* What is written into a view arrives with the send that returns it. Most transports allow this for no view. */
static void a_returned_view_brings_what_was_written(void **state)
{
	assert_true(exchange_views(name_of(state), true) > 0);
}

static void statistics_count(void **state)
{
	enum { COUNT = 10, BYTES = 100 };
	struct pair pair = { 0 };
	pair_open(&pair, name_of(state));
	uint8_t from[BYTES] = { 1 }, into[BYTES];
	const struct collet_endpoint_stats before[2] = { pair.ends[0].endpoint->stats, pair.ends[1].endpoint->stats };
	for (uint64_t i = 0; i < COUNT; i++) {
		struct collet_transfer send = transfer_of(i, from, BYTES), receive = transfer_of(i, into, BYTES);
		post_send(&pair.ends[0], &send);
		post_recv(&pair.ends[1], &receive);
		assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
	}
	const struct collet_endpoint_stats *sender = &pair.ends[0].endpoint->stats,
					  *receiver = &pair.ends[1].endpoint->stats;
	assert_int_equal(sender->messages_sent - before[0].messages_sent, COUNT);
	assert_int_equal(sender->bytes_sent - before[0].bytes_sent, COUNT * BYTES);
	assert_int_equal(receiver->messages_received - before[1].messages_received, COUNT);
	assert_int_equal(receiver->bytes_received - before[1].bytes_received, COUNT * BYTES);

	/* An idle endpoint makes no system calls. */
	const uint64_t calls = receiver->system_calls;
	for (int i = 0; i < 100; i++)
		assert_int_equal(pair.transport->progress(pair.ends[1].endpoint), 0);
	assert_int_equal(receiver->system_calls, calls);
	pair_close(&pair);
}

int contract_messages(const struct subject *subjects)
{
	static const struct promise promises[] = {
		{ "every_size_arrives", every_size_arrives, 0 },
		{ "no_bytes_need_no_buffer", no_bytes_need_no_buffer, 0 },
		{ "many_messages_pass_both_ways", many_messages_pass_both_ways, 0 },
		{ "sends_wait_for_their_receives", sends_wait_for_their_receives, 0 },
		{ "views_are_released_in_any_order", views_are_released_in_any_order, 0 },
		{ "contiguous_messages_arrive_in_views", contiguous_messages_arrive_in_views, 0 },
		{ "peek_shows_the_next_message", peek_shows_the_next_message, 0 },
		{ "is_recv_ready_sees_each_message", is_recv_ready_sees_each_message, HAS_RECV_READY },
		{ "a_transport_has_both_tries_or_neither", a_transport_has_both_tries_or_neither, 0 },
		{ "a_try_completes_or_changes_nothing", a_try_completes_or_changes_nothing, HAS_TRIES },
		{ "a_mismatch_touches_nothing", a_mismatch_touches_nothing, 0 },
		{ "a_returned_view_brings_what_was_written", a_returned_view_brings_what_was_written,
			HAS_RETURNED_VIEWS },
		{ "statistics_count", statistics_count, 0 },
	};
	return run_on_transports(
		"transport contract: messages", promises, sizeof(promises) / sizeof(promises[0]), subjects);
}
