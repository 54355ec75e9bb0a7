/* Long messages from GPU to GPU. If the receiver cannot access the sender's memory, or reads it wrong, the message is
 * staged through the host, and the log says so once. The number of open mappings is bounded. A rank lost meanwhile is
 * named. Contents are tested by test_p2p.c, and freed memory by test_freed_memory.c. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <collet/cuda.h>
#include "api/comm.h"
#include "core/clock.h"
#include "cuda/gpu_context.h"
#include "gpu.h"

enum {
	EAGER = 64 << 10,            /* bytes that are sent without asking first */
	LONG = (3 << 20) + 7,
	TAG = 5
};
static const int64_t SOON_NS = INT64_C(5) * 1000 * 1000 * 1000;

/* ---- A ring ---- */

static uint8_t value_at(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 89 + i * 7 + i / 251);
}

/* Sends from each rank to the next, `bytes` bytes at offset `at` of their allocations. */
static collet_status pass_on(struct gpu *gpu, struct buffer *sent, size_t at, size_t bytes, uint32_t seed)
{
	struct rank *rank = gpu->rank;
	const uint32_t next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
	struct buffer got;
	uint8_t *values = malloc(at + bytes);
	for (size_t i = 0; i < at + bytes; i++)
		values[i] = value_at(seed + rank->rank, i);
	const struct buffer part = { .program = sent->program, .gpu = true, .first = sent->first, .bytes = at + bytes };
	if (!rank_check(rank, buffer_write(&part, values) && buffer_make(&got, &gpu->program, true, at + bytes),
		    "buffers"))
		return COLLET_ERR_MEMORY;
	memset(values, 0, at + bytes);
	rank_check(rank, buffer_write(&got, values), "writing");
	const collet_status status = collet_sendrecv(rank->comm, sent->first + at, bytes, next, TAG, got.first + at,
		bytes, before, TAG, COLLET_U8, NULL, NULL);
	rank_check(rank, buffer_read(&got, values), "reading");
	bool fine = true;
	for (size_t i = 0; i < at + bytes && status == COLLET_OK && fine; i++)
		fine = rank_check(rank, values[i] == (i < at ? 0 : value_at(seed + before, i)), "%s: byte %zu is %u",
			rank->report->doing, i, values[i]);
	buffer_free(&got);
	free(values);
	return status;
}

static bool pass_right(struct gpu *gpu, struct buffer *sent, size_t at, size_t bytes, uint32_t seed, bool is_direct)
{
	const uint64_t before = rank_received(gpu->rank, "cuda_ipc");
	if (!rank_ok(gpu->rank, pass_on(gpu, sent, at, bytes, seed), "passing on"))
		return false;
	const uint64_t came = rank_received(gpu->rank, "cuda_ipc") - before;
	return rank_check(gpu->rank, came == is_direct, "%s: %u messages from GPU to GPU", gpu->rank->report->doing,
		(unsigned)came);
}

/* The context of a run's options. */
struct world {
	bool own;                    /* each rank has a GPU of its own */
	/* FAKE_CUDA_FAIL of rank 1, set once all are there. Earlier calls count, too: three copies, and two
	 * allocations. */
	const char *failure;
	const char *words;           /* logged by rank 1, once */
	bool ends;                   /* the communicator ends; otherwise messages are staged */
	uint32_t times;              /* so many times, and afterwards go from GPU to GPU */
	bool both;                   /* the messages that it sends, too */
};

/* All on the first GPU, or each on its own. */
static bool start_on(struct gpu *gpu, struct rank *rank, bool own)
{
	return gpu_start_on(gpu, rank, own ? (int)rank->rank : 0) && rank_create(rank);
}

static bool start(struct gpu *gpu, struct rank *rank)
{
	return start_on(gpu, rank, false);
}

/* ---- Alignment ---- */

static void pass_unaligned(struct rank *rank)
{
	static const size_t at[] = { 0, 1, 3, 4096, 4099 }, bytes[] = { EAGER, EAGER + 1, EAGER + 4095, LONG };
	struct gpu gpu;
	struct buffer sent;
	if (!start_on(&gpu, rank, rank->options->context) || !buffer_make(&sent, &gpu.program, true, LONG + 4099))
		return;
	for (uint32_t row = 0; row < 20 && !rank->report->failed; row++) {
		rank_doing(rank, "%zu bytes at %zu", bytes[row % 4], at[row / 4]);
		pass_right(&gpu, &sent, at[row / 4], bytes[row % 4], row, bytes[row % 4] > EAGER);
	}
	buffer_free(&sent);
	gpu_end(&gpu);
}

static void any_bytes_of_an_allocation_are_copied(void **state)
{
	static const bool own = true;
	const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm" },
		{ .size = 3, .transport = "tcp", .mode = RANKS_MIXED },
		{ .size = 2, .transport = "shm", .context = &own },
		{ .size = 2, .transport = "tcp", .mode = RANKS_THREADS, .context = &own },
		{ .size = 1, .transport = "shm" },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		struct ranks_options options = worlds[w];
		options.bare = true;
		ranks_must_pass(&options, pass_unaligned);
	}
}

/* ---- Open mappings ---- */

static void pass_many(struct rank *rank)
{
	enum { BUFFERS = 6, MOST = 2, ROUNDS = 3, BYTES = EAGER + 100 };
	struct gpu gpu;
	struct buffer sent[BUFFERS];
	if (!start(&gpu, rank))
		return;
	struct collet_ipc_cache *opened = &rank->comm->context->gpu->device.ipc_cache;
	opened->max_count = MOST;
	for (int b = 0; b < BUFFERS; b++)
		if (!rank_check(rank, buffer_make(&sent[b], &gpu.program, true, 2 << 20), "a buffer"))
			return;
	for (uint32_t i = 0; i < ROUNDS * BUFFERS && !rank->report->failed; i++) {
		rank_doing(rank, "buffer %u", i % BUFFERS);
		pass_right(&gpu, &sent[i % BUFFERS], 0, BYTES, i, true);
		rank_check(rank, opened->count <= MOST, "%u are open", opened->count);
	}
	for (int b = 0; b < BUFFERS; b++)
		buffer_free(&sent[b]);
	gpu_end(&gpu);
}

static void no_more_is_kept_open_than_there_is_room_for(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, pass_many);
}

/* Memory that is passed by descriptor, whose receiver has lost its mapping. */
static void lose_descriptors(struct rank *rank)
{
	enum { BYTES = 2 << 20 };
	struct gpu gpu;
	void *memory = NULL;
	if (!start(&gpu, rank) || !rank_ok(rank, collet_mem_alloc_device(rank->comm, &memory, BYTES), "memory"))
		return;
	struct collet_ipc_cache *opened = &rank->comm->context->gpu->device.ipc_cache;
	struct buffer sent = { .program = &gpu.program, .gpu = true, .first = memory, .bytes = BYTES };
	rank_doing(rank, "at first");
	pass_right(&gpu, &sent, 5, BYTES - 5, 1, true);
	opened->max_count = 0;
	rank_doing(rank, "for the last time that it is open");
	pass_right(&gpu, &sent, 5, BYTES - 5, 2, true);
	opened->max_count = 8;
	rank_doing(rank, "not open any more");
	pass_right(&gpu, &sent, 5, BYTES - 5, 3, false);
	rank_doing(rank, "sent again");
	pass_right(&gpu, &sent, 5, BYTES - 5, 4, true);
	rank_ok(rank, collet_mem_free(rank->comm, memory), "freeing");
	gpu_end(&gpu);
}

static void a_descriptor_that_is_lost_is_sent_again(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "tcp", .bare = true };
	ranks_must_pass(&options, lose_descriptors);
}

/* ---- Errors ---- */

/* How often words occur in the process's log, which may lose its stderr. */
static unsigned times_logged(int log, const char *words)
{
	char text[8192];
	const ssize_t got = pread(log, text, sizeof(text) - 1, 0);
	unsigned times = 0;
	text[got > 0 ? got : 0] = '\0';
	for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
		times++;
	return times;
}

static void fail_there(struct rank *rank)
{
	const struct world *world = rank->options->context;
	struct gpu gpu;
	struct buffer sent;
	const bool refused = rank->rank == 1;
	const int log = memfd_create("log", MFD_CLOEXEC);
	if (!rank_check(rank, log >= 0 && dup2(log, STDERR_FILENO) >= 0, "no log"))
		return;
	setenv("COLLET_LOG", "info", 1);
	if (!start_on(&gpu, rank, world->own) || !buffer_make(&sent, &gpu.program, true, LONG))
		return;
	rank_doing(rank, "%s", world->failure);
	if (refused)
		setenv("FAKE_CUDA_FAIL", world->failure, 1);
	for (uint32_t i = 0; i < 4 && !rank->report->failed; i++) {
		if (world->ends)
			rank_status(rank, pass_on(&gpu, &sent, 0, LONG, i), COLLET_ERR_SYSTEM, "passing on");
		else
			pass_right(&gpu, &sent, 0, LONG, i, (!refused && !world->both) || i >= world->times);
		if (world->ends)
			break;
	}
	unsetenv("FAKE_CUDA_FAIL");
	if (world->ends)
		rank_check(rank, strstr(collet_last_error(), world->words) != NULL, "%s", collet_last_error());
	else
		rank_check(rank, times_logged(log, world->words) == refused, "logged %u times: %s",
			times_logged(log, world->words), world->words);
	buffer_free(&sent);
	gpu_end(&gpu);
	close(log);
}

static void memory_that_cannot_be_opened_is_staged(void **state)
{
	static const char from[] = "messages from rank 0 by way of the host, and not from its GPU to this one's";
	static const struct world worlds[] = {
		{ .failure = "cuIpcOpenMemHandle:1+:201", .words = from, .times = 4 },
		{ .failure = "cuIpcOpenMemHandle:1:201", .words = from, .times = 1 },
		{ .own = true, .failure = "cuIpcOpenMemHandle:2:999", .words = from, .times = 1 },
		{ .failure = "cuMemcpyAsync:6:1", .words = from, .times = 1 },
		{ .failure = "cuMemcpyAsync:8:1", .words = "a message of 3145735 bytes by way of the host",
			.times = 1 },
		{ .failure = "cuMemAlloc:4:2", .words = "messages of this GPU go by way of the host", .times = 4,
			.both = true },
		{ .failure = "cuEventQuery:1:700", .words = "a message from GPU to GPU: CUDA_ERROR_ILLEGAL_ADDRESS",
			.ends = true },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &worlds[w] };
		print_message("%s\n", worlds[w].failure);
		ranks_must_pass(&options, fail_there);
	}
}

static bool find(struct gpu *gpu, void *slot, const char *name)
{
	void *address = dlsym(gpu->program.driver, name);
	memcpy(slot, &address, sizeof(address));
	return rank_check(gpu->rank, address != NULL, "no %s", name);
}

/* ---- A driver that dies behind the copy ---- */

struct death {
	const char *call;            /* this call of rank 1, the receiver, fails */
	unsigned nth;                /* counted from now, and every call after it */
	bool own;                    /* each rank has a GPU of its own */
};

/* Nothing works in rank 1 from then on. So it cannot find out whether the copy is over, nor stop it, nor free its
 * driver objects. */
static void die_behind(struct rank *rank)
{
	const struct death *death = rank->options->context;
	const bool dies = rank->rank == 1;
	__typeof__(fakeFail) *fail_at;
	__typeof__(fakeFailed) *failed;
	__typeof__(fakeCallsOf) *calls_of;
	__typeof__(fakeWaitAll) *wait_all;
	char failure[64];
	struct gpu gpu;
	struct buffer buffer;
	if (!start_on(&gpu, rank, death->own) || !buffer_make(&buffer, &gpu.program, true, LONG))
		return;
	if (!find(&gpu, &fail_at, "fakeFail") || !find(&gpu, &failed, "fakeFailed") ||
		!find(&gpu, &calls_of, "fakeCallsOf") || !find(&gpu, &wait_all, "fakeWaitAll"))
		return;
	rank->leaks = dies;
	rank_doing(rank, "%s", death->call);
	snprintf(failure, sizeof(failure), "%s:%u!:700", death->call, calls_of(death->call) + death->nth);
	if (dies)
		setenv("FAKE_CUDA_FAIL", failure, 1);
	const collet_status status = dies ? collet_recv(rank->comm, buffer.first, LONG, COLLET_U8, 0, TAG, NULL, NULL) :
		collet_send(rank->comm, buffer.first, LONG, COLLET_U8, 1, TAG, NULL);
	rank_status(rank, status, COLLET_ERR_SYSTEM, "the message");
	rank_check(rank, strstr(collet_last_error(), "rank 1 on ") &&
			strstr(collet_last_error(),
				": cuda: copying a message from GPU to GPU: CUDA_ERROR_ILLEGAL_ADDRESS"),
		"%s: %s", death->call, collet_last_error());
	rank_check(rank, !dies || (failed() && strcmp(failed(), death->call) == 0), "%s has not failed", death->call);
	unsetenv("FAKE_CUDA_FAIL");
	const int64_t began_ns = collet_clock_ns();
	rank_destroy(rank);
	rank_check(rank, collet_clock_ns() - began_ns < SOON_NS, "%s: destroying took %lld ms", death->call,
		(long long)(collet_clock_ns() - began_ns) / 1000000);
	/* The copy may still run: the memory that it reads and writes exists. */
	rank_check(rank, wait_all(), "%s: streams are stuck", death->call);
	fail_at(0, CU_OK, false);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_driver_that_dies_behind_a_copy_is_named_on_both_ranks(void **state)
{
	/* The copy, after those of the test; recording its event; and querying that. */
	static const struct death deaths[] = {
		{ "cuMemcpyAsync", 5 }, { "cuEventRecord", 1 }, { "cuEventQuery", 1 },
		{ "cuMemcpyAsync", 5, .own = true }, { "cuEventRecord", 1, .own = true },
		{ "cuEventQuery", 1, .own = true },
	};
	for (size_t d = 0; d < sizeof(deaths) / sizeof(deaths[0]); d++) {
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &deaths[d] };
		print_message("%s, %u\n", deaths[d].call, deaths[d].nth);
		ranks_must_pass(&options, die_behind);
	}
}

/* Rank 1 reads opened memory wrong. It is no leader, so nobody has detected it before. */
static void read_astray(struct rank *rank)
{
	struct gpu gpu;
	struct buffer sent;
	const int log = memfd_create("log", MFD_CLOEXEC);
	if (!rank_check(rank, log >= 0 && dup2(log, STDERR_FILENO) >= 0, "no log"))
		return;
	setenv("COLLET_LOG", "warn", 1);
	if (rank->rank == 1)
		setenv("FAKE_CUDA_ASTRAY", "reads", 1);
	if (!start(&gpu, rank) || !buffer_make(&sent, &gpu.program, true, LONG))
		return;
	for (uint32_t i = 0; i < 3 && !rank->report->failed; i++) {
		rank_doing(rank, "message %u", i);
		pass_right(&gpu, &sent, 0, LONG, i, rank->rank != 1);
	}
	rank_check(rank, times_logged(log, "are wrong; is an IOMMU in the way?") == (rank->rank == 1), "the log");
	buffer_free(&sent);
	gpu_end(&gpu);
	close(log);
}

static void a_gpu_that_reads_wrong_is_found_out_before_the_first_message(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, read_astray);
}

static void pass_two(struct rank *rank)
{
	struct gpu gpu;
	struct buffer sent;
	setenv("COLLET_CUDA_DIRECT", "0", 1);
	if (!start(&gpu, rank) || !buffer_make(&sent, &gpu.program, true, LONG))
		return;
	rank_doing(rank, "by way of the host, as asked for");
	pass_right(&gpu, &sent, 0, LONG, 1, false);
	buffer_free(&sent);
	gpu_end(&gpu);
}

static void by_way_of_the_host_is_what_may_be_asked_for(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, pass_two);
}

/* ---- Lost ranks ---- */

enum loss { DIES, ABORTS, LEAVES_IT, LOSSES };

struct lost {
	bool sender;                 /* rank 1 sends */
	/* in the middle of the copy, which never completes for the receiver; otherwise before a receive is posted */
	bool matched;
	enum loss how;
};

/* Rank 1 is lost; LEAVES_IT: it never calls, and rank 0 times out. */
static void lose_one(struct rank *rank)
{
	const struct lost *lost = rank->options->context;
	static const collet_status wanted[LOSSES] = { COLLET_ERR_PEER_LOST, COLLET_ERR_ABORTED, COLLET_ERR_TIMEOUT };
	struct gpu gpu;
	struct buffer buffer;
	collet_request *request = NULL;
	const bool gone = rank->rank == 1, sends = gone == lost->sender;
	const collet_how how = { .request = &request,
		.timeout_ns = lost->how == LEAVES_IT && !gone ? 100 * 1000 * 1000 : 0 };
	if (!start(&gpu, rank) || !buffer_make(&buffer, &gpu.program, true, LONG))
		return;
	if (lost->matched && !sends)
		setenv("FAKE_CUDA_FAIL", "cuEventQuery:0:600", 1);  /* CUDA_ERROR_NOT_READY */
	if (!gone || lost->matched)
		rank_ok(rank, sends ? collet_send(rank->comm, buffer.first, LONG, COLLET_U8, 1 - rank->rank, TAG, &how)
				    : collet_recv(rank->comm, buffer.first, LONG, COLLET_U8, 1 - rank->rank, TAG, NULL,
					      &how),
			"starting");
	rank_post(rank, 0);
	rank_await(rank, 0, 2);
	for (int i = 0; i < 20 && gone && request; i++)
		rank_check(rank, collet_request_test(&request) == COLLET_PENDING, "it has ended already");
	if (gone && lost->how == DIES)
		raise(SIGKILL);
	if (gone && lost->how == ABORTS)
		collet_comm_abort(rank->comm);
	if (!gone) {
		rank_status(rank, collet_request_wait(&request), wanted[lost->how], "the survivor");
		rank_post(rank, 1);
	} else if (lost->how == LEAVES_IT) {
		rank_await(rank, 1, 1);
	}
	rank_destroy(rank);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_lost_rank_ends_it(void **state)
{
	static const struct lost rows[] = {
		{ true, true, DIES }, { false, true, DIES }, { false, false, DIES }, { true, true, ABORTS },
		{ false, true, ABORTS }, { false, false, ABORTS }, { false, false, LEAVES_IT },
		{ true, false, LEAVES_IT },
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &rows[r] };
		struct ranks *ranks = ranks_start(&options, lose_one);
		ranks_wait(ranks);
		assert_int_equal(ranks_report(ranks, 1)->end, rows[r].how == DIES ? RANK_KILLED : RANK_RETURNED);
		if (ranks_report(ranks, 0)->failed || ranks_report(ranks, 0)->end != RANK_RETURNED)
			fail_msg("row %zu: %s", r, ranks_report(ranks, 0)->sentence);
		if (rows[r].how != DIES && ranks_report(ranks, 1)->failed)
			fail_msg("row %zu, rank 1: %s", r, ranks_report(ranks, 1)->sentence);
		ranks_free(&ranks);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_bytes_of_an_allocation_are_copied),
		cmocka_unit_test(no_more_is_kept_open_than_there_is_room_for),
		cmocka_unit_test(a_descriptor_that_is_lost_is_sent_again),
		cmocka_unit_test(memory_that_cannot_be_opened_is_staged),
		cmocka_unit_test(a_driver_that_dies_behind_a_copy_is_named_on_both_ranks),
		cmocka_unit_test(a_gpu_that_reads_wrong_is_found_out_before_the_first_message),
		cmocka_unit_test(by_way_of_the_host_is_what_may_be_asked_for),
		cmocka_unit_test(a_lost_rank_ends_it),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
