/* Every call of the driver fails once, at any moment between a communicator's creation and its end. Each rank must get
 * through all of it, or have an error that says what happened, and none waits for long. Results reported as right must
 * be right. No stream is stuck, and no driver object is left. Tries each call under COLLET_TEST_FULL, otherwise a share
 * of them. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <cmocka.h>

#include <collet/cuda.h>

#include "program.h"
#include "ranks.h"
#include "sample.h"
#include "streams.h"

enum { RANKS = 2, ELEMENTS = 3000, LONG = 300000, LAUNCHES = 3, DEADLINE_MS = 60000, SHARE = 24 };
enum {
	SOON_MS = 5000,              /* half of what a kernel of the test waits for peers */
	TEST_CALLS = 24,             /* driver calls at the end of a creation, at least */
	REST_CALLS = 16,             /* driver calls after a call was put on a stream */
	SLOW_EVERY = 17              /* one call in so many is tried with slow streams: each takes a second */
};

struct attempt {
	bool own;                    /* each rank has a GPU of its own; otherwise they share one */
	uint32_t who;                /* the rank whose driver fails */
	uint64_t nth;
	cu_result code;
	bool onwards;                /* it fails for good, as after a fault of the GPU */
	uint64_t slow;               /* seed of slow streams meanwhile; 0: none */
};

/* Of rank `who`. */
struct outcome {
	uint64_t calls;
	uint64_t created;            /* driver calls until the end of the creation, */
	uint64_t before_stream, after_stream; /* and before and after a call on a stream */
	bool failed;
};

struct fake {
	__typeof__(fakeFail) *fail_at;
	__typeof__(fakeFailed) *failed;
	__typeof__(fakeCalls) *calls;
	__typeof__(fakeSpare) *spare;
	__typeof__(fakeAlive) *alive;
	__typeof__(fakeWaitAll) *wait_all;
};

struct body {
	struct rank *rank;
	struct program program;
	struct streams cuda;
	struct fake fake;
	struct buffer buffer, message; /* the second has room for a message after the one that is sent */
	cu_stream stream;
	collet_comm *comm;
	float expected;              /* value of all its elements */
	char sentence[1000];         /* of the first error */
	struct outcome outcome;
};

static bool find(const struct program *program, void *slot, const char *name)
{
	void *address = dlsym(program->driver, name);
	memcpy(slot, &address, sizeof(address));
	return address != NULL;
}

static bool begin(struct body *body)
{
	float ones[ELEMENTS];
	struct fake *fake = &body->fake;
	const struct program *program = &body->program;
	const struct attempt *attempt = body->rank->options->context;
	char seed[24];
	setenv("FAKE_CUDA_DEVICES", attempt->own ? "2" : "1", 1);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)attempt->slow);
	if (attempt->slow)
		setenv("FAKE_CUDA_SLOW", seed, 1);
	for (int i = 0; i < ELEMENTS; i++)
		ones[i] = 1;
	body->expected = 1;
	const int gpu = attempt->own ? (int)body->rank->rank : 0;
	return rank_check(body->rank, program_start(&body->program, gpu) && streams_find(&body->cuda, program) &&
			find(program, &fake->fail_at, "fakeFail") && find(program, &fake->failed, "fakeFailed") &&
			find(program, &fake->calls, "fakeCalls") && find(program, &fake->spare, "fakeSpare") &&
			find(program, &fake->alive, "fakeAlive") && find(program, &fake->wait_all, "fakeWaitAll") &&
			buffer_make(&body->buffer, program, true, sizeof(ones)) && buffer_write(&body->buffer, ones) &&
			buffer_make(&body->message, program, true, sizeof(float) * 2 * LONG) &&
			program_put(&body->program, (uintptr_t)body->message.first, ones, sizeof(ones)) == CU_OK &&
			body->cuda.cuStreamCreate(&body->stream, CU_NON_BLOCKING_STREAM) == CU_OK,
		"the fake driver does not start");
}

/* ---- A communicator's life; each function returns false once something has failed ---- */

static bool went(struct body *body, collet_status status)
{
	if (status != COLLET_OK && !*body->sentence)
		snprintf(body->sentence, sizeof(body->sentence), "%s: %s", collet_status_name(status),
			collet_last_error());
	return status == COLLET_OK;
}

/* Checks what was reported as done. */
static bool holds(struct body *body, const struct buffer *buffer, float expected)
{
	float values[ELEMENTS] = { 0 };
	body->fake.spare(true);
	bool fine = buffer_read(buffer, values);
	body->fake.spare(false);
	for (int i = 0; i < ELEMENTS && fine; i++)
		fine = values[i] == expected;
	return rank_check(body->rank, fine, "%s: what was done is %g, not %g", body->rank->report->doing,
		(double)values[0], (double)expected);
}

static collet_status add_up(struct body *body, const struct buffer *buffer, const collet_how *how)
{
	return collet_allreduce(body->comm, buffer->first, buffer->first, ELEMENTS, COLLET_F32, COLLET_SUM, how);
}

static bool block(struct body *body)
{
	rank_doing(body->rank, "a blocking call");
	if (!went(body, add_up(body, &body->buffer, NULL)))
		return false;
	body->expected *= RANKS;
	return holds(body, &body->buffer, body->expected);
}

static bool request(struct body *body)
{
	collet_request *request = NULL;
	const collet_how how = { .request = &request };
	rank_doing(body->rank, "a request");
	if (!went(body, collet_broadcast(body->comm, body->buffer.first, body->buffer.first, ELEMENTS, COLLET_F32, 1,
				&how)))
		return false;
	return went(body, collet_request_wait(&request)) && holds(body, &body->buffer, body->expected);
}

static bool send_on(struct body *body)
{
	rank_doing(body->rank, "a message");
	const uint32_t other = 1 - body->rank->rank;
	return went(body, collet_sendrecv(body->comm, body->buffer.first, ELEMENTS / 2, other, 3,
			body->buffer.first + sizeof(float) * (ELEMENTS / 2), ELEMENTS / 2, other, 3, COLLET_F32, NULL,
			NULL)) &&
		holds(body, &body->buffer, body->expected);
}

/* A message of several segments. */
static bool send_long(struct body *body)
{
	char *to = body->message.first + sizeof(float) * LONG;
	rank_doing(body->rank, "a long message");
	const uint32_t other = 1 - body->rank->rank;
	const struct buffer came = { &body->program, true, to, sizeof(float) * ELEMENTS };
	return went(body, collet_sendrecv(body->comm, body->message.first, LONG, other, 4, to, LONG, other, 4,
			COLLET_F32, NULL, NULL)) &&
		holds(body, &came, 1);
}

/* The library's own memory; failing to get it ends nothing. */
static bool own_memory(struct body *body)
{
	void *memory = NULL;
	rank_doing(body->rank, "memory of the library's");
	if (collet_mem_alloc_device(body->comm, &memory, sizeof(float) * ELEMENTS) != COLLET_OK)
		memory = NULL;
	float threes[ELEMENTS];
	for (int i = 0; i < ELEMENTS; i++)
		threes[i] = 3;
	struct buffer own = { &body->program, true, memory, sizeof(threes) };
	body->fake.spare(true);
	bool fine = memory ? rank_check(body->rank, buffer_write(&own, threes), "memory that cannot be written") :
			     buffer_make(&own, &body->program, true, sizeof(threes)) && buffer_write(&own, threes);
	body->fake.spare(false);
	fine = fine && went(body, add_up(body, &own, NULL)) && holds(body, &own, 3 * RANKS);
	if (memory && fine)
		return went(body, collet_mem_free(body->comm, memory));
	body->fake.spare(true);
	if (!memory)
		buffer_free(&own);
	body->fake.spare(false);
	return fine;
}

/* Then nothing can be asked of the GPU any more. */
static bool is_dead(const struct body *body)
{
	const struct attempt *attempt = body->rank->options->context;
	return attempt->onwards && body->rank->rank == attempt->who && body->fake.failed();
}

static bool drain(struct body *body)
{
	body->fake.spare(true);
	const bool fine = body->cuda.cuStreamSynchronize(body->stream) == CU_OK;
	rank_check(body->rank, fine || is_dead(body), "%s: the stream has failed", body->rank->report->doing);
	body->fake.spare(false);
	return fine && went(body, collet_comm_error(body->comm)) && holds(body, &body->buffer, body->expected);
}

static bool on_stream(struct body *body)
{
	const collet_how how = { .stream = body->stream };
	rank_doing(body->rank, "a call on a stream");
	body->outcome.before_stream = body->fake.calls();
	const collet_status status = add_up(body, &body->buffer, &how);
	body->outcome.after_stream = body->fake.calls();
	if (!went(body, status)) {
		(void)body->cuda.cuStreamSynchronize(body->stream);
		return false;
	}
	body->expected *= RANKS;
	return drain(body);
}

static bool in_graph(struct body *body)
{
	const collet_how how = { .stream = body->stream };
	cu_graph graph = NULL;
	cu_graph_exec exec = NULL;
	rank_doing(body->rank, "a call in a graph");
	body->fake.spare(true);
	bool fine = body->cuda.cuStreamBeginCapture_v2(body->stream, CU_CAPTURE_MODE_RELAXED) == CU_OK;
	body->fake.spare(false);
	const bool made = fine && went(body, add_up(body, &body->buffer, &how));
	body->fake.spare(true);
	const bool ended = body->cuda.cuStreamEndCapture(body->stream, &graph) == CU_OK;
	fine = made && ended && body->cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == CU_OK;
	for (int launch = 0; fine && launch < LAUNCHES; launch++)
		fine = body->cuda.cuGraphLaunch(exec, body->stream) == CU_OK;
	if (fine)
		body->expected *= RANKS * RANKS * RANKS;
	/* Unless a thread of the library has met the failure meanwhile, and for good. */
	const struct attempt *attempt = body->rank->options->context;
	const bool lost = attempt->onwards && body->fake.failed();
	rank_check(body->rank, fine || !made || lost, "a graph that cannot be launched");
	body->fake.spare(false);
	fine = fine && drain(body);
	body->fake.spare(true);
	(void)body->cuda.cuStreamSynchronize(body->stream);
	if (exec)
		(void)body->cuda.cuGraphExecDestroy(exec);
	if (graph)
		(void)body->cuda.cuGraphDestroy(graph);
	body->fake.spare(false);
	return fine;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void check_soon(struct body *body, int64_t began_ms)
{
	const int64_t took_ms = now_ms() - began_ms;
	rank_check(body->rank, took_ms < SOON_MS, "%s took %lld ms", body->rank->report->doing, (long long)took_ms);
}

static bool create(struct body *body)
{
	char store[64];
	collet_options options;
	rank_doing(body->rank, "creating");
	rank_fill_options(body->rank, 0, &options, store);
	const int64_t began_ms = now_ms();
	const bool made = went(body, collet_comm_create(&body->comm, &options));
	body->outcome.created = body->fake.calls();
	check_soon(body, began_ms);
	return made;
}

/* ---- One run ---- */

static uint64_t turn;                /* which of SHARE calls are tried */

/* If these fail, what they should free still exists. */
static bool frees_objects(const char *function)
{
	static const char *const names[] = { "cuMemFree", "cuMemUnmap", "cuMemRelease",
		"cuMemAddressFree", "cuMemHostUnregister", "cuIpcCloseMemHandle", "cuModuleUnload", "cuStreamDestroy",
		"cuEventDestroy", "cuDevicePrimaryCtxRelease", "cuStreamSynchronize" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], function) == 0)
			return true;
	return false;
}

static void judge(struct body *body, const struct attempt *attempt, long alive_before)
{
	struct outcome *outcome = body->rank->shared;
	const char *failed = body->fake.failed();
	const long left = body->fake.alive() - alive_before;
	const bool mine = body->rank->rank == attempt->who;
	body->outcome.calls = body->fake.calls();
	body->outcome.failed = failed != NULL;
	if (mine)
		*outcome = body->outcome;
	body->rank->leaks = mine && failed && (attempt->onwards || frees_objects(failed));
	body->fake.fail_at(0, CU_OK, false);
	rank_check(body->rank, !mine || failed || !*body->sentence, "nothing failed, but: %s", body->sentence);
	rank_check(body->rank, !mine || !*body->sentence || strstr(body->sentence, "CUDA_ERROR_"),
		"%s failed, and this is all that is said: %s", failed, body->sentence);
	if (!failed || (!attempt->onwards && !frees_objects(failed)))
		rank_check(body->rank, left == 0, "%s failed: %ld too many things of the driver's are alive (%s)",
			failed ? failed : "nothing", left, body->sentence);
}

static void live(struct rank *rank)
{
	const struct attempt *attempt = rank->options->context;
	struct body *body = calloc(1, sizeof(*body));
	body->rank = rank;
	if (!begin(body))
		return;
	const long alive = body->fake.alive();
	if (rank->rank == attempt->who)
		body->fake.fail_at(attempt->nth, attempt->code, attempt->onwards);
	(void)(create(body) && block(body) && request(body) && send_on(body) && send_long(body) && own_memory(body) &&
		on_stream(body) && in_graph(body) && block(body));
	rank_doing(rank, "destroying, after: %s", body->sentence);
	const int64_t began_ms = now_ms();
	if (body->comm)
		(void)collet_comm_destroy(&body->comm);
	check_soon(body, began_ms);
	/* Streams now finish what they were in the middle of, if the memory that they use still exists. */
	rank_doing(rank, "settling, after: %s", body->sentence);
	rank_check(rank, body->fake.wait_all(), "streams are stuck");
	judge(body, attempt, alive);
	buffer_free(&body->buffer);
	buffer_free(&body->message);
	(void)body->cuda.cuStreamDestroy_v2(body->stream);
	(void)program_end(&body->program);
	free(body);
}

static struct outcome run(const struct attempt *attempt)
{
	const struct ranks_options options = { .size = RANKS, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm",
		.deadline_ms = DEADLINE_MS, .shared_bytes = sizeof(struct outcome), .context = attempt };
	struct ranks *ranks = ranks_start(&options, live);
	ranks_wait(ranks);
	if (!ranks_all_passed(ranks))
		fail_msg("call %llu of rank %u%s, with %d, %s, FAKE_CUDA_SLOW=%llu", (unsigned long long)attempt->nth,
			attempt->who, attempt->onwards ? " and all after it" : "", attempt->code,
			attempt->own ? "on GPUs of their own" : "on one GPU", (unsigned long long)attempt->slow);
	const struct outcome outcome = *(struct outcome *)ranks_shared(ranks);
	ranks_free(&ranks);
	return outcome;
}

/* Each run tries others, unless COLLET_TEST_SEED repeats one. A failure names its call. */
static bool is_taken(uint64_t nth)
{
	return getenv("COLLET_TEST_FULL") || (nth % SHARE == turn && sample_has(nth));
}

static void fail_all(bool own, bool onwards, cu_result code)
{
	for (uint32_t who = 0; who < RANKS; who++) {
		const struct outcome whole = run(&(struct attempt){ own, who, UINT64_MAX, code, onwards, 0 });
		assert_false(whole.failed);
		assert_true(whole.calls > 50);
		for (uint64_t nth = 1; nth <= whole.calls; nth++)
			if (is_taken(nth))
				(void)run(&(struct attempt){ own, who, nth, code, onwards, 0 });
	}
}

static void a_call_that_fails_is_said_or_done_without(void **state)
{
	fail_all(false, false, CU_OUT_OF_MEMORY);
}

static void a_call_that_fails_on_a_gpu_of_ones_own_is_said_or_done_without(void **state)
{
	fail_all(true, false, CU_OUT_OF_MEMORY);
}

static void a_driver_that_fails_for_good_stops_nobody(void **state)
{
	fail_all(false, true, CU_ILLEGAL_ADDRESS);
}

static void a_driver_that_fails_for_good_on_a_gpu_of_ones_own_stops_nobody(void **state)
{
	fail_all(true, true, CU_ILLEGAL_ADDRESS);
}

static uint64_t stride(void)
{
	return ranks_are_slow() ? 5 : 1;
}

/* If each rank has a GPU of its own, a creation ends with kernels that wait for each other. */
static void a_rank_that_cannot_test_its_windows_keeps_nobody_waiting(void **state)
{
	const struct outcome whole = run(&(struct attempt){ true, 0, UINT64_MAX, CU_OUT_OF_MEMORY, false, 0 });
	assert_true(whole.created > TEST_CALLS);
	for (uint64_t nth = whole.created - TEST_CALLS + 1; nth <= whole.created; nth += stride())
		(void)run(&(struct attempt){ true, nth % RANKS, nth, CU_OUT_OF_MEMORY, false, 0 });
}

/* The streams no longer report that they have passed a call. */
static void a_driver_that_fails_for_good_in_a_call_on_a_stream_keeps_nobody_waiting(void **state)
{
	for (uint32_t who = 0; who < RANKS; who++) {
		const struct outcome whole =
			run(&(struct attempt){ false, who, UINT64_MAX, CU_ILLEGAL_ADDRESS, true, 0 });
		assert_true(whole.after_stream > whole.before_stream);
		/* Also in what the leader does for it, and in the library's teardown. */
		for (uint64_t nth = whole.before_stream + 1; nth <= whole.after_stream + REST_CALLS;
			nth += stride())
			(void)run(&(struct attempt){ false, who, nth, CU_ILLEGAL_ADDRESS, true, 0 });
	}
}

/* A stream that was in the middle of an operation when the driver failed continues after everything is torn down: it
 * sets a word, copies, or signals. */
static void operations_in_progress_outlive_a_driver_that_fails_for_good(void **state)
{
	for (uint32_t row = 0; row < 2 * RANKS; row++) {
		const bool own = row / RANKS;
		const uint32_t who = row % RANKS;
		const struct outcome whole =
			run(&(struct attempt){ own, who, UINT64_MAX, CU_ILLEGAL_ADDRESS, true, 0 });
		const uint64_t first = whole.created + 1 + turn % SLOW_EVERY;
		for (uint64_t nth = first; nth <= whole.calls; nth += SLOW_EVERY * stride())
			(void)run(&(struct attempt){ own, who, nth, CU_ILLEGAL_ADDRESS, true, nth });
		/* Behind a call on a stream that the GPU signals: it may still write the others' flags. */
		for (uint64_t nth = whole.after_stream + 3; !own && nth <= whole.after_stream + 9; nth += 2)
			(void)run(&(struct attempt){ own, who, nth, CU_ILLEGAL_ADDRESS, true, nth });
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_cannot_test_its_windows_keeps_nobody_waiting),
		cmocka_unit_test(a_driver_that_fails_for_good_in_a_call_on_a_stream_keeps_nobody_waiting),
		cmocka_unit_test(operations_in_progress_outlive_a_driver_that_fails_for_good),
		cmocka_unit_test(a_call_that_fails_is_said_or_done_without),
		cmocka_unit_test(a_call_that_fails_on_a_gpu_of_ones_own_is_said_or_done_without),
		cmocka_unit_test(a_driver_that_fails_for_good_stops_nobody),
		cmocka_unit_test(a_driver_that_fails_for_good_on_a_gpu_of_ones_own_stops_nobody),
	};
	const char *text = getenv("COLLET_TEST_SEED");
	const uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
	printf("COLLET_TEST_SEED=%llu\n", (unsigned long long)seed);
	turn = seed % SHARE;
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
