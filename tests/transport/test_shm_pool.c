/* Tests who owns the units of an shm endpoint pair: they move with the messages, and come back where traffic is
 * one-way. Neither end starves, and views can be sent back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm_pair.h"

enum { LARGEST = SHM_LARGE_RUN_BYTES, ROUNDS = 200 };

/* Sizes of messages that are one run each. */
static const struct size_row {
	size_t bytes;
	enum shm_pool_kind kind;
	unsigned units;
} sizes[] = {
	{ SHM_INLINE_BYTES + 1, SHM_SMALL_UNITS, 1 },
	{ SHM_SMALL_UNIT_BYTES, SHM_SMALL_UNITS, 1 },
	{ SHM_SMALL_RUN_BYTES, SHM_SMALL_UNITS, 2 },
	{ SHM_SMALL_RUN_BYTES + 1, SHM_LARGE_UNITS, 1 },
	{ 3 * SHM_LARGE_UNIT_BYTES - 1, SHM_LARGE_UNITS, 3 },
	{ SHM_LARGE_RUN_BYTES, SHM_LARGE_UNITS, 8 },
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static unsigned char from_bytes[2][LARGEST], into_bytes[2][LARGEST];

/* Returns a contiguous send of end `which`, and a receive of the other end. */
static struct collet_transfer send_of(int which, uint64_t sequence, size_t bytes)
{
	struct collet_transfer send = transfer_of(sequence, from_bytes[which], bytes);
	send.flags = COLLET_TRANSFER_CONTIGUOUS;
	pattern_fill(from_bytes[which], bytes, sequence);
	return send;
}

static struct collet_transfer receive_of(int which, uint64_t sequence, size_t bytes, uint32_t flags)
{
	struct collet_transfer receive = transfer_of(sequence, into_bytes[which], bytes);
	receive.flags = flags;
	return receive;
}

static void check_done(struct pair *pair, const struct collet_transfer *transfer)
{
	assert_true(pair_complete(pair, transfer));
	assert_int_equal(transfer->status, COLLET_OK);
}

/* Sends a message one way, and returns its units. A view is the caller's to release. */
static uint64_t deliver(struct pair *pair, int sender, const struct size_row *size, struct collet_transfer *receive)
{
	struct collet_transfer send = send_of(sender, receive->message.sequence, size->bytes);
	shm->post_send(pair->ends[sender].endpoint, &send);
	shm->post_recv(pair->ends[!sender].endpoint, receive);
	check_done(pair, &send);
	check_done(pair, receive);
	assert_true(pattern_is(receive->view, size->bytes, receive->message.sequence));
	return shm_last_run(pair, sender, size->kind);
}

static uint64_t free_units(struct pair *pair, int which, enum shm_pool_kind kind)
{
	return inside(pair, which)->pools[kind].free;
}

static uint64_t given_units(struct pair *pair, int which, enum shm_pool_kind kind)
{
	return atomic_load(&inside(pair, which)->mine->returned[kind]);
}

/* ---- Units move with messages ------------------------------------------------------------------------------- */

static void the_receiver_owns_what_it_has_read(void **state)
{
	for (unsigned row = 0; row < SIZES; row++)
		for (unsigned view = 0; view < 2; view++) {
			struct pair pair;
			shm_pair_open(&pair, true, NULL);
			const enum shm_pool_kind kind = sizes[row].kind;
			const uint64_t all = shm_units_of_pool(kind);
			const uint64_t before[2] = { free_units(&pair, 0, kind), free_units(&pair, 1, kind) };
			assert_true((before[0] | before[1]) == all && !(before[0] & before[1]));
			struct collet_transfer receive =
				receive_of(1, 1, sizes[row].bytes, view ? COLLET_TRANSFER_VIEW : 0);
			const uint64_t run = deliver(&pair, 0, &sizes[row], &receive);
			assert_int_equal(__builtin_popcountll(run), sizes[row].units);
			assert_true(free_units(&pair, 0, kind) == (before[0] & ~run) && (run & before[0]) == run);
			if (view) {
				assert_true(free_units(&pair, 1, kind) == before[1]);
				shm->release_view(pair.ends[1].endpoint, &receive);
			}
			assert_true(free_units(&pair, 1, kind) == (before[1] | run));
			pair_close(&pair);
		}
}

/* Each end fills what it has read last, and neither gives anything back. */
static void an_exchange_alternates_between_two_runs(void **state)
{
	for (unsigned row = 0; row < SIZES; row++)
		for (unsigned view = 0; view < 2; view++) {
			struct pair pair;
			uint64_t runs[2] = { 0, 0 };
			shm_pair_open(&pair, true, NULL);
			const enum shm_pool_kind kind = sizes[row].kind;
			for (unsigned i = 0; i < ROUNDS; i++) {
				struct collet_transfer send[2], receive[2];
				for (int which = 0; which < 2; which++) {
					send[which] = send_of(which, i, sizes[row].bytes);
					receive[which] =
						receive_of(which, i, sizes[row].bytes, view ? COLLET_TRANSFER_VIEW : 0);
					shm->post_send(pair.ends[which].endpoint, &send[which]);
					const uint64_t run = shm_last_run(&pair, which, kind);
					runs[which] = i == 0 ? run : runs[which];
					assert_true(run == runs[((unsigned)which + i) % 2]);
				}
				for (int which = 0; which < 2; which++) {
					shm->post_recv(pair.ends[which].endpoint, &receive[which]);
					check_done(&pair, &receive[which]);
					if (view)
						shm->release_view(pair.ends[which].endpoint, &receive[which]);
				}
			}
			assert_true((runs[0] & runs[1]) == 0);
			assert_true(given_units(&pair, 0, kind) == 0 && given_units(&pair, 1, kind) == 0);
			pair_close(&pair);
		}
}

/* The receiver keeps no more than one run beyond its half, and the sender never fills any but its own half. */
static void one_way_traffic_uses_the_senders_half(void **state)
{
	for (int sender = 0; sender < 2; sender++)
		for (unsigned row = 0; row < SIZES; row++) {
			struct pair pair;
			shm_pair_open(&pair, true, NULL);
			const enum shm_pool_kind kind = sizes[row].kind;
			const struct shm_pool *pool = &inside(&pair, !sender)->pools[kind];
			const uint64_t half = free_units(&pair, sender, kind);
			for (unsigned i = 0; i < ROUNDS; i++) {
				struct collet_transfer receive = receive_of(!sender, i, sizes[row].bytes, 0);
				const uint64_t run = deliver(&pair, sender, &sizes[row], &receive);
				assert_true((run & ~half) == 0);
				assert_true(pool->free_count <= pool->half + sizes[row].units);
			}
			assert_true(given_units(&pair, sender, kind) == 0);
			pair_close(&pair);
		}
}

/* A receiver that sends nothing for long gives its own units too where ranks outnumber cores, all but its reserve. */
static void an_oversubscribed_receiver_gives_its_half(void **state)
{
	for (unsigned row = 0; row < SIZES; row++)
		for (unsigned oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
			struct pair pair;
			shm_pair_open(&pair, true, NULL);
			const enum shm_pool_kind kind = sizes[row].kind;
			struct shm_pool *giver = &inside(&pair, 1)->pools[kind];
			if (oversubscribed)
				shm_pair_oversubscribe(&pair);
			for (unsigned i = 0; i < 2 * SHM_IDLE_AFTER; i++) {
				struct collet_transfer receive = receive_of(1, i, sizes[row].bytes, 0);
				const uint64_t run = deliver(&pair, 0, &sizes[row], &receive);
				const uint64_t kept =
					oversubscribed && i >= SHM_IDLE_AFTER ? giver->own_reserve | run : 0;
				if (kept)
					assert_true((giver->free & ~kept) == 0);
				else
					assert_true((giver->own_half & ~giver->free) == 0);
			}
			/* The giver can still send, and gets its units back when it does. */
			for (unsigned i = 0; oversubscribed && i < 4 * SHM_LARGE_UNIT_COUNT; i++) {
				struct collet_transfer receive = receive_of(0, i, sizes[row].bytes, 0);
				struct collet_transfer send = send_of(1, i, sizes[row].bytes);
				shm->post_send(pair.ends[1].endpoint, &send);
				shm->post_recv(pair.ends[0].endpoint, &receive);
				check_done(&pair, &send);
				check_done(&pair, &receive);
				assert_true(pattern_is(into_bytes[0], sizes[row].bytes, i));
			}
			pair_close(&pair);
		}
}

/* ---- The reserve -------------------------------------------------------------------------------------------- */

/* Views hold all but the reserve. Then the receiver copies, and gives the reserve back at once. */
static void the_reserve_comes_back_at_once(void **state)
{
	for (unsigned row = 0; row < SIZES; row++) {
		struct pair pair;
		struct collet_transfer views[ROUNDS];
		unsigned viewed = 0;
		shm_pair_open(&pair, true, NULL);
		struct size_row size = sizes[row];
		struct shm_pool *pool = &inside(&pair, 0)->pools[size.kind];
		const uint64_t reserve = pool->own_reserve;
		assert_int_equal(__builtin_popcountll(reserve), SHM_RESERVE_UNITS);
		for (unsigned i = 0; i < ROUNDS; i++) {
			struct collet_transfer receive = receive_of(1, i, size.bytes, COLLET_TRANSFER_VIEW);
			const uint64_t run = deliver(&pair, 0, &size, &receive);
			if (receive.view != into_bytes[1]) {
				assert_true((run & reserve) == 0);
				assert_true(receive.flags & COLLET_TRANSFER_RETURNABLE);
				views[viewed++] = receive;
				continue;
			}
			/* Longer messages come in pieces now, and the last piece may be any unit. */
			assert_false(receive.flags & COLLET_TRANSFER_RETURNABLE);
			assert_true((shm_units_owned(&pair, 0, size.kind) & reserve) == reserve);
			shm->release_view(pair.ends[1].endpoint, &receive);
		}
		assert_true(viewed > 0 && viewed < ROUNDS);
		while (viewed)
			shm->release_view(pair.ends[1].endpoint, &views[--viewed]);
		assert_true((shm_units_owned(&pair, 0, size.kind) | shm_units_owned(&pair, 1, size.kind)) ==
			    shm_units_of_pool(size.kind));
		pair_close(&pair);
	}
}

/* Both ends hold every view for ever. */
static void held_views_stop_neither_end(void **state)
{
	for (unsigned row = 0; row < SIZES; row++)
		for (unsigned oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
			struct pair pair;
			shm_pair_open(&pair, true, NULL);
			if (oversubscribed)
				shm_pair_oversubscribe(&pair);
			for (unsigned i = 0; i < ROUNDS; i++)
				for (int sender = 0; sender < 2; sender++) {
					struct collet_transfer receive =
						receive_of(!sender, i, sizes[row].bytes, COLLET_TRANSFER_VIEW);
					(void)deliver(&pair, sender, &sizes[row], &receive);
				}
			pair_close(&pair);
		}
}

/* A message that should be contiguous waits for a run, but not for ever. */
static void patience_ends(void **state)
{
	struct pair pair;
	const struct size_row *longest = &sizes[SIZES - 1];
	shm_pair_open(&pair, true, NULL);
	struct shm_endpoint *sender = inside(&pair, 0);
	while (shm_find_run(free_units(&pair, 0, longest->kind), longest->units) >= 0) {
		struct collet_transfer receive = receive_of(1, 1, longest->bytes, COLLET_TRANSFER_VIEW);
		(void)deliver(&pair, 0, longest, &receive);
		assert_ptr_not_equal(receive.view, into_bytes[1]);
	}
	const uint64_t cells = sender->out_next;
	struct collet_transfer send = send_of(0, 2, longest->bytes);
	struct collet_transfer receive = receive_of(1, 2, longest->bytes, COLLET_TRANSFER_VIEW);
	shm->post_send(&sender->endpoint, &send); /* the first poll */
	for (unsigned i = 1; i < SHM_PATIENCE_POLLS; i++) {
		assert_false(shm->arm(&sender->endpoint));
		shm->progress(&sender->endpoint);
	}
	assert_int_equal(sender->out_next, cells);
	shm->progress(&sender->endpoint);
	assert_true(sender->out_next > cells);
	shm->post_recv(pair.ends[1].endpoint, &receive);
	check_done(&pair, &receive);
	check_done(&pair, &send);
	assert_ptr_equal(receive.view, into_bytes[1]);
	assert_true(pattern_is(receive.view, longest->bytes, 2));
	pair_close(&pair);
}

/* ---- Views that are sent back ------------------------------------------------------------------------------- */

static size_t offset_of(struct pair *pair, int which, const void *view)
{
	return (size_t)((const unsigned char *)view - (const unsigned char *)inside(pair, which)->region);
}

/* Fills the cells of an end with messages, so that its next send is queued. Returns their number. */
static unsigned fill_cells(struct pair *pair, int which)
{
	struct collet_transfer send = transfer_of(0, from_bytes[which], 8);
	unsigned count = 0;
	while (shm->try_send(pair->ends[which].endpoint, &send) == COLLET_TRY_DONE)
		count++;
	return count;
}

static void receive_filled(struct pair *pair, int which, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct collet_transfer receive = transfer_of(0, into_bytes[which], 8);
		shm->post_recv(pair->ends[which].endpoint, &receive);
		check_done(pair, &receive);
	}
}

/* A view goes back and forth. What is written into it arrives, and no unit is taken or copied. */
static void views_are_sent_back(void **state)
{
	static const struct {
		const char *what;
		bool processes, queued, tries;
	} rows[] = {
		{ "posted", true, false, false },
		{ "posted, threads", false, false, false },
		{ "tried", true, false, true },
		{ "queued", true, true, false },
	};
	for (unsigned at = 0; at < SIZES * sizeof(rows) / sizeof(rows[0]); at++) {
		const struct size_row *size = &sizes[at % SIZES];
		const unsigned row = at / SIZES;
		struct pair pair;
		shm_pair_open(&pair, rows[row].processes, NULL);
		struct collet_transfer view = receive_of(1, 0, size->bytes, COLLET_TRANSFER_VIEW);
		const uint64_t run = deliver(&pair, 0, size, &view);
		int which = 1;
		const size_t offset = offset_of(&pair, which, view.view);
		for (unsigned i = 1; i < 10; i++, which = !which) {
			struct collet_endpoint *sender = pair.ends[which].endpoint;
			struct collet_transfer send = transfer_of(i, (void *)(uintptr_t)view.view, size->bytes);
			send.flags = COLLET_TRANSFER_RETURN | COLLET_TRANSFER_CONTIGUOUS;
			const uint64_t before[2] = { free_units(&pair, 0, size->kind),
				free_units(&pair, 1, size->kind) };
			pattern_fill(send.data, size->bytes, i);
			const unsigned filled = rows[row].queued ? fill_cells(&pair, which) : 0;
			if (rows[row].tries)
				assert_int_equal(shm->try_send(sender, &send), COLLET_TRY_DONE);
			else
				shm->post_send(sender, &send);
			assert_int_equal(send.status, rows[row].queued ? COLLET_PENDING : COLLET_OK);
			receive_filled(&pair, !which, filled);
			view = receive_of(!which, i, size->bytes, COLLET_TRANSFER_VIEW);
			shm->post_recv(pair.ends[!which].endpoint, &view);
			check_done(&pair, &view);
			check_done(&pair, &send);
			if (!pattern_is(view.view, size->bytes, i))
				fail_msg("%s: %zu bytes: other bytes arrived", rows[row].what, size->bytes);
			for (int end = 0; end < 2; end++)
				assert_true(free_units(&pair, end, size->kind) == before[end]);
			assert_true(shm_last_run(&pair, which, size->kind) == run);
			assert_int_equal(offset_of(&pair, !which, view.view), offset);
			assert_true(view.flags & COLLET_TRANSFER_RETURNABLE);
		}
		shm->release_view(pair.ends[which].endpoint, &view);
		assert_true((free_units(&pair, which, size->kind) & run) == run);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_receiver_owns_what_it_has_read),
		cmocka_unit_test(an_exchange_alternates_between_two_runs),
		cmocka_unit_test(one_way_traffic_uses_the_senders_half),
		cmocka_unit_test(an_oversubscribed_receiver_gives_its_half),
		cmocka_unit_test(the_reserve_comes_back_at_once),
		cmocka_unit_test(held_views_stop_neither_end),
		cmocka_unit_test(patience_ends),
		cmocka_unit_test(views_are_sent_back),
	};
	return cmocka_run_group_tests_name("shm_pool", tests, NULL, NULL);
}
