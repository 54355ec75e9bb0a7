/* Tests that the accounts of units balance under random traffic both ways: each unit is owned by one end, in flight,
 * viewed, or in a queued send that returns it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include <cmocka.h>

#include "shm_pair.h"

enum { STEPS = 30000, FLYING = 40, HELD = 10, MOST = 200000 };

static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Messages from one end to the other. */
struct way {
	uint64_t sent, completed, asked, received;
	struct collet_transfer send[FLYING], receive, held[HELD];
	size_t bytes[FLYING];
	unsigned char *out[FLYING], *in;
	unsigned held_count; /* views of the receiver */
};

struct traffic {
	struct pair pair;
	struct way ways[2]; /* from end 0, from end 1 */
	uint64_t random;
	unsigned returned;
};

static size_t random_size(uint64_t *random)
{
	static const size_t most[] = { 100, 1024, SHM_SMALL_RUN_BYTES, SHM_LARGE_UNIT_BYTES, SHM_COPIED_RUN_BYTES,
		SHM_LARGE_RUN_BYTES, MOST };
	return 1 + next_random(random) % most[next_random(random) % (sizeof(most) / sizeof(most[0]))];
}

static void complete_sends(struct way *way)
{
	for (; way->completed < way->sent && way->send[way->completed % FLYING].status != COLLET_PENDING;
		way->completed++)
		assert_int_equal(way->send[way->completed % FLYING].status, COLLET_OK);
}

static void send_next(struct traffic *traffic, int which)
{
	struct way *way = &traffic->ways[which], *back = &traffic->ways[!which];
	const uint64_t slot = way->sent % FLYING;
	complete_sends(way);
	if (way->sent - way->received == FLYING || way->sent - way->completed == FLYING)
		return;
	const bool returns = back->held_count && next_random(&traffic->random) % 2;
	const struct collet_transfer *view =
		returns ? &back->held[next_random(&traffic->random) % back->held_count] : NULL;
	const bool is_returnable = view && view->flags & COLLET_TRANSFER_RETURNABLE;
	way->bytes[slot] = is_returnable ? view->message.bytes : random_size(&traffic->random);
	void *data = is_returnable ? (void *)(uintptr_t)view->view : way->out[slot];
	way->send[slot] = transfer_of(way->sent, data, way->bytes[slot]);
	way->send[slot].flags = is_returnable                       ? COLLET_TRANSFER_RETURN
				: next_random(&traffic->random) % 2 ? COLLET_TRANSFER_CONTIGUOUS
								    : 0;
	pattern_fill(data, way->bytes[slot], way->sent * 2 + (unsigned)which);
	if (is_returnable) {
		back->held[view - back->held] = back->held[--back->held_count];
		traffic->returned++;
	}
	shm->post_send(traffic->pair.ends[which].endpoint, &way->send[slot]);
	way->sent++;
}

/* Checks the receive if it has completed, and posts the next one. */
static void receive_next(struct traffic *traffic, int which)
{
	struct way *way = &traffic->ways[which];
	struct collet_endpoint *receiver = traffic->pair.ends[!which].endpoint;
	if (way->asked > way->received && way->receive.status != COLLET_PENDING) {
		assert_int_equal(way->receive.status, COLLET_OK);
		assert_true(
			pattern_is(way->receive.view, way->receive.message.bytes, way->received * 2 + (unsigned)which));
		way->received++;
		if (way->receive.view != way->in)
			way->held[way->held_count++] = way->receive;
		else if (way->receive.flags & COLLET_TRANSFER_VIEW)
			shm->release_view(receiver, &way->receive);
	}
	if (way->asked == way->received && way->asked < way->sent) {
		way->receive = transfer_of(way->asked, way->in, way->bytes[way->asked % FLYING]);
		way->receive.flags =
			way->held_count < HELD && next_random(&traffic->random) % 2 ? COLLET_TRANSFER_VIEW : 0;
		shm->post_recv(receiver, &way->receive);
		way->asked++;
	}
}

static void release_one(struct traffic *traffic, int which)
{
	struct way *way = &traffic->ways[which];
	if (!way->held_count)
		return;
	struct collet_transfer *view = &way->held[next_random(&traffic->random) % way->held_count];
	shm->release_view(traffic->pair.ends[!which].endpoint, view);
	*view = way->held[--way->held_count];
}

/* Adds units to those counted so far, and checks that they are not among them yet. */
static void count_units(uint64_t *counted, uint64_t units)
{
	assert_true((*counted & units) == 0);
	*counted |= units;
}

/* Counts the runs that an end has published and the other has not consumed. */
static void count_in_flight(struct pair *pair, int which, uint64_t counted[SHM_POOLS])
{
	const struct shm_endpoint *sender = inside(pair, which), *receiver = inside(pair, !which);
	enum shm_pool_kind kind = shm_pool_of(receiver->incoming.protocol);
	for (uint64_t at = receiver->in_next; at < sender->out_next; at++) {
		struct shm_cell *cell = shm_cell_at(sender->out_cells, at);
		const enum shm_protocol protocol = atomic_load(&cell->word[0]) >> 32 & 0xff;
		const uint64_t location = atomic_load(&cell->word[4]);
		if (shm_uses_runs(protocol))
			kind = shm_pool_of(protocol);
		else if (protocol != SHM_NEXT_RUN)
			continue;
		count_units(&counted[kind],
			shm_bits((unsigned)(uint32_t)location, shm_pool_units(&sender->pools[kind], location >> 32)));
	}
}

/* Counts a view's units. */
static void count_viewed(struct pair *pair, int which, const struct collet_transfer *view, uint64_t counted[SHM_POOLS])
{
	const struct shm_pool *pools = inside(pair, which)->pools;
	const unsigned char *run = view->flags & COLLET_TRANSFER_RETURN ? view->data : view->view;
	const enum shm_pool_kind kind = run >= pools[SHM_LARGE_UNITS].base ? SHM_LARGE_UNITS : SHM_SMALL_UNITS;
	const size_t first = (size_t)(run - pools[kind].base) / pools[kind].unit_bytes;
	count_units(&counted[kind], shm_bits((unsigned)first, shm_pool_units(&pools[kind], view->message.bytes)));
}

/* Each unit is owned by one end, in flight, viewed, or in a queued send that returns it. */
static void check_balance(struct traffic *traffic)
{
	uint64_t counted[SHM_POOLS] = { 0 };
	for (int which = 0; which < 2; which++) {
		const struct way *way = &traffic->ways[which];
		for (enum shm_pool_kind kind = 0; kind < SHM_POOLS; kind++)
			count_units(&counted[kind], shm_units_owned(&traffic->pair, which, kind));
		count_in_flight(&traffic->pair, which, counted);
		for (unsigned i = 0; i < way->held_count; i++)
			count_viewed(&traffic->pair, !which, &way->held[i], counted);
		const bool is_viewed =
			way->asked > way->received && way->receive.status == COLLET_OK && way->receive.view != way->in;
		if (is_viewed)
			count_viewed(&traffic->pair, !which, &way->receive, counted);
		for (uint64_t i = way->completed; i < way->sent; i++) {
			const struct collet_transfer *send = &way->send[i % FLYING];
			if (send->status == COLLET_PENDING && send->flags & COLLET_TRANSFER_RETURN)
				count_viewed(&traffic->pair, which, send, counted);
		}
	}
	for (enum shm_pool_kind kind = 0; kind < SHM_POOLS; kind++)
		assert_true(counted[kind] == shm_units_of_pool(kind));
	for (int which = 0; which < 2; which++)
		for (enum shm_pool_kind kind = 0; kind < SHM_POOLS; kind++) {
			const struct shm_pool *pool = &inside(&traffic->pair, which)->pools[kind];
			assert_int_equal(pool->free_count, __builtin_popcountll(pool->free));
			assert_true((pool->consumed & ~pool->free) == 0);
		}
}

static void step(struct traffic *traffic)
{
	const uint64_t choice = next_random(&traffic->random);
	const int which = choice >> 8 & 1;
	switch (choice % 8) {
	case 0:
	case 1: send_next(traffic, which); break;
	case 2:
	case 3:
	case 4: receive_next(traffic, which); break;
	case 5: release_one(traffic, which); break;
	default:
		if (choice >> 16 & 1) /* its patience ends */
			inside(&traffic->pair, which)->starved_polls = SHM_PATIENCE_POLLS;
		shm->progress(traffic->pair.ends[which].endpoint);
	}
}

static void random_traffic(bool oversubscribed, uint64_t seed)
{
	struct traffic *traffic = calloc(1, sizeof(*traffic));
	traffic->random = seed;
	shm_pair_open(&traffic->pair, true, NULL);
	if (oversubscribed)
		shm_pair_oversubscribe(&traffic->pair);
	for (int which = 0; which < 2; which++) {
		traffic->ways[which].in = malloc(MOST);
		for (unsigned i = 0; i < FLYING; i++)
			traffic->ways[which].out[i] = malloc(MOST);
	}
	for (unsigned i = 0; i < STEPS; i++) {
		step(traffic);
		check_balance(traffic);
	}
	for (int which = 0; which < 2; which++)
		if (traffic->ways[which].received < 1000 || traffic->returned < 100)
			fail_msg("only %u messages, %u of them returned", (unsigned)traffic->ways[which].received,
				traffic->returned);
	pair_close(&traffic->pair);
	for (int which = 0; which < 2; which++) {
		free(traffic->ways[which].in);
		for (unsigned i = 0; i < FLYING; i++)
			free(traffic->ways[which].out[i]);
	}
	free(traffic);
}

static void the_accounts_balance(void **state)
{
	uint64_t seed;
	const char *given = getenv("COLLET_TEST_SEED");
	random_traffic(false, UINT64_C(0x9e3779b97f4a7c15));
	random_traffic(true, UINT64_C(0x9e3779b97f4a7c15));
	assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	seed = given ? strtoull(given, NULL, 0) : seed | 1;
	printf("COLLET_TEST_SEED=%#llx\n", (unsigned long long)seed);
	fflush(stdout);
	random_traffic(seed & 2, seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_accounts_balance),
	};
	return cmocka_run_group_tests_name("shm_balance", tests, NULL, NULL);
}
