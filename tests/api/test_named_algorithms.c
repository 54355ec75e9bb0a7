/* Tests what a caller is told who names an algorithm: the reason why it cannot do a call, the same for the call itself,
 * its plan and its predicted time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "ranks.h"

enum { COUNT = 4, RANKS = 3 };

static float send[COUNT * RANKS], recv[COUNT * RANKS];
static const uint64_t counts[RANKS] = { 1, 2, 1 }, displacements[RANKS] = { 0, 1, 3 };

static void add(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	for (size_t i = 0; i < count; i++)
		((float *)result)[i] = ((const float *)left)[i] + ((const float *)right)[i];
}

static collet_status allreduce(collet_comm *comm, const collet_how *how)
{
	return collet_allreduce(comm, send, recv, COUNT, COLLET_F32, COLLET_SUM, how);
}

static collet_status allreduce_ordered(collet_comm *comm, const collet_how *how)
{
	static const collet_user_op op = { .combine = add, .name = "add" };
	collet_how with_op = *how;
	with_op.user_op = &op;
	return collet_allreduce(comm, send, recv, COUNT, COLLET_F32, COLLET_USER, &with_op);
}

static collet_status allgather(collet_comm *comm, const collet_how *how)
{
	return collet_allgather(comm, send, recv, COUNT, COLLET_F32, how);
}

static collet_status allgatherv(collet_comm *comm, const collet_how *how)
{
	const uint32_t rank = collet_comm_rank(comm);
	return collet_allgatherv(comm, send, counts[rank], recv, counts, displacements, COLLET_F32, how);
}

static collet_status barrier(collet_comm *comm, const collet_how *how)
{
	return collet_barrier(comm, how);
}

struct row {
	collet_status (*call)(collet_comm *comm, const collet_how *how);
	const char *function, *collective, *algorithm, *reason;
	collet_status status;
	bool only_call; /* a plan has no such calls */
};

#define UNSUPPORTED(call, collective, name, reason, only_call) \
	{ call, "collet_" #call, collective, name, "algorithm " name " " reason, COLLET_ERR_UNSUPPORTED, only_call }
#define UNKNOWN(call, name, reason) \
	{ call, "collet_" #call, #call, name, "there is no algorithm \"" name "\" " reason, COLLET_ERR_ARGUMENT, \
		false }

static const struct row of_two_ranks[] = {
	UNSUPPORTED(allreduce, "allreduce", "ring", "needs at least 3 ranks", false),
	UNSUPPORTED(allreduce, "allreduce", "double_tree", "needs at least 3 ranks", false),
	UNSUPPORTED(barrier, "barrier", "halves", "needs at least 3 ranks", false),
	UNSUPPORTED(allgather, "allgather", "halves", "needs at least 3 ranks", false),
	UNSUPPORTED(allgatherv, "allgather", "bruck", "does not do v-forms", true),
	UNKNOWN(allreduce, "astrology", "for allreduce; see collet-bench list"),
	UNKNOWN(allreduce, "dissemination", "for allreduce; see collet-bench list"),
	UNKNOWN(allreduce, "rign", "(did you mean \"ring\"?) for allreduce; see collet-bench list"),
	UNKNOWN(allreduce, "two-shots", "(did you mean \"two_shot\"?) for allreduce; see collet-bench list"),
	{ 0 },
};

static const struct row of_three_ranks[] = {
	UNSUPPORTED(allreduce, "allreduce", "exchange", "needs exactly 2 ranks", false),
	{ allreduce_ordered, "collet_allreduce", "allreduce", "ring",
		"algorithm ring does not combine in rank order, and the operation does not commute",
		COLLET_ERR_UNSUPPORTED, true },
	{ 0 },
};

/* Ranks 0 and 2 are on one of two hosts, rank 1 on the other. */
static const struct row of_mixed_hosts[] = {
	UNSUPPORTED(allgather, "allgather", "bruck", "needs the ranks of each host to have consecutive numbers", true),
	{ 0 },
};

static void check(struct rank *rank, const struct row *row, const char *function, collet_status status)
{
	char sentence[256];
	snprintf(sentence, sizeof(sentence), "%s: %s", function, row->reason);
	rank_status(rank, status, row->status, row->algorithm);
	rank_check(rank, strstr(collet_last_error(), sentence) != NULL, "\"%s\" is not in \"%s\"", sentence,
		collet_last_error());
}

static void name_algorithms(struct rank *rank)
{
	for (const struct row *row = rank->options->context; row->call; row++) {
		collet_how how = COLLET_HOW_DEFAULT;
		how.algorithm = row->algorithm;
		check(rank, row, row->function, row->call(rank->comm, &how));
		if (row->only_call)
			continue;
		collet_plan plan;
		check(rank, row, "collet_comm_plan", collet_comm_plan(rank->comm, row->collective, COUNT, COLLET_F32,
			COLLET_SUM, 0, row->algorithm, &plan));
		const collet_call_shape shape = { .collective = row->collective, .dtype = COLLET_F32,
			.ranks = rank->size };
		double ns;
		check(rank, row, "collet_cost_predict", collet_cost_predict(&shape, row->algorithm, "shm", NULL,
			COUNT * sizeof(float), &ns));
	}
	rank_ok(rank, collet_barrier(rank->comm, NULL), "the next call");
}

static void name_across_hosts(struct rank *rank)
{
	setenv("COLLET_HOST_ID", rank->rank % 2 == 1 ? "odd" : "even", 1);
	setenv("COLLET_SECRET", "of one job", 1);
	if (rank_create(rank))
		name_algorithms(rank);
}

static void a_refusal_gives_the_reason(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2, .context = of_two_ranks }, name_algorithms);
	ranks_must_pass(&(struct ranks_options){ .size = RANKS, .context = of_three_ranks }, name_algorithms);
	ranks_must_pass(&(struct ranks_options){ .size = RANKS, .bare = true, .context = of_mixed_hosts },
		name_across_hosts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_refusal_gives_the_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
