/* Calls on GPU memory, by way of the host's: every collective, with its buffers on the GPU, on the host, or one on
 * each, gives what it gives on the host, byte for byte, and leaves the rest of the buffers alone. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "program.h"
#include "ranks.h"

enum { ROOT = 1, SENTINEL = 0xa5, MOST = 4 };

enum kind {
	ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, ALLGATHERV, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL, EXCHANGE, KINDS
};

static const char *const names[KINDS] = { "allreduce", "reduce", "broadcast", "allgather", "allgatherv",
	"reduce_scatter", "gather", "scatter", "alltoall", "sendrecv" };

/* How one call is made. */
struct row {
	enum kind kind;
	uint64_t count;
	bool send_on_gpu, recv_on_gpu, in_place, request;
};

/* The v-form's: rank r gives r + count elements, and there is a gap before each. */
struct listed {
	uint64_t counts[MOST], displacements[MOST], end;
};

static struct listed list(uint32_t size, uint64_t count)
{
	struct listed listed = { .end = 0 };
	for (uint32_t r = 0; r < size; r++) {
		listed.displacements[r] = listed.end + 3;
		listed.counts[r] = count + r;
		listed.end = listed.displacements[r] + listed.counts[r];
	}
	return listed;
}

/* Elements of a rank's buffers; 0: it does not use it. */
static uint64_t send_count(const struct rank *rank, const struct row *row)
{
	switch (row->kind) {
	case BROADCAST: return rank->rank == ROOT ? row->count : 0;
	case ALLGATHERV: return row->count + rank->rank;
	case REDUCE_SCATTER:
	case ALLTOALL: return row->count * rank->size;
	case SCATTER: return rank->rank == ROOT ? row->count * rank->size : 0;
	default: return row->count;
	}
}

static uint64_t recv_count(const struct rank *rank, const struct row *row)
{
	switch (row->kind) {
	case REDUCE: return rank->rank == ROOT ? row->count : 0;
	case ALLGATHER:
	case ALLTOALL: return row->count * rank->size;
	case ALLGATHERV: return list(rank->size, row->count).end;
	case GATHER: return rank->rank == ROOT ? row->count * rank->size : 0;
	case EXCHANGE: return row->count + 7;  /* longer than what comes */
	default: return row->count;
	}
}

/* Where the smaller buffer lies in the larger one, in elements, when a call is in place. */
static uint64_t in_place_at(const struct rank *rank, const struct row *row)
{
	switch (row->kind) {
	case ALLGATHERV: return list(rank->size, row->count).displacements[rank->rank];
	case ALLGATHER:
	case REDUCE_SCATTER:
	case GATHER:
	case SCATTER: return row->count * rank->rank;
	default: return 0;
	}
}

static bool can_be_in_place(const struct rank *rank, const struct row *row)
{
	return row->kind != EXCHANGE && row->send_on_gpu == row->recv_on_gpu && send_count(rank, row) &&
		recv_count(rank, row);
}

static collet_status call(struct rank *rank, const struct row *row, const void *send, void *recv, const collet_how *how)
{
	collet_comm *comm = rank->comm;
	const uint64_t count = row->count;
	const struct listed listed = list(rank->size, count);
	const uint32_t next = (rank->rank + 1) % rank->size, previous = (rank->rank + rank->size - 1) % rank->size;
	switch (row->kind) {
	case ALLREDUCE: return collet_allreduce(comm, send, recv, count, COLLET_F32, COLLET_SUM, how);
	case REDUCE: return collet_reduce(comm, send, recv, count, COLLET_F32, COLLET_SUM, ROOT, how);
	case BROADCAST: return collet_broadcast(comm, send, recv, count, COLLET_F32, ROOT, how);
	case ALLGATHER: return collet_allgather(comm, send, recv, count, COLLET_F32, how);
	case ALLGATHERV:
		return collet_allgatherv(comm, send, count + rank->rank, recv, listed.counts, listed.displacements,
			COLLET_F32, how);
	case REDUCE_SCATTER: return collet_reduce_scatter(comm, send, recv, count, COLLET_F32, COLLET_SUM, how);
	case GATHER: return collet_gather(comm, send, recv, count, COLLET_F32, ROOT, how);
	case SCATTER: return collet_scatter(comm, send, recv, count, COLLET_F32, ROOT, how);
	case ALLTOALL: return collet_alltoall(comm, send, recv, count, COLLET_F32, how);
	case EXCHANGE:
		return collet_sendrecv(
			comm, send, count, next, 5, recv, count + 7, previous, 5, COLLET_F32, NULL, how);
	case KINDS: break;
	}
	abort();
}

static bool call_and_wait(struct rank *rank, const struct row *row, const void *send, void *recv)
{
	collet_request *request = NULL;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = row->request ? &request : NULL;
	return rank_ok(rank, call(rank, row, send, recv, &how), names[row->kind]) &&
		rank_ok(rank, collet_request_wait(&request), "waiting");
}

/* Runs the row with buffers as it says, and writes what is in them afterwards to sent and received. */
static bool run(struct rank *rank, const struct row *row, const struct program *program, char *sent, char *received)
{
	const size_t send_bytes = send_count(rank, row) * sizeof(float);
	const size_t recv_bytes = recv_count(rank, row) * sizeof(float);
	const size_t at = in_place_at(rank, row) * sizeof(float);
	const bool in_place = row->in_place && can_be_in_place(rank, row);
	struct buffer send = { 0 }, recv = { 0 };
	bool fine;
	if (in_place) {
		const bool recv_is_larger = recv_bytes >= send_bytes;
		fine = buffer_make(&recv, program, row->recv_on_gpu, recv_is_larger ? recv_bytes : send_bytes);
		char *whole = recv_is_larger ? received : sent;
		if (recv_is_larger)
			memcpy(received + at, sent, send_bytes);
		fine = fine && buffer_write(&recv, whole) &&
			call_and_wait(rank, row, recv.first + (recv_is_larger ? at : 0),
				recv.first + (recv_is_larger ? 0 : at)) &&
			buffer_read(&recv, whole);
		if (fine && !recv_is_larger)
			memcpy(received, sent + at, recv_bytes);
	} else {
		fine = buffer_make(&send, program, row->send_on_gpu, send_bytes) &&
			buffer_make(&recv, program, row->recv_on_gpu, recv_bytes) && buffer_write(&send, sent) &&
			buffer_write(&recv, received) &&
			call_and_wait(rank, row, send_bytes ? send.first : NULL, recv_bytes ? recv.first : NULL) &&
			buffer_read(&send, sent) && buffer_read(&recv, received);
	}
	buffer_free(&send);
	buffer_free(&recv);
	return rank_check(rank, fine, "the driver failed, or the call");
}

/* The row on the host, then as it says; both must agree. */
static bool compare(struct rank *rank, const struct row *row, const struct program *program)
{
	const size_t send_bytes = send_count(rank, row) * sizeof(float);
	const size_t recv_bytes = recv_count(rank, row) * sizeof(float);
	float *given = malloc(send_bytes + 1);
	char *buffers[4] = { malloc(send_bytes + 1), malloc(recv_bytes + 1), malloc(send_bytes + 1),
		malloc(recv_bytes + 1) };
	rank_doing(rank, "%s of %llu, send on the %s, recv on the %s%s%s", names[row->kind],
		(unsigned long long)row->count, row->send_on_gpu ? "GPU" : "host", row->recv_on_gpu ? "GPU" : "host",
		row->in_place ? ", in place" : "", row->request ? ", by a request" : "");
	for (size_t i = 0; i < send_bytes / sizeof(float); i++)
		given[i] = (float)(1 + i % 97) * 0.37f + (float)rank->rank;
	for (int b = 0; b < 4; b += 2) {
		memcpy(buffers[b], given, send_bytes);
		memset(buffers[b + 1], SENTINEL, recv_bytes);
	}
	struct row on_host = *row;
	on_host.send_on_gpu = on_host.recv_on_gpu = on_host.request = false;
	bool fine = run(rank, &on_host, program, buffers[0], buffers[1]) &&
		run(rank, row, program, buffers[2], buffers[3]);
	fine = fine && rank_check(rank, memcmp(buffers[1], buffers[3], recv_bytes) == 0, "recv differs: %s",
		rank->report->doing);
	fine = fine &&
	       rank_check(rank, row->in_place || memcmp(buffers[2], given, send_bytes) == 0, "send has changed");
	for (int b = 0; b < 4; b++)
		free(buffers[b]);
	free(given);
	return fine;
}

static void all_rows(struct rank *rank)
{
	static const uint64_t counts[] = { 0, 1, 70000 };
	struct program program;
	if (!rank_check(rank, program_start(&program, 0), "the driver does not start"))
		return;
	bool fine = true;
	for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]) && fine; c++)
		for (uint32_t kind = 0; kind < KINDS && fine; kind++)
			for (uint32_t how = 0; how < 16 && fine; how++) {
				const struct row row = {(enum kind)kind, counts[c], how & 1, how & 2, how & 4, how & 8};
				fine = compare(rank, &row, &program);
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
	rank_status(rank, collet_mem_register(rank->comm, gpu.first, 400), COLLET_ERR_UNSUPPORTED, "registering");
	/* Nothing of that has hurt the communicator. */
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
	const char *fail;    /* FAKE_CUDA_FAIL, of rank 0 */
	collet_status status;
	const char *words;
};

/* On every rank alike, so that nobody waits for one that never came. */
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
		{ "cuStreamCreate:1:2", COLLET_ERR_MEMORY, "collet_allreduce: cuda: making a stream to copy on: "
						"CUDA_ERROR_OUT_OF_MEMORY" },
		{ "cuMemcpyAsync:1:1", COLLET_ERR_SYSTEM, "copying a buffer from the GPU: CUDA_ERROR_INVALID_VALUE" },
		{ "cuStreamSynchronize:1:700", COLLET_ERR_SYSTEM, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ "cuMemcpyAsync:2:1", COLLET_ERR_SYSTEM, "copying a result to the GPU" },
		{ "cuMemHostRegister:1:2", COLLET_OK, NULL },  /* slower, and no error */
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

/* Leaks nothing: looked at where memory is. */
static void a_request_that_never_ends_goes_with_its_communicator(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, leave_pending);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_gives_what_it_gives_on_the_host),
		cmocka_unit_test(what_cannot_be_done_is_refused),
		cmocka_unit_test(what_the_driver_refuses_is_an_error_of_that_call),
		cmocka_unit_test(a_request_that_never_ends_goes_with_its_communicator),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
