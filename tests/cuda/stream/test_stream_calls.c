/* Calls on streams. They give the same result as on the host, return at once, and keep the order of the stream and of
 * the calls. A failure does not block the stream, and gives the communicator an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"

enum { COUNT = 5000, SOON_NS = 100 * 1000 * 1000 };

/* ---- Results ---- */

static void all_rows(struct rank *rank)
{
	static const uint64_t counts[] = { 0, 1, 70000 };
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	bool fine = true;
	for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]) && fine; c++)
		for (uint32_t kind = 0; kind < CALL_KINDS && fine; kind++)
			for (uint32_t how = 0; how < 16 && fine; how++) {
				const bool pinned = how & 8;
				const struct call_row row = {(enum call_kind)kind, counts[c], how & 1, how & 2, how & 4,
					false, gpu.stream[0], &gpu.cuda, .pinned = pinned};
				if (pinned && (how & 3) == 3)  /* no buffer is on the host */
					continue;
				fine = call_matches_host(rank, &row, &gpu.program);
			}
	collet_how how = COLLET_HOW_DEFAULT;
	how.stream = gpu.stream[0];
	rank_barrier(rank); /* the last row's memory is free everywhere */
	rank_ok(rank, collet_barrier(rank->comm, &how), "barrier");
	gpu_synchronize(&gpu, 0);
	gpu_end(&gpu);
}

static void every_call_gives_what_it_gives_on_the_host(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" },
		{ .size = 3, .transport = "tcp", .mode = RANKS_THREADS },
		{ .size = 2, .transport = "shm", .mode = RANKS_MIXED, .progress_thread = true },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], all_rows);
}

/* Types and operations are handled by the host: a sample is enough. */
static void some_types(struct rank *rank)
{
	static const struct {
		collet_dtype dtype;
		collet_op op;
	} rows[] = { { COLLET_F16, COLLET_SUM }, { COLLET_BF16, COLLET_AVERAGE }, { COLLET_F64, COLLET_PREMUL_SUM },
		{ COLLET_I8, COLLET_MAX }, { COLLET_U64, COLLET_XOR }, { COLLET_F8E4M3, COLLET_MIN } };
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const size_t bytes = COUNT * collet_dtype_bytes(rows[i].dtype);
		char *given = malloc(bytes), *on_host = malloc(bytes), *on_stream = malloc(bytes);
		struct buffer buffer = { 0 };
		collet_how how = { .scale = 0.5 };
		for (size_t b = 0; b < bytes; b++)
			given[b] = (char)(b * 37 % 64 + rank->rank);
		rank_ok(rank, collet_allreduce(rank->comm, given, on_host, COUNT, rows[i].dtype, rows[i].op, &how),
			"on the host");
		how.stream = gpu.stream[0];
		if (rank_check(rank, buffer_make(&buffer, &gpu.program, true, bytes) && buffer_write(&buffer, given),
				    "a buffer") &&
			rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, rows[i].dtype,
					      rows[i].op, &how), "on a stream") &&
			gpu_synchronize(&gpu, 0))
			rank_check(rank, buffer_read(&buffer, on_stream) && memcmp(on_host, on_stream, bytes) == 0,
				"%s %s differs", collet_op_name(rows[i].op), collet_dtype_name(rows[i].dtype));
		buffer_free(&buffer);
		free(given), free(on_host), free(on_stream);
	}
	gpu_end(&gpu);
}

static void types_and_operations_are_the_hosts(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, some_types);
}

/* ---- Order ---- */

/* Rank 0's stream is held up. Its calls return all the same, and the others' streams wait for it. */
static void go_on(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	for (int i = 0; i < 20; i++)
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "on a stream");
	rank_check(rank, gpu.cuda.cuStreamQuery(gpu.stream[0]) == CU_NOT_READY, "nobody has waited for rank 0");
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	gpu_open(&gpu, 0);
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, gpu_power(3, 20, 1), "after 20 calls");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_call_returns_at_once(void **state)
{
	const struct ranks_options options = { .size = 3 };
	ranks_must_pass_everywhere(&options, go_on);
}

/* Two streams, of which rank 0's first one runs last: calls start everywhere in the order in which they were made. */
static void cross(struct rank *rank)
{
	struct gpu gpu;
	struct buffer first = { 0 }, second = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &first, COUNT, 1) || !gpu_make(&gpu, &second, COUNT, 1))
		return;
	for (int i = 0; i < 10; i++) {
		atomic_store(&gpu.gates[0], 0);
		if (rank->rank == 0)
			gpu_hold(&gpu, 0, 0);
		rank_ok(rank, gpu_allreduce(&gpu, 0, &first), "on the first stream");
		rank_ok(rank, gpu_allreduce(&gpu, 1, &second), "on the second stream");
		rank_post(rank, 0);
		rank_await(rank, 0, rank->size * ((uint32_t)i + 1));
		gpu_open(&gpu, 0);
		gpu_synchronize(&gpu, 0);
		gpu_synchronize(&gpu, 1);
	}
	gpu_holds(&gpu, &first, gpu_power(3, 10, 1), "the first stream's");
	gpu_holds(&gpu, &second, gpu_power(3, 10, 1), "the second stream's");
	buffer_free(&first);
	buffer_free(&second);
	gpu_end(&gpu);
}

static void streams_may_come_in_any_order(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .mode = RANKS_MIXED };
	ranks_must_pass(&options, cross);
}

static void *open_when_the_others_are_there(void *context)
{
	struct gpu *gpu = context;
	rank_await(gpu->rank, 0, gpu->rank->size);
	gpu_open(gpu, 0);
	return NULL;
}

/* A blocking call runs after one on a stream that has not reached it yet. Otherwise the two, which are alike, would be
 * mixed up on another rank. */
static void block_after(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	uint32_t value = 100;
	pthread_t opener;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, 1, 1))
		return;
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "on a stream");
	pthread_create(&opener, NULL, open_when_the_others_are_there, &gpu);
	rank_post(rank, 0);
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL), "blocking");
	rank_check(rank, value == 100 * rank->size, "the blocking call has given %u", value);
	pthread_join(opener, NULL);
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, rank->size, "the stream's call");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_call_without_a_stream_comes_after_those_on_one(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm" };
	ranks_must_pass(&options, block_after);
}

static void by_default_streams(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	for (uintptr_t number = CU_LEGACY_STREAM; number <= CU_PER_THREAD_STREAM; number++) {
		collet_how how = COLLET_HOW_DEFAULT;
		how.stream = (void *)number;
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM,
				      &how), "on a default stream");
		rank_check(rank, gpu.cuda.cuStreamSynchronize(how.stream) == CU_OK, "the stream");
	}
	gpu_holds(&gpu, &buffer, 4, "after both");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void default_streams_are_streams(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, by_default_streams);
}

/* ---- Errors ---- */

static void combine(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	for (size_t i = 0; i < count; i++)
		((uint32_t *)result)[i] = ((const uint32_t *)left)[i] + ((const uint32_t *)right)[i];
}

static bool says(struct rank *rank, const char *words)
{
	return rank_check(
		rank, strstr(collet_last_error(), words) != NULL, "no \"%s\": %s", words, collet_last_error());
}

/* An on_end() of calls that are refused. */
static void never(void *context, collet_status status)
{
	abort();
}

static void refuse(struct rank *rank)
{
	const collet_user_op op = { .combine = combine, .name = "own" };
	struct gpu gpu;
	struct buffer buffer = { 0 };
	collet_request *request = NULL;
	uint32_t on_host = 1;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, 100, 1))
		return;
	collet_how how = { .stream = gpu.stream[0], .request = &request };
	rank_status(rank, collet_barrier(rank->comm, &how), COLLET_ERR_ARGUMENT, "a request too");
	says(rank, "collet_barrier: how.request and how.stream are both set");
	how = (collet_how){ .stream = gpu.stream[0], .on_end = never };
	rank_status(rank, collet_barrier(rank->comm, &how), COLLET_ERR_ARGUMENT, "on_end() too");
	says(rank, "collet_barrier: how.on_end and how.stream are both set");
	rank_status(rank, collet_send(rank->comm, &on_host, 1, COLLET_U32, 0, 0, &how), COLLET_ERR_ARGUMENT,
		"on_end() of a message too");
	how = (collet_how){ .stream = gpu.stream[0], .algorithm = "no such" };
	rank_status(rank, collet_barrier(rank->comm, &how), COLLET_ERR_ARGUMENT, "an unknown algorithm");
	how = (collet_how){ .stream = gpu.stream[0], .user_op = &op };
	rank_status(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, 100, COLLET_U32, COLLET_USER, &how),
		COLLET_ERR_UNSUPPORTED, "a user-defined operation on the GPU");
	rank_status(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, 101, COLLET_U32, COLLET_SUM, &how),
		COLLET_ERR_ARGUMENT, "more than there is");
	setenv("FAKE_CUDA_WITHOUT", "stream memory operations", 1);
	rank_status(rank, collet_barrier(rank->comm, &how), COLLET_ERR_UNSUPPORTED, "no words");
	says(rank, "collet_barrier: how.stream: GPU 0 has no stream memory operations");
	unsetenv("FAKE_CUDA_WITHOUT");
	/* The communicator still works; on host memory, a function of the host can reduce. */
	rank_ok(rank, collet_allreduce(rank->comm, &on_host, &on_host, 1, COLLET_U32, COLLET_USER, &how),
		"own, on host");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "afterwards");
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, rank->size, "afterwards");
	rank_check(rank, on_host == rank->size, "the own operation has given %u", on_host);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void what_cannot_be_done_is_refused(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, refuse);
}

struct failure {
	const char *fail;            /* FAKE_CUDA_FAIL */
	collet_status status;
	/* the communicator ends: others may wait for data of which this stream has a part */
	bool ends;
	const char *words;
};

/* The same on every rank, so that none waits for one that does not call. */
static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), failure->status, failure->fail);
	unsetenv("FAKE_CUDA_FAIL");
	if (failure->words)
		says(rank, failure->words);
	gpu_synchronize(&gpu, 0);
	rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), failure->ends ? failure->status : COLLET_OK, "afterwards");
	rank_status(rank, collet_comm_error(rank->comm), failure->ends ? failure->status : COLLET_OK, "the error");
	gpu_synchronize(&gpu, 0);
	if (!failure->ends)
		gpu_holds(&gpu, &buffer, failure->status == COLLET_OK ? 4 : 2, "afterwards");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void what_the_driver_refuses_leaves_the_stream_going(void **state)
{
	static const struct failure failures[] = {
		{"cuStreamGetCtx:1:201", COLLET_ERR_SYSTEM, false,
			"collet_allreduce: cuda: how.stream: entering the context of the stream"},
		{"cuThreadExchangeStreamCaptureMode:1:1", COLLET_ERR_SYSTEM, false, NULL},
		{"cuStreamGetCaptureInfo:1:1", COLLET_ERR_SYSTEM, false, NULL},
		{"cuDeviceGetAttribute:1:1", COLLET_ERR_SYSTEM, false, "asking about a stream's GPU"},
		{"cuStreamCreateWithPriority:1:2", COLLET_ERR_MEMORY, false, "creating a stream for copies"},
		{"cuMemHostRegister:0:2", COLLET_ERR_MEMORY, false, "ulimit -l"},
		{"cuMemHostRegister:2:2", COLLET_OK, false, NULL}, /* it is tried again */
		{"cuMemHostGetDevicePointer:2:1", COLLET_ERR_SYSTEM, false, NULL},
		{"cuPointerGetAttributes:1:999", COLLET_ERR_SYSTEM, false, "asking where a buffer is"},
		{"cuMemcpyAsync:1:1", COLLET_ERR_SYSTEM, false,
			"collet_allreduce: cuda: copying a buffer from the GPU"},
		{"cuLaunchHostFunc:1:1", COLLET_ERR_SYSTEM, false, "having a stream ring"},
		{"cuStreamWaitValue32:1:1", COLLET_ERR_SYSTEM, true, "having a stream wait"},
		{"cuMemcpyAsync:2:1", COLLET_ERR_SYSTEM, true, "copying a result to the GPU"},
		{"cuStreamWriteValue32:1:1", COLLET_ERR_SYSTEM, true, "having a stream say that it has passed"},
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

/* Rank 1 never calls. Rank 0 has a call that its stream has reached, one behind it, and one on a stream that is held
 * up. */
static void end_alone(struct rank *rank)
{
	const collet_status wanted = *(const collet_status *)rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "together");
	gpu_synchronize(&gpu, 0);
	if (rank->rank == 1 && wanted == COLLET_ERR_PEER_LOST && rank_await(rank, 1, 1))
		raise(SIGKILL);
	if (rank->rank == 0) {
		gpu.timeout_ns = wanted == COLLET_ERR_TIMEOUT ? SOON_NS : 0;
		gpu_hold(&gpu, 1, 0);
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "alone");
		for (int i = 0; i < 2; i++) {
			/* The first may have ended the communicator by now. */
			const collet_status status = gpu_allreduce(&gpu, !i, &buffer);
			rank_check(rank, status == COLLET_OK || status == wanted, "%s", collet_last_error());
		}
		if (wanted == COLLET_ERR_ABORTED)
			collet_comm_abort(rank->comm);
		rank_post(rank, 1);
		gpu_synchronize(&gpu, 0);
		gpu_open(&gpu, 0);
		gpu_synchronize(&gpu, 1);
		rank_status(rank, collet_comm_error(rank->comm), wanted, "the error");
		rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), wanted, "afterwards");
		rank_post(rank, 0);
	} else {
		rank_await(rank, 0, 1);
	}
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void no_stream_is_stuck_when_a_communicator_ends(void **state)
{
	static const collet_status wanted[] = { COLLET_ERR_TIMEOUT, COLLET_ERR_ABORTED, COLLET_ERR_PEER_LOST };
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &wanted[i] };
		struct ranks *ranks = ranks_start(&options, end_alone);
		ranks_wait(ranks);
		const struct rank_report *report = ranks_report(ranks, 0);
		if (report->failed || report->end != RANK_RETURNED)
			fail_msg("%s: %s", collet_status_name(wanted[i]), report->sentence);
		ranks_free(&ranks);
	}
}

/* Ranks make two calls on two streams in opposite orders: one is held up by its stream, the other by the order. */
static void be_held(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	gpu_hold(&gpu, 0, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "held up");
	rank_ok(rank, gpu_allreduce(&gpu, 1, &buffer), "behind it");
	gpu_synchronize(&gpu, 1);
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TIMEOUT, "the error");
	gpu_open(&gpu, 0);
	gpu_synchronize(&gpu, 0);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_call_behind_one_that_never_comes_times_out(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .timeout_ns = SOON_NS };
	ranks_must_pass(&options, be_held);
}

/* With calls in every state. Leaks nothing: checked where memory is. */
static void destroy_early(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 }, held = { 0 }; /* streams are not ordered any more when the communicator ends */
	pthread_t opener;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1) || !gpu_make(&gpu, &held, COUNT, 1))
		return;
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "together");
	gpu_synchronize(&gpu, 0);
	if (rank->rank == 0) {
		gpu_hold(&gpu, 1, 0);
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "alone");
		rank_ok(rank, gpu_allreduce(&gpu, 1, &held), "held up");
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "behind it");
	}
	rank_post(rank, 0);
	pthread_create(&opener, NULL, open_when_the_others_are_there, &gpu);
	/* Their calls would come after the communicator's end. */
	if (rank->rank != 0)
		rank_await(rank, 0, rank->size);
	rank_destroy(rank);
	pthread_join(opener, NULL);
	gpu_synchronize(&gpu, 0);
	gpu_synchronize(&gpu, 1);
	buffer_free(&held);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_communicator_goes_when_its_streams_have_passed(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, destroy_early);
}

/* Only the communicator can be told. */
static void send_too_much(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	if (rank->rank == 0)
		rank_ok(rank, collet_send(rank->comm, buffer.first, COUNT, COLLET_U32, 1, 3, &how), "send");
	else
		rank_ok(rank, collet_recv(rank->comm, buffer.first, COUNT - 1, COLLET_U32, 0, 3, NULL, &how), "recv");
	gpu_synchronize(&gpu, 0);
	if (rank->rank == 1)
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TRUNCATED, "the error");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_message_that_is_too_long_ends_the_communicator(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, send_too_much);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_gives_what_it_gives_on_the_host),
		cmocka_unit_test(types_and_operations_are_the_hosts),
		cmocka_unit_test(a_call_returns_at_once),
		cmocka_unit_test(streams_may_come_in_any_order),
		cmocka_unit_test(a_call_without_a_stream_comes_after_those_on_one),
		cmocka_unit_test(default_streams_are_streams),
		cmocka_unit_test(what_cannot_be_done_is_refused),
		cmocka_unit_test(what_the_driver_refuses_leaves_the_stream_going),
		cmocka_unit_test(no_stream_is_stuck_when_a_communicator_ends),
		cmocka_unit_test(a_call_behind_one_that_never_comes_times_out),
		cmocka_unit_test(a_communicator_goes_when_its_streams_have_passed),
		cmocka_unit_test(a_message_that_is_too_long_ends_the_communicator),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
