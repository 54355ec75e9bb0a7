/* Tests shm alone, with well-behaved peers: the protocol of each size, full rings, the memory of an open endpoint, and
 * that nothing is left behind. The contract suite tests that it keeps the contract; test_shm_faults.c tests peers that
 * misbehave. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_pair.h"
#include "transport/shm/shm_payload.h"

static struct collet_transfer view_of(uint64_t sequence, void *data, size_t bytes)
{
	struct collet_transfer transfer = transfer_of(sequence, data, bytes);
	transfer.flags = COLLET_TRANSFER_VIEW;
	return transfer;
}

/* ---- Runs of units ------------------------------------------------------------------------------------------ */

static void runs_are_found(void **state)
{
	static const struct {
		uint64_t free;
		unsigned count;
		int first;
	} rows[] = {
		{0, 1, -1},
		{1, 1, 0},
		{1, 2, -1},
		{UINT64_MAX, 64, 0},
		{UINT64_MAX >> 1, 64, -1},
		{0xf0, 4, 4},
		{0xf0, 5, -1},
		{0x77, 3, 0},
		{0x76, 3, 4},
		{0x7fff8000, 16, 15},
		{0x7fff8000, 17, -1},
		{(uint64_t)7 << 61, 3, 61},
		{(uint64_t)7 << 61, 4, -1},
	};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(shm_find_run(rows[i].free, rows[i].count), rows[i].first);
	assert_true(shm_bits(0, 64) == UINT64_MAX && shm_bits(3, 2) == 0x18 && shm_bits(63, 1) == (uint64_t)1 << 63);
}

/* ---- Protocols ---------------------------------------------------------------------------------------------- */

/* The used cells, units and tokens, and the place of the view, show the protocol of a message. */
static void each_size_uses_its_protocol(void **state)
{
	static const struct {
		const char *what;
		bool processes, in_arena;
		size_t bytes;
		enum shm_protocol protocol;
		unsigned cells;
		uint32_t flags;
	} rows[] = {
		{"one cell", true, false, SHM_CELL_BYTES, SHM_INLINE, 1},
		{"two cells", true, false, SHM_CELL_BYTES + 1, SHM_INLINE, 2},
		{"two full cells", true, false, SHM_CELL_BYTES + SHM_NEXT_CELL_BYTES, SHM_INLINE, 2},
		{"four cells", true, false, SHM_INLINE_BYTES, SHM_INLINE, 4},
		{"smallest run", true, false, SHM_INLINE_BYTES + 1, SHM_RING, 1},
		{"not streamed", true, false, 1023, SHM_RING, 1},
		{"streamed, with a tail", true, false, 1024 + 17, SHM_RING, 1},
		{"largest run", true, false, SHM_RUN_BYTES, SHM_RING, 1},
		{"two runs", true, false, SHM_RUN_BYTES + 1, SHM_RING, 2},
		{"all that is not bulk", true, false, SHM_BULK_MIN - 1, SHM_RING, 3},
		{"bulk: two short runs", true, false, SHM_BULK_MIN, SHM_BULK, 2},
		{"bulk: the most in short runs", true, false, SHM_LONG_BYTES - 1, SHM_BULK,
			2 * SHM_LONG_BYTES / SHM_BULK_RUN_BYTES},
		{"bulk: the least in long runs", true, false, SHM_LONG_BYTES, SHM_BULK,
			SHM_LONG_BYTES / SHM_BULK_RUN_BYTES},
		{"bulk: more than there are units", true, false, 3 * MIB + 1, SHM_BULK,
			3 * MIB / SHM_BULK_RUN_BYTES + 1},
		{"whole, but one run anyway", true, false, SHM_RUN_BYTES, SHM_RING, 1, COLLET_TRANSFER_CONTIGUOUS},
		{"whole: the least", true, false, SHM_RUN_BYTES + 1, SHM_BULK, 1, COLLET_TRANSFER_CONTIGUOUS},
		{"whole: the most", true, false, SHM_CONTIGUOUS_BYTES, SHM_BULK, 1, COLLET_TRANSFER_CONTIGUOUS},
		{"too much for a whole", true, false, SHM_CONTIGUOUS_BYTES + 1, SHM_BULK,
			SHM_CONTIGUOUS_BYTES / SHM_BULK_RUN_BYTES + 1, COLLET_TRANSFER_CONTIGUOUS},
		{"pulled", true, false, SHM_BULK_MIN, SHM_CMA, 1},
		{"pulled at once", true, false, SHM_SLICE_BYTES, SHM_CMA, 1},
		{"pulled in slices", true, false, 2 * SHM_SLICE_BYTES + 1, SHM_CMA, 1},
		{"arena, too small", true, true, SHM_ARENA_MIN - 1, SHM_RING, 3},
		{"arena", true, true, SHM_ARENA_MIN, SHM_ARENA, 1},
		{"arena, too small for who waits", true, true, SHM_ARENA_EXCHANGE_MIN - 1, SHM_RING, 1,
			COLLET_TRANSFER_EXCHANGE},
		{"arena, for who waits", true, true, SHM_ARENA_EXCHANGE_MIN, SHM_ARENA, 1, COLLET_TRANSFER_EXCHANGE},
		{"arena, in slices", true, true, 2 * SHM_SLICE_BYTES + 1, SHM_ARENA, 1},
		{"threads: run", false, false, SHM_RUN_BYTES, SHM_RING, 1},
		{"threads: direct", false, false, 2 * SHM_SLICE_BYTES + 1, SHM_SAME_PROCESS, 1},
		{"threads: arena", false, true, 3 * MIB + 1, SHM_ARENA, 1},
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		for (unsigned view = 0; view < 2; view++) {
			struct pair pair;
			struct collet_arena arenas[2];
			shm_pair_open(&pair, rows[row].processes, arenas);
			/* Cooperative copies are tested in test_shm_coop.c. */
			inside(&pair, 0)->is_write_denied = true;
			const size_t bytes = rows[row].bytes;
			void *from = malloc(bytes), *into = malloc(bytes), *memory;
			assert_int_equal(collet_arena_alloc(&arenas[0], &memory, bytes), COLLET_OK);
			void *data = rows[row].in_arena ? memory : from;
			if (rows[row].protocol == SHM_CMA)
				inside(&pair, 0)->attach_min = bytes;
			pattern_fill(data, bytes, row);
			struct collet_transfer send = transfer_of(1, data, bytes);
			struct collet_transfer receive = view ? view_of(1, into, bytes) : transfer_of(1, into, bytes);
			send.flags = rows[row].flags;
			shm->post_send(pair.ends[0].endpoint, &send);
			assert_int_equal(inside(&pair, 0)->tokens_borrowed, shm_is_borrowed(rows[row].protocol));
			assert_int_equal(inside(&pair, 0)->out_bulk_used != 0, rows[row].protocol == SHM_BULK);
			const uint64_t calls = pair.ends[1].endpoint->stats.system_calls;
			shm->post_recv(pair.ends[1].endpoint, &receive);
			assert_true(pair_complete(&pair, &receive));
			assert_int_equal(receive.status, COLLET_OK);
			assert_int_equal(inside(&pair, 1)->in_next, rows[row].cells);
			const uint64_t reads =
				rows[row].protocol == SHM_CMA ? (bytes + SHM_SLICE_BYTES - 1) / SHM_SLICE_BYTES : 0;
			assert_int_equal(pair.ends[1].endpoint->stats.system_calls - calls, reads);
			assert_true(pattern_is(view ? receive.view : into, bytes, row));
			if (view) {
				const bool stays = rows[row].protocol == SHM_ARENA ||
						   (shm_uses_runs(rows[row].protocol) && rows[row].cells == 1);
				assert_int_equal(receive.view != into, stays);
				if (rows[row].protocol == SHM_ARENA) {
					/* The view is the sender's own memory: nothing was copied, and it is not
					 * released before release_view(). */
					const size_t offset = (size_t)((unsigned char *)memory - arenas[0].base);
					assert_ptr_equal(receive.view, inside(&pair, 1)->peer_arena->base + offset);
					shm->progress(pair.ends[0].endpoint);
					assert_int_equal(send.status, COLLET_PENDING);
				}
				shm->release_view(pair.ends[1].endpoint, &receive);
			}
			assert_true(pair_complete(&pair, &send) && send.status == COLLET_OK);
			free(from);
			free(into);
			pair_close(&pair);
			collet_arena_deinit(&arenas[0]);
			collet_arena_deinit(&arenas[1]);
		}
	}
}

/* Threads share one mapping, so that ThreadSanitizer sees their conflicts; processes have two. */
/* Two ends have lent each other a message and then post their receives. Neither reads before it has posted both, or the
 * other would wait for a whole copy. */
static void borrowed_messages_are_read_by_progress(void **state)
{
	static const struct {
		bool processes, in_arena;
	} rows[] = { { true, false }, { true, true }, { false, false } };
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair;
		struct collet_arena arenas[2];
		struct collet_transfer send[2], receive[2];
		void *memory[2], *data[2], *into[2];
		const size_t bytes = 2 * MIB;
		shm_pair_open(&pair, rows[row].processes, arenas);
		for (int i = 0; i < 2; i++) {
			inside(&pair, i)->attach_min = bytes;
			assert_int_equal(collet_arena_alloc(&arenas[i], &memory[i], bytes), COLLET_OK);
			data[i] = rows[row].in_arena ? memory[i] : malloc(bytes);
			into[i] = malloc(bytes);
			pattern_fill(data[i], bytes, (unsigned)i);
			memset(into[i], 0x5a, bytes);
		}
		for (int i = 0; i < 2; i++) {
			send[i] = transfer_of(1, data[i], bytes);
			receive[i] = transfer_of(1, into[i], bytes);
			if (i == 1)
				shm->post_recv(pair.ends[1].endpoint, &receive[1]);
			shm->post_send(pair.ends[i].endpoint, &send[i]);
		}
		shm->post_recv(pair.ends[0].endpoint, &receive[0]);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(receive[i].status, COLLET_PENDING);
			assert_int_equal(((unsigned char *)into[i])[bytes - 1], 0x5a);
			assert_false(shm->arm(pair.ends[i].endpoint));
		}
		for (int i = 0; i < 2; i++)
			assert_true(pair_complete(&pair, &receive[i]) && pair_complete(&pair, &send[i]));
		for (int i = 0; i < 2; i++) {
			assert_true(pattern_is(into[i], bytes, (unsigned)!i));
			free(into[i]);
			if (!rows[row].in_arena)
				free(data[i]);
		}
		pair_close(&pair);
		collet_arena_deinit(&arenas[0]);
		collet_arena_deinit(&arenas[1]);
	}
}

/* Bytes that were just made are put into a waiting receive that expects this message. */
static void cached_bytes_are_put(void **state)
{
	static const struct {
		const char *what;
		bool processes, in_arena;
		size_t bytes;
		bool late, views, other, pushed;
	} rows[] = {
		{ "arena", true, true, SHM_PUT_MIN, .pushed = true },
		{ "arena, the most", true, true, SHM_PUT_MAX, .pushed = true },
		{ "arena, too small", true, true, SHM_PUT_MIN - 1 },
		{ "arena, too large", true, true, SHM_PUT_MAX + 1 },
		{ "not in the arena", true, false, SHM_PUT_MAX },
		{ "a thread's arena", false, true, SHM_PUT_MAX, .pushed = true },
		{ "nobody waits for it", true, true, SHM_PUT_MAX, .late = true },
		{ "it is to be viewed", true, true, SHM_PUT_MAX, .views = true },
		{ "something else is wanted", true, true, SHM_PUT_MAX, .other = true },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair;
		struct collet_arena arenas[2];
		void *memory;
		const size_t bytes = rows[row].bytes;
		shm_pair_open(&pair, rows[row].processes, arenas);
		assert_int_equal(collet_arena_alloc(&arenas[1], &memory, bytes), COLLET_OK);
		unsigned char *from = malloc(bytes), *own = malloc(bytes), *into = rows[row].in_arena ? memory : own;
		struct collet_transfer send, receive;  /* pair_close() completes what is left of them */
		memset(into, 0x5a, bytes);
		/* Enough rounds to reuse each RTR slot. A small message in between has no RTR. */
		for (unsigned round = 0; round < 2 * SHM_RTR_SLOTS + 1; round++) {
			unsigned char small_from = (unsigned char)round, small_into = 0;
			struct collet_transfer small = transfer_of(0, &small_into, 1);
			struct collet_transfer small_send = transfer_of(0, &small_from, 1);
			send = transfer_of(round, from, bytes);
			receive = transfer_of(round + rows[row].other, into, bytes);
			send.flags = COLLET_TRANSFER_IN_CACHE;
			receive.flags = rows[row].views ? COLLET_TRANSFER_VIEW : 0;
			pattern_fill(from, bytes, round);
			shm->post_recv(pair.ends[1].endpoint, &small);
			if (!rows[row].late)
				shm->post_recv(pair.ends[1].endpoint, &receive);
			shm->post_send(pair.ends[0].endpoint, &small_send);
			shm->post_send(pair.ends[0].endpoint, &send);
			const bool there = pattern_is(into, bytes, round);
			if (there != rows[row].pushed || (there && send.status != COLLET_OK))
				fail_msg("%s: %s", rows[row].what, there ? "pushed" : "not pushed");
			if (rows[row].late)
				shm->post_recv(pair.ends[1].endpoint, &receive);
			assert_true(pair_complete(&pair, &small) && pair_complete(&pair, &receive));
			assert_int_equal(small_into, small_from);
			assert_int_equal(receive.status, rows[row].other ? COLLET_ERR_MISMATCH : COLLET_OK);
			if (rows[row].other) {
				assert_int_equal(into[bytes - 1], 0x5a);
				break;  /* nobody waits for the rest of a dropped message */
			}
			assert_true(pattern_is(rows[row].views ? receive.view : into, bytes, round));
			if (rows[row].views)
				shm->release_view(pair.ends[1].endpoint, &receive);
			if (!pair_complete(&pair, &send) || send.status != COLLET_OK)
				fail_msg("%s: sent: %s", rows[row].what, collet_status_name(send.status));
			if (rows[row].late)
				memset(into, 0x5a, bytes);
		}
		free(from);
		free(own);
		pair_close(&pair);
		collet_arena_deinit(&arenas[0]);
		collet_arena_deinit(&arenas[1]);
	}
}

/* Nothing is put to a peer that has closed. */
static void a_closed_peer_is_not_written_to(void **state)
{
	struct pair pair;
	struct collet_arena arenas[2];
	void *into;
	const size_t bytes = SHM_PUT_MAX;
	shm_pair_open(&pair, true, arenas);
	assert_int_equal(collet_arena_alloc(&arenas[1], &into, bytes), COLLET_OK);
	unsigned char *from = malloc(bytes);
	struct collet_transfer send = transfer_of(1, from, bytes), receive = transfer_of(1, into, bytes);
	send.flags = COLLET_TRANSFER_IN_CACHE;
	memset(into, 0x5a, bytes);
	pattern_fill(from, bytes, 1);
	shm->post_recv(pair.ends[1].endpoint, &receive);
	shm->close(pair.ends[1].endpoint);
	assert_int_equal(receive.status, COLLET_CANCELLED);
	shm->post_send(pair.ends[0].endpoint, &send);
	assert_true(end_complete(&pair.ends[0], &send));
	assert_int_equal(send.status, COLLET_ERR_PEER_LOST);
	assert_true(((unsigned char *)into)[0] == 0x5a && ((unsigned char *)into)[bytes - 1] == 0x5a);
	free(from);
	pair_close(&pair);
	collet_arena_deinit(&arenas[0]);
	collet_arena_deinit(&arenas[1]);
}

static void threads_share_one_mapping(void **state)
{
	for (unsigned processes = 0; processes < 2; processes++) {
		struct pair pair;
		struct collet_arena arenas[2];
		shm_pair_open(&pair, processes, arenas);
		assert_int_equal(inside(&pair, 0)->region == inside(&pair, 1)->region, !processes);
		for (int i = 0; i < 2; i++)
			assert_int_equal(inside(&pair, i)->peer_arena == arenas[!i].map, !processes);
		pair_close(&pair);
		collet_arena_deinit(&arenas[0]);
		collet_arena_deinit(&arenas[1]);
	}
}

static void an_endpoint_takes_its_stated_memory(void **state)
{
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	unsigned char resident[SHM_REGION_BYTES / 4096];
	unsigned touched = 0;
	assert_int_equal(mincore(inside(&pair, 0)->region, SHM_REGION_BYTES, resident), 0);
	for (unsigned i = 0; i < sizeof(resident); i++)
		touched += resident[i] & 1;
	assert_true(touched <= 2);  /* opening touched only the first pages */
	/* Messages up to the largest one below SHM_BULK_MIN touch at most 64 KiB. */
	static unsigned char from[SHM_BULK_MIN - 1], into[SHM_BULK_MIN - 1];
	for (unsigned i = 0; i < 100; i++) {
		struct collet_transfer send = transfer_of(i, from, sizeof(from));
		struct collet_transfer receive = transfer_of(i, into, sizeof(into));
		shm->post_send(pair.ends[i % 2].endpoint, &send);
		shm->post_recv(pair.ends[!(i % 2)].endpoint, &receive);
		assert_true(pair_complete(&pair, &send) && pair_complete(&pair, &receive));
	}
	assert_int_equal(mincore(inside(&pair, 0)->region, SHM_REGION_BYTES, resident), 0);
	touched = 0;
	for (unsigned i = 0; i < sizeof(resident); i++)
		touched += resident[i] & 1;
	assert_true(touched > 2 && touched <= 64 * KIB / 4096);
	pair_close(&pair);
}

/* ---- Full rings --------------------------------------------------------------------------------------------- */

/* Returns how many runs of messages of this size fit into the bulk units while none is released. The size is less than
 * SHM_LONG_BYTES. */
static uint64_t bulk_runs(uint64_t bytes)
{
	uint64_t free = SHM_BULK_UNITS, runs = 0;
	for (uint64_t left = bytes;;) {
		const uint64_t some = left < SHM_BULK_RUN_BYTES / 2 ? left : SHM_BULK_RUN_BYTES / 2;
		const uint64_t units = (some + SHM_BULK_UNIT_BYTES - 1) / SHM_BULK_UNIT_BYTES;
		if (units > free)
			return runs;
		free -= units;
		runs++;
		left = left == some ? bytes : left - some;
	}
}

/* Returns how many cells messages of this size take until the ring is full. Where ranks outnumber cores they continue
 * in the bulk units. */
static uint64_t cells_until_full(uint64_t bytes, bool oversubscribed)
{
	if (bytes <= SHM_INLINE_BYTES)
		return SHM_CELLS / shm_inline_cells(bytes) * shm_inline_cells(bytes);
	if (bytes >= SHM_BULK_MIN)
		return bulk_runs(bytes);
	const uint64_t cells = SHM_UNITS / ((bytes + SHM_UNIT_BYTES - 1) / SHM_UNIT_BYTES) +
		(oversubscribed ? bulk_runs(bytes) : 0);
	return cells < SHM_CELLS ? cells : SHM_CELLS;
}

/* Makes the ends behave as if ranks outnumbered cores. */
static void oversubscribe(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		pair->ends[i].wake.shared_cpu = 1;
}

static void fill_both_ways(bool oversubscribed)
{
	enum { COUNT = 300 };
	static const size_t sizes[] = { 8, 100, 300, 1024, 3000, SHM_RUN_BYTES, 30000, 100000 };
	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		/* Disables tuning: all messages shall fill the ring. */
		inside(&pair, 0)->is_tuned = inside(&pair, 1)->is_tuned = false;
		if (oversubscribed)
			oversubscribe(&pair);
		const size_t bytes = sizes[s];
		struct collet_transfer *sends = calloc(2 * COUNT, sizeof(*sends)),
				       *receives = calloc(2 * COUNT, sizeof(*receives));
		unsigned char *from = malloc(2 * COUNT * bytes), *into = calloc(2 * COUNT, bytes);
		for (unsigned i = 0; i < 2 * COUNT; i++) {
			pattern_fill(from + i * bytes, bytes, i);
			sends[i] = transfer_of(i / 2, from + i * bytes, bytes);
			shm->post_send(pair.ends[i % 2].endpoint, &sends[i]);
		}
		for (int i = 0; i < 2; i++) {
			assert_int_equal(inside(&pair, i)->out_next, cells_until_full(bytes, oversubscribed));
			assert_true(shm->arm(pair.ends[i].endpoint)); /* nothing to do until the peer makes room */
			shm->disarm(pair.ends[i].endpoint);
		}
		for (unsigned i = 0; i < 2 * COUNT; i++) {
			receives[i] = transfer_of(i / 2, into + i * bytes, bytes);
			shm->post_recv(pair.ends[!(i % 2)].endpoint, &receives[i]);
		}
		for (unsigned i = 0; i < 2 * COUNT; i++) {
			assert_true(pair_complete(&pair, &receives[i]) && pair_complete(&pair, &sends[i]));
			assert_true(receives[i].status == COLLET_OK && sends[i].status == COLLET_OK);
			assert_true(pattern_is(into + i * bytes, bytes, i));
		}
		free(sends);
		free(receives);
		free(from);
		free(into);
		pair_close(&pair);
	}
}

static void full_both_ways(void **state)
{
	fill_both_ways(false);
	fill_both_ways(true);
}

static void hold_views(bool oversubscribed)
{
	enum { VIEWS = 200, LARGEST = 300000 };
	static const size_t sizes[] = { 100, 600, 5000, SHM_RUN_BYTES, 20000, SHM_CONTIGUOUS_BYTES, LARGEST };
	unsigned char *from = malloc(LARGEST), *into[VIEWS] = { NULL };
	struct collet_transfer views[VIEWS];
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	if (oversubscribed)
		oversubscribe(&pair);
	for (unsigned i = 0; i < VIEWS; i++) {
		const size_t bytes = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
		struct collet_transfer send = transfer_of(i, from, bytes);
		send.flags = COLLET_TRANSFER_CONTIGUOUS;
		pattern_fill(from, bytes, i);
		into[i] = malloc(bytes);
		views[i] = view_of(i, into[i], bytes);
		shm->post_send(pair.ends[0].endpoint, &send);
		shm->post_recv(pair.ends[1].endpoint, &views[i]);
		assert_true(pair_complete(&pair, &send) && pair_complete(&pair, &views[i]));
		assert_true(send.status == COLLET_OK && views[i].status == COLLET_OK);
	}
	unsigned pinned = 0;
	for (unsigned i = 0; i < VIEWS; i++) {
		const unsigned which = (i * 77 + 13) % VIEWS;
		assert_true(pattern_is(views[which].view, views[which].message.bytes, which));
		pinned += views[which].view != into[which];
		shm->release_view(pair.ends[1].endpoint, &views[which]);
		free(into[which]);
	}
	assert_true(pinned > 0);
	/* All units have been released. */
	assert_true(inside(&pair, 0)->out_units_used == inside(&pair, 1)->in_units_freed);
	assert_true(inside(&pair, 0)->out_bulk_used == inside(&pair, 1)->in_bulk_freed);
	free(from);
	pair_close(&pair);
}

/* Views that are never released must not block later messages of any size or protocol. */
static void held_views_block_nobody(void **state)
{
	hold_views(false);
	hold_views(true);
}

/* CMA-capable messages use CMA if their call class wants it, with a core for each rank and without. */
static void long_messages_use_the_wanted_protocol(void **state)
{
	static const struct {
		const char *what;
		uint32_t flags;
		size_t bytes;
		bool read;
	} rows[] = {
		{ "too short", 0, SHM_TUNED_MIN - 1, false },
		{ "long", 0, SHM_TUNED_MIN, true },
		{ "to be combined", COLLET_TRANSFER_CONTIGUOUS, SHM_TUNED_MIN, true },
		{ "to be done with", COLLET_TRANSFER_EAGER, SHM_TUNED_MIN, false },
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	for (unsigned at = 0; at < 2 * ROWS; at++) {
		const unsigned row = at % ROWS;
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		if (at >= ROWS)
			oversubscribe(&pair);
		const size_t bytes = rows[row].bytes;
		void *from = malloc(bytes), *into = malloc(bytes);
		for (unsigned i = 0; i < 2; i++) {
			struct collet_transfer send = transfer_of(i, from, bytes);
			struct collet_transfer receive = transfer_of(i, into, bytes);
			send.flags = rows[row].flags;
			inside(&pair, 0)->cma_classes[0] = i == 1;
			pattern_fill(from, bytes, i);
			shm->post_send(pair.ends[0].endpoint, &send);
			if ((inside(&pair, 0)->tokens_borrowed != 0) != (i == 1 && rows[row].read))
				fail_msg("%s: message %u%s", rows[row].what, i, at < ROWS ? "" : ", crowded");
			shm->post_recv(pair.ends[1].endpoint, &receive);
			assert_true(pair_complete(&pair, &receive) && pair_complete(&pair, &send));
			assert_true(receive.status == COLLET_OK && send.status == COLLET_OK);
			assert_true(pattern_is(into, bytes, i));
		}
		free(from);
		free(into);
		pair_close(&pair);
	}
}

/* ---- Nothing is left behind --------------------------------------------------------------------------------- */

static unsigned count_descriptors(void)
{
	unsigned count = 0;
	DIR *folder = opendir("/proc/self/fd");
	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static unsigned count_mappings(void)
{
	char line[512];
	unsigned count = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:collet") != NULL;
	fclose(file);
	return count;
}

/* The connection setup is aborted after each number of steps, by either end first. */
static void nothing_is_left(void **state)
{
	const unsigned descriptors = count_descriptors(), mappings = count_mappings();
	for (unsigned processes = 0; processes < 2; processes++) {
		for (unsigned steps = 0; steps < 8; steps++) {
			for (int first = 0; first < 2; first++) {
				struct pair pair = { 0 };
				struct collet_arena arenas[2];
				pair_connect(&pair, "shm", processes);
				for (int i = 0; i < 2; i++) {
					assert_int_equal(collet_arena_init(&arenas[i], ARENA_BYTES), COLLET_OK);
					pair.ends[i].peer_info.pid = (uint32_t)getpid();
					pair.ends[i].arena = &arenas[i];
					pair_begin(&pair, i);
				}
				for (unsigned i = 0; i < steps; i++)
					(void)shm->open_progress(pair.ends[i % 2].endpoint);
				shm->close(pair.ends[first].endpoint);
				(void)shm->open_progress(pair.ends[!first].endpoint);
				(void)shm->open_progress(pair.ends[!first].endpoint);
				shm->close(pair.ends[!first].endpoint);
				pair_close(&pair);
				collet_arena_deinit(&arenas[0]);
				collet_arena_deinit(&arenas[1]);
				assert_int_equal(count_descriptors(), descriptors);
				assert_int_equal(count_mappings(), mappings);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_are_found),
		cmocka_unit_test(each_size_uses_its_protocol),
		cmocka_unit_test(borrowed_messages_are_read_by_progress),
		cmocka_unit_test(cached_bytes_are_put),
		cmocka_unit_test(a_closed_peer_is_not_written_to),
		cmocka_unit_test(threads_share_one_mapping),
		cmocka_unit_test(an_endpoint_takes_its_stated_memory),
		cmocka_unit_test(full_both_ways),
		cmocka_unit_test(held_views_block_nobody),
		cmocka_unit_test(long_messages_use_the_wanted_protocol),
		cmocka_unit_test(nothing_is_left),
	};
	return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
