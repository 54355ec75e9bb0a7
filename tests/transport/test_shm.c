/* Tests shm alone, with well-behaved peers: the protocol of each size, full pools, the memory of an open endpoint, and
 * that nothing is left behind. The contract suite tests that it keeps the contract; test_shm_pool.c tests who owns
 * the units; test_shm_faults.c and test_shm_hostile.c test peers that misbehave. */
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

enum { MANY = 0 };  /* more runs than a sender has units for */

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
		{"smallest run", true, false, SHM_INLINE_BYTES + 1, SHM_SMALL_RUN, 1},
		{"a unit", true, false, SHM_SMALL_UNIT_BYTES, SHM_SMALL_RUN, 1},
		{"largest small run", true, false, SHM_SMALL_RUN_BYTES, SHM_SMALL_RUN, 1},
		{"smallest large run", true, false, SHM_SMALL_RUN_BYTES + 1, SHM_LARGE_RUN, 1},
		{"large run, a byte in its second unit", true, false, SHM_LARGE_UNIT_BYTES + 1, SHM_LARGE_RUN, 1},
		{"copied, one run", true, false, SHM_COPIED_RUN_BYTES, SHM_LARGE_RUN, 1},
		{"copied, two runs", true, false, SHM_COPIED_RUN_BYTES + 1, SHM_LARGE_RUN, 2},
		{"copied, more than there are units", true, false, 3 * MIB + 1, SHM_LARGE_RUN, MANY},
		{"contiguous, small", true, false, SHM_SMALL_RUN_BYTES, SHM_SMALL_RUN, 1, COLLET_TRANSFER_CONTIGUOUS},
		{"contiguous, large", true, false, SHM_COPIED_RUN_BYTES + 1, SHM_LARGE_RUN, 1,
			COLLET_TRANSFER_CONTIGUOUS},
		{"contiguous, the most", true, false, SHM_LARGE_RUN_BYTES, SHM_LARGE_RUN, 1,
			COLLET_TRANSFER_CONTIGUOUS},
		{"too long to be contiguous", true, false, SHM_LARGE_RUN_BYTES + 1, SHM_LARGE_RUN, 2,
			COLLET_TRANSFER_CONTIGUOUS},
		{"arena, too small", true, true, SHM_ARENA_MIN - 1, SHM_LARGE_RUN, 1},
		{"arena", true, true, SHM_ARENA_MIN, SHM_ARENA, 1},
		{"arena, too small for who waits", true, true, SHM_ARENA_EXCHANGE_MIN - 1, SHM_SMALL_RUN, 1,
			COLLET_TRANSFER_EXCHANGE},
		{"arena, for who waits", true, true, SHM_ARENA_EXCHANGE_MIN, SHM_ARENA, 1, COLLET_TRANSFER_EXCHANGE},
		{"arena, in slices", true, true, 2 * SHM_SLICE_BYTES + 1, SHM_ARENA, 1},
		{"threads: run", false, false, SHM_COPIED_RUN_BYTES, SHM_LARGE_RUN, 1},
		{"threads: runs", false, false, 3 * MIB + 1, SHM_LARGE_RUN, MANY},
		{"threads: arena", false, true, 3 * MIB + 1, SHM_ARENA, 1},
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		for (unsigned view = 0; view < 2; view++) {
			struct pair pair;
			struct collet_arena arenas[2];
			shm_pair_open(&pair, rows[row].processes, arenas);
			const size_t bytes = rows[row].bytes;
			void *from = malloc(bytes), *into = malloc(bytes), *memory;
			assert_int_equal(collet_arena_alloc(&arenas[0], &memory, bytes), COLLET_OK);
			void *data = rows[row].in_arena ? memory : from;
			pattern_fill(data, bytes, row);
			struct collet_transfer send = transfer_of(1, data, bytes);
			struct collet_transfer receive = view ? view_of(1, into, bytes) : transfer_of(1, into, bytes);
			send.flags = rows[row].flags;
			shm->post_send(pair.ends[0].endpoint, &send);
			const struct shm_pool *pools = inside(&pair, 0)->pools;
			assert_int_equal(inside(&pair, 0)->tokens_borrowed, rows[row].protocol == SHM_ARENA);
			for (unsigned kind = 0; kind < SHM_POOLS; kind++)
				assert_int_equal(pools[kind].free_count < pools[kind].half,
					shm_uses_runs(rows[row].protocol) && shm_pool_of(rows[row].protocol) == kind);
			const uint64_t calls = pair.ends[1].endpoint->stats.system_calls;
			shm->post_recv(pair.ends[1].endpoint, &receive);
			assert_true(pair_complete(&pair, &receive));
			assert_int_equal(receive.status, COLLET_OK);
			if (rows[row].cells != MANY)
				assert_int_equal(inside(&pair, 1)->in_next, rows[row].cells);
			assert_int_equal(pair.ends[1].endpoint->stats.system_calls, calls);
			assert_true(pattern_is(view ? receive.view : into, bytes, row));
			if (view) {
				const bool stays = rows[row].protocol == SHM_ARENA ||
						   (shm_uses_runs(rows[row].protocol) && rows[row].cells == 1);
				assert_int_equal(receive.view != into, stays);
				assert_int_equal((receive.flags & COLLET_TRANSFER_RETURNABLE) != 0,
					stays && rows[row].protocol != SHM_ARENA);
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

/* Two ends have lent each other a message and then post their receives. Neither reads before it has posted both, or the
 * other would wait for a whole copy. */
static void borrowed_messages_are_read_by_progress(void **state)
{
	for (unsigned processes = 0; processes < 2; processes++) {
		struct pair pair;
		struct collet_arena arenas[2];
		struct collet_transfer send[2], receive[2];
		void *data[2], *into[2];
		const size_t bytes = 2 * MIB;
		shm_pair_open(&pair, processes, arenas);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(collet_arena_alloc(&arenas[i], &data[i], bytes), COLLET_OK);
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

/* Threads share one mapping, so that ThreadSanitizer sees their conflicts; processes have two. */
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

static unsigned resident_bytes(struct pair *pair)
{
	unsigned char resident[SHM_REGION_BYTES / 4096];
	unsigned pages = 0;
	assert_int_equal(mincore(inside(pair, 0)->region, SHM_REGION_BYTES, resident), 0);
	for (unsigned i = 0; i < sizeof(resident); i++)
		pages += resident[i] & 1;
	return pages * 4096;
}

/* Sends 200 messages of a size, by turns from each end. */
static void send_by_turns(struct pair *pair, void *from, void *into, size_t bytes)
{
	for (unsigned i = 0; i < 200; i++) {
		struct collet_transfer send = transfer_of(i, from, bytes), receive = transfer_of(i, into, bytes);
		shm->post_send(pair->ends[i % 2].endpoint, &send);
		shm->post_recv(pair->ends[!(i % 2)].endpoint, &receive);
		assert_true(pair_complete(pair, &send) && pair_complete(pair, &receive));
	}
}

static void an_endpoint_takes_its_stated_memory(void **state)
{
	static const struct {
		size_t bytes;
		unsigned least, most;
	} rows[] = {
		{ 0, 4 * KIB, 64 * KIB },
		{ SHM_SMALL_RUN_BYTES, 8 * KIB, 64 * KIB },
		{ SHM_SMALL_RUN_BYTES + 1, 12 * KIB, 64 * KIB + 2 * SHM_LARGE_UNIT_BYTES },
		{ 3 * MIB, 128 * KIB, 64 * KIB + MIB },
	};
	static unsigned char from[3 * MIB], into[3 * MIB];
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	assert_true(resident_bytes(&pair) <= 8 * KIB);  /* opening touched only the first pages */
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		send_by_turns(&pair, from, into, rows[row].bytes);
		const unsigned resident = resident_bytes(&pair);
		if (resident < rows[row].least || resident > rows[row].most)
			fail_msg("messages of %zu bytes: %u bytes of memory", rows[row].bytes, resident);
	}
	pair_close(&pair);
}

/* ---- Full pools --------------------------------------------------------------------------------------------- */

/* The cells that messages of a size take until there is no room: `cells` where each rank has a core, else
 * `oversubscribed`, where small messages continue in the large units. */
static const struct full_row {
	size_t bytes;
	unsigned cells, oversubscribed;
} full_rows[] = {
	{ 8, SHM_CELLS, SHM_CELLS },
	{ 100, SHM_CELLS / 3 * 3, SHM_CELLS / 3 * 3 },
	{ 300, SHM_SMALL_UNIT_COUNT / 2, SHM_SMALL_UNIT_COUNT / 2 + SHM_LARGE_UNIT_COUNT / 2 },
	{ SHM_SMALL_RUN_BYTES, SHM_SMALL_UNIT_COUNT / 4, SHM_SMALL_UNIT_COUNT / 4 + SHM_LARGE_UNIT_COUNT / 2 },
	{ 3000, SHM_LARGE_UNIT_COUNT / 2, SHM_LARGE_UNIT_COUNT / 2 },
	{ 30000, SHM_LARGE_UNIT_COUNT / 4, SHM_LARGE_UNIT_COUNT / 4 },
	/* The last one comes in two pieces: the reserve is apart from the other units. */
	{ SHM_COPIED_RUN_BYTES, SHM_LARGE_UNIT_COUNT / 8 + 1, SHM_LARGE_UNIT_COUNT / 8 + 1 },
	{ 100000, 10, 10 },
};

static void fill_both_ways(const struct full_row *row, bool oversubscribed)
{
	enum { COUNT = 300 };
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	if (oversubscribed)
		shm_pair_oversubscribe(&pair);
	const size_t bytes = row->bytes;
	struct collet_transfer *sends = calloc(2 * COUNT, sizeof(*sends)),
			       *receives = calloc(2 * COUNT, sizeof(*receives));
	unsigned char *from = malloc(2 * COUNT * bytes), *into = calloc(2 * COUNT, bytes);
	for (unsigned i = 0; i < 2 * COUNT; i++) {
		pattern_fill(from + i * bytes, bytes, i);
		sends[i] = transfer_of(i / 2, from + i * bytes, bytes);
		shm->post_send(pair.ends[i % 2].endpoint, &sends[i]);
	}
	for (int i = 0; i < 2; i++) {
		while (collet_shm_can_send(inside(&pair, i)))  /* a call sends a bounded part */
			shm->progress(pair.ends[i].endpoint);
		assert_int_equal(inside(&pair, i)->out_next, oversubscribed ? row->oversubscribed : row->cells);
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

static void full_both_ways(void **state)
{
	for (unsigned row = 0; row < sizeof(full_rows) / sizeof(full_rows[0]); row++) {
		fill_both_ways(&full_rows[row], false);
		fill_both_ways(&full_rows[row], true);
	}
}

static void hold_views(bool oversubscribed)
{
	enum { VIEWS = 200, LARGEST = 300000 };
	static const size_t sizes[] = { 100, 600, SHM_SMALL_RUN_BYTES, 5000, 20000, SHM_LARGE_RUN_BYTES, LARGEST };
	unsigned char *from = malloc(LARGEST), *into[VIEWS] = { NULL };
	struct collet_transfer views[VIEWS];
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	if (oversubscribed)
		shm_pair_oversubscribe(&pair);
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
	for (enum shm_pool_kind kind = 0; kind < SHM_POOLS; kind++) {
		const uint64_t owned[2] = { shm_units_owned(&pair, 0, kind), shm_units_owned(&pair, 1, kind) };
		assert_true((owned[0] & owned[1]) == 0 && (owned[0] | owned[1]) == shm_units_of_pool(kind));
	}
	free(from);
	pair_close(&pair);
}

/* Views that are never released must not block later messages of any size or protocol. */
static void held_views_block_nobody(void **state)
{
	hold_views(false);
	hold_views(true);
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
		cmocka_unit_test(nothing_is_left),
	};
	return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
