/* Messages of GPU memory. From and to either kind of memory, they deliver what was sent and leave the rest alone. Long
 * ones need no more page-locked memory than some cells, and are copied while they travel. However a message ends, its
 * resources are free for the next.
 *
 * They are staged through the host, since ranks whose program has not used a GPU when they are created know of none.
 * "ipc-get": the same for ranks that have, so that long messages between GPUs bypass the host. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu.h"
#include "sample.h"

enum {
	CELL = (512 << 10) / sizeof(uint32_t), /* elements */
	CELLS = 8,
	EAGER = (64 << 10) / sizeof(uint32_t), /* sent without asking first */
	LONG = 11 * CELL + 77,
	SENTINEL = 0x5a5a5a5a,
	TAG = 5, NEXT_TAG = 6
};

static bool uses_ipc_get;

/* Starts the first GPU, or, if the options say so, each rank's own. */
static bool begin_on(struct gpu *gpu, struct rank *rank, bool own)
{
	return gpu_start_on(gpu, rank, own ? (int)rank->rank : 0) && (!uses_ipc_get || rank_create(rank));
}

static bool begin(struct gpu *gpu, struct rank *rank)
{
	return begin_on(gpu, rank, false);
}

static void must_pass(struct ranks_options options, ranks_body *body)
{
	options.bare = uses_ipc_get;
	ranks_must_pass(&options, body);
}

/* In every mode, over shm and tcp; a sample has at least one of these. */
static void must_pass_everywhere(struct ranks_options options, ranks_body *body)
{
	enum { MODES = 3, RUNS = 2 * MODES };
	static const char *const modes[MODES] = { "processes", "threads", "mixed" };
	for (uint64_t run = 0; run < RUNS; run++) {
		if (!sample_of(RUNS, run))
			continue;
		options.mode = (enum ranks_mode)(run % MODES);
		options.transport = run / MODES ? "tcp" : "shm";
		print_message("%s over %s\n", modes[run % MODES], options.transport);
		must_pass(options, body);
	}
}

/* Bytes of this rank's messages that went from GPU to GPU, and of all others. */
static uint64_t bytes_moved(struct rank *rank, uint64_t *others)
{
	collet_stat rows[64];
	size_t count = 0;
	uint64_t bypasses_host = 0;
	*others = 0;
	rank_ok(rank, collet_comm_stats(rank->comm, rows, sizeof(rows) / sizeof(rows[0]), &count), "statistics");
	for (size_t i = 0; i < count; i++) {
		if (rows[i].kind != COLLET_STAT_ENDPOINT)
			continue;
		const uint64_t bytes = rows[i].bytes_sent + rows[i].bytes_received;
		if (strcmp(rows[i].name, "cuda_ipc") == 0)
			bypasses_host += bytes;
		else
			*others += bytes;
	}
	return bypasses_host;
}

/* ---- Buffers ---- */

/* Each place has another value, so that misplaced data is found. */
static uint32_t value_at(uint32_t seed, uint64_t i)
{
	return seed * 2654435761u + (uint32_t)i * 40503u;
}

/* A buffer of `length` elements, of which the first `count` are from the seed. */
static bool make(struct gpu *gpu, struct buffer *buffer, bool on_gpu, uint64_t length, uint64_t count, uint32_t seed)
{
	uint32_t *values = malloc(length * sizeof(*values) + 1);
	for (uint64_t i = 0; i < length; i++)
		values[i] = i < count ? value_at(seed, i) : SENTINEL;
	const bool fine = buffer_make(buffer, &gpu->program, on_gpu, length * sizeof(*values)) &&
			  buffer_write(buffer, values);
	free(values);
	return rank_check(gpu->rank, fine, "a buffer");
}

/* True if the first `count` are from the seed, and the rest is untouched. */
static bool holds(struct gpu *gpu, const struct buffer *buffer, uint64_t count, uint32_t seed)
{
	const uint64_t length = buffer->bytes / sizeof(uint32_t);
	uint32_t *values = malloc(buffer->bytes + 1);
	bool fine = rank_check(gpu->rank, buffer_read(buffer, values), "reading a buffer");
	for (uint64_t i = 0; i < length && fine; i++)
		fine = rank_check(gpu->rank, values[i] == (i < count ? value_at(seed, i) : SENTINEL),
			"%s: element %llu of %llu is %x", gpu->rank->report->doing, (unsigned long long)i,
			(unsigned long long)length, values[i]);
	free(values);
	return fine;
}

/* ---- From and to either kind of memory ---- */

enum manner { BLOCKING, REQUEST, ON_STREAM, MANNERS };

struct message {
	uint64_t count, room;        /* elements: sent, and space at the receiver */
	bool from_gpu, to_gpu;
	enum manner manner;
	bool unexpected;             /* it arrives before it is received */
};

static bool finish(struct gpu *gpu, const struct message *message, collet_status status, collet_request **request)
{
	if (message->manner == ON_STREAM && status == COLLET_OK && !gpu_synchronize(gpu, 0))
		return false;
	return rank_ok(gpu->rank, status, "starting") && rank_ok(gpu->rank, collet_request_wait(request), "ending") &&
	       rank_ok(gpu->rank, collet_comm_error(gpu->rank->comm), "the communicator");
}

static collet_how how_of(const struct gpu *gpu, const struct message *message, collet_request **request)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = message->manner == REQUEST ? request : NULL;
	how.stream = message->manner == ON_STREAM ? gpu->stream[0] : NULL;
	return how;
}

static bool send_it(struct gpu *gpu, const struct message *message, uint32_t seed)
{
	struct rank *rank = gpu->rank;
	struct buffer buffer;
	collet_request *request = NULL, *early = NULL;
	uint32_t word = 1;
	collet_how how = how_of(gpu, message, &request);
	if (message->unexpected && message->manner == BLOCKING)
		how.request = &early;  /* it would wait for the receive */
	if (!make(gpu, &buffer, message->from_gpu, message->count, message->count, seed))
		return false;
	const collet_status status = collet_send(rank->comm, buffer.first, message->count, COLLET_U32, 1, TAG, &how);
	if (message->unexpected)
		rank_ok(rank, collet_send(rank->comm, &word, 1, COLLET_U32, 1, NEXT_TAG, NULL), "the word");
	const bool fine = finish(gpu, message, status, early ? &early : &request) &&
			  holds(gpu, &buffer, message->count, seed);
	buffer_free(&buffer);
	return fine;
}

static bool receive_it(struct gpu *gpu, const struct message *message, uint32_t seed)
{
	struct rank *rank = gpu->rank;
	struct buffer buffer;
	collet_request *request = NULL;
	collet_received received = { .count = 12345 };
	uint32_t word;
	const collet_how how = how_of(gpu, message, &request);
	if (message->unexpected)
		rank_ok(rank, collet_recv(rank->comm, &word, 1, COLLET_U32, 0, NEXT_TAG, NULL, NULL), "the word");
	if (!make(gpu, &buffer, message->to_gpu, message->room, 0, seed))
		return false;
	const collet_status status = collet_recv(
		rank->comm, buffer.first, message->room, COLLET_U32, COLLET_ANY_SOURCE, TAG, &received, &how);
	bool fine = finish(gpu, message, status, &request) && holds(gpu, &buffer, message->count, seed);
	fine = fine && rank_check(rank, received.count == message->count && received.source == 0, "received %llu",
			       (unsigned long long)received.count);
	buffer_free(&buffer);
	return fine;
}

static bool pass(struct gpu *gpu, const struct message *message, uint32_t seed)
{
	static const char *const manners[MANNERS] = {"", ", by a request", ", on a stream"};
	struct rank *rank = gpu->rank;
	rank_doing(rank, "%llu elements for %llu from the %s to the %s%s%s", (unsigned long long)message->count,
		(unsigned long long)message->room, message->from_gpu ? "GPU" : "host",
		message->to_gpu ? "GPU" : "host", manners[message->manner], message->unexpected ? ", unexpected" : "");
	enum { NOTES = 4096 };       /* bytes of control messages */
	uint64_t others_before, others;
	const uint64_t before = bytes_moved(rank, &others_before);
	if (rank->rank > 1)
		return true;
	if (!(rank->rank == 0 ? send_it(gpu, message, seed) : receive_it(gpu, message, seed)))
		return false;
	const uint64_t moved = bytes_moved(rank, &others) - before, bytes = message->count * sizeof(uint32_t);
	const bool bypasses_host = uses_ipc_get && message->from_gpu && message->to_gpu && message->count > EAGER;
	/* The receiver may already have received part of the next message. */
	return rank_check(rank, moved == (bypasses_host ? bytes : 0), "%s: %llu bytes from GPU to GPU",
		       rank->report->doing, (unsigned long long)moved) &&
	       rank_check(rank, rank->rank == 1 || others - others_before <= (bypasses_host ? 0 : bytes) + NOTES,
		       "%s: %llu bytes otherwise", rank->report->doing, (unsigned long long)(others - others_before));
}

static void pass_all(struct rank *rank)
{
	static const uint64_t counts[] = {0, 1, EAGER, EAGER + 1, CELL, CELL + 1, CELLS * CELL, CELLS * CELL + 1, LONG};
	struct gpu gpu;
	bool fine = true;
	if (!begin_on(&gpu, rank, rank->options->context))
		return;
	for (uint32_t row = 0; row < sizeof(counts) / sizeof(counts[0]) * 4 * MANNERS * 4 && fine; row++) {
		const uint64_t count = counts[row / 48];
		const struct message message = { .count = count,
			.room = count + (row & 8 ? CELL + 3 : 0),
			.from_gpu = row & 1,
			.to_gpu = row & 2,
			.manner = (enum manner)(row / 16 % MANNERS),
			.unexpected = row & 4 };
		const bool some_gpu = message.from_gpu || message.to_gpu;
		if (sample_has(row) && (some_gpu ? count <= CELL + 1 || !message.unexpected : !message.manner))
			fine = pass(&gpu, &message, row + 1);
	}
	gpu_end(&gpu);
}

static void messages_arrive_from_and_to_any_memory(void **state)
{
	static const bool own = true;
	const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" },
		{ .size = 2, .transport = "tcp", .progress_thread = true },
		{ .size = 2, .transport = "shm", .mode = RANKS_THREADS, .context = &own },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		must_pass(worlds[w], pass_all);
}

/* ---- Many at a time ---- */

/* A ring of ranks that all send before any receives, also to themselves, several messages with one tag. */
static void all_at_once(struct rank *rank)
{
	enum { EACH = 3, PEERS = 2, ALL = EACH * PEERS };
	const uint32_t to[PEERS] = {(rank->rank + 1) % rank->size, rank->rank};
	const uint32_t from[PEERS] = {(rank->rank + rank->size - 1) % rank->size, rank->rank};
	struct gpu gpu;
	struct buffer sent[ALL], got[ALL];
	collet_request *requests[2 * ALL] = {NULL};
	if (!begin(&gpu, rank))
		return;
	rank_doing(rank, "all at once");
	for (uint32_t m = 0; m < ALL; m++) {
		const uint32_t p = m % PEERS;
		make(&gpu, &sent[m], m % 3 != 2, LONG - m, LONG - m, 100 * rank->rank + m);
		make(&gpu, &got[m], m % 3 != 1, LONG, 0, 0);
		const collet_how sending = { .request = &requests[m] }, receiving = { .request = &requests[ALL + m] };
		rank_ok(rank, collet_send(rank->comm, sent[m].first, LONG - m, COLLET_U32, to[p], TAG, &sending),
			"send");
		rank_ok(rank, collet_recv(rank->comm, got[m].first, LONG, COLLET_U32, from[p], TAG, NULL, &receiving),
			"recv");
	}
	rank_ok(rank, collet_request_wait_all(requests, 2 * ALL), "waiting");
	for (uint32_t m = 0; m < ALL; m++) {
		holds(&gpu, &got[m], LONG - m, 100 * from[m % PEERS] + m);
		buffer_free(&sent[m]);
		buffer_free(&got[m]);
	}
	gpu_end(&gpu);
}

static void messages_do_not_wait_for_each_other(void **state)
{
	const struct ranks_options options = { .size = 3 };
	must_pass_everywhere(options, all_at_once);
}

/* ---- Memory, and overlap ---- */

static size_t locked_most(const struct gpu *gpu)
{
	size_t (*most)(void) = NULL;
	void *address = dlsym(gpu->program.driver, "fakeLockedMost");
	memcpy(&most, &address, sizeof(address));
	return most ? most() : SIZE_MAX;
}

/* With the ranks at distance `far`, in both directions. */
static bool exchange(struct gpu *gpu, uint32_t far, uint64_t count, cu_stream stream, collet_status wanted)
{
	struct rank *rank = gpu->rank;
	const uint32_t next = (rank->rank + far) % rank->size, before = (rank->rank + rank->size - far) % rank->size;
	const collet_how how = { .stream = stream };
	struct buffer sent, got;
	if (!make(gpu, &sent, true, count, count, 7 + rank->rank) || !make(gpu, &got, true, count, 0, 0))
		return false;
	bool fine = rank_status(rank,
		collet_sendrecv(rank->comm, sent.first, count, next, TAG, got.first, count, before, TAG, COLLET_U32,
			NULL, &how),
		wanted, "sendrecv");
	if (stream)
		fine = gpu_synchronize(gpu, 0) && fine;
	fine = fine && (wanted != COLLET_OK || holds(gpu, &got, count, 7 + before));
	buffer_free(&sent);
	buffer_free(&got);
	return fine;
}

/* Several times longer than all cells. ThreadSanitizer needs most of its time for the pages that it keeps for them. */
static uint64_t very_long(void)
{
	return (ranks_are_slow() ? UINT64_C(12) << 20 : UINT64_C(64) << 20) / sizeof(uint32_t);
}

/* In a message to itself, the fake driver blocks a rank that copies more than some cells to the host before any goes
 * the other way. */
static void exchange_long(struct rank *rank)
{
	struct gpu gpu;
	if (!begin(&gpu, rank))
		return;
	for (int row = 0; row < 4; row++) {
		const bool far = row & 1, on_stream = row & 2;
		rank_doing(rank, "long ones %s%s", far ? "each way" : "to oneself", on_stream ? ", on a stream" : "");
		if (!far)
			setenv("FAKE_CUDA_IN_BEFORE_OUT", "4194304", 1);
		exchange(&gpu, far, very_long(), on_stream ? gpu.stream[0] : NULL, COLLET_OK);
		unsetenv("FAKE_CUDA_IN_BEFORE_OUT");
	}
	/* Two calls' cells in each direction, and words for the stream. */
	rank_check(rank, locked_most(&gpu) < (size_t)(4 * CELLS + 2) * CELL * sizeof(uint32_t),
		"%zu bytes have been page-locked", locked_most(&gpu));
	gpu_end(&gpu);
}

static void long_ones_are_copied_while_they_travel_through_a_few_cells(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" }, { .size = 3, .transport = "tcp" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		must_pass(worlds[w], exchange_long);
}

/* ---- Receives that are too short ---- */

static void truncate_some(struct rank *rank)
{
	enum { ROWS = 12 };
	struct gpu gpu;
	bool fine = true;
	if (!begin(&gpu, rank))
		return;
	for (uint32_t row = 0; row < ROWS && fine; row++) {
		if (!sample_of(ROWS, row))
			continue;
		const uint64_t count = row < 4 ? 2 : row < 8 ? EAGER + 5 : LONG, room = row & 4 ? 1 : count - 1;
		struct buffer buffer;
		const bool mine = rank->rank == 0;
		rank_doing(rank, "%llu elements for %llu, from %d to %d", (unsigned long long)count,
			(unsigned long long)room, row & 1, row & 2);
		fine = make(&gpu, &buffer, row & (mine ? 1 : 2), mine ? count : room, mine ? count : 0, row);
		if (fine && mine)
			fine = rank_ok(rank, collet_send(rank->comm, buffer.first, count, COLLET_U32, 1, TAG, NULL),
				"send");
		else if (fine)
			fine = rank_status(rank,
				       collet_recv(rank->comm, buffer.first, room, COLLET_U32, 0, TAG, NULL, NULL),
				       COLLET_ERR_TRUNCATED, "recv") &&
			       holds(&gpu, &buffer, 0, row);
		buffer_free(&buffer);
		/* What was copied for a truncated message does not block later ones. */
		const struct message next = { .count = LONG, .room = LONG, .from_gpu = true, .to_gpu = true };
		fine = fine && pass(&gpu, &next, 50 + row);
	}
	gpu_end(&gpu);
}

static void a_message_that_is_too_long_fails_the_receive_alone(void **state)
{
	const struct ranks_options options = { .size = 2 };
	must_pass_everywhere(options, truncate_some);
}

/* ---- Graphs ---- */

/* Long and short ones at each launch, and some without a graph in between. With two ranks, a launch sends everything
 * there and back. */
static void replay(struct rank *rank)
{
	enum { SHORT = 100, ROUNDS = 4 };
	const uint32_t next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
	const uint64_t counts[2] = {LONG, SHORT};
	struct gpu gpu;
	struct buffer buffers[2][2];
	cu_graph_exec exec = NULL;
	bool fine = true;
	if (!begin(&gpu, rank))
		return;
	for (int i = 0; i < 2 && fine; i++)
		fine = make(&gpu, &buffers[i][0], true, counts[i], counts[i], 7 + rank->rank) &&
		       make(&gpu, &buffers[i][1], true, counts[i], 0, 0);
	const collet_how how = { .stream = gpu.stream[0] };
	fine = fine && gpu_begin_capture(&gpu, 0);
	for (int i = 0; i < 4 && fine; i++) {
		struct buffer *pair = buffers[i % 2];
		/* There, and onwards from there. */
		fine = rank_ok(rank, collet_sendrecv(rank->comm, pair[i / 2].first, counts[i % 2], next, TAG,
					     pair[1 - i / 2].first, counts[i % 2], before, TAG, COLLET_U32, NULL, &how),
			"captured");
	}
	fine = fine && gpu_end_capture(&gpu, 0, &exec);
	for (uint32_t i = 0; i < ROUNDS * rank->size && fine; i++) {
		rank_doing(rank, "launch %u", i);
		fine = gpu_launch(&gpu, exec, 0) && (i % 3 || exchange(&gpu, 1, LONG, gpu.stream[0], COLLET_OK)) &&
		       (i % 4 || (gpu_synchronize(&gpu, 0) && exchange(&gpu, 1, LONG, NULL, COLLET_OK)));
	}
	gpu_synchronize(&gpu, 0);
	for (int i = 0; i < 2 && fine; i++)
		fine = holds(&gpu, &buffers[i][0], counts[i], 7 + rank->rank) &&
		       holds(&gpu, &buffers[i][1], counts[i], 7 + before);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec) == CU_OK, "destroying a graph");
	for (int i = 0; i < 4; i++)
		buffer_free(&buffers[i / 2][i % 2]);
	gpu_end(&gpu);
}

static void a_graph_exchanges_at_each_launch(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" },
		{ .size = 2, .transport = "tcp", .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		must_pass(worlds[w], replay);
}

/* ---- Errors ---- */

struct failure {
	const char *fail; /* FAKE_CUDA_FAIL of rank 0 */
	const char *words;
};

static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct gpu gpu;
	if (!begin(&gpu, rank))
		return;
	if (rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	exchange(&gpu, 1, LONG, NULL, COLLET_ERR_SYSTEM);
	unsetenv("FAKE_CUDA_FAIL");
	rank_check(rank, strstr(collet_last_error(), failure->words) != NULL, "%s", collet_last_error());
	gpu_end(&gpu);
}

static void what_the_driver_refuses_is_said_on_both_sides(void **state)
{
	/* Before all of the peer's message can have left, which would complete its call. */
	static const struct failure failures[] = {
		{"cuMemcpyAsync:1:1", "copying a message from the GPU: CUDA_ERROR_INVALID_VALUE"},
		{"cuMemcpyAsync:10:1", "copying a message"},
		{"cuEventRecord:9:1", "copying a message"},
		{"cuEventQuery:3:700", "CUDA_ERROR_ILLEGAL_ADDRESS"},
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &failures[i] };
		must_pass(options, fail_once);
	}
}

/* Rank 1 dies in the middle of sending or receiving. */
static void lose_one(struct rank *rank)
{
	enum { LOOKS = 20 };
	const bool sends = *(const bool *)rank->options->context;
	const uint64_t count = 64 << 20;
	struct gpu gpu;
	struct buffer buffer;
	collet_request *request = NULL;
	const collet_how how = { .request = &request };
	if (!begin(&gpu, rank) || !buffer_make(&buffer, &gpu.program, true, count * sizeof(uint32_t)))
		return;
	const bool receives = (rank->rank == 1) != sends;
	if (uses_ipc_get && receives)
		/* its one copy is never complete: CUDA_ERROR_NOT_READY */
		setenv("FAKE_CUDA_FAIL", "cuEventQuery:0:600", 1);
	const uint32_t other = 1 - rank->rank;
	rank_ok(rank, receives ? collet_recv(rank->comm, buffer.first, count, COLLET_U32, other, TAG, NULL, &how)
			       : collet_send(rank->comm, buffer.first, count, COLLET_U32, other, TAG, &how),
		"starting");
	if (rank->rank == 0)
		rank_post(rank, 0);
	else
		rank_await(rank, 0, 1);
	for (int i = 0; i < LOOKS && rank->rank == 1; i++)
		rank_check(rank, collet_request_test(&request) == COLLET_PENDING, "it has ended already");
	if (rank->rank == 1)
		raise(SIGKILL);
	rank_status(rank, collet_request_wait(&request), COLLET_ERR_PEER_LOST, "the survivor");
	rank_check(rank, strstr(collet_last_error(), "rank 1") != NULL, "%s", collet_last_error());
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_rank_that_dies_is_named(void **state)
{
	static const bool sends[] = {false, true};
	for (size_t i = 0; i < 4; i++) {
		const struct ranks_options options = {
			.size = 2, .transport = i / 2 ? "tcp" : "shm", .bare = uses_ipc_get, .context = &sends[i % 2] };
		struct ranks *ranks = ranks_start(&options, lose_one);
		ranks_wait(ranks);
		assert_int_equal(ranks_report(ranks, 1)->end, RANK_KILLED);
		if (ranks_report(ranks, 0)->failed || ranks_report(ranks, 0)->end != RANK_RETURNED)
			fail_msg("%s", ranks_report(ranks, 0)->sentence);
		ranks_free(&ranks);
	}
}

/* Nobody answers, rank 0 times out, and both cancel what they had begun; rank 1 without having waited for it. */
static void wait_in_vain(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffers[2];
	collet_request *requests[2] = {NULL, NULL};
	if (!begin(&gpu, rank))
		return;
	if (rank->rank == 0)
		rank_await(rank, 1, 1);
	for (int i = 0; i < 2; i++) {
		collet_how how = { .request = &requests[i], .timeout_ns = rank->rank == 0 ? 50 * 1000 * 1000 : 0 };
		if (!make(&gpu, &buffers[i], true, LONG, LONG, 3))
			return;
		rank_ok(rank, i ? collet_recv(rank->comm, buffers[i].first, LONG, COLLET_U32, 1 - rank->rank, 90, NULL,
					  &how)
				: collet_send(rank->comm, buffers[i].first, LONG, COLLET_U32, 1 - rank->rank,
					  91 + rank->rank, &how),
			"starting");
	}
	if (rank->rank == 0) {
		rank_status(rank, collet_request_wait(&requests[0]), COLLET_ERR_TIMEOUT, "in vain");
		rank_check(rank, strstr(collet_last_error(), "timed out") != NULL, "%s", collet_last_error());
		rank_post(rank, 0);
	} else {
		rank_post(rank, 1);
		rank_await(rank, 0, 1);
	}
	rank_destroy(rank);
	for (int i = 0; i < 2; i++)
		buffer_free(&buffers[i]);
	gpu_end(&gpu);
}

static void a_cancelled_message_leaves_nothing(void **state)
{
	const struct ranks_options options = { .size = 2 };
	must_pass_everywhere(options, wait_in_vain);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_from_and_to_any_memory),
		cmocka_unit_test(messages_do_not_wait_for_each_other),
		cmocka_unit_test(long_ones_are_copied_while_they_travel_through_a_few_cells),
		cmocka_unit_test(a_message_that_is_too_long_fails_the_receive_alone),
		cmocka_unit_test(a_graph_exchanges_at_each_launch),
		cmocka_unit_test(what_the_driver_refuses_is_said_on_both_sides),
		cmocka_unit_test(a_rank_that_dies_is_named),
		cmocka_unit_test(a_cancelled_message_leaves_nothing),
	};
	uses_ipc_get = argc > 1 && strcmp(argv[1], "ipc-get") == 0;
	cmocka_set_test_filter(argc > 1 + uses_ipc_get ? argv[1 + uses_ipc_get] : NULL);
	if (uses_ipc_get) /* then another copy is the first one: test_ipc_get.c */
		cmocka_set_skip_filter("what_the_driver_refuses_is_said_on_both_sides");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
