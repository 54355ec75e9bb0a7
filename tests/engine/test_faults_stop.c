/* Stops a rank in the middle of a transfer for longer than the timeout, then continues it. The other ranks must be told
 * which rank was late, and own their buffers again. The late rank must not change these. It must not report success
 * with a result that it read from a refilled buffer.
 *
 * As in test_faults_loss.c, the victim stops at the k-th transfer that it queues or that completes; or during a
 * reduction, whose operands may be another rank's memory. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "ranks.h"
#include "reduce/reduce.h"
#include "sample.h"
#include "wrapped_transfers.h"

enum { TIMEOUT_MS = 150, LARGE = 3 << 20, ONE_SEGMENT = 16 << 10, REFILL = 77 };
enum { EVENT_DECIDED, EVENT_REFILLED, EVENT_LATE_DONE };

/* ---- The point where the victim stops ---- */

enum place { TRANSFER, REDUCING };

static struct {
	enum place place;
	uint64_t points; /* points until it stops; 0: it does not */
	struct rank *rank;
} fate;

/* What the ranks report to the test. */
struct outcome {
	bool stops;
};

static void point(enum place place)
{
	if (fate.place != place || !fate.points || --fate.points)
		return;
	((struct outcome *)fate.rank->shared)->stops = true;
	rank_post(fate.rank, EVENT_DECIDED);
	raise(SIGSTOP);
}

void __real_collet_reduction_run_to(const struct collet_reduction *, const struct collet_reduction_target *,
	const struct collet_operand *, uint32_t, size_t, bool, uint64_t *);
void __wrap_collet_reduction_run_to(const struct collet_reduction *, const struct collet_reduction_target *,
	const struct collet_operand *, uint32_t, size_t, bool, uint64_t *);

void transfer_point(void)
{
	point(TRANSFER);
}

void __wrap_collet_reduction_run_to(const struct collet_reduction *reduction,
	const struct collet_reduction_target *target, const struct collet_operand *operands, uint32_t operand_count,
	size_t count, bool finish, uint64_t *roundings)
{
	point(REDUCING);
	__real_collet_reduction_run_to(reduction, target, operands, operand_count, count, finish, roundings);
}

/* ---- A run ---- */

struct row {
	bool is_mapped; /* buffers are from collet_mem_alloc() */
	uint32_t victim;
	enum place place;
	uint64_t points;
	size_t count;
};

static void fill(const struct row *row, float *data, float value)
{
	for (size_t i = 0; i < row->count; i++)
		data[i] = value;
}

static bool is_full_of(const struct row *row, const float *data, float value)
{
	size_t i = 0;
	while (i < row->count && data[i] == value)
		i++;
	return i == row->count;
}

static float *get_buffer(struct rank *rank, const struct row *row)
{
	void *memory = NULL;
	if (!row->is_mapped)
		memory = malloc(row->count * sizeof(float));
	else if (!rank_ok(rank, collet_mem_alloc(rank->comm, &memory, row->count * sizeof(float)), "collet_mem_alloc"))
		return NULL;
	rank_check(rank, memory != NULL, "no memory");
	return memory;
}

/* Runs the late rank. It may succeed with operands that it read before the other ranks timed out; else it must fail. */
static void be_late(struct rank *rank, const struct row *row, collet_comm *comm, const float *send, float *recv)
{
	fate.rank = rank;
	fate.place = row->place;
	fate.points = row->points;
	const collet_status status = collet_allreduce(comm, send, recv, row->count, COLLET_F32, COLLET_SUM, NULL);
	if (fate.points)
		rank_post(rank, EVENT_DECIDED);
	fate.points = 0;
	rank_check(rank, status != COLLET_OK || is_full_of(row, recv, (float)(rank->size * (rank->size + 1) / 2)),
		"the late rank reports success with a wrong result");
	rank_check(rank, status == COLLET_OK || status == COLLET_ERR_TIMEOUT || status == COLLET_ERR_PEER_LOST,
		"the late rank: %s: %s", collet_status_name(status), collet_last_error());
	rank_post(rank, EVENT_LATE_DONE);
}

static void be_kept_waiting(struct rank *rank, const struct row *row, collet_comm **comm, float *send, float *recv)
{
	const collet_how how = { .timeout_ns = INT64_C(1000000) * TIMEOUT_MS };
	const collet_status status = collet_allreduce(*comm, send, recv, row->count, COLLET_F32, COLLET_SUM, &how);
	if (status != COLLET_OK &&
		rank_status(rank, status, COLLET_ERR_TIMEOUT, "the call that waits for a stopped rank")) {
		char victim[160];
		snprintf(victim, sizeof(victim), "waiting for rank %u on %s", row->victim,
			collet_comm_host(*comm, row->victim));
		rank_check(rank, rank->size > 2 || strstr(collet_last_error(), victim), "\"%s\" is missing: %s", victim,
			collet_last_error());
		rank_check(rank, strstr(collet_last_error(), "(call 0") != NULL, "no call is named: %s",
			collet_last_error());
	}
	/* Memory that peers map belongs to the caller again after its communicator was destroyed. */
	if (row->is_mapped)
		rank_ok(rank, collet_comm_destroy(comm), "destroy");
	fill(row, send, REFILL);
	fill(row, recv, REFILL);
	rank_post(rank, EVENT_REFILLED);
	rank_await(rank, EVENT_LATE_DONE, 1);
	rank_check(rank, is_full_of(row, send, REFILL) && is_full_of(row, recv, REFILL),
		"a buffer has changed after its call had ended");
}

static void one_is_late(struct rank *rank)
{
	const struct row *row = rank->options->context;
	float *send = get_buffer(rank, row), *recv = get_buffer(rank, row);
	collet_comm *comm = NULL;
	if (send && recv && rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &comm), "split")) {
		fill(row, send, (float)(rank->rank + 1));
		fill(row, recv, -1);
		if (rank->rank == row->victim)
			be_late(rank, row, comm, send, recv);
		else
			be_kept_waiting(rank, row, &comm, send, recv);
	}
	if (comm)
		rank_ok(rank, collet_comm_destroy(&comm), "destroy");
	if (!row->is_mapped) {
		free(send);
		free(recv);
	}
}

static void run_row(const char *transport, const char *algorithm, uint32_t size, struct row row)
{
	static uint64_t rows;
	if (!sample_has(rows++))
		return;
	const struct ranks_options options = { .size = size,
		.transport = transport,
		.algorithm = algorithm,
		.context = &row,
		.shared_bytes = sizeof(struct outcome) };
	struct ranks *ranks = ranks_start(&options, one_is_late);
	const bool refilled = ranks_await(ranks, EVENT_DECIDED, 1) && ranks_await(ranks, EVENT_REFILLED, size - 1);
	const struct outcome *outcome = ranks_shared(ranks);
	siginfo_t stopped;
	if (refilled && outcome->stops)
		assert_int_equal(waitid(P_PID, (id_t)ranks_pid(ranks, row.victim), &stopped, WSTOPPED | WNOWAIT), 0);
	/* Only then: a leak check at exit stops threads too, and would wait for ever for one that was continued. */
	if (outcome->stops)
		kill(ranks_pid(ranks, row.victim), SIGCONT);
	ranks_wait(ranks);
	const bool passed = ranks_all_passed(ranks);
	if (!passed)
		fprintf(stderr, "%s/%s/n%u/%s: rank %u stopped %s, number %llu\n", transport,
			algorithm ? algorithm : "chosen", size, row.is_mapped ? "alloc" : "malloc", row.victim,
			row.place == TRANSFER ? "at a transfer" : "reducing", (unsigned long long)row.points);
	ranks_free(&ranks);
	assert_true(refilled && passed);
}

static bool full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && *text && strcmp(text, "0") != 0;
}

static void everywhere(const char *transport, bool is_mapped)
{
	static const uint64_t points[] = {1, 4, 9, 20, 45, 2, 3, 5, 6, 7, 12, 15, 30, 60, 70, 80, 90, 100};
	const size_t tried = full() ? sizeof(points) / sizeof(points[0]) : 4;
	for (size_t i = 0; i < tried; i++) {
		for (enum place place = TRANSFER; place <= REDUCING; place++) {
			const struct row row = { .is_mapped = is_mapped,
				.victim = (uint32_t)(i % 2),
				.place = place,
				.points = points[i],
				.count = LARGE };
			run_row(transport, NULL, 2, row);
			if (full())
				run_row(transport, "ring", 3, row);
		}
	}
	run_row(transport, "ring", 3,
		(struct row){ .is_mapped = is_mapped, .victim = 2, .points = 10, .count = LARGE });
	/* The victim's last action, on bytes that still belong to the other rank. Whether it learns of the end before
	 * it finishes is a race, so this runs several times. */
	for (int i = 0; i < (is_mapped ? 8 : 1); i++)
		run_row(transport, "direct", 2,
			(struct row){ .is_mapped = is_mapped, .place = REDUCING, .points = 1, .count = ONE_SEGMENT });
}

static void over_shm(void **state)
{
	everywhere("shm", false);
}

static void over_shm_in_mapped_memory(void **state)
{
	everywhere("shm", true);
}

static void over_tcp(void **state)
{
	everywhere("tcp", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_shm),
		cmocka_unit_test(over_shm_in_mapped_memory),
		cmocka_unit_test(over_tcp),
	};
	return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
