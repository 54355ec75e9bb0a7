/* Tests the handshake over socket pairs. The test carries, changes or drops the bytes itself. Both ends must succeed,
 * or none may accept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap/meet/handshake.h"

static const uint8_t key_a[32] = { 1, 2, 3 }, key_b[32] = { 1, 2, 4 };

static struct collet_handshake_config config_of(
	const uint8_t *key, const char *job, uint32_t from, uint32_t to, uint32_t size)
{
	struct collet_handshake_config config = {
		.key = key,
		.key_bytes = key ? 32 : 0,
		.job = job,
		.purpose = COLLET_PURPOSE_CONTROL,
		.from = from,
		.to = to,
		.size = size,
	};
	memset(config.payload, 0x5a, sizeof(config.payload));
	return config;
}

/* Two ends, and a wire between them over which the test moves bytes. */
struct pair {
	int dialer_fd, dialer_wire, acceptor_wire, acceptor_fd;
	struct collet_handshake dialer, acceptor;
	collet_status dialed, accepted;
	char dialed_sentence[1024];
	uint8_t there[1024], back[1024];   /* all bytes that passed */
	size_t there_bytes, back_bytes;
};

static void pair_open(
	struct pair *pair, const struct collet_handshake_config *dial, const struct collet_handshake_config *accept)
{
	int a[2], b[2];
	memset(pair, 0, sizeof(*pair));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b), 0);
	pair->dialer_fd = a[0];
	pair->dialer_wire = a[1];
	pair->acceptor_wire = b[0];
	pair->acceptor_fd = b[1];
	pair->dialed = pair->accepted = COLLET_PENDING;
	assert_int_equal(collet_handshake_dial(&pair->dialer, pair->dialer_fd, dial), COLLET_OK);
	assert_int_equal(collet_handshake_accept(&pair->acceptor, pair->acceptor_fd, accept), COLLET_OK);
}

static void pair_close(struct pair *pair)
{
	close(pair->dialer_fd);
	close(pair->dialer_wire);
	close(pair->acceptor_wire);
	close(pair->acceptor_fd);
}

/* Moves at most `most` bytes in one direction. flip is the index of a byte to change, counted over all bytes of this
 * direction. */
static size_t carry(int from, int to, size_t most, uint8_t *all, size_t *all_bytes, size_t flip)
{
	uint8_t bytes[1024];
	ssize_t got = recv(from, bytes, most < sizeof(bytes) ? most : sizeof(bytes), MSG_DONTWAIT);
	if (got <= 0)
		return 0;
	if (flip >= *all_bytes && flip < *all_bytes + (size_t)got)
		bytes[flip - *all_bytes] ^= 1;
	memcpy(all + *all_bytes, bytes, (size_t)got);
	*all_bytes += (size_t)got;
	assert_int_equal(send(to, bytes, (size_t)got, MSG_NOSIGNAL), got);
	return (size_t)got;
}

enum { HONEST = 100000 };

/* Runs both ends until no bytes move any more. */
static void pair_run(struct pair *pair, size_t most, size_t flip_there, size_t flip_back)
{
	size_t moved;
	do {
		if (pair->dialed == COLLET_PENDING) {
			pair->dialed = collet_handshake_step(&pair->dialer);
			if (pair->dialed != COLLET_PENDING)
				snprintf(pair->dialed_sentence, sizeof(pair->dialed_sentence), "%s",
					collet_last_error());
		}
		if (pair->accepted == COLLET_PENDING)
			pair->accepted = collet_handshake_step(&pair->acceptor);
		moved = carry(
			pair->dialer_wire, pair->acceptor_wire, most, pair->there, &pair->there_bytes, flip_there);
		moved += carry(pair->acceptor_wire, pair->dialer_wire, most, pair->back, &pair->back_bytes, flip_back);
	} while (moved);
}

static void ends_that_match_agree(void **state)
{
	static const size_t lengths[] = { 1, 7, 1024 }; /* bytes that move at a time */
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct pair pair;
		const struct collet_handshake_config dial = config_of(key_a, "job", 3, 0, 4),
						     accept = config_of(key_a, "job", 0, 0, 4);
		pair_open(&pair, &dial, &accept);
		pair_run(&pair, lengths[i], HONEST, HONEST);
		assert_int_equal(pair.dialed, COLLET_OK);
		assert_int_equal(pair.accepted, COLLET_OK);
		assert_int_equal(pair.acceptor.from, 3);
		assert_memory_equal(pair.acceptor.transcript.ask.payload, dial.payload, sizeof(dial.payload));
		pair_close(&pair);
	}
}

static void ends_that_differ_refuse_and_say_why(void **state)
{
	static const struct {
		const char *name;
		const uint8_t *dial_key, *accept_key;
		const char *dial_job, *accept_job;
		uint32_t from, to, self, dial_size, accept_size;
		collet_status status;
		const char *says;
	} rows[] = {
		{ "secret", key_a, key_b, "j", "j", 1, 0, 0, 2, 2, COLLET_ERR_AUTH, "another secret" },
		{ "no secret here", NULL, key_a, "j", "j", 1, 0, 0, 2, 2, COLLET_ERR_AUTH, "COLLET_SECRET" },
		{ "no secret there", key_a, NULL, "j", "j", 1, 0, 0, 2, 2, COLLET_ERR_AUTH, "COLLET_SECRET" },
		{ "job", key_a, key_a, "apple", "pear", 1, 0, 0, 2, 2, COLLET_ERR_AUTH, "'pear'" },
		{ "world", key_a, key_a, "j", "j", 1, 0, 0, 2, 3, COLLET_ERR_CONFIG, "world size 3" },
		{ "to somebody else", key_a, key_a, "j", "j", 1, 2, 0, 4, 4, COLLET_ERR_CONFIG, "rank 2" },
		{ "rank beyond the world", key_a, key_a, "j", "j", 9, 0, 0, 4, 4, COLLET_ERR_CONFIG, "rank 9" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair pair;
		const struct collet_handshake_config dial =
			config_of(rows[i].dial_key, rows[i].dial_job, rows[i].from, rows[i].to, rows[i].dial_size);
		const struct collet_handshake_config accept =
			config_of(rows[i].accept_key, rows[i].accept_job, 0, rows[i].self, rows[i].accept_size);
		pair_open(&pair, &dial, &accept);
		pair_run(&pair, 1024, HONEST, HONEST);
		if (pair.dialed != rows[i].status || pair.accepted != rows[i].status ||
			pair.dialer.refusal == COLLET_REFUSAL_NONE)
			fail_msg("%s: %s and %s", rows[i].name, collet_status_name(pair.dialed),
				collet_status_name(pair.accepted));
		if (!strstr(pair.dialed_sentence, rows[i].says))
			fail_msg("%s: '%s' does not say '%s'", rows[i].name, pair.dialed_sentence, rows[i].says);
		pair_close(&pair);
	}
}

static void another_version_is_refused_by_name(void **state)
{
	struct pair pair;
	const struct collet_handshake_config dial = config_of(key_a, "job", 1, 0, 2),
					     accept = config_of(key_a, "job", 0, 0, 2);
	pair_open(&pair, &dial, &accept);
	snprintf(pair.dialer.transcript.ask.version, sizeof(pair.dialer.transcript.ask.version), "9.9.9");
	pair_run(&pair, 1024, HONEST, HONEST);
	assert_int_equal(pair.accepted, COLLET_ERR_AUTH);
	assert_int_equal(pair.acceptor.refusal, COLLET_REFUSAL_VERSION);
	assert_int_equal(pair.dialed, COLLET_ERR_AUTH);
	assert_int_equal(pair.dialer.refusal, COLLET_REFUSAL_VERSION);
	pair_close(&pair);
}

/* Changes each byte of either direction once. The end that gets the changed byte must not accept. */
static void no_byte_can_be_changed(void **state)
{
	const struct collet_handshake_config dial = config_of(key_a, "job", 1, 0, 2),
					     accept = config_of(key_a, "job", 0, 0, 2);
	const size_t there = sizeof(struct collet_handshake_ask) + sizeof(struct collet_handshake_proof);
	const size_t back = sizeof(struct collet_handshake_answer) + sizeof(struct collet_handshake_verdict);
	const size_t reserved =
		sizeof(struct collet_handshake_answer) + offsetof(struct collet_handshake_verdict, reserved0);
	for (size_t i = 0; i < there; i++) {
		struct pair pair;
		pair_open(&pair, &dial, &accept);
		pair_run(&pair, 1024, i, HONEST);
		if (pair.accepted == COLLET_OK || pair.dialed == COLLET_OK)
			fail_msg("byte %zu to the acceptor can be changed", i);
		pair_close(&pair);
	}
	for (size_t i = 0; i < back; i++) {
		struct pair pair;
		if (i >= reserved && i < reserved + 4)
			continue;  /* has no meaning, and no MAC covers it */
		pair_open(&pair, &dial, &accept);
		pair_run(&pair, 1024, HONEST, i);
		if (pair.dialed == COLLET_OK)
			fail_msg("byte %zu to the dialer can be changed", i);
		pair_close(&pair);
	}
}

static void a_cut_conversation_is_no_acceptance(void **state)
{
	const struct collet_handshake_config dial = config_of(key_a, "job", 1, 0, 2),
					     accept = config_of(key_a, "job", 0, 0, 2);
	const size_t there = sizeof(struct collet_handshake_ask) + sizeof(struct collet_handshake_proof);
	for (size_t cut = 0; cut < there; cut++) {
		struct pair pair;
		pair_open(&pair, &dial, &accept);
		while (pair.there_bytes < cut && pair.accepted == COLLET_PENDING) {
			collet_handshake_step(&pair.dialer);
			carry(pair.dialer_wire, pair.acceptor_wire, cut - pair.there_bytes, pair.there,
				&pair.there_bytes, HONEST);
			pair.accepted = collet_handshake_step(&pair.acceptor);
			carry(pair.acceptor_wire, pair.dialer_wire, 1024, pair.back, &pair.back_bytes, HONEST);
		}
		shutdown(pair.acceptor_wire, SHUT_WR);
		if (pair.accepted == COLLET_PENDING)
			pair.accepted = collet_handshake_step(&pair.acceptor);
		assert_int_equal(pair.accepted, COLLET_ERR_TRANSPORT);
		pair_close(&pair);
	}
}

static void garbage_is_dropped_after_its_first_bytes(void **state)
{
	static const char *const words[] = {
		"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "collet\r\r", "SSH-2.0-OpenSSH\r\n"};
	const struct collet_handshake_config accept = config_of(key_a, "job", 0, 0, 2);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct collet_handshake acceptor;
		int pair[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
		assert_int_equal(collet_handshake_accept(&acceptor, pair[1], &accept), COLLET_OK);
		assert_int_equal(send(pair[0], words[i], strlen(words[i]), 0), strlen(words[i]));
		assert_int_equal(collet_handshake_step(&acceptor), COLLET_ERR_TRANSPORT);
		close(pair[0]);
		close(pair[1]);
	}
}

/* Replays all bytes of a good initiator to the same acceptor, and those of a good acceptor to the same initiator. */
static void a_recorded_conversation_is_worthless(void **state)
{
	struct pair pair;
	const struct collet_handshake_config dial = config_of(key_a, "job", 1, 0, 2),
					     accept = config_of(key_a, "job", 0, 0, 2);
	pair_open(&pair, &dial, &accept);
	pair_run(&pair, 1024, HONEST, HONEST);
	assert_int_equal(pair.accepted, COLLET_OK);
	struct collet_handshake again;
	int wire[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wire), 0);
	assert_int_equal(collet_handshake_accept(&again, wire[1], &accept), COLLET_OK);
	assert_int_equal(send(wire[0], pair.there, pair.there_bytes, 0), pair.there_bytes);
	assert_int_equal(collet_handshake_step(&again), COLLET_ERR_AUTH);
	assert_int_equal(again.refusal, COLLET_REFUSAL_SECRET);
	/* The acceptor's bytes, to the same initiator. */
	struct collet_handshake caller;
	int other[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, other), 0);
	assert_int_equal(collet_handshake_dial(&caller, other[1], &dial), COLLET_OK);
	assert_int_equal(send(other[0], pair.back, pair.back_bytes, 0), pair.back_bytes);
	assert_int_equal(collet_handshake_step(&caller), COLLET_ERR_AUTH);
	close(wire[0]);
	close(wire[1]);
	close(other[0]);
	close(other[1]);
	pair_close(&pair);
}

/* An acceptor without the key reflects the initiator's own proof. */
static void ones_own_words_prove_nothing(void **state)
{
	struct collet_handshake caller;
	uint8_t words[1024];
	int wire[2];
	const struct collet_handshake_config dial = config_of(key_a, "job", 1, 0, 2);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, wire), 0);
	assert_int_equal(collet_handshake_dial(&caller, wire[1], &dial), COLLET_OK);
	assert_int_equal(collet_handshake_step(&caller), COLLET_PENDING);
	ssize_t asked = recv(wire[0], words, sizeof(words), 0);
	assert_int_equal(asked, sizeof(struct collet_handshake_ask));
	/* An answer that the initiator must accept, then its own proof as the verdict. */
	struct collet_handshake_ask ask;
	memcpy(&ask, words, sizeof(ask));
	struct collet_handshake_answer answer = {
		.byte_order = ask.byte_order, .protocol = ask.protocol, .size = 2, .has_key = 1};
	memcpy(answer.magic, ask.magic, sizeof(answer.magic));
	memcpy(answer.version, ask.version, sizeof(answer.version));
	memcpy(answer.job, ask.job, sizeof(answer.job));
	assert_int_equal(send(wire[0], &answer, sizeof(answer), 0), sizeof(answer));
	assert_int_equal(collet_handshake_step(&caller), COLLET_PENDING);
	struct collet_handshake_verdict verdict = { 0 };
	assert_int_equal(recv(wire[0], verdict.mac, sizeof(verdict.mac), 0), sizeof(verdict.mac));
	assert_int_equal(send(wire[0], &verdict, sizeof(verdict), 0), sizeof(verdict));
	assert_int_equal(collet_handshake_step(&caller), COLLET_ERR_AUTH);
	close(wire[0]);
	close(wire[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_that_match_agree),
		cmocka_unit_test(ends_that_differ_refuse_and_say_why),
		cmocka_unit_test(another_version_is_refused_by_name),
		cmocka_unit_test(no_byte_can_be_changed),
		cmocka_unit_test(a_cut_conversation_is_no_acceptance),
		cmocka_unit_test(garbage_is_dropped_after_its_first_bytes),
		cmocka_unit_test(a_recorded_conversation_is_worthless),
		cmocka_unit_test(ones_own_words_prove_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
