/* Tests user-defined operations, which run in the middle of a call. Forbidden calls are refused there immediately
 * with a sentence, and the call continues. Abort is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

enum { MOST = 1 << 18 };

static const char *const transports[] = { "shm", "tcp" };

/* Objects that the operation under test may use. */
struct nesting {
	struct rank *rank;
	collet_comm *other;          /* of the same context */
	collet_request *pending;     /* on the other one */
	void *memory;                /* of collet_mem_alloc() */
	void (*attempt)(struct nesting *nesting);
	unsigned attempts;
};

static void add_and_attempt(
	void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	struct nesting *nesting = context;
	const uint32_t *a = left, *b = right;
	uint32_t *sum = result;
	rank_check(nesting->rank, dtype == COLLET_U32, "elements of %s", collet_dtype_name(dtype));
	for (size_t i = 0; i < count; i++)
		sum[i] = a[i] + b[i];
	if (!nesting->attempts++)
		nesting->attempt(nesting);
}

/* ---- What is refused ---- */

static void must_refuse(struct nesting *nesting, collet_status status, const char *function)
{
	rank_status(nesting->rank, status, COLLET_ERR_ARGUMENT, function);
	rank_check(nesting->rank, strstr(collet_last_error(), function) == collet_last_error() &&
			strstr(collet_last_error(), "user-defined operation"),
		"%s does not say why: %s", function, collet_last_error());
}

static void attempt_all(struct nesting *nesting)
{
	static const uint64_t counts[] = { 1, 1, 1 }, displacements[] = { 0, 1, 2 };
	uint32_t value = 1, values[3];
	void *memory = NULL;
	size_t rows;
	collet_comm *comm = NULL, *same = nesting->rank->comm, *other = nesting->other;
	collet_request **pending = &nesting->pending;
	must_refuse(nesting, collet_allreduce(same, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL),
		"collet_allreduce");
	must_refuse(nesting, collet_allreduce(other, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL),
		"collet_allreduce");
	must_refuse(nesting, collet_allgatherv(other, &value, 1, values, counts, displacements, COLLET_U32, NULL),
		"collet_allgatherv");
	must_refuse(nesting, collet_send(other, &value, 1, COLLET_U32, 0, 0, NULL), "collet_send");
	must_refuse(nesting, collet_comm_split(other, 0, 0, &comm), "collet_comm_split");
	must_refuse(nesting, collet_comm_create(&comm, NULL), "collet_comm_create");
	must_refuse(nesting, collet_comm_destroy(&other), "collet_comm_destroy");
	must_refuse(nesting, collet_comm_destroy(&same), "collet_comm_destroy");
	must_refuse(nesting, collet_request_test(pending), "collet_request_test");
	must_refuse(nesting, collet_request_wait(pending), "collet_request_wait");
	must_refuse(nesting, collet_request_wait_all(pending, 1), "collet_request_wait");
	must_refuse(nesting, collet_request_wait_any(pending, 1, &rows), "collet_request_wait_any");
	must_refuse(nesting, collet_mem_alloc(other, &memory, 1), "collet_mem_alloc");
	must_refuse(nesting, collet_mem_free(other, nesting->memory), "collet_mem_free");
	must_refuse(nesting, collet_comm_stats(other, NULL, 0, &rows), "collet_comm_stats");
	rank_check(nesting->rank,
		other == nesting->other && same == nesting->rank->comm && !comm && !memory && *pending,
		"what was refused has changed something");
	rank_check(nesting->rank, collet_comm_size(other) == nesting->rank->size,
		"what only says something is refused");
}

/* Makes one call whose operation attempts all: its sum must be right. */
static bool sum_and_attempt(struct rank *rank, struct nesting *nesting, uint64_t count, bool as_request)
{
	uint32_t *numbers = calloc(count, sizeof(*numbers));
	if (!rank_check(rank, numbers != NULL, "no memory"))
		return false;
	for (uint64_t i = 0; i < count; i++)
		numbers[i] = rank->rank + (uint32_t)i;
	const collet_user_op op = { .combine = add_and_attempt, .context = nesting, .commutative = true };
	collet_request *request = NULL;
	const collet_how how = { .user_op = &op, .request = as_request ? &request : NULL };
	nesting->attempts = 0;
	rank_doing(rank, "a call on %llu elements%s", (unsigned long long)count, as_request ? ", as a request" : "");
	bool ok = rank_ok(rank,
		collet_allreduce(rank->comm, numbers, numbers, count, COLLET_U32, COLLET_USER, &how), "the call");
	ok = ok && rank_ok(rank, collet_request_wait(&request), "its end");
	const uint32_t size = rank->size, ranks = size * (size - 1) / 2;
	for (uint64_t i = 0; ok && i < count; i++)
		ok = rank_check(rank, numbers[i] == ranks + size * (uint32_t)i, "element %llu is %u",
			(unsigned long long)i, numbers[i]);
	free(numbers);
	/* An algorithm may reduce on some ranks only. */
	uint32_t attempts = nesting->attempts;
	return ok && rank_ok(rank, collet_allreduce(rank->comm, &attempts, &attempts, 1, COLLET_U32, COLLET_SUM, NULL),
		"the sum of attempts") && rank_check(rank, attempts > 0, "the operation has not been called");
}

static void nest(struct rank *rank)
{
	static const uint64_t counts[] = { 2, 4096, MOST };
	struct nesting nesting = { .rank = rank, .attempt = attempt_all };
	uint32_t awaited = 0;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &nesting.other), "split") ||
		!rank_ok(rank, collet_mem_alloc(rank->comm, &nesting.memory, 64), "memory") ||
		!rank_ok(rank, collet_recv(nesting.other, &awaited, 1, COLLET_U32, (rank->rank + 1) % rank->size, 7,
			NULL, &(collet_how){ .request = &nesting.pending }), "a request that stays"))
		return;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (int as_request = 0; as_request < 2; as_request++)
			if (!sum_and_attempt(rank, &nesting, counts[c], as_request))
				return;
	const uint32_t sent = rank->rank;
	rank_ok(rank, collet_send(nesting.other, &sent, 1, COLLET_U32, (rank->rank + rank->size - 1) % rank->size, 7,
		NULL), "what the request waits for");
	rank_ok(rank, collet_request_wait(&nesting.pending), "the request that stayed");
	rank_check(rank, awaited == (rank->rank + 1) % rank->size, "it has brought %u", awaited);
	rank_ok(rank, collet_mem_free(rank->comm, nesting.memory), "free");
	rank_ok(rank, collet_comm_destroy(&nesting.other), "destroy");
}

static void an_operation_that_calls_collet_is_refused(void **state)
{
	(void)state;
	for (size_t t = 0; t < sizeof(transports) / sizeof(transports[0]); t++)
		for (uint32_t size = 2; size <= 3; size++)
			ranks_must_pass(&(struct ranks_options){ .size = size, .transport = transports[t] }, nest);
}

/* ---- What is not ---- */

static void attempt_abort(struct nesting *nesting)
{
	collet_comm_abort(nesting->rank->comm);
}

static void abort_inside(struct rank *rank)
{
	struct nesting nesting = { .rank = rank, .attempt = attempt_abort };
	const collet_user_op op = { .combine = add_and_attempt, .context = &nesting, .commutative = true };
	static uint32_t numbers[MOST];
	const collet_how how = { .user_op = &op };
	collet_status status = collet_allreduce(rank->comm, numbers, numbers, MOST, COLLET_U32, COLLET_USER, &how);
	/* It may have completed on this rank before it learnt of that. */
	if (status == COLLET_OK)
		status = collet_barrier(rank->comm, NULL);
	rank_status(rank, status, COLLET_ERR_ABORTED, "what comes after an operation has aborted");
	rank_check(rank, strstr(collet_last_error(), "collet_comm_abort()") != NULL, "nobody says who aborted: %s",
		collet_last_error());
}

static void an_operation_may_abort(void **state)
{
	(void)state;
	for (size_t t = 0; t < sizeof(transports) / sizeof(transports[0]); t++)
		for (uint32_t size = 2; size <= 3; size++)
			ranks_must_pass(
				&(struct ranks_options){ .size = size, .transport = transports[t] }, abort_inside);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_operation_that_calls_collet_is_refused),
		cmocka_unit_test(an_operation_may_abort),
	};
	return cmocka_run_group_tests_name("comm user operations", tests, NULL, NULL);
}
