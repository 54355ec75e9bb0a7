/* Tests send and receive: tags, any source, order, unexpected messages, and lengths around the eager limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

/* Bytes: none, few, around the eager limit, and more than buffers hold. */
static const uint64_t lengths[] = { 0, 1, 40, 41, 1000, 16385, 65535, 65536, 65537, 262144, 262145, 300000, 3000001 };
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]), LONGEST = 3000001 };

static unsigned char byte_of(uint32_t from, uint32_t to, uint64_t message, uint64_t i)
{
	return (unsigned char)((from * 31 + to * 17 + message * 7 + i * 13 + (i >> 8)) & 0xff);
}

static unsigned char *make(uint32_t from, uint32_t to, uint64_t message, uint64_t bytes)
{
	unsigned char *data = malloc(bytes + 1);
	for (uint64_t i = 0; data && i < bytes; i++)
		data[i] = byte_of(from, to, message, i);
	return data;
}

static bool is_right(
	struct rank *rank, const unsigned char *data, uint32_t from, uint32_t to, uint64_t message, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (data[i] != byte_of(from, to, message, i))
			return rank_check(rank, false, "message %llu from %u to %u is wrong at byte %llu of %llu",
				(unsigned long long)message, from, to, (unsigned long long)i,
				(unsigned long long)bytes);
	return true;
}

static bool send_one(struct rank *rank, uint32_t to, uint32_t tag, uint64_t message, uint64_t bytes)
{
	unsigned char *data = make(rank->rank, to, message, bytes);
	const bool sent = rank_ok(rank, collet_send(rank->comm, data, bytes, COLLET_U8, to, tag, NULL), "send");
	free(data);
	return sent;
}

/* Receives into a buffer with room for one byte more. */
static bool receive_one(
	struct rank *rank, uint32_t source, uint32_t from, uint32_t tag, uint64_t message, uint64_t bytes)
{
	unsigned char *data = malloc(bytes + 1);
	collet_received received;
	const bool right =
		rank_ok(rank, collet_recv(rank->comm, data, bytes + 1, COLLET_U8, source, tag, &received, NULL),
			"recv") &&
		rank_check(rank, received.source == from && received.tag == tag && received.count == bytes,
			"received %llu bytes from %u with tag %u, should be %llu from %u with tag %u",
			(unsigned long long)received.count, received.source, received.tag, (unsigned long long)bytes,
			from, tag) &&
		is_right(rank, data, from, rank->rank, message, bytes);
	free(data);
	return right;
}

static void every_length(struct rank *rank)
{
	for (uint32_t i = 0; i < LENGTHS; i++) {
		rank_doing(rank, "a message of %llu bytes", (unsigned long long)lengths[i]);
		if (rank->rank == 0
				? !send_one(rank, 1, 5, i, lengths[i]) || !receive_one(rank, 1, 1, 6, i, lengths[i])
				: !receive_one(rank, 0, 0, 5, i, lengths[i]) || !send_one(rank, 0, 6, i, lengths[i]))
			return;
	}
}

static void messages_of_every_length_arrive(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, every_length);
}

/* Sends requests with tags 0, 1, 2, ...; receives them in descending order of tags, and two of each in the order
 * sent. */
static void tags_out_of_order(struct rank *rank)
{
	enum { SENDS = 2 * LENGTHS };
	collet_request *requests[SENDS] = { NULL };
	unsigned char *data[SENDS] = { NULL };
	if (rank->rank == 0) {
		for (uint32_t i = 0; i < SENDS; i++) {
			data[i] = make(0, 1, i, lengths[i / 2]);
			const collet_how how = { .request = &requests[i] };
			rank_ok(rank, collet_send(rank->comm, data[i], lengths[i / 2], COLLET_U8, 1, i / 2, &how),
				"send");
		}
		rank_post(rank, 0);
		rank_ok(rank, collet_request_wait_all(requests, SENDS), "wait for the sends");
		for (uint32_t i = 0; i < SENDS; i++)
			free(data[i]);
		return;
	}
	rank_await(rank, 0, 1);  /* so that all of them are unexpected */
	for (uint32_t tag = LENGTHS; tag-- > 0;)
		if (!receive_one(rank, 0, 0, tag, 2 * tag, lengths[tag]) ||
			!receive_one(rank, COLLET_ANY_SOURCE, 0, tag, 2 * tag + 1, lengths[tag]))
			return;
}

static void tags_choose_whatever_the_order(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, tags_out_of_order);
}

/* Rank 0 receives from any source: each sender's messages in order, and all messages of all. */
static void gather_from_any(struct rank *rank)
{
	enum { MESSAGES = 12 };
	if (rank->rank > 0) {
		for (uint32_t i = 0; i < MESSAGES; i++)
			if (!send_one(rank, 0, 9, i, lengths[i % (LENGTHS - 1)]))
				return;
		return;
	}
	uint32_t from[RANKS_MOST] = { 0 };
	unsigned char *data = malloc(LONGEST);
	for (uint32_t i = 0; i < MESSAGES * (rank->size - 1); i++) {
		collet_received received;
		if (!rank_ok(rank,
			    collet_recv(rank->comm, data, LONGEST, COLLET_U8, COLLET_ANY_SOURCE, 9, &received, NULL),
			    "recv") ||
			!rank_check(rank, received.source > 0 && received.source < rank->size, "source %u",
				received.source))
			break;
		const uint32_t message = from[received.source]++;
		if (!rank_check(rank, received.count == lengths[message % (LENGTHS - 1)],
			    "message %u of %u has %llu bytes", message, received.source,
			    (unsigned long long)received.count) ||
			!is_right(rank, data, received.source, 0, message, received.count))
			break;
	}
	free(data);
}

static void any_source_takes_from_all(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 4 }, gather_from_any);
}

/* Rank 1 sends more than any endpoint holds, and then waits for rank 2. Rank 0 asks for these messages only after
 * rank 2 has finished: so it must receive them while it waits for another rank. */
static void unasked(struct rank *rank)
{
	enum { MESSAGES = 500, BYTES = 20000 };
	for (uint32_t i = 0; rank->rank == 2 && i < MESSAGES; i++)
		if (!send_one(rank, 0, i % 2, i, BYTES))
			return;
	if (rank->rank == 2)
		send_one(rank, 1, 7, 0, 1);
	else if (rank->rank == 1 && receive_one(rank, 2, 2, 7, 0, 1))
		send_one(rank, 0, 7, 0, 1);
	else if (rank->rank == 0 && receive_one(rank, 1, 1, 7, 0, 1))
		for (uint32_t i = 0; i < MESSAGES; i++) {
			const uint32_t tag = i >= MESSAGES / 2;
			if (!receive_one(rank, 2, 2, tag, 2 * (i % (MESSAGES / 2)) + tag, BYTES))
				return;
		}
}

static void what_nobody_waits_for_is_taken(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, unasked);
}

/* Sends rounds of messages: short ones, which may go without a request, among rendezvous ones; blocking calls among
 * requests; two tags in turns. They are received in the order sent, or those of the second tag first. So the message
 * of one call lies behind that of another. */
static void short_and_long(struct rank *rank)
{
	enum { ROUNDS = 200, EACH = 12 };
	static const uint64_t bytes[EACH] = { 0, 8, 300000, 1, 8191, 8, 8192, 100, 70000, 4096, 8, 0 };
	for (uint32_t round = 0; round < ROUNDS && !rank->report->failed; round++) {
		collet_request *requests[EACH] = { NULL };
		unsigned char *data[EACH];
		rank_doing(rank, "round %u", round);
		for (uint32_t i = 0; i < EACH; i++) {
			const bool in_order = rank->rank == 0 || round % 2;
			const uint32_t m = in_order ? i : i < EACH / 2 ? 2 * i + 1 : 2 * i - EACH;
			/* A rank that waits for a rendezvous may wait for one that waits for its next message. */
			const bool waits = (round + i) % 3 && (rank->rank == 1 || bytes[m] <= 8192);
			const collet_how later = { .request = &requests[m] }, *how = waits ? NULL : &later;
			data[m] = rank->rank == 0 ? make(0, 1, m, bytes[m]) : malloc(bytes[m] + 1);
			const collet_status status = rank->rank == 0
				? collet_send(rank->comm, data[m], bytes[m], COLLET_U8, 1, m % 2, how)
				: collet_recv(rank->comm, data[m], bytes[m], COLLET_U8, 0, m % 2, NULL, how);
			rank_ok(rank, status, "a message");
		}
		rank_ok(rank, collet_request_wait_all(requests, EACH), "wait");
		for (uint32_t m = 0; m < EACH; m++) {
			if (rank->rank == 1)
				is_right(rank, data[m], 0, 1, m, bytes[m]);
			free(data[m]);
		}
	}
}

static void short_messages_keep_their_order(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, short_and_long);
}

/* Rank 0 answers rank 1, which continues until rank 2 has sent more than any endpoint holds to rank 0. Rank 0
 * receives that between two short calls or never. */
static void answer_meanwhile(struct rank *rank)
{
	enum { MESSAGES = 2000, BYTES = 4000 };
	unsigned char none;
	uint64_t over = 0;
	if (rank->rank == 2) {
		for (uint32_t i = 0; i < MESSAGES; i++)
			if (!send_one(rank, 0, 3, i, BYTES))
				return;
		send_one(rank, 1, 4, 0, 1);
	} else if (rank->rank == 1) {
		collet_request *told = NULL;
		const collet_how how = { .request = &told };
		rank_ok(rank, collet_recv(rank->comm, &none, 1, COLLET_U8, 2, 4, NULL, &how), "recv");
		while (!over) {
			const collet_status status = collet_request_test(&told);
			over = status != COLLET_PENDING;
			if ((over && !rank_ok(rank, status, "what rank 2 tells")) ||
				!rank_ok(rank, collet_send(rank->comm, &over, 1, COLLET_U64, 0, 5, NULL), "send") ||
				!rank_ok(rank, collet_recv(rank->comm, &over, 1, COLLET_U64, 0, 5, NULL, NULL), "recv"))
				return;
		}
	} else {
		while (!over)
			if (!rank_ok(rank, collet_recv(rank->comm, &over, 1, COLLET_U64, 1, 5, NULL, NULL), "recv") ||
				!rank_ok(rank, collet_send(rank->comm, &over, 1, COLLET_U64, 1, 5, NULL), "send"))
				return;
		for (uint32_t i = 0; i < MESSAGES; i++)
			if (!receive_one(rank, 2, 2, 3, i, BYTES))
				return;
	}
}

static void others_messages_are_taken_meanwhile(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, answer_meanwhile);
}

/* Sends to the right and receives from the left, all at the same time; and to itself. */
static void ring(struct rank *rank)
{
	const uint32_t right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size;
	for (uint32_t i = 0; i < LENGTHS; i++) {
		unsigned char *out = make(rank->rank, right, i, lengths[i]), *in = malloc(lengths[i] + 1);
		collet_received received;
		rank_doing(rank, "sendrecv of %llu bytes", (unsigned long long)lengths[i]);
		const bool ok =
			rank_ok(rank,
				collet_sendrecv(rank->comm, out, lengths[i], right, i, in, lengths[i], left, i,
					COLLET_U8, &received, NULL),
				"sendrecv") &&
			rank_check(rank, received.source == left && received.tag == i && received.count == lengths[i],
				"received") &&
			is_right(rank, in, left, rank->rank, i, lengths[i]);
		free(out);
		free(in);
		if (!ok)
			return;
	}
}

static void sendrecv_goes_round(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 1 }, ring);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, ring);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 5 }, ring);
}

static void to_oneself(struct rank *rank)
{
	for (uint32_t i = 0; i < LENGTHS; i++) {
		unsigned char *out = make(rank->rank, rank->rank, i, lengths[i]);
		collet_request *request = NULL;
		rank_doing(rank, "%llu bytes to itself", (unsigned long long)lengths[i]);
		const collet_how how = { .request = &request };
		const bool ok = rank_ok(rank, collet_send(rank->comm, out, lengths[i], COLLET_U8, rank->rank, 1, &how),
					"send") &&
				receive_one(rank, rank->rank, rank->rank, 1, i, lengths[i]) &&
				rank_ok(rank, collet_request_wait(&request), "wait");
		free(out);
		if (!ok)
			return;
	}
}

static void a_rank_may_send_to_itself(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 1 }, to_oneself);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, to_oneself);
}

/* A message longer than the buffer is dropped with an error. It changes neither the bytes behind nor the next
 * message. */
static void receive_half(struct rank *rank)
{
	static const uint64_t longer[] = { 2, 1000, 16385, 300000 };
	for (uint32_t i = 0; i < 4; i++) {
		if (rank->rank == 0) {
			if (!send_one(rank, 1, 1, i, longer[i]) || !send_one(rank, 1, 1, 100 + i, 10))
				return;
			continue;
		}
		unsigned char *data = malloc(longer[i]);
		memset(data, 0x5a, longer[i]);
		const bool ok =
			rank_status(rank, collet_recv(rank->comm, data, longer[i] / 2, COLLET_U8, 0, 1, NULL, NULL),
				COLLET_ERR_TRUNCATED, "recv into half");
		for (uint64_t b = longer[i] / 2; b < longer[i]; b++)
			rank_check(rank, data[b] == 0x5a, "byte %llu behind the buffer was written",
				(unsigned long long)b);
		free(data);
		if (!ok || !receive_one(rank, 0, 0, 1, 100 + i, 10))
			return;
	}
	rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier");
	rank_ok(rank, collet_comm_error(rank->comm), "error");
}

static void a_longer_message_is_truncated(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, receive_half);
}

/* Messages and collectives between the same ranks, started in another order on each, are independent. */
static void mix_with_collectives(struct rank *rank)
{
	enum { BYTES = 100000 };
	for (uint32_t i = 0; i < 10; i++) {
		uint32_t sum = 1;
		collet_request *requests[2] = { NULL, NULL };
		const collet_how first = { .request = &requests[0] }, second = { .request = &requests[1] };
		unsigned char *data = rank->rank ? malloc(BYTES) : make(0, 1, i, BYTES);
		if (rank->rank == 0) {
			rank_ok(rank, collet_send(rank->comm, data, BYTES, COLLET_U8, 1, i, &first), "send");
			rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, &second),
				"allreduce");
		} else {
			rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, &first),
				"allreduce");
			if (i % 2)
				rank_ok(rank, collet_request_wait(&requests[0]), "wait for the sum first");
			rank_ok(rank, collet_recv(rank->comm, data, BYTES, COLLET_U8, 0, i, NULL, &second), "recv");
		}
		rank_ok(rank, collet_request_wait_all(requests, 2), "wait");
		rank_check(rank, sum == 2, "the sum is %u", sum);
		is_right(rank, data, 0, 1, i, BYTES);
		free(data);
	}
}

static void messages_and_collectives_do_not_mix(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, mix_with_collectives);
}

/* No message comes: the sentence names the expected sender, with or without a connection. */
struct vain {
	bool connected;
	bool sendrecv;
	uint32_t source;
	const char *says;
};

static void wait_in_vain(struct rank *rank)
{
	const struct vain *vain = rank->options->context;
	const collet_how how = { .timeout_ns = 50 * 1000 * 1000 };
	unsigned char byte = 0;
	if (vain->connected && rank->rank < 2) {
		if (rank->rank == 0)
			receive_one(rank, 1, 1, 1, 0, 1);
		else
			send_one(rank, 0, 1, 0, 1);
	}
	if (rank->rank == 0) {
		const collet_status status = vain->sendrecv ?
			collet_sendrecv(rank->comm, &byte, 1, 2, 9, &byte, 1, vain->source, 9, COLLET_U8, NULL, &how) :
			collet_recv(rank->comm, &byte, 1, COLLET_U8, vain->source, 9, NULL, &how);
		rank_status(rank, status, COLLET_ERR_TIMEOUT, "in vain");
		rank_check(rank, strstr(collet_last_error(), vain->says) != NULL, "not '%s': %s", vain->says,
			collet_last_error());
	}
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
}

static void what_is_waited_for_in_vain_is_named(void **state)
{
	static const struct vain rows[] = {
		{ true, false, 1, "waiting for rank 1 on " },
		{ false, false, 1, "waiting for rank 1 on " },
		{ true, true, 1, "waiting for rank 1 on " },
		{ true, false, COLLET_ANY_SOURCE, "waiting for rank any" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .context = &rows[i] }, wait_in_vain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_every_length_arrive),
		cmocka_unit_test(tags_choose_whatever_the_order),
		cmocka_unit_test(any_source_takes_from_all),
		cmocka_unit_test(what_nobody_waits_for_is_taken),
		cmocka_unit_test(short_messages_keep_their_order),
		cmocka_unit_test(others_messages_are_taken_meanwhile),
		cmocka_unit_test(sendrecv_goes_round),
		cmocka_unit_test(a_rank_may_send_to_itself),
		cmocka_unit_test(a_longer_message_is_truncated),
		cmocka_unit_test(messages_and_collectives_do_not_mix),
		cmocka_unit_test(what_is_waited_for_in_vain_is_named),
	};
	return cmocka_run_group_tests_name("point to point", tests, NULL, NULL);
}
