/* Tests shm alone, with hostile peers: what they write into shared memory and on the socket harms only themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"
#include "shm_pair.h"

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Returns a number that is likely to cause damage somewhere. */
static uint64_t nasty(uint64_t *random, const struct shm_endpoint *victim)
{
	static const uint64_t values[] = {0, 1, 39, 40, 41, 51, 52, 63, 64, 96, 208, 209, 511, 8192, 8193, 1 << 20,
		UINT32_MAX, UINT64_MAX, (uint64_t)1 << 63, ARENA_BYTES - 1, ARENA_BYTES, 0x1000, 0x7fffffffffffULL};
	const uint64_t pick = next_random(random);
	const uint64_t value = values[pick / 8 % (sizeof(values) / sizeof(values[0]))];
	switch (pick % 8) {
	case 0: return next_random(random);
	case 1: return value | value << 32;
	case 2: return value << 32;
	case 3: return (uint32_t)(victim->in_next + 1) | (uint64_t)(next_random(random) % 9) << 32 | value << 40;
	default: return value;
	}
}

/* Writes random data where the peer may write; sometimes a whole invalid message at the next cell of the victim. */
static void scribble(struct shm_endpoint *attacker, const struct shm_endpoint *victim,
	const struct collet_transfer *send, uint64_t *random)
{
	const uint64_t bytes = send->message.bytes;
	struct shm_cell *cell = shm_cell_at(attacker->out_cells, victim->in_next);
	for (unsigned word = 3; word < SHM_CELL_WORDS; word++)
		atomic_store(&cell->word[word], nasty(random, victim));
	atomic_store(&cell->word[1], 7);
	atomic_store(&cell->word[2], next_random(random) % 3);
	if (next_random(random) % 2)
		atomic_store(&cell->word[3], bytes);
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->tokens_done, nasty(random, victim));
	for (unsigned kind = 0; kind < SHM_POOLS; kind++)
		if (next_random(random) % 4 == 0)
			atomic_store(&attacker->mine->returned[kind], nasty(random, victim));
	if (next_random(random) % 4 == 0)
		atomic_store(&attacker->mine->cells_consumed, nasty(random, victim));
	if (next_random(random) % 16 == 0)
		atomic_store(&attacker->mine->sleeping, (uint32_t)nasty(random, victim));
	for (unsigned i = 1; i < 4 && next_random(random) % 4; i++) {
		struct shm_cell *rest = shm_cell_at(attacker->out_cells, victim->in_next + i);
		atomic_store(&rest->word[0], (uint32_t)(victim->in_next + i + 1) | (uint64_t)SHM_NEXT_CELL << 32);
	}
	for (unsigned i = 0; i < SHM_RTR_SLOTS && next_random(random) % 4 == 0; i++)
		for (unsigned word = 0; word < SHM_CELL_WORDS; word++)
			atomic_store(&attacker->out_rtrs[i].word[word], nasty(random, victim));
	if (next_random(random) % 4) {  /* an RTR for the victim's next message */
		struct shm_cell *rtr = shm_rtr_slot(attacker->out_rtrs, victim->out_messages + 1);
		atomic_store(&rtr->word[0], victim->out_messages + 1);
		atomic_store(&rtr->word[1], 7);
		atomic_store(&rtr->word[2], send->message.sequence);
		atomic_store(&rtr->word[3], send->message.bytes);
		atomic_store(&rtr->word[4], nasty(random, victim));
	}
	const uint64_t kind = next_random(random) % 9;
	const uint64_t inline_bytes = kind == SHM_INLINE ? nasty(random, victim) & 0xff : 0;
	atomic_store(&cell->word[0], (uint32_t)(victim->in_next + 1) | kind << 32 | inline_bytes << 40);
}

/* Sends a view back if that is allowed and wanted; else releases it. */
static void end_view(struct shm_endpoint *shm_end, struct collet_transfer *view, bool is_returned)
{
	if (!is_returned || !(view->flags & COLLET_TRANSFER_RETURNABLE)) {
		shm->release_view(&shm_end->endpoint, view);
		return;
	}
	void *data = (void *)(uintptr_t)view->view;
	struct collet_transfer send = transfer_of(1, data, view->message.bytes);
	send.flags = COLLET_TRANSFER_RETURN;
	memset(data, 0x77, view->message.bytes);
	if (shm->try_send(&shm_end->endpoint, &send) != COLLET_TRY_DONE)
		shm->release_view(&shm_end->endpoint, view);
}

static void corrupt_memory_is_survived(void **state)
{
	enum { GAMES = 400, MOVES = 30, LARGEST = 1 << 16 };
	static const size_t sizes[] = { 0, 8, 40, 41, 208, 209, 512, 4000, 8192, 8193, LARGEST };
	uint64_t seed;
	assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	const char *given = getenv("COLLET_TEST_SEED");
	seed = given ? strtoull(given, NULL, 0) : seed;
	uint64_t random = seed ? seed : 1;  /* 0 would only give zeros */
	unsigned char *in = malloc(LARGEST), *out = calloc(1, LARGEST);
	printf("COLLET_TEST_SEED=%#llx\n", (unsigned long long)seed);
	fflush(stdout);
	for (unsigned game = 0; game < GAMES; game++) {
		struct pair pair;
		struct collet_arena arenas[2];
		const bool has_arenas = game % 2;
		shm_pair_open(&pair, true, has_arenas ? arenas : NULL);
		struct shm_endpoint *attacker = inside(&pair, 0), *victim = inside(&pair, 1);
		for (unsigned i = 0; i < MOVES && victim->endpoint.status == COLLET_OK; i++) {
			const size_t bytes = sizes[next_random(&random) % (sizeof(sizes) / sizeof(sizes[0]))];
			struct collet_transfer receive = transfer_of(next_random(&random) % 3, in, bytes);
			struct collet_transfer send = transfer_of(i, out, bytes);
			struct collet_message message;
			receive.flags = next_random(&random) % 2 ? COLLET_TRANSFER_VIEW : 0;
			send.flags = next_random(&random) % 2 ? COLLET_TRANSFER_IN_CACHE : 0;
			scribble(attacker, victim, &send, &random);
			(void)shm->peek(&victim->endpoint, &message);
			shm->post_send(&victim->endpoint, &send);
			shm->post_recv(&victim->endpoint, &receive);
			for (unsigned turns = 0; turns < 4; turns++)
				shm->progress(&victim->endpoint);
			if (shm->arm(&victim->endpoint))
				shm->disarm(&victim->endpoint);
			if (receive.status == COLLET_OK && receive.flags) {
				assert_true(bytes == 0 ||
					    ((const volatile unsigned char *)receive.view)[bytes - 1] <= 0xff);
				end_view(victim, &receive, next_random(&random) % 2);
			}
			if (receive.status == COLLET_PENDING || send.status == COLLET_PENDING) {
				/* Their buffers do not outlive this round. */
				shm->close(&victim->endpoint);
				break;
			}
		}
		const enum collet_status status = victim->endpoint.status;
		assert_true(status == COLLET_OK || status == COLLET_CANCELLED || status == COLLET_ERR_TRANSPORT ||
			status == COLLET_ERR_PEER_LOST);
		pair_close(&pair);
		for (int i = 0; has_arenas && i < 2; i++)
			collet_arena_deinit(&arenas[i]);
	}
	free(in);
	free(out);
}

/* Publishes a cell of the attacker's making. */
static void write_cell(struct shm_endpoint *attacker, enum shm_protocol protocol, const struct collet_message *message,
	uint64_t first, uint64_t run_bytes)
{
	struct shm_cell *cell = shm_cell_at(attacker->out_cells, attacker->out_next);
	atomic_store(&cell->word[1], message->signature);
	atomic_store(&cell->word[2], message->sequence);
	atomic_store(&cell->word[3], message->bytes);
	atomic_store(&cell->word[4], first | run_bytes << 32);
	atomic_store(&cell->word[5], 0);
	atomic_store(&cell->word[0], (uint32_t)(attacker->out_next + 1) | (uint64_t)protocol << 32);
	attacker->out_next++;
}

static void an_invalid_run_is_refused(void **state)
{
	enum { BYTES = 5000, SMALL = SHM_SMALL_UNIT_BYTES, LARGE = SHM_LARGE_UNIT_BYTES };
	static const struct {
		const char *what;
		enum shm_protocol protocol;
		uint64_t bytes, first, run_bytes;
		bool valid;
	} rows[] = {
		{ "the last small unit", SHM_SMALL_RUN, SMALL, SHM_SMALL_UNIT_COUNT - 1, SMALL, true },
		{ "the last large unit", SHM_LARGE_RUN, LARGE, SHM_LARGE_UNIT_COUNT - 1, LARGE, true },
		{ "the longest run", SHM_LARGE_RUN, SHM_LARGE_RUN_BYTES, SHM_LARGE_UNIT_COUNT - SHM_RUN_UNITS,
			SHM_LARGE_RUN_BYTES, true },
		{ "beyond the small units", SHM_SMALL_RUN, SMALL, SHM_SMALL_UNIT_COUNT, SMALL },
		{ "beyond the large units", SHM_LARGE_RUN, LARGE, SHM_LARGE_UNIT_COUNT, LARGE },
		{ "far beyond", SHM_LARGE_RUN, LARGE, UINT32_MAX, LARGE },
		{ "its second unit is beyond the small ones", SHM_SMALL_RUN, SMALL + 1, SHM_SMALL_UNIT_COUNT - 1,
			SMALL + 1 },
		{ "its second unit is beyond the large ones", SHM_LARGE_RUN, LARGE + 1, SHM_LARGE_UNIT_COUNT - 1,
			LARGE + 1 },
		{ "too long, small", SHM_SMALL_RUN, SHM_RUN_UNITS * SMALL + 1, 0, SHM_RUN_UNITS * SMALL + 1 },
		{ "too long, large", SHM_LARGE_RUN, SHM_LARGE_RUN_BYTES + 1, 0, SHM_LARGE_RUN_BYTES + 1 },
		{ "much too long", SHM_LARGE_RUN, 2 * SHM_LARGE_RUN_BYTES, 0, UINT32_MAX },
		{ "no bytes, small", SHM_SMALL_RUN, SMALL, 0, 0 },
		{ "no bytes, large", SHM_LARGE_RUN, LARGE, 0, 0 },
		{ "no bytes of an empty message", SHM_LARGE_RUN, 0, 0, 0 },
		{ "longer than the message", SHM_LARGE_RUN, BYTES, 0, BYTES + 1 },
		{ "the rest of no message", SHM_NEXT_RUN, BYTES, 0, BYTES },
		{ "memory that is not to be read", SHM_CMA, BYTES, 0, 0 },
		{ "no kind of message", (enum shm_protocol)(SHM_NEXT_CELL + 1), BYTES, 0, BYTES },
	};
	unsigned char *into = malloc(2 * SHM_LARGE_RUN_BYTES);
	/* The receive is posted before the message comes, or tried after it has. It copies or views. */
	for (unsigned at = 0; at < 4 * sizeof(rows) / sizeof(rows[0]); at++) {
		const unsigned row = at / 4;
		const bool early = at & 1, view = at & 2;
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		struct end *victim = &pair.ends[1];
		struct collet_transfer receive = transfer_of(1, into, rows[row].bytes);
		receive.flags = view ? COLLET_TRANSFER_VIEW : 0;
		if (early)
			shm->post_recv(victim->endpoint, &receive);
		write_cell(inside(&pair, 0), rows[row].protocol, &receive.message, rows[row].first,
			rows[row].run_bytes);
		if (!early)
			shm->post_recv(victim->endpoint, &receive);
		assert_true(end_complete(victim, &receive));
		if (receive.status != (rows[row].valid ? COLLET_OK : COLLET_ERR_TRANSPORT))
			fail_msg("%s: %s", rows[row].what, collet_status_name(receive.status));
		if (rows[row].valid && view)
			shm->release_view(victim->endpoint, &receive);
		assert_int_equal(victim->endpoint->status, receive.status);
		assert_true(rows[row].valid || strstr(collet_last_error(), "rank 10 on alpha"));
		pair_close(&pair);
	}
	free(into);
}

/* The peer gives units back that it does not own, and sends messages in units that this end owns or views. Only its own
 * messages suffer. */
static void units_of_another_are_survived(void **state)
{
	enum { COUNT = 300, LARGEST = SHM_LARGE_RUN_BYTES };
	static const size_t sizes[] = { 300, SHM_SMALL_RUN_BYTES, 3000, SHM_COPIED_RUN_BYTES, LARGEST };
	static const uint64_t words[] = { UINT64_MAX, 0, 0x5555555555555555, 0xffff000000000000, 1 };
	unsigned char *out = calloc(1, LARGEST), *into = malloc(LARGEST);
	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct pair pair;
		struct collet_transfer held[COUNT];
		unsigned viewed = 0;
		shm_pair_open(&pair, true, NULL);
		struct shm_endpoint *attacker = inside(&pair, 0);
		struct end *victim = &pair.ends[1];
		const bool is_small = sizes[s] <= SHM_SMALL_RUN_BYTES;
		const enum shm_protocol protocol = is_small ? SHM_SMALL_RUN : SHM_LARGE_RUN;
		for (unsigned i = 0; i < COUNT; i++) {
			struct collet_transfer send = transfer_of(i, out, sizes[s]);
			held[viewed] = transfer_of(i, into, sizes[s]);
			held[viewed].flags = COLLET_TRANSFER_VIEW;
			for (unsigned kind = 0; kind < SHM_POOLS; kind++)
				atomic_store(&attacker->mine->returned[kind], words[i % 5]);
			atomic_store(&attacker->mine->cells_consumed, inside(&pair, 1)->out_next);
			send.flags = COLLET_TRANSFER_CONTIGUOUS;
			shm->post_send(victim->endpoint, &send);
			for (unsigned turns = 0; send.status == COLLET_PENDING && turns < 100; turns++) {
				for (unsigned kind = 0; kind < SHM_POOLS; kind++)
					atomic_store(&attacker->mine->returned[kind],
						~inside(&pair, 1)->pools[kind].taken);
				shm->progress(victim->endpoint);
			}
			assert_int_equal(send.status, COLLET_OK);
			write_cell(attacker, protocol, &held[viewed].message, i % (is_small ? 40 : 56), sizes[s]);
			shm->post_recv(victim->endpoint, &held[viewed]);
			assert_int_equal(held[viewed].status, COLLET_OK);
			viewed++;
		}
		for (unsigned i = 0; i < viewed; i++)
			shm->release_view(victim->endpoint, &held[i]);
		assert_int_equal(victim->endpoint->status, COLLET_OK);
		pair_close(&pair);
	}
	free(out);
	free(into);
}

/* Bytes on the socket are not trusted either. */
static void invalid_bytes_on_the_socket_are_refused(void **state)
{
	struct shm_hello hello = { 0 };
	for (unsigned dialed = 0; dialed < 2; dialed++) {
		for (size_t bytes = 1; bytes <= sizeof(hello); bytes += bytes == 1 ? sizeof(hello) - 2 : 1) {
			struct pair pair = { 0 };
			pair_connect(&pair, "shm", false);
			const int which = !dialed;
			pair_begin(&pair, which);
			assert_int_equal(send(pair.sockets[!which], &hello, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
			close(pair.sockets[!which]);
			pair.sockets[!which] = -1;
			const collet_status status = pair_await(&pair, which);
			assert_true(status != COLLET_OK && status != COLLET_ERR_TIMEOUT);
			pair_close(&pair);
		}
	}
}

static void another_users_socket_is_refused(void **state)
{
	struct pair pair = { 0 };
	pair_connect(&pair, "shm", false);
	pair.ends[1].peer_info.uid = getuid() + 1;
	const struct collet_endpoint_config config = { .self = &pair.ends[0].peer_info,
		.peer = &pair.ends[1].peer_info,
		.dialed = true,
		.socket = pair.sockets[0],
		.wake = &pair.ends[0].wake,
		.log = &pair.ends[0].log };
	struct shm_endpoint *endpoint = aligned_alloc(64, (sizeof(*endpoint) + 63) / 64 * 64);
	memset(endpoint, 0, sizeof(*endpoint));
	pair.sockets[0] = -1;
	assert_int_equal(shm->open(&endpoint->endpoint, &config), COLLET_ERR_AUTH);
	shm->close(&endpoint->endpoint);
	free(endpoint);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(corrupt_memory_is_survived),
		cmocka_unit_test(an_invalid_run_is_refused),
		cmocka_unit_test(units_of_another_are_survived),
		cmocka_unit_test(invalid_bytes_on_the_socket_are_refused),
		cmocka_unit_test(another_users_socket_is_refused),
	};
	return cmocka_run_group_tests_name("shm_hostile", tests, NULL, NULL);
}
