/* Tests cached calls: a call that is like an earlier one keeps that one's plan. Here each call differs in one
 * field of `how`, and must follow its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

enum { ROUNDS = 2 };

static const uint64_t counts[] = { 2, 1024, 1 << 16 };

static void add(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	const double *a = left, *b = right;
	double *both = result;
	(void)dtype, (void)context;
	for (size_t i = 0; i < count; i++)
		both[i] = a[i] + b[i];
}

static void keep_greater(
	void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	const double *a = left, *b = right;
	double *greater = result;
	(void)dtype, (void)context;
	for (size_t i = 0; i < count; i++)
		greater[i] = a[i] > b[i] ? a[i] : b[i];
}

/* Returns the first of two operands: rank 0's, if they are taken in order. */
static void keep_first(
	void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	(void)right, (void)dtype, (void)context;
	memmove(result, left, count * sizeof(double));
}

/* Every rank contributes 1 + its rank in every element. */
static bool expect(
	struct rank *rank, const char *what, uint64_t count, collet_op op, const collet_how *how, double expected)
{
	double *numbers = malloc(count * sizeof(*numbers));
	if (!rank_check(rank, numbers != NULL, "no memory"))
		return false;
	for (uint64_t i = 0; i < count; i++)
		numbers[i] = 1 + rank->rank;
	rank_doing(rank, "%s, %llu elements", what, (unsigned long long)count);
	bool ok = rank_ok(rank, collet_allreduce(rank->comm, numbers, numbers, count, COLLET_F64, op, how), "the call");
	for (uint64_t i = 0; ok && i < count; i++)
		ok = rank_check(rank, numbers[i] == expected, "element %llu is %g instead of %g", (unsigned long long)i,
			numbers[i], expected);
	free(numbers);
	return ok;
}

static bool scales_differ(struct rank *rank, uint64_t count, double sum)
{
	return expect(rank, "scaled by 2", count, COLLET_PREMUL_SUM, &(collet_how){ .scale = 2 }, 2 * sum)
		&& expect(rank, "scaled by 4", count, COLLET_PREMUL_SUM, &(collet_how){ .scale = 4 }, 4 * sum)
		&& expect(rank, "the sum", count, COLLET_SUM, NULL, sum)
		&& expect(rank, "scaled by 4, cut", count, COLLET_PREMUL_SUM,
			&(collet_how){ .scale = 4, .segment_bytes = 4096 }, 4 * sum);
}

static bool cuts_differ(struct rank *rank, uint64_t count, double sum)
{
	return expect(rank, "cut", count, COLLET_SUM, &(collet_how){ .segment_bytes = 4096 }, sum)
		&& expect(rank, "cut otherwise", count, COLLET_SUM, &(collet_how){ .segment_bytes = 16384 }, sum)
		&& expect(rank, "two channels", count, COLLET_SUM, &(collet_how){ .channels = 2 }, sum)
		&& expect(rank, "one channel, by the tree", count, COLLET_SUM,
			&(collet_how){ .channels = 1, .algorithm = "tree" }, sum)
		&& expect(rank, "an average", count, COLLET_AVERAGE, &(collet_how){ .channels = 1 }, sum / rank->size);
}

static bool operations_differ(struct rank *rank, uint64_t count, double sum)
{
	collet_user_op op = { .combine = add, .name = "operation", .commutative = true };
	const collet_how how = { .user_op = &op };
	if (!expect(rank, "an operation", count, COLLET_USER, &how, sum))
		return false;
	/* The same struct now describes another operation. */
	op.combine = keep_greater;
	if (!expect(rank, "the same struct, another function", count, COLLET_USER, &how, rank->size))
		return false;
	op.combine = keep_first;
	op.commutative = false;
	if (!expect(rank, "the same struct, in rank order", count, COLLET_USER, &how, 1))
		return false;
	const collet_user_op other = { .combine = add, .name = "add", .commutative = true };
	return expect(rank, "another struct", count, COLLET_USER, &(collet_how){ .user_op = &other }, sum);
}

static void differ(struct rank *rank)
{
	const double sum = rank->size * (rank->size + 1) / 2;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (int round = 0; round < ROUNDS; round++)
			if (!scales_differ(rank, counts[c], sum) || !cuts_differ(rank, counts[c], sum)
				|| !operations_differ(rank, counts[c], sum))
				return;
}

/* An operation as before, and as one rank changes it. */
struct odd_row {
	const char *name;
	collet_op op;
	collet_how usual, odd;
};

static const collet_user_op addition = { .combine = add, .name = "add", .commutative = true },
			    addition_named_otherwise = { .combine = add, .name = "sum", .commutative = true },
			    addition_in_order = { .combine = add, .name = "add", .commutative = false };

static const struct odd_row odd_rows[] = {
	{ "another name of the operation", COLLET_USER, { .user_op = &addition },
		{ .user_op = &addition_named_otherwise } },
	{ "segments of another length", COLLET_SUM, { .segment_bytes = 4096 }, { .segment_bytes = 8192 } },
	{ "another number of channels", COLLET_SUM, { .channels = 1 }, { .channels = 2 } },
};

static void differ_from_others(struct rank *rank)
{
	const struct odd_row *row = rank->options->context;
	const double sum = rank->size * (rank->size + 1) / 2;
	collet_comm *pair = NULL;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &pair), "split"))
		return;
	/* All complete it before one differs; a barrier on the same communicator would come between the calls. */
	for (int round = 0; round < ROUNDS; round++)
		if (!expect(rank, row->name, 1, row->op, &row->usual, sum))
			return;
	rank_ok(rank, collet_barrier(pair, NULL), "all are through");
	rank_ok(rank, collet_comm_destroy(&pair), "destroy");
	double number = 1;
	collet_status status = collet_allreduce(rank->comm, &number, &number, 1, COLLET_F64, row->op,
		rank->rank == 0 ? &row->odd : &row->usual);
	if (status == COLLET_OK)
		status = collet_barrier(rank->comm, NULL);
	rank_status(rank, status, COLLET_ERR_MISMATCH, row->name);
}

static void refuse(struct rank *rank)
{
	const double sum = rank->size * (rank->size + 1) / 2;
	const collet_how usual = { .user_op = &addition, .algorithm = "ring" },
			 in_order = { .user_op = &addition_in_order, .algorithm = "ring" },
			 nothing = { .algorithm = "ring" };
	double number = 1;
	if (!expect(rank, "an operation by the ring", 1, COLLET_USER, &usual, sum))
		return;
	rank_status(rank, collet_allreduce(rank->comm, &number, &number, 1, COLLET_F64, COLLET_USER, &in_order),
		COLLET_ERR_UNSUPPORTED, "one that does not commute, by the ring");
	rank_status(rank, collet_allreduce(rank->comm, &number, &number, 1, COLLET_F64, COLLET_USER, &nothing),
		COLLET_ERR_ARGUMENT, "no operation, by the ring");
	expect(rank, "the first one again", 1, COLLET_USER, &usual, sum);
}

static const char *const transports[] = { "shm", "tcp" };

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static void each_call_is_what_it_says_itself(void **state)
{
	(void)state;
	for (size_t t = 0; t < COUNT(transports); t++)
		for (uint32_t size = 2; size <= 3; size++)
			ranks_must_pass(&(struct ranks_options){ .size = size, .transport = transports[t] }, differ);
}

static void ranks_that_differ_then_are_told(void **state)
{
	(void)state;
	for (size_t t = 0; t < COUNT(transports); t++)
		for (size_t r = 0; r < COUNT(odd_rows); r++)
			ranks_must_pass(&(struct ranks_options){ .size = 3, .transport = transports[t],
				.context = &odd_rows[r] }, differ_from_others);
}

static void what_was_right_before_may_be_refused_then(void **state)
{
	(void)state;
	ranks_must_pass(&(struct ranks_options){ .size = 3 }, refuse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_is_what_it_says_itself),
		cmocka_unit_test(ranks_that_differ_then_are_told),
		cmocka_unit_test(what_was_right_before_may_be_refused_then),
	};
	return cmocka_run_group_tests_name("comm repeated calls", tests, NULL, NULL);
}
