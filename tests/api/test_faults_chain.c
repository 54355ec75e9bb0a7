/* Kills a rank while each of the others waits for the next one towards it. A rank that waits for a survivor, which
 * ends because of the death, still learns who has died. Each two neighbours have a communicator of their own,
 * without a dead rank. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"
#include "sample.h"

enum { SMALL = 100, LARGE = 1 << 20 }; /* a large message is not sent before its receiver asks for it */

enum waits { RECEIVES, SENDS, COLLECTIVES, IN_ONE_COMMUNICATOR, WAITS };
static const char *const waits_names[] = {
	"receives", "sends", "collectives", "receives in one communicator"};

/* What a survivor does then: ends, or continues and destroys only the communicator that failed. */
enum then { ENDS, LIVES_ON };

struct row {
	const char *transport;
	enum waits waits;
	enum then then;
	uint32_t victim;
};

enum { EVENT_WAITING, EVENT_TOLD };

/* Pairs of neighbours whose lower rank is even or odd; NULL if this rank has none there. */
static bool pair_up(struct rank *rank, collet_comm *pairs[2])
{
	for (uint32_t odd = 0; odd < 2; odd++) {
		const bool alone = rank->rank < odd || (rank->rank - odd) / 2 * 2 + odd + 1 >= rank->size;
		const uint32_t color = alone ? COLLET_NO_COLOR : (rank->rank - odd) / 2;
		if (!rank_ok(rank, collet_comm_split(rank->comm, color, rank->rank, &pairs[odd]), "split") ||
			(pairs[odd] && !rank_ok(rank, collet_barrier(pairs[odd], NULL), "the pair's barrier")))
			return false;
	}
	return true;
}

static collet_status wait_for(collet_comm *comm, enum waits waits, uint32_t peer, unsigned char *data)
{
	switch (waits) {
	case SENDS: return collet_send(comm, data, LARGE, COLLET_U8, peer, 1, NULL);
	case COLLECTIVES: return collet_allreduce(comm, data, data, SMALL, COLLET_U8, COLLET_SUM, NULL);
	default: return collet_recv(comm, data, LARGE, COLLET_U8, peer, 1, NULL, NULL);
	}
}

static void wait_and_be_told(struct rank *rank, const struct row *row, collet_comm *pairs[2])
{
	const bool before = rank->rank < row->victim;
	const uint32_t next = before ? rank->rank + 1 : rank->rank - 1, low = before ? rank->rank : next;
	const bool in_one = row->waits == IN_ONE_COMMUNICATOR;
	unsigned char *data = calloc(LARGE, 1);
	char victim[160];
	rank_doing(rank, "waiting for rank %u", next);
	rank_post(rank, EVENT_WAITING);
	const collet_status status =
		wait_for(in_one ? rank->comm : pairs[low % 2], row->waits, in_one ? next : before ? 1 : 0, data);
	snprintf(victim, sizeof(victim), "rank %u on %s (pid", row->victim, collet_comm_host(rank->comm, row->victim));
	rank_status(rank, status, COLLET_ERR_PEER_LOST, "waiting");
	rank_check(rank, strstr(collet_last_error(), victim) != NULL, "\"%s\" is missing: %s", victim,
		collet_last_error());
	free(data);
}

static void wait_in_a_chain(struct rank *rank)
{
	const struct row *row = rank->options->context;
	collet_comm *pairs[2] = {NULL};
	if (!pair_up(rank, pairs))
		return;
	if (rank->rank == row->victim) {
		rank_await(rank, EVENT_WAITING, rank->size - 1);
		raise(SIGKILL);
	}
	wait_and_be_told(rank, row, pairs);
	for (uint32_t i = 0; i < 2; i++)
		if (pairs[i])
			rank_ok(rank, collet_comm_destroy(&pairs[i]), "destroy");
	rank_post(rank, EVENT_TOLD);
	if (row->then == LIVES_ON)
		rank_await(rank, EVENT_TOLD, rank->size - 1);
}

static bool went_well(struct ranks *ranks, const struct row *row, uint32_t size)
{
	bool fine = ranks_wait(ranks);
	for (uint32_t r = 0; r < size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		const bool ended = report->end == (r == row->victim ? RANK_KILLED : RANK_RETURNED);
		if (ended && !report->failed)
			continue;
		fine = false;
		fprintf(stderr, "%s/%s/n%u, rank %u dies: rank %u (end %d, %d): %s; %s\n", row->transport,
			waits_names[row->waits], size, row->victim, r, report->end, report->code, report->doing,
			report->failed ? report->sentence : "");
	}
	return fine;
}

/* Run all rows at the same time: each rank in turn grants a survivor that lives on a grace period of a second. */
static void who_died_is_named(enum then then, uint32_t size)
{
	enum { MOST = 2 * WAITS * 4 };
	static const char *const transports[] = {"shm", "tcp"};
	struct row rows[MOST];
	struct ranks *runs[MOST];
	uint32_t count = 0;
	bool fine = true;
	for (uint32_t i = 0; i < 2 * WAITS * size; i++) {
		if (!sample_has(then * 1000 + size * 100 + i))
			continue;
		rows[count] = (struct row){ transports[i % 2], i / 2 % WAITS, then, i / 2 / WAITS };
		const struct ranks_options options = {
			.size = size, .transport = rows[count].transport, .context = &rows[count]};
		runs[count] = ranks_start(&options, wait_in_a_chain);
		count++;
	}
	for (uint32_t i = 0; i < count; i++) {
		fine &= went_well(runs[i], &rows[i], size);
		ranks_free(&runs[i]);
	}
	assert_true(fine);
}

static bool full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && *text && strcmp(text, "0") != 0;
}

static void survivors_that_end_hide_nobody(void **state)
{
	who_died_is_named(ENDS, 3);
	if (full())
		who_died_is_named(ENDS, 4);
}

static void survivors_that_live_on_hide_nobody(void **state)
{
	who_died_is_named(LIVES_ON, 3);
	if (full())
		who_died_is_named(LIVES_ON, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_that_end_hide_nobody),
		cmocka_unit_test(survivors_that_live_on_hide_nobody),
	};
	return cmocka_run_group_tests_name("chain", tests, NULL, NULL);
}
