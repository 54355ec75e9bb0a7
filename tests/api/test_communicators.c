/* Tests communicators: splitting, and what they report about themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "members.h"
#include "ranks.h"

/* ---- Splitting ---- */

static void split_in_all_ways(struct rank *rank)
{
	static const uint32_t even[] = { 0, 2, 4 }, odd[] = { 1, 3 }, falling[] = { 4, 3, 2, 1, 0 }, inner[] = { 0, 4 };
	collet_comm *half = NULL, *reversed = NULL, *nested = NULL, *none = rank->comm;
	const bool is_odd = rank->rank % 2;
	if (!rank_ok(rank, collet_comm_split(rank->comm, is_odd, 0, &half), "split by parity") ||
		!members_are(rank, half, is_odd ? odd : even, is_odd ? 2 : 3) ||
		!rank_ok(rank, collet_comm_split(rank->comm, 7, rank->size - rank->rank, &reversed),
			"split by falling keys") ||
		!members_are(rank, reversed, falling, 5))
		return;
	/* Split a part; one of its ranks stays out. */
	if (!is_odd) {
		if (!rank_ok(rank, collet_comm_split(half, rank->rank == 2 ? COLLET_NO_COLOR : 1, 0, &nested),
			    "nested split") ||
			!rank_check(rank, (nested == NULL) == (rank->rank == 2),
				"a rank of no color has got a communicator") ||
			(nested && !members_are(rank, nested, inner, 2)))
			return;
	}
	rank_ok(rank, collet_comm_split(rank->comm, COLLET_NO_COLOR, 0, &none), "split of nobody");
	rank_check(rank, none == NULL, "no color, but a communicator");
	/* Parts outlive the whole. */
	rank_destroy(rank);
	members_are(rank, reversed, falling, 5);
	members_are(rank, half, is_odd ? odd : even, is_odd ? 2 : 3);
	rank_ok(rank, collet_comm_destroy(&half), "destroy");
	if (nested) {
		members_are(rank, nested, inner, 2);
		rank_ok(rank, collet_comm_destroy(&nested), "destroy");
	}
	members_are(rank, reversed, falling, 5);
	rank_ok(rank, collet_comm_destroy(&reversed), "destroy");
	rank_check(rank, reversed == NULL, "destroy leaves the pointer");
}

static void splits_have_the_right_members(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 5 }, split_in_all_ways);
}

/* Two threads of a rank may use two communicators at the same time. */
static void *sum_often(void *argument)
{
	collet_comm *comm = argument;
	uint32_t wrong = 0;
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t sum = i;
		wrong += collet_allreduce(comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, NULL) != COLLET_OK ||
			sum != i * collet_comm_size(comm);
	}
	return (void *)(uintptr_t)wrong;
}

static void use_two_communicators_at_once(struct rank *rank)
{
	collet_comm *other;
	pthread_t thread;
	void *wrong;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, rank->rank, &other), "split") ||
		!rank_check(rank, pthread_create(&thread, NULL, sum_often, other) == 0, "pthread_create"))
		return;
	rank_check(rank, !sum_often(rank->comm), "sums are wrong on the first communicator");
	pthread_join(thread, &wrong);
	rank_check(rank, !wrong, "sums are wrong on the second communicator");
	rank_ok(rank, collet_comm_destroy(&other), "destroy");
}

static void two_threads_may_use_two_communicators(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, use_two_communicators_at_once);
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 3, .progress_thread = true }, use_two_communicators_at_once);
}

/* ---- What they tell ---- */

enum { COUNT = 5000, CALLS = 7 };

struct totals {
	uint64_t transport_bytes, endpoint_bytes, calls, payload, roundings;
};

static bool read_totals(struct rank *rank, const char *algorithm, struct totals *totals)
{
	collet_stat rows[64];
	size_t count;
	if (!rank_ok(rank, collet_comm_stats(rank->comm, rows, 64, &count), "stats") ||
		!rank_check(rank, count <= 64, "%zu rows", count))
		return false;
	memset(totals, 0, sizeof(*totals));
	for (size_t i = 0; i < count; i++) {
		const collet_stat *row = &rows[i];
		totals->transport_bytes += row->kind == COLLET_STAT_TRANSPORT ? row->bytes_sent : 0;
		totals->endpoint_bytes += row->kind == COLLET_STAT_ENDPOINT ? row->bytes_sent : 0;
		totals->roundings += row->kind == COLLET_STAT_ROUNDING ? row->messages_sent : 0;
		if (row->kind == COLLET_STAT_ALGORITHM && strcmp(row->name, algorithm) == 0) {
			totals->calls += row->calls;
			totals->payload += row->bytes_sent;
		}
	}
	return true;
}

static void count_a_ring(struct rank *rank)
{
	static float values[COUNT];
	float *own = malloc(sizeof(values));
	const collet_how how = { .algorithm = "ring" };
	struct totals before, after;
	if (!read_totals(rank, "allreduce:ring", &before))
		return;
	for (uint32_t i = 0; i < CALLS; i++)
		rank_ok(rank, collet_allreduce(rank->comm, values, own, COUNT, COLLET_F32, COLLET_SUM, &how),
			"allreduce");
	free(own);
	if (!read_totals(rank, "allreduce:ring", &after))
		return;
	rank_check(rank, after.calls == CALLS && after.payload == CALLS * sizeof(values),
		"%llu calls of %llu bytes in all", (unsigned long long)after.calls, (unsigned long long)after.payload);
	rank_check(rank, after.transport_bytes == after.endpoint_bytes,
		"a transport's bytes are not the sum of its endpoints'");
	/* A ring sends 2 (n-1) chunks of count/n elements each, plus or minus one. */
	const uint64_t sent = after.transport_bytes - before.transport_bytes, steps = 2 * (rank->size - 1);
	const uint64_t least = CALLS * steps * (COUNT / rank->size) * sizeof(float);
	rank_check(rank, sent >= least && sent <= least + CALLS * steps * sizeof(float),
		"%llu bytes sent, should be %llu or little more", (unsigned long long)sent, (unsigned long long)least);
	rank_check(rank, after.roundings == 0, "f32 does not round to 16 bits");
}

static void statistics_add_up(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, count_a_ring);
}

/* Each algorithm rounds as often as documented: direct once an element, where all addends meet; ring once a step. */
static void count_roundings(struct rank *rank)
{
	static uint16_t values[COUNT];
	struct totals before, after;
	static const struct {
		const char *algorithm;
		uint64_t all_ranks;
	} rows[] = { { "direct", (uint64_t)COUNT * 4 }, { "two_shot", COUNT }, { "ring", (uint64_t)COUNT * 3 } };
	for (uint32_t i = 0; i < 3; i++) {
		const collet_how how = { .algorithm = rows[i].algorithm };
		read_totals(rank, "", &before);
		uint16_t sum[COUNT];
		rank_ok(rank, collet_allreduce(rank->comm, values, sum, COUNT, COLLET_BF16, COLLET_SUM, &how),
			rows[i].algorithm);
		read_totals(rank, "", &after);
		uint64_t roundings = after.roundings - before.roundings;
		rank_ok(rank, collet_allreduce(rank->comm, &roundings, &roundings, 1, COLLET_U64, COLLET_SUM, NULL),
			"allreduce");
		rank_check(rank, roundings == rows[i].all_ranks, "%s rounds %llu times, should be %llu",
			rows[i].algorithm, (unsigned long long)roundings, (unsigned long long)rows[i].all_ranks);
	}
}

static void roundings_are_counted(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 4 }, count_roundings);
}

/* Statistics confirm that the plan is what runs. */
static void plan_and_run(struct rank *rank)
{
	for (uint64_t count = 1; count < 2000000; count *= 11) {
		collet_plan plan;
		if (!rank_ok(rank,
			    collet_comm_plan(rank->comm, "allreduce", count, COLLET_F32, COLLET_SUM, 0, NULL, &plan),
			    "plan"))
			return;
		char name[64];
		snprintf(name, sizeof(name), "allreduce:%s", plan.algorithm);
		struct totals before, after;
		float *values = calloc(count, sizeof(float));
		read_totals(rank, name, &before);
		rank_ok(rank, collet_allreduce(rank->comm, values, values, count, COLLET_F32, COLLET_SUM, NULL),
			"allreduce");
		read_totals(rank, name, &after);
		free(values);
		rank_check(rank, after.calls == before.calls + 1, "%llu elements were planned by %s, but not run by it",
			(unsigned long long)count, plan.algorithm);
		rank_check(
			rank, strcmp(plan.transport, rank->options->transport) == 0, "planned over %s", plan.transport);
	}
	collet_plan forced;
	rank_ok(rank, collet_comm_plan(rank->comm, "broadcast", 4, COLLET_F32, COLLET_SUM, 1, "chain", &forced),
		"forced plan");
	rank_check(rank, strcmp(forced.algorithm, "chain") == 0, "planned %s, not chain", forced.algorithm);
}

static void the_plan_is_what_runs(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, plan_and_run);
}

static void option_forces(struct rank *rank)
{
	collet_plan plan;
	rank_ok(rank, collet_comm_plan(rank->comm, "allreduce", 4, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan");
	rank_check(rank, strcmp(plan.algorithm, "ring") == 0, "planned %s", plan.algorithm);
	float value = 1;
	struct totals totals;
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_F32, COLLET_SUM, NULL), "allreduce");
	read_totals(rank, "allreduce:ring", &totals);
	rank_check(rank, totals.calls == 1, "the ring ran %llu times", (unsigned long long)totals.calls);
	rank_ok(rank, collet_comm_plan(rank->comm, "broadcast", 4, COLLET_F32, COLLET_SUM, 0, NULL, &plan), "plan");
	rank_check(rank, strcmp(plan.algorithm, "chain") == 0, "planned %s", plan.algorithm);
}

static void the_algorithm_option_forces(void **state)
{
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 3, .algorithm = "allreduce:ring,broadcast:chain" }, option_forces);
}

static void dump_and_read(struct rank *rank)
{
	float values[3] = { 1, 2, 3 };
	rank_ok(rank,
		collet_allreduce(
			rank->comm, values, values, 3, COLLET_F32, COLLET_MAX, &(collet_how){ .algorithm = "tree" }),
		"allreduce");
	rank_ok(rank, collet_broadcast(rank->comm, values, values, 2, COLLET_F32, 1, NULL), "broadcast");
	int ends[2];
	if (!rank_check(rank, pipe(ends) == 0, "pipe"))
		return;
	rank_ok(rank, collet_comm_dump(rank->comm, ends[1]), "dump");
	char text[4096] = "";
	const ssize_t bytes = read(ends[0], text, sizeof(text) - 1);
	rank_check(rank, bytes > 0 && text[bytes - 1] == '\n', "the dump is empty, or ends within a line");
	const char *first = strstr(text, "allreduce of 3 f32 max"), *second = strstr(text, "broadcast of 2 f32 root 1");
	rank_check(rank, first && second && first < second && strstr(text, "tree"),
		"the dump does not say what was called: %s", text);
	close(ends[0]);
	rank_status(rank, collet_comm_dump(rank->comm, ends[0]), COLLET_ERR_SYSTEM, "dump into a closed descriptor");
	close(ends[1]);
}

static void the_flight_recorder_can_be_read(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, dump_and_read);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splits_have_the_right_members),
		cmocka_unit_test(two_threads_may_use_two_communicators),
		cmocka_unit_test(statistics_add_up),
		cmocka_unit_test(roundings_are_counted),
		cmocka_unit_test(the_plan_is_what_runs),
		cmocka_unit_test(the_algorithm_option_forces),
		cmocka_unit_test(the_flight_recorder_can_be_read),
	};
	return cmocka_run_group_tests_name("communicators", tests, NULL, NULL);
}
