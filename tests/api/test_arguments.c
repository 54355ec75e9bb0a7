/* Tests mistakes of the caller: each is refused with its status and a sentence, and the communicator still works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <collet/cuda.h>
#include <collet/tools.h>

#include "ranks.h"

enum { COUNT = 16, SIZE = 3 };

/* A mistake, made by every rank or by one alone: it is local in both cases. */
struct mistake {
	const char *name;
	collet_status (*make)(struct rank *rank);
	collet_status wanted;
};

static float send[COUNT * SIZE + 8], recv[COUNT * SIZE + 8];
static const uint64_t counts[SIZE] = { 4, 4, 4 }, displacements[SIZE] = { 0, 4, 8 };

static collet_status allreduce_how(struct rank *rank, collet_op op, collet_dtype dtype, const collet_how *how)
{
	return collet_allreduce(rank->comm, send, recv, 4, dtype, op, how);
}

static collet_status null_comm(struct rank *rank)
{
	return collet_allreduce(NULL, send, recv, 4, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status null_send(struct rank *rank)
{
	return collet_allreduce(rank->comm, NULL, recv, 4, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status null_recv(struct rank *rank)
{
	return collet_allreduce(rank->comm, send, NULL, 4, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status unknown_dtype(struct rank *rank)
{
	return allreduce_how(rank, COLLET_SUM, COLLET_DTYPE_COUNT, NULL);
}

static collet_status unknown_op(struct rank *rank)
{
	return allreduce_how(rank, COLLET_OP_COUNT, COLLET_F32, NULL);
}

static collet_status unknown_op_beyond(struct rank *rank)
{
	return allreduce_how(rank, (collet_op)1000, COLLET_F32, NULL);
}

static collet_status negative_dtype(struct rank *rank)
{
	return collet_broadcast(rank->comm, send, recv, 4, (collet_dtype)-1, 0, NULL);
}

static collet_status negative_root(struct rank *rank)
{
	return collet_reduce(rank->comm, send, recv, 4, COLLET_F32, COLLET_SUM, (uint32_t)-1, NULL);
}

static collet_status root_beyond(struct rank *rank)
{
	return collet_broadcast(rank->comm, send, recv, 4, COLLET_F32, rank->size, NULL);
}

static collet_status bits_of_floats(struct rank *rank)
{
	return allreduce_how(rank, COLLET_AND, COLLET_F32, NULL);
}

static collet_status scaled_integers(struct rank *rank)
{
	return allreduce_how(rank, COLLET_PREMUL_SUM, COLLET_I32, &(collet_how){ .scale = 2 });
}

static collet_status averaged_truths(struct rank *rank)
{
	return allreduce_how(rank, COLLET_AVERAGE, COLLET_BOOL, NULL);
}

static collet_status no_user_op(struct rank *rank)
{
	return allreduce_how(rank, COLLET_USER, COLLET_F32, NULL);
}

static collet_status user_op_without_function(struct rank *rank)
{
	return allreduce_how(
		rank, COLLET_USER, COLLET_F32, &(collet_how){ .user_op = &(collet_user_op){ .name = "none" }});
}

static collet_status reserved_set(struct rank *rank)
{
	collet_status status = COLLET_ERR_ARGUMENT;
	collet_how how = COLLET_HOW_DEFAULT;
	for (size_t i = 0; i < sizeof(how.reserved) / sizeof(how.reserved[0]) && status == COLLET_ERR_ARGUMENT; i++) {
		how.reserved[i] = 1;
		status = allreduce_how(rank, COLLET_SUM, COLLET_F32, &how);
		how.reserved[i] = 0;
	}
	return status;
}

static collet_status stream_set(struct rank *rank)
{
	return allreduce_how(rank, COLLET_SUM, COLLET_F32, &(collet_how){ .stream = rank });
}

static collet_status negative_timeout(struct rank *rank)
{
	return allreduce_how(rank, COLLET_SUM, COLLET_F32, &(collet_how){ .timeout_ns = -2 });
}

static collet_status too_many_channels(struct rank *rank)
{
	return allreduce_how(
		rank, COLLET_SUM, COLLET_F32, &(collet_how){ .channels = COLLET_CHANNELS_MAX + 1 });
}

static collet_status unknown_algorithm(struct rank *rank)
{
	return allreduce_how(rank, COLLET_SUM, COLLET_F32, &(collet_how){ .algorithm = "astrology" });
}

static collet_status other_collectives_algorithm(struct rank *rank)
{
	return allreduce_how(rank, COLLET_SUM, COLLET_F32, &(collet_how){ .algorithm = "dissemination" });
}

static collet_status too_many_elements(struct rank *rank)
{
	return collet_allreduce(rank->comm, send, recv, UINT64_MAX / 2, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status too_many_blocks(struct rank *rank)
{
	return collet_allgather(rank->comm, send, recv, UINT64_MAX / 2, COLLET_F32, NULL);
}

static collet_status overlap(struct rank *rank)
{
	return collet_allreduce(rank->comm, recv, recv + 1, 4, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status overlap_allgather(struct rank *rank)
{
	return collet_allgather(rank->comm, recv + ((rank->rank + 1) % SIZE) * 4, recv, 4, COLLET_F32, NULL);
}

static collet_status overlap_reduce_scatter(struct rank *rank)
{
	return collet_reduce_scatter(
		rank->comm, recv, recv + ((rank->rank + 1) % SIZE) * 4, 4, COLLET_F32, COLLET_SUM, NULL);
}

static collet_status overlap_alltoall(struct rank *rank)
{
	return collet_alltoall(rank->comm, recv, recv + 4, 4, COLLET_F32, NULL);
}

static collet_status overlap_alltoallv(struct rank *rank)
{
	static const uint64_t other[SIZE] = { 4, 4, 3 };
	return collet_alltoallv(rank->comm, recv, counts, displacements, recv, other, displacements, COLLET_F32, NULL);
}

static collet_status no_counts(struct rank *rank)
{
	return collet_allgatherv(rank->comm, send, 4, recv, NULL, displacements, COLLET_F32, NULL);
}

static collet_status no_displacements(struct rank *rank)
{
	return collet_alltoallv(rank->comm, send, counts, NULL, recv, counts, displacements, COLLET_F32, NULL);
}

static collet_status sum_of_blocks(
	struct rank *rank, uint64_t own_count, collet_dtype dtype, collet_op op, const collet_how *how)
{
	return collet_reduce_scatterv(rank->comm, send, counts, displacements, recv, own_count, dtype, op, how);
}

static collet_status other_own_sum_count(struct rank *rank)
{
	return sum_of_blocks(rank, 5, COLLET_I32, COLLET_SUM, NULL);
}

static collet_status narrow_average_of_blocks(struct rank *rank)
{
	return sum_of_blocks(rank, 4, COLLET_BF16, COLLET_AVERAGE, &(collet_how){ .algorithm = "ring" });
}

static void keep_left(
	void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	memmove(result, left, count * collet_dtype_bytes(dtype));
}

static collet_status ordered_sum_of_blocks(struct rank *rank)
{
	static const collet_user_op op = { .combine = keep_left, .name = "keep left" };
	return sum_of_blocks(rank, 4, COLLET_I32, COLLET_USER, &(collet_how){ .algorithm = "ring", .user_op = &op });
}

static collet_status other_own_count(struct rank *rank)
{
	return collet_allgatherv(rank->comm, send, 5, recv, counts, displacements, COLLET_F32, NULL);
}

static collet_status displacement_wraps(struct rank *rank)
{
	static const uint64_t far[SIZE] = { 0, 4, UINT64_MAX };
	return collet_allgatherv(rank->comm, send, 4, recv, counts, far, COLLET_F32, NULL);
}

static collet_status send_to_nobody(struct rank *rank)
{
	return collet_send(rank->comm, send, 4, COLLET_F32, rank->size, 0, NULL);
}

static collet_status send_to_any(struct rank *rank)
{
	return collet_send(rank->comm, send, 4, COLLET_F32, COLLET_ANY_SOURCE, 0, NULL);
}

static collet_status recv_from_nobody(struct rank *rank)
{
	return collet_recv(rank->comm, recv, 4, COLLET_F32, rank->size, 0, NULL, NULL);
}

static collet_status recv_into_null(struct rank *rank)
{
	return collet_recv(rank->comm, NULL, 4, COLLET_F32, 0, 0, NULL, NULL);
}

static collet_status sendrecv_reserved(struct rank *rank)
{
	return collet_sendrecv(
		rank->comm, send, 1, 0, 0, recv, 1, 0, 0, COLLET_F32, NULL, &(collet_how){ .reserved = {1}});
}

static collet_status split_into_null(struct rank *rank)
{
	return collet_comm_split(rank->comm, 0, 0, NULL);
}

static collet_status shrink(struct rank *rank)
{
	collet_comm *none;
	return collet_comm_shrink(rank->comm, &none);
}

static collet_status test_null(struct rank *rank)
{
	return collet_request_test(NULL);
}

static collet_status wait_all_null(struct rank *rank)
{
	return collet_request_wait_all(NULL, 1);
}

static collet_status wait_any_null(struct rank *rank)
{
	return collet_request_wait_any(NULL, 0, NULL);
}

static collet_status destroy_null(struct rank *rank)
{
	collet_comm *none = NULL;
	return collet_comm_destroy(&none);
}

static collet_status create_into_null(struct rank *rank)
{
	return collet_comm_create(NULL, NULL);
}

static collet_status free_foreign(struct rank *rank)
{
	return collet_mem_free(rank->comm, recv);
}

static collet_status deregister_unknown(struct rank *rank)
{
	return collet_mem_deregister(rank->comm, recv);
}

static collet_status alloc_into_null(struct rank *rank)
{
	return collet_mem_alloc(rank->comm, NULL, 64);
}

static collet_status stats_into_null(struct rank *rank)
{
	return collet_comm_stats(rank->comm, NULL, 4, NULL);
}

static collet_status plan_of_nothing(struct rank *rank)
{
	collet_plan plan;
	return collet_comm_plan(rank->comm, "divination", 4, COLLET_F32, COLLET_SUM, 0, NULL, &plan);
}

#define MISTAKE(function, status) { #function, function, status }
static const struct mistake mistakes[] = {
	MISTAKE(null_comm, COLLET_ERR_ARGUMENT),
	MISTAKE(null_send, COLLET_ERR_ARGUMENT),
	MISTAKE(null_recv, COLLET_ERR_ARGUMENT),
	MISTAKE(unknown_dtype, COLLET_ERR_ARGUMENT),
	MISTAKE(unknown_op, COLLET_ERR_ARGUMENT),
	MISTAKE(unknown_op_beyond, COLLET_ERR_ARGUMENT),
	MISTAKE(negative_dtype, COLLET_ERR_ARGUMENT),
	MISTAKE(negative_root, COLLET_ERR_ARGUMENT),
	MISTAKE(root_beyond, COLLET_ERR_ARGUMENT),
	MISTAKE(bits_of_floats, COLLET_ERR_UNSUPPORTED),
	MISTAKE(scaled_integers, COLLET_ERR_UNSUPPORTED),
	MISTAKE(averaged_truths, COLLET_ERR_UNSUPPORTED),
	MISTAKE(no_user_op, COLLET_ERR_ARGUMENT),
	MISTAKE(user_op_without_function, COLLET_ERR_ARGUMENT),
	MISTAKE(reserved_set, COLLET_ERR_ARGUMENT),
	MISTAKE(stream_set, COLLET_ERR_UNSUPPORTED),
	MISTAKE(negative_timeout, COLLET_ERR_ARGUMENT),
	MISTAKE(too_many_channels, COLLET_ERR_ARGUMENT),
	MISTAKE(unknown_algorithm, COLLET_ERR_ARGUMENT),
	MISTAKE(other_collectives_algorithm, COLLET_ERR_ARGUMENT),
	MISTAKE(too_many_elements, COLLET_ERR_ARGUMENT),
	MISTAKE(too_many_blocks, COLLET_ERR_ARGUMENT),
	MISTAKE(overlap, COLLET_ERR_ARGUMENT),
	MISTAKE(overlap_allgather, COLLET_ERR_ARGUMENT),
	MISTAKE(overlap_reduce_scatter, COLLET_ERR_ARGUMENT),
	MISTAKE(overlap_alltoall, COLLET_ERR_ARGUMENT),
	MISTAKE(overlap_alltoallv, COLLET_ERR_ARGUMENT),
	MISTAKE(no_counts, COLLET_ERR_ARGUMENT),
	MISTAKE(no_displacements, COLLET_ERR_ARGUMENT),
	MISTAKE(other_own_count, COLLET_ERR_ARGUMENT),
	MISTAKE(other_own_sum_count, COLLET_ERR_ARGUMENT),
	MISTAKE(narrow_average_of_blocks, COLLET_ERR_UNSUPPORTED),
	MISTAKE(ordered_sum_of_blocks, COLLET_ERR_UNSUPPORTED),
	MISTAKE(displacement_wraps, COLLET_ERR_ARGUMENT),
	MISTAKE(send_to_nobody, COLLET_ERR_ARGUMENT),
	MISTAKE(send_to_any, COLLET_ERR_ARGUMENT),
	MISTAKE(recv_from_nobody, COLLET_ERR_ARGUMENT),
	MISTAKE(recv_into_null, COLLET_ERR_ARGUMENT),
	MISTAKE(sendrecv_reserved, COLLET_ERR_ARGUMENT),
	MISTAKE(split_into_null, COLLET_ERR_ARGUMENT),
	MISTAKE(shrink, COLLET_ERR_UNSUPPORTED),
	MISTAKE(test_null, COLLET_ERR_ARGUMENT),
	MISTAKE(wait_all_null, COLLET_ERR_ARGUMENT),
	MISTAKE(wait_any_null, COLLET_ERR_ARGUMENT),
	MISTAKE(destroy_null, COLLET_ERR_ARGUMENT),
	MISTAKE(create_into_null, COLLET_ERR_ARGUMENT),
	MISTAKE(free_foreign, COLLET_ERR_ARGUMENT),
	MISTAKE(deregister_unknown, COLLET_ERR_ARGUMENT),
	MISTAKE(alloc_into_null, COLLET_ERR_ARGUMENT),
	MISTAKE(stats_into_null, COLLET_ERR_ARGUMENT),
	MISTAKE(plan_of_nothing, COLLET_ERR_ARGUMENT),
};
enum { MISTAKES = sizeof(mistakes) / sizeof(mistakes[0]) };

static bool still_works(struct rank *rank, const char *after)
{
	uint32_t sum = rank->rank;
	return rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, NULL), after) &&
		rank_check(rank, sum == rank->size * (rank->size - 1) / 2, "%s: the next sum is %u", after, sum) &&
		rank_ok(rank, collet_comm_error(rank->comm), after);
}

static void make_mistakes(struct rank *rank)
{
	for (uint32_t i = 0; i < MISTAKES; i++) {
		rank_doing(rank, "%s", mistakes[i].name);
		/* Each rank makes some of the mistakes, alone or not. */
		if ((i + rank->rank) % 4 != 0) {
			memset(recv, 0x5a, sizeof(recv));
			const collet_status status = mistakes[i].make(rank);
			if (!rank_check(rank, status == mistakes[i].wanted, "%s is %s, should be %s", mistakes[i].name,
				collet_status_name(status), collet_status_name(mistakes[i].wanted)))
				return;
			rank_check(rank, collet_last_error()[0] != '\0', "%s: no sentence", mistakes[i].name);
			for (size_t b = 0; b < sizeof(recv); b++)
				rank_check(
					rank, ((char *)recv)[b] == 0x5a, "%s: recv has been touched", mistakes[i].name);
		}
		if (!still_works(rank, mistakes[i].name))
			return;
	}
}

static void mistakes_are_refused_and_change_nothing(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = SIZE }, make_mistakes);
}

/* Unused buffers may be NULL, and calls may be empty. */
static void use_nothing(struct rank *rank)
{
	collet_comm *comm = rank->comm;
	const bool root = rank->rank == 1;
	static const uint64_t none[SIZE];
	rank_ok(rank, collet_allreduce(comm, NULL, NULL, 0, COLLET_F32, COLLET_SUM, NULL), "allreduce of nothing");
	rank_ok(rank, collet_reduce(comm, send, root ? recv : NULL, 4, COLLET_F32, COLLET_SUM, 1, NULL), "reduce");
	rank_ok(rank, collet_broadcast(comm, root ? send : NULL, recv, 4, COLLET_F32, 1, NULL), "broadcast");
	rank_ok(rank, collet_gather(comm, send, root ? recv : NULL, 4, COLLET_F32, 1, NULL), "gather");
	rank_ok(rank, collet_scatter(comm, root ? send : NULL, recv, 4, COLLET_F32, 1, NULL), "scatter");
	rank_ok(rank, collet_allgatherv(comm, NULL, 0, NULL, none, none, COLLET_F32, NULL), "allgatherv of nothing");
	rank_ok(rank, collet_gatherv(comm, NULL, 0, NULL, root ? none : NULL, root ? none : NULL, COLLET_F32, 1, NULL),
		"gatherv of nothing");
	rank_ok(rank, collet_scatterv(comm, NULL, root ? none : NULL, root ? none : NULL, NULL, 0, COLLET_F32, 1, NULL),
		"scatterv of nothing");
	rank_ok(rank, collet_alltoallv(comm, NULL, none, none, NULL, none, none, COLLET_F32, NULL),
		"alltoallv of nothing");
	rank_ok(rank, collet_alltoall(comm, NULL, NULL, 0, COLLET_F32, NULL), "alltoall of nothing");
	rank_ok(rank, collet_mem_free(comm, NULL), "free of nothing");
	still_works(rank, "after nothing");
}

static void unused_buffers_may_be_null(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = SIZE }, use_nothing);
}

/* ---- Two threads, and a fork ---- */

static void *barrier_main(void *argument)
{
	struct rank *rank = argument;
	rank_post(rank, 0);
	collet_status status;
	do  /* the other thread's attempts may hold the busy flag */
		status = collet_barrier(rank->comm, NULL);
	while (status == COLLET_ERR_BUSY);
	rank_ok(rank, status, "the barrier that the other thread is in");
	return NULL;
}

/* Rank 0's second thread blocks in a barrier. Rank 1 enters it after rank 0 has got COLLET_ERR_BUSY. */
static void call_from_two_threads(struct rank *rank)
{
	if (rank->rank == 0) {
		pthread_t thread;
		if (!rank_check(rank, pthread_create(&thread, NULL, barrier_main, rank) == 0, "pthread_create"))
			return;
		rank_await(rank, 0, 1);
		uint32_t value = 0;
		collet_status status = COLLET_OK;
		/* The thread is about to enter. Until it has, a call that changes nothing succeeds. */
		while (status == COLLET_OK || status == COLLET_ERR_ARGUMENT)
			status = collet_allreduce(rank->comm, NULL, &value, 1, COLLET_U32, COLLET_SUM, NULL);
		rank_status(rank, status, COLLET_ERR_BUSY, "a second thread's call");
		rank_check(rank, collet_comm_rank(rank->comm) == 0 && collet_comm_size(rank->comm) == 2,
			"reading is for any thread");
		size_t rows;
		rank_ok(rank, collet_comm_stats(rank->comm, NULL, 0, &rows), "statistics are for any thread");
		rank_post(rank, 1);
		pthread_join(thread, NULL);
	} else {
		rank_await(rank, 1, 1);
		rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier");
	}
	still_works(rank, "after being busy");
}

static void a_second_thread_is_told_busy(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2 }, call_from_two_threads);
	ranks_must_pass(
		&(struct ranks_options){ .size = 2, .mode = RANKS_THREADS, .transport = "tcp" }, call_from_two_threads);
}

/* Runs in the child: returns 0, or the number of the failed check. */
static int use_after_fork(collet_comm *comm)
{
	uint32_t value = 0;
	collet_comm *split;
	void *memory;
	size_t rows;
	if (collet_allreduce(comm, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL) != COLLET_ERR_FORKED)
		return 1;
	if (collet_send(comm, &value, 1, COLLET_U32, 0, 0, NULL) != COLLET_ERR_FORKED)
		return 2;
	if (collet_comm_split(comm, 0, 0, &split) != COLLET_ERR_FORKED)
		return 3;
	if (collet_mem_alloc(comm, &memory, 64) != COLLET_ERR_FORKED)
		return 4;
	if (collet_comm_stats(comm, NULL, 0, &rows) != COLLET_ERR_FORKED)
		return 5;
	if (!strstr(collet_last_error(), "fork"))
		return 6;
	collet_comm_abort(comm);  /* of the child's copy: no other rank is told */
	return collet_comm_destroy(&comm) == COLLET_OK && !comm ? 0 : 7;
}

static void fork_and_go_on(struct rank *rank)
{
	still_works(rank, "before the fork");
	const pid_t pid = fork();
	if (pid == 0)
		_exit(use_after_fork(rank->comm));
	int status;
	rank_check(rank, waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the child's check %d does not hold", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	still_works(rank, "after the fork");
}

static void a_forked_child_is_refused(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2 }, fork_and_go_on);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .transport = "tcp" }, fork_and_go_on);
}

/* Is the last error that sentence's beginning? */
static void says(struct rank *rank, const char *beginning)
{
	rank_check(rank, strncmp(collet_last_error(), beginning, strlen(beginning)) == 0, "%s", collet_last_error());
}

/* None may be used, or the library is built without support for them. */
static void name_a_gpu(struct rank *rank)
{
	collet_how how = COLLET_HOW_DEFAULT;
	void *memory = NULL;
	how.stream = &how;
	setenv("COLLET_CUDA", "0", 1);
	if (!rank_create(rank))
		return;
	rank_status(rank, allreduce_how(rank, COLLET_SUM, COLLET_F32, &how), COLLET_ERR_UNSUPPORTED, "a collective");
	says(rank, "collet_allreduce: how.stream: ");
	rank_status(
		rank, collet_send(rank->comm, send, 4, COLLET_F32, 0, 0, &how), COLLET_ERR_UNSUPPORTED, "a message");
	says(rank, "collet_send: how.stream: ");
	rank_status(rank, collet_mem_alloc_device(rank->comm, &memory, 4), COLLET_ERR_UNSUPPORTED, "memory");
	says(rank, "collet_mem_alloc_device: ");
	still_works(rank, "after what no GPU can do");
	rank_destroy(rank);
}

static void a_gpu_is_refused_where_none_can_be_used(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true }, name_a_gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mistakes_are_refused_and_change_nothing),
		cmocka_unit_test(unused_buffers_may_be_null),
		cmocka_unit_test(a_second_thread_is_told_busy),
		cmocka_unit_test(a_forked_child_is_refused),
		cmocka_unit_test(a_gpu_is_refused_where_none_can_be_used),
	};
	return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
