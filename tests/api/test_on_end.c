/* Tests how.on_end: which calls it is told of, when, by whom, and what it may do. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sample.h"
#include "told_sums.h"

enum {
	SMALL = 10,
	LARGE = 300000,              /* floats: more than any ring or socket buffers */
	LENGTH = 100                 /* of a chain */
};

/* ---- Being told ---- */

static bool by_rounds(struct rank *rank, struct sum *sum)
{
	while (!atomic_load(&sum->told)) {
		const collet_status status = collet_progress(rank->comm, 0);
		if (status != COLLET_PENDING && !rank_ok(rank, status, "a round"))
			return false;
	}
	return true;
}

static bool by_a_blocking_call(struct rank *rank, struct sum *sum)
{
	/* The first may end before the sum does. */
	for (uint32_t all_told = 0; !all_told;) {
		all_told = atomic_load(&sum->told);
		if (!rank_ok(rank, collet_allreduce(rank->comm, &all_told, &all_told, 1, COLLET_U32, COLLET_MIN, NULL),
			    "a blocking call"))
			return false;
	}
	return true;
}

static bool by_another_request(struct rank *rank, struct sum *sum)
{
	collet_request *request = NULL;
	const collet_how how = { .request = &request };
	return rank_ok(rank, collet_barrier(rank->comm, &how), "a barrier") &&
	       rank_ok(rank, collet_request_wait(&request), "a barrier's wait") && sum_progress(rank, sum);
}

struct way {
	const char *name;
	bool (*make_progress)(struct rank *rank, struct sum *sum);
	bool progress_thread, is_owned;
};

static void be_told(struct rank *rank)
{
	const struct way *way = rank->options->context;
	static const uint64_t counts[] = { 0, 1, SMALL, LARGE };
	for (size_t i = 0; i < 4; i++) {
		struct sum sum;
		rank_doing(rank, "a sum of %llu, %s", (unsigned long long)counts[i], way->name);
		if (!sum_make(rank, &sum, counts[i]) ||
			!rank_ok(rank, sum_start(rank->comm, &sum, way->is_owned), "start") ||
			!way->make_progress(rank, &sum) || !sum_was_told_once(rank, &sum, COLLET_OK))
			return;
		rank_check(rank, way->is_owned == (sum.request != NULL), "the request is not whose it should be");
		if (sum.request)
			rank_ok(rank, collet_request_wait(&sum.request), "the wait afterwards");
		sum_was_told_once(rank, &sum, COLLET_OK);
		free(sum.values);
	}
}

static void the_end_is_told_once(void **state)
{
	static const struct way ways[] = {
		{ "by progress", sum_progress, false, false },
		{ "by progress, of a request", sum_progress, false, true },
		{ "by rounds", by_rounds, false, false },
		{ "by a blocking call", by_a_blocking_call, false, false },
		{ "by another request", by_another_request, false, true },
		{ "by the descriptor", sum_poll, false, false },
		{ "by the progress thread", sum_await, true, false },
		{ "by the progress thread, of a request", sum_await, true, true },
		{ "by progress beside the thread", sum_progress, true, false },
		{ "by the descriptor beside the thread", sum_poll, true, false },
	};
	enum { WAYS = sizeof(ways) / sizeof(ways[0]) };
	for (size_t i = 0; i < WAYS; i++)
		if (sample_of(WAYS, i))
			ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .context = &ways[i],
						   .progress_thread = ways[i].progress_thread }, be_told);
}

/* Waiting for a request returns after its on_end(), whoever has called that. */
static void wait_for_told_requests(struct rank *rank)
{
	for (uint32_t i = 0; i < LENGTH; i++) {
		struct sum sum;
		size_t index;
		if (!sum_make(rank, &sum, i % 2 ? SMALL : LARGE / 10) ||
			!rank_ok(rank, sum_start(rank->comm, &sum, true), "start"))
			return;
		collet_status status = COLLET_OK;
		switch (i % 4) {
		case 0: status = collet_request_wait(&sum.request); break;
		case 1: status = collet_request_wait_any(&sum.request, 1, &index); break;
		case 2: status = collet_request_wait_for(&sum.request, COLLET_NO_TIMEOUT); break;
		default:
			while ((status = collet_request_test(&sum.request)) == COLLET_PENDING)
				;
		}
		const bool right = rank_ok(rank, status, "wait") && sum_was_told_once(rank, &sum, COLLET_OK);
		free(sum.values);
		if (!right)
			return;
	}
}

static void a_wait_returns_after_on_end(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, wait_for_told_requests);
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 2, .progress_thread = true }, wait_for_told_requests);
}

/* Messages are told of as well. */
static void tell_of_messages(struct rank *rank)
{
	struct sum sent = { .rank = rank }, received = { .rank = rank };
	float out[SMALL] = { 3 }, in[SMALL] = { 0 };
	const uint32_t next = (rank->rank + 1) % rank->size, last = (rank->rank + rank->size - 1) % rank->size;
	collet_how how = { .on_end = sum_note, .on_end_context = &received };
	if (!rank_ok(rank, collet_recv(rank->comm, in, SMALL, COLLET_F32, last, 1, NULL, &how), "recv"))
		return;
	how.on_end_context = &sent;
	if (!rank_ok(rank, collet_send(rank->comm, out, SMALL, COLLET_F32, next, 1, &how), "send") ||
		!sum_progress(rank, &received) || !sum_progress(rank, &sent) ||
		!sum_was_told_once(rank, &sent, COLLET_OK) || !sum_was_told_once(rank, &received, COLLET_OK) ||
		!rank_check(rank, in[0] == 3, "%g came", (double)in[0]))
		return;
	struct sum both = { .rank = rank };
	how.on_end_context = &both;
	if (rank_ok(rank, collet_sendrecv(rank->comm, out, SMALL, next, 2, in, SMALL, last, 2, COLLET_F32, NULL, &how),
		    "sendrecv") && sum_progress(rank, &both))
		sum_was_told_once(rank, &both, COLLET_OK);
}

static void messages_are_told_of(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, tell_of_messages);
}

/* ---- What on_end() may do ---- */

/* Sums that follow each other: each is started by the on_end() of the one before. */
struct chain {
	struct sum sums[LENGTH];
	atomic_uint done;
};

static void start_next(void *context, collet_status status)
{
	struct chain *chain = context;
	const uint32_t done = atomic_load(&chain->done);
	struct sum *sum = &chain->sums[done];
	sum_note(sum, status);
	if (done + 1 < LENGTH) {
		const collet_how how = { .on_end = start_next, .on_end_context = chain };
		rank_ok(sum->rank,
			collet_allreduce(sum->rank->comm, sum[1].values, sum[1].values, sum[1].count, COLLET_F32,
				COLLET_SUM, &how),
			"the next sum");
	}
	atomic_store(&chain->done, done + 1);
}

static void run_chain(struct rank *rank)
{
	struct chain *chain = calloc(1, sizeof(*chain));
	if (!rank_check(rank, chain != NULL, "no memory"))
		return;
	for (uint32_t i = 0; i < LENGTH; i++)
		if (!sum_make(rank, &chain->sums[i], i % 10 == 5 ? LARGE / 10 : SMALL))
			return;
	const collet_how how = { .on_end = start_next, .on_end_context = chain };
	struct sum *first = &chain->sums[0];
	rank_ok(rank,
		collet_allreduce(
			rank->comm, first->values, first->values, first->count, COLLET_F32, COLLET_SUM, &how),
		"the first sum");
	while (atomic_load(&chain->done) < LENGTH && !rank->report->failed)
		if (!rank_ok(rank, collet_progress(rank->comm, COLLET_NO_TIMEOUT), "progress"))
			break;
	for (uint32_t i = 0; i < LENGTH; i++) {
		sum_was_told_once(rank, &chain->sums[i], COLLET_OK);
		free(chain->sums[i].values);
	}
	free(chain);
}

static void on_end_may_start_the_next_call(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, run_chain);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .progress_thread = true }, run_chain);
}

/* Makes a blocking call and starts one, of the communicator whose blocking call has called it. */
static void call_again(void *context, collet_status status)
{
	struct sum *sums = context;
	uint32_t one = 1;
	sum_note(&sums[0], status);
	rank_ok(sums->rank, collet_allreduce(sums->rank->comm, &one, &one, 1, COLLET_U32, COLLET_SUM, NULL),
		"a blocking call by on_end()");
	rank_check(sums->rank, one == sums->rank->size, "its result is %u", one);
	rank_ok(sums->rank, sum_start(sums->rank->comm, &sums[1], false), "a start by on_end()");
}

static void call_in_a_blocking_call(struct rank *rank)
{
	for (uint32_t i = 0; i < 10; i++) {
		struct sum sums[2];
		if (!sum_make(rank, &sums[0], LARGE / 10) || !sum_make(rank, &sums[1], SMALL))
			return;
		const collet_how how = { .on_end = call_again, .on_end_context = sums };
		if (!rank_ok(rank, collet_allreduce(rank->comm, sums[0].values, sums[0].values, sums[0].count,
					   COLLET_F32, COLLET_SUM, &how), "start") ||
			!rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier") || !sum_progress(rank, &sums[1]))
			return;
		sum_was_told_once(rank, &sums[0], COLLET_OK);
		sum_was_told_once(rank, &sums[1], COLLET_OK);
		free(sums[0].values);
		free(sums[1].values);
	}
}

static void on_end_may_call_inside_a_blocking_call(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, call_in_a_blocking_call);
}

/* Tries what on_end() must not do, and tests its own request, which frees it. */
static void try_all(void *context, collet_status status)
{
	struct sum *sums = context;
	struct rank *rank = sums->rank;
	collet_comm *made = NULL;
	size_t index;
	sum_note(&sums[0], status);
	rank_status(rank, collet_comm_create(&made, NULL), COLLET_ERR_ARGUMENT, "create");
	rank_check(rank, strstr(collet_last_error(), "called by how.on_end()") != NULL, "%s", collet_last_error());
	rank_status(rank, collet_comm_split(rank->comm, 0, 0, &made), COLLET_ERR_ARGUMENT, "split");
	rank_status(rank, collet_comm_destroy(&rank->comm), COLLET_ERR_ARGUMENT, "destroy");
	rank_status(rank, collet_request_wait(&sums[1].request), COLLET_ERR_ARGUMENT, "wait");
	rank_check(rank, strstr(collet_last_error(), "called later") != NULL, "%s", collet_last_error());
	rank_status(rank, collet_request_wait_any(&sums[1].request, 1, &index), COLLET_ERR_ARGUMENT, "wait_any");
	rank_status(rank, collet_request_wait_for(&sums[1].request, 0), COLLET_ERR_ARGUMENT, "wait_for");
	rank_status(rank, collet_request_test(&sums[1].request), COLLET_PENDING, "test of the next");
	rank_ok(rank, collet_request_test(&sums[0].request), "test of its own");
	rank_check(rank, !sums[0].request, "an ended request is not NULL");
}

static void be_refused(struct rank *rank)
{
	struct sum sums[2];
	if (!sum_make(rank, &sums[0], SMALL) || !sum_make(rank, &sums[1], SMALL))
		return;
	const collet_how how = { .on_end = try_all, .on_end_context = sums, .request = &sums[0].request };
	rank_ok(rank, collet_allreduce(rank->comm, sums[0].values, sums[0].values, SMALL, COLLET_F32, COLLET_SUM, &how),
		"start");
	if (rank_ok(rank, sum_start(rank->comm, &sums[1], true), "start") && sum_progress(rank, &sums[0]))
		rank_ok(rank, collet_request_wait(&sums[1].request), "wait");
	sum_was_told_once(rank, &sums[0], COLLET_OK);
	sum_was_told_once(rank, &sums[1], COLLET_OK);
	free(sums[0].values);
	free(sums[1].values);
}

static void what_on_end_must_not_do_is_refused(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, be_refused);
}

/* A sum whose on_end() must not run while another of its rank does. */
struct lone_sum {
	struct sum sum;
	atomic_uint *running;        /* on_end() of the rank that run now */
};

static void run_alone(void *context, collet_status status)
{
	struct lone_sum *lone = context;
	rank_check(lone->sum.rank, atomic_fetch_add(lone->running, 1) == 0, "two at a time");
	sum_note(&lone->sum, status);
	atomic_fetch_sub(lone->running, 1);
}

static void *wait_in_a_thread(void *context)
{
	struct sum *sum = context;
	rank_ok(sum->rank, collet_request_wait(&sum->request), "wait");
	return NULL;
}

static void wait_in_threads(struct rank *rank)
{
	enum { THREADS = 4, ROUNDS = 20 };
	struct lone_sum sums[THREADS];
	pthread_t threads[THREADS];
	atomic_uint running = 0;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < THREADS; i++) {
			struct sum *sum = &sums[i].sum;
			if (!sum_make(rank, sum, i % 2 ? LARGE / 10 : SMALL))
				return;
			sums[i].running = &running;
			const collet_how how = {
				.on_end = run_alone, .on_end_context = &sums[i], .request = &sum->request };
			rank_ok(rank, collet_allreduce(rank->comm, sum->values, sum->values, sum->count, COLLET_F32,
					      COLLET_SUM, &how), "start");
			if (!rank_check(rank, !pthread_create(&threads[i], NULL, wait_in_a_thread, sum), "no thread"))
				return;
		}
		for (uint32_t i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (uint32_t i = 0; i < THREADS; i++) {
			sum_was_told_once(rank, &sums[i].sum, COLLET_OK);
			free(sums[i].sum.values);
		}
	}
}

static void one_on_end_runs_at_a_time(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, wait_in_threads);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2, .progress_thread = true }, wait_in_threads);
}

/* ---- Failures ---- */

static void fail_in_a_way(struct rank *rank)
{
	enum { SUMS = 4 };
	struct sum sums[SUMS];
	const char *way = rank->options->context;
	collet_status wanted = COLLET_ERR_ABORTED;
	rank->leaks = strcmp(way, "death") == 0;
	if (rank->rank == 1) { /* it never calls */
		rank_await(rank, 0, rank->size - 1);
		if (strcmp(way, "death") == 0)
			_exit(0);
		if (strcmp(way, "abort") == 0)
			collet_comm_abort(rank->comm);
		rank_await(rank, 1, rank->size - 1);
		return;
	}
	for (uint32_t i = 0; i < SUMS; i++)
		if (!sum_make(rank, &sums[i], i % 2 ? LARGE : SMALL) ||
			!rank_ok(rank, sum_start(rank->comm, &sums[i], i > 1), "start"))
			return;
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size - 1);
	if (strcmp(way, "destroy") == 0)
		rank_destroy(rank);
	for (uint32_t i = 0; i < SUMS; i++)
		while (strcmp(way, "destroy") != 0 && !atomic_load(&sums[i].told))
			if (!rank_ok(rank, collet_progress(rank->comm, COLLET_NO_TIMEOUT), "progress"))
				return;
	if (strcmp(way, "death") == 0)
		wanted = COLLET_ERR_PEER_LOST;
	for (uint32_t i = 0; i < SUMS; i++) {
		sum_was_told_once(rank, &sums[i], wanted);
		if (rank->comm && sums[i].request)
			rank_status(rank, collet_request_wait(&sums[i].request), wanted, "wait");
		free(sums[i].values);
	}
	rank_post(rank, 1);
}

static void failures_are_told(void **state)
{
	static const char *const transports[] = { "shm", "tcp" };
	static const struct {
		enum ranks_mode mode;
		uint32_t size;
		const char *way;
	} rows[] = {
		{ RANKS_PROCESSES, 3, "abort" }, { RANKS_THREADS, 3, "abort" }, { RANKS_MIXED, 3, "abort" },
		{ RANKS_PROCESSES, 2, "destroy" }, { RANKS_THREADS, 2, "destroy" }, { RANKS_MIXED, 2, "destroy" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t t = 0; t < 2; t++)
			for (uint32_t thread = 0; thread < 2; thread++)
				ranks_must_pass(&(struct ranks_options){ .mode = rows[i].mode, .size = rows[i].size,
							.transport = transports[t], .progress_thread = thread,
							.context = rows[i].way }, fail_in_a_way);
}

static void a_death_is_told(void **state)
{
	for (uint32_t thread = 0; thread < 2; thread++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .progress_thread = thread, .context = "death" };
		struct ranks *ranks = ranks_start(&options, fail_in_a_way);
		ranks_wait(ranks);
		bool passed = true;
		for (uint32_t r = 0; r < 3; r++) {
			const struct rank_report *report = ranks_report(ranks, r);
			if (r == 1 ? report->end == RANK_EXITED : report->end == RANK_RETURNED && !report->failed)
				continue;
			fprintf(stderr, "rank %u: %s\n", r, report->sentence);
			passed = false;
		}
		ranks_free(&ranks);
		assert_true(passed);
	}
}

/* A call that was not started has no end to be told of. */
static void start_nothing(struct rank *rank)
{
	struct sum sum;
	if (!sum_make(rank, &sum, SMALL))
		return;
	const collet_how how = { .on_end = sum_note, .on_end_context = &sum };
	rank_status(rank,
		collet_allreduce(rank->comm, sum.values, sum.values, SMALL, COLLET_DTYPE_COUNT, COLLET_SUM, &how),
		COLLET_ERR_ARGUMENT, "no type");
	rank_status(rank, collet_progress(rank->comm, 0), COLLET_PENDING, "progress of nothing");
	rank_check(rank, !atomic_load(&sum.told), "an end was told");
	free(sum.values);
}

static void a_refused_call_is_not_told_of(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2 }, start_nothing);
}

static void fork_a_child(struct rank *rank)
{
	struct sum sum;
	int status = 0, descriptor;
	if (!sum_make(rank, &sum, SMALL) || !rank_ok(rank, sum_start(rank->comm, &sum, false), "start"))
		return;
	const pid_t child = fork();
	if (child == 0) {
		const bool refused = collet_progress(rank->comm, 0) == COLLET_ERR_FORKED &&
			collet_comm_descriptor(rank->comm, &descriptor) == COLLET_ERR_FORKED;
		(void)collet_comm_destroy(&rank->comm);
		_exit(refused && !atomic_load(&sum.told) ? 0 : 1);
	}
	rank_check(rank, child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child's status is %d",
		status);
	if (sum_progress(rank, &sum))
		sum_was_told_once(rank, &sum, COLLET_OK);
	free(sum.values);
}

static void nothing_is_told_in_a_forked_child(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2 }, fork_a_child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_is_told_once),
		cmocka_unit_test(a_wait_returns_after_on_end),
		cmocka_unit_test(messages_are_told_of),
		cmocka_unit_test(on_end_may_start_the_next_call),
		cmocka_unit_test(on_end_may_call_inside_a_blocking_call),
		cmocka_unit_test(what_on_end_must_not_do_is_refused),
		cmocka_unit_test(one_on_end_runs_at_a_time),
		cmocka_unit_test(failures_are_told),
		cmocka_unit_test(a_death_is_told),
		cmocka_unit_test(a_refused_call_is_not_told_of),
		cmocka_unit_test(nothing_is_told_in_a_forked_child),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
