/* Ends a rank in the middle of a collective. Every survivor must be told in time, with rank, host and call.
 *
 * The test covers every point of the call: the linker wraps the engine's queueing and completion of transfers. The
 * victim counts them here and ends at the k-th; k rises until the call ends first. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"
#include "sample.h"
#include "wrapped_transfers.h"

enum { GOOD_CALLS = 2, SMALL = 17, MEDIUM = 40000, LARGE = 4 << 20 };

/* ---- The victim's end, at the k-th point ---- */

static struct {
	uint64_t points; /* points until it ends; 0: it does not */
	int signal;      /* 0: it exits */
	int64_t *ended_ns;
} fate;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void meet_fate(void)
{
	*fate.ended_ns = now_ns();
	if (!fate.signal)
		_exit(0);
	raise(fate.signal);
}

void transfer_point(void)
{
	if (fate.points && --fate.points == 0)
		meet_fate();
}

/* ---- One run: a world in which one rank ends ---- */

enum ending { KILLED, EXITED, BETWEEN_CALLS, AT_A_MOMENT };
static const char *const ending_names[] = {"killed", "exits", "killed between calls", "killed at some moment"};

struct row {
	enum ending ending;
	uint32_t victim;
	uint64_t points;   /* KILLED, EXITED: the point at which it ends */
	int64_t moment_ns; /* AT_A_MOMENT: time after the start of the call */
	uint64_t count;
};

struct outcome {
	bool survived; /* the call ended before the victim's point */
	int64_t ended_ns;
	int64_t told_ns[RANKS_MOST];
};

/* Sets a timer that kills this process. */
static void start_kill_timer(int64_t moment_ns)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
	const struct itimerspec moment = { .it_value = {moment_ns / 1000000000, moment_ns % 1000000000 + 1}};
	timer_t timer;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &moment, NULL) != 0)
		_exit(1);
}

static void arm(const struct row *row, struct outcome *outcome)
{
	fate.ended_ns = &outcome->ended_ns;
	fate.signal = row->ending == EXITED ? 0 : SIGKILL;
	fate.points = row->points;
	if (row->ending == BETWEEN_CALLS)
		meet_fate();
	if (row->ending == AT_A_MOMENT) {
		outcome->ended_ns = now_ns() + row->moment_ns;
		start_kill_timer(row->moment_ns);
	}
}

static void check_told(struct rank *rank, const struct row *row, collet_status status)
{
	char victim[160], sentence[1200];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	snprintf(victim, sizeof(victim), "rank %u on %s", row->victim, collet_comm_host(rank->comm, row->victim));
	rank_check(rank, status == COLLET_ERR_PEER_LOST, "%s instead of COLLET_ERR_PEER_LOST: %s",
		collet_status_name(status), sentence);
	rank_check(rank, strstr(sentence, victim) != NULL, "\"%s\" is missing: %s", victim, sentence);
	rank_check(rank, strstr(sentence, "(call ") != NULL, "no call is named: %s", sentence);
}

static void lose_one(struct rank *rank)
{
	const struct row *row = rank->options->context;
	struct outcome *outcome = rank->shared;
	float *data = calloc(row->count, sizeof(*data));
	collet_status status = COLLET_OK;
	for (uint32_t i = 0; i < GOOD_CALLS && status == COLLET_OK; i++)
		status = collet_allreduce(rank->comm, data, data, row->count, COLLET_F32, COLLET_SUM, NULL);
	/* All ranks return from the good calls before the victim ends. This does not use the library, where a rank may
	 * learn of the end while it is still leaving a barrier. */
	rank_post(rank, 0);
	if (!rank_ok(rank, status, "a good call") || !rank_await(rank, 0, rank->size))
		return;
	rank_doing(rank, "the call in which rank %u ends at point %llu", row->victim, (unsigned long long)row->points);
	if (rank->rank == row->victim)
		arm(row, outcome);
	do
		status = collet_allreduce(rank->comm, data, data, row->count, COLLET_F32, COLLET_SUM, NULL);
	while (status == COLLET_OK && row->ending == AT_A_MOMENT);
	if (rank->rank == row->victim) {
		outcome->survived = fate.points != 0;
		fate.points = 0;
	}
	if (status == COLLET_OK)
		status = collet_barrier(rank->comm, NULL);
	outcome->told_ns[rank->rank] = now_ns();
	if (status == COLLET_OK)
		rank_check(rank, outcome->survived, "nobody noticed that rank %u ended", row->victim);
	else
		check_told(rank, row, status);
	free(data);
}

/* Runs a row. Returns whether the victim ended, and the time until the last survivor was told. */
static bool run_row(
	const struct row *row, const char *transport, const char *algorithm, uint32_t size, int64_t *took_ns)
{
	const struct ranks_options options = { .size = size,
		.transport = transport,
		.algorithm = algorithm,
		.shared_bytes = sizeof(struct outcome),
		.context = row };
	struct ranks *ranks = ranks_start(&options, lose_one);
	bool fine = ranks_wait(ranks);
	const struct outcome outcome = *(const struct outcome *)ranks_shared(ranks);
	*took_ns = 0;
	for (uint32_t r = 0; r < size; r++) {
		const struct rank_report *report = ranks_report(ranks, r);
		const bool ended = report->end == (row->ending == EXITED ? RANK_EXITED : RANK_KILLED) ||
				   (row->ending == EXITED && report->end == RANK_RETURNED && !report->returned);
		const bool well = report->end == RANK_RETURNED && !report->failed;
		const int64_t took = outcome.told_ns[r] - outcome.ended_ns;
		if (r == row->victim && !outcome.survived ? ended : well) {
			*took_ns = r != row->victim && took > *took_ns ? took : *took_ns;
			continue;
		}
		fine = false;
		fprintf(stderr, "%s/%s/n%u: rank %u %s at point %llu: rank %u (end %d, %d): %s; %s\n", transport,
			algorithm ? algorithm : "chosen", size, row->victim, ending_names[row->ending],
			(unsigned long long)row->points, r, report->end, report->code, report->doing,
			report->failed ? report->sentence : "");
	}
	ranks_free(&ranks);
	assert_true(fine);
	return !outcome.survived;
}

static bool full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && *text && strcmp(text, "0") != 0;
}

/* Ends every rank, at every point of the call that the sample has. Returns the number of points. */
static uint64_t end_everywhere(enum ending ending, const char *transport, const char *algorithm, uint32_t size,
	uint64_t count, int64_t *slowest_ns)
{
	struct row row = { .ending = ending, .count = count };
	uint64_t points = 0;
	for (row.victim = 0; row.victim < size; row.victim++) {
		int64_t took_ns;
		for (row.points = sample_from(1); run_row(&row, transport, algorithm, size, &took_ns);
			row.points = sample_from(row.points + 1))
			*slowest_ns = took_ns > *slowest_ns ? took_ns : *slowest_ns;
		points += row.points - 1;
	}
	return points;
}

static void at_every_step(const char *transport)
{
	static const char *const algorithms[] = {
		"ring", "tree", "halving_doubling", "direct", "two_shot", "double_tree"};
	const size_t tried = full() ? 6 : 2;
	int64_t slowest_ns = 0;
	uint64_t points = end_everywhere(KILLED, transport, NULL, 2, SMALL, &slowest_ns);
	for (size_t i = 0; i < tried; i++)
		for (uint32_t size = 3; size <= (full() ? 4 : 3); size++)
			points += end_everywhere(KILLED, transport, algorithms[i], size, SMALL, &slowest_ns);
	points += end_everywhere(EXITED, transport, NULL, 2, SMALL, &slowest_ns);
	if (full())
		points += end_everywhere(EXITED, transport, "ring", 3, MEDIUM, &slowest_ns);
	printf("%s: %llu points to end at; the last survivor knew after %.1f ms at most\n", transport,
		(unsigned long long)points, (double)slowest_ns * 1e-6);
	assert_true(points > 50);
}

static void killed_at_every_step_over_shm(void **state)
{
	at_every_step("shm");
}

static void killed_at_every_step_over_tcp(void **state)
{
	at_every_step("tcp");
}

static int compare(const void *a, const void *b)
{
	const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return (left > right) - (left < right);
}

/* Runs ten times and prints the median of the time until the last survivor was told. */
static void ten_times(enum ending ending, const char *transport, uint32_t size, uint64_t count, uint64_t *random)
{
	enum { TIMES = 10 };
	const uint32_t times = sample_share(TIMES) ? (uint32_t)sample_share(TIMES) : 1;
	static const int64_t longest_ns = 20 * 1000 * 1000;
	int64_t took_ns[TIMES];
	for (uint32_t i = 0; i < times; i++) {
		*random = *random * 6364136223846793005u + 1442695040888963407u;
		const struct row row = { .ending = ending,
			.victim = i % size,
			.count = count,
			.moment_ns = (int64_t)(*random >> 33) % longest_ns };
		assert_true(run_row(&row, transport, NULL, size, &took_ns[i]));
	}
	qsort(took_ns, times, sizeof(took_ns[0]), compare);
	printf("%s, %u ranks, %s, %llu elements: the last survivor knew after %.2f ms (median of %u; worst %.2f)\n",
		transport, size, ending_names[ending], (unsigned long long)count, (double)took_ns[times / 2] * 1e-6,
		times, (double)took_ns[times - 1] * 1e-6);
}

static void at_seeded_moments(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};
	const char *text = getenv("COLLET_TEST_SEED");
	uint64_t random = text ? strtoull(text, NULL, 10) : (uint64_t)now_ns();
	printf("COLLET_TEST_SEED=%llu\n", (unsigned long long)random);
	for (size_t t = 0; t < 2; t++) {
		ten_times(BETWEEN_CALLS, transports[t], 3, SMALL, &random);
		ten_times(AT_A_MOMENT, transports[t], 3, SMALL, &random);
		ten_times(AT_A_MOMENT, transports[t], 2, LARGE, &random);
		if (full())
			ten_times(AT_A_MOMENT, transports[t], 4, LARGE, &random);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_every_step_over_shm),
		cmocka_unit_test(killed_at_every_step_over_tcp),
		cmocka_unit_test(at_seeded_moments),
	};
	return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
