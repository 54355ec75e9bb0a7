/* Calls on GPU memory that are staged through the host. Every collective, with its buffers on the GPU, on the host
 * (page-locked or not), or one on each, gives the same bytes as on the host, and leaves the rest of the buffers
 * alone. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "calls.h"

static void all_rows(struct rank *rank)
{
	static const uint64_t counts[] = { 0, 1, 70000 };
	struct program program;
	if (!rank_check(rank, program_start(&program, 0), "the driver does not start"))
		return;
	bool fine = true;
	for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]) && fine; c++)
		for (uint32_t kind = 0; kind < CALL_KINDS && fine; kind++)
			for (uint32_t how = 0; how < 32 && fine; how++) {
				const bool pinned = how & 16;
				const struct call_row row = {(enum call_kind)kind, counts[c], how & 1, how & 2, how & 4,
					how & 8, NULL, NULL, .pinned = pinned};
				if (pinned && (how & 3) == 3)  /* no buffer is on the host */
					continue;
				fine = call_matches_host(rank, &row, &program);
			}
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
}

static void every_call_gives_what_it_gives_on_the_host(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" },
		{ .size = 3, .transport = "tcp" },
		{ .size = 2, .transport = "tcp", .progress_thread = true },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], all_rows);
}

/* ---- Refusals and failures ---- */

static void combine(void *result, const void *left, const void *right, size_t count, collet_dtype dtype, void *context)
{
	for (size_t i = 0; i < count; i++)
		((float *)result)[i] = ((const float *)left)[i] + ((const float *)right)[i];
}

static void refuse(struct rank *rank)
{
	struct program program;
	struct buffer gpu;
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&gpu, &program, true, 400), "no GPU"))
		return;
	const collet_user_op op = { .combine = combine, .name = "own" };
	collet_how how = COLLET_HOW_DEFAULT;
	how.user_op = &op;
	rank_status(rank, collet_allreduce(rank->comm, gpu.first, gpu.first, 100, COLLET_F32, COLLET_USER, &how),
		COLLET_ERR_UNSUPPORTED, "a user-defined operation");
	rank_check(rank, strstr(collet_last_error(), "function of the host") != NULL, "%s", collet_last_error());
	rank_status(rank, collet_allreduce(rank->comm, gpu.first, gpu.first, 101, COLLET_F32, COLLET_SUM, NULL),
		COLLET_ERR_ARGUMENT, "more than there is");
	rank_check(rank, strstr(collet_last_error(), "collet_allreduce: the buffer that is read: 404 bytes") != NULL,
		"%s", collet_last_error());
	/* The communicator still works after all that. */
	rank_ok(rank, collet_allreduce(rank->comm, gpu.first, gpu.first, 100, COLLET_F32, COLLET_SUM, NULL),
		"afterwards");
	buffer_free(&gpu);
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
}

static void what_cannot_be_done_is_refused(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, refuse);
}

struct failure {
	const char *fail;    /* FAKE_CUDA_FAIL of rank 0 */
	collet_status status;
	const char *words;
};

/* The same on every rank, so that none waits for one that does not call. */
static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct program program;
	struct buffer gpu;
	float values[100] = { 0 };
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&gpu, &program, true, sizeof(values)) &&
			buffer_write(&gpu, values), "no GPU"))
		return;
	setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	const collet_status status = collet_allreduce(
		rank->comm, gpu.first, gpu.first, 100, COLLET_F32, COLLET_SUM, NULL);
	unsetenv("FAKE_CUDA_FAIL");
	rank_status(rank, status, failure->status, failure->fail);
	if (failure->words)
		rank_check(rank, strstr(collet_last_error(), failure->words) != NULL, "%s", collet_last_error());
	rank_ok(rank, collet_allreduce(rank->comm, gpu.first, gpu.first, 100, COLLET_F32, COLLET_SUM, NULL),
		"afterwards");
	buffer_free(&gpu);
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
}

static void what_the_driver_refuses_is_an_error_of_that_call(void **state)
{
	static const struct failure failures[] = {
		{ "cuPointerGetAttributes:1:999", COLLET_ERR_SYSTEM, "asking where a buffer is" },
		{ "cuStreamCreateWithPriority:1:2", COLLET_ERR_MEMORY,
			"collet_allreduce: cuda: creating a stream for copies: CUDA_ERROR_OUT_OF_MEMORY" },
		{ "cuMemcpyAsync:1:1", COLLET_ERR_SYSTEM, "copying a buffer from the GPU: CUDA_ERROR_INVALID_VALUE" },
		{ "cuStreamSynchronize:2:700", COLLET_ERR_SYSTEM, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ "cuMemcpyAsync:2:1", COLLET_ERR_SYSTEM, "copying a result to the GPU" },
		{ "cuMemHostRegister:1:2", COLLET_OK, NULL },  /* slower, but no error */
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

static void leave_pending(struct rank *rank)
{
	struct program program;
	struct buffer gpu;
	collet_request *request = NULL;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &request;
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&gpu, &program, true, 400), "no GPU"))
		return;
	/* Nobody sends this. */
	rank_ok(rank, collet_recv(rank->comm, gpu.first, 100, COLLET_F32, COLLET_ANY_SOURCE, 9, NULL, &how), "recv");
	rank_destroy(rank);
	buffer_free(&gpu);
	rank_check(rank, program_end(&program), "another context is current than before");
}

/* Leaks nothing: checked where memory is. */
static void a_request_that_never_ends_goes_with_its_communicator(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, leave_pending);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_gives_what_it_gives_on_the_host),
		cmocka_unit_test(what_cannot_be_done_is_refused),
		cmocka_unit_test(what_the_driver_refuses_is_an_error_of_that_call),
		cmocka_unit_test(a_request_that_never_ends_goes_with_its_communicator),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
