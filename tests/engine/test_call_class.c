/* Checks the durations of calls that transports get. The linker wraps sending and reporting: this file delays each
 * message, and the reported duration must include the delay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/clock.h"
#include "engine/call_class.h"
#include "engine/peer_queue.h"
#include "ranks.h"

enum { BYTES = 64 << 10, FLOATS = BYTES / sizeof(float), TICKS = 1 << 20 };

/* Counts of this rank, in the current call. */
static struct {
	unsigned sends, reports;
	uint64_t ticks;
} seen;

enum collet_try_result __real_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);
enum collet_try_result __wrap_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);
void __real_collet_shm_report_call_time(struct collet_endpoint *, uint32_t, uint64_t, uint64_t);
void __wrap_collet_shm_report_call_time(struct collet_endpoint *, uint32_t, uint64_t, uint64_t);

enum collet_try_result __wrap_collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	seen.sends++;
	for (const uint64_t from = collet_ticks(); collet_ticks() - from < TICKS;)
		;
	return __real_collet_peer_queue_send_now(peer_queue, transfer);
}

void __wrap_collet_shm_report_call_time(struct collet_endpoint *endpoint, uint32_t call, uint64_t bytes, uint64_t ticks)
{
	seen.reports++;
	seen.ticks = ticks;
	__real_collet_shm_report_call_time(endpoint, call, bytes, ticks);
}

static void call(struct rank *rank)
{
	static float from[FLOATS], to[FLOATS];
	for (unsigned i = 0; i < 4; i++) {
		seen.sends = seen.reports = 0;
		if (!rank_ok(rank, collet_broadcast(rank->comm, from, to, FLOATS, COLLET_F32, 0, NULL), "broadcast"))
			return;
		rank_check(rank, seen.reports == 1, "broadcast %u: reported %u times", i, seen.reports);
		/* The first call also opens the endpoints. */
		if (rank->rank || !i)
			continue;
		rank_check(rank, seen.sends > 0, "broadcast %u: not on the fast path", i);
		rank_check(rank, seen.ticks >= TICKS, "broadcast %u: sent for %u ticks, reported %llu", i, TICKS,
			(unsigned long long)seen.ticks);
	}
}

/* This holds for a call on the fast path too, which sends before it does anything else. */
static void what_a_call_has_sent_is_in_its_time(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, call);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_a_call_has_sent_is_in_its_time) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
