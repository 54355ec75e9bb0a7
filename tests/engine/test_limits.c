/* Checks up to which size calls take the fast path: the limit is in the tuning that rank 0 has read. Checks that small
 * calls which are in flight together all take it. Tasks queue what they send. The fast path first tries to send without
 * the queue; the linker wraps that call, and this file counts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "engine/peer_queue.h"
#include "ranks.h"

static char folder[64], file[96];
static uint64_t tried;   /* by this process, which is one rank */

enum collet_try_result __real_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);
enum collet_try_result __wrap_collet_peer_queue_send_now(struct collet_peer_queue *, struct collet_transfer *);

enum collet_try_result __wrap_collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	tried++;
	return __real_collet_peer_queue_send_now(peer_queue, transfer);
}

struct row {
	uint32_t ranks;
	uint32_t limit_bytes;   /* in the tuning; 0: unset */
	uint32_t bytes;
	bool is_fast;
};

static void call_and_count(struct rank *rank)
{
	const struct row *row = rank->options->context;
	if (!rank_create_tuned(rank, file))
		return;
	uint8_t *data = calloc(1, row->bytes);
	data[row->bytes - 1] = 21;
	const collet_how how = { .segment_bytes = 1 << 20, .channels = 1 };
	/* The first call opens the endpoints, and its messages wait for them. */
	for (uint32_t call = 0; call < 2; call++) {
		tried = 0;
		const collet_status status =
			collet_allreduce(rank->comm, data, data, row->bytes, COLLET_U8, COLLET_SUM, &how);
		if (!rank_ok(rank, status, "a call"))
			break;
	}
	rank_check(rank, data[row->bytes - 1] == (uint8_t)(21 * row->ranks * row->ranks), "%u", data[row->bytes - 1]);
	rank_check(rank, (tried > 0) == row->is_fast, "%u bytes, limit %u: %llu messages tried without the queue",
		row->bytes, row->limit_bytes, (unsigned long long)tried);
	free(data);
}

static void calls_take_the_fast_path_up_to_the_limit(void **state)
{
	static const struct row rows[] = {
		{ 2, 0, 65536, true }, { 2, 0, 65537, false }, { 2, 4096, 4096, true }, { 2, 4096, 4097, false },
		{ 2, 131072, 131072, true }, { 2, 131072, 131073, false },
		{ 2, COLLET_FAST_PATH_BYTES_MAX, 131073, true }, { 20, 4096, 4096, true }, { 20, 4096, 4097, false },
	};
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		collet_link_cost links[COLLET_TUNING_LINKS];
		size_t count;
		assert_int_equal(collet_tuning_read(NULL, links, COLLET_TUNING_LINKS, &count), COLLET_OK);
		for (size_t l = 0; l < count; l++)
			links[l].fast_path_bytes = rows[i].limit_bytes;
		assert_int_equal(collet_tuning_write(file, links, count), COLLET_OK);
		for (size_t t = 0; t < 2; t++) {
			/* Its first step sends, and its messages are as long as the call. */
			const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = rows[i].ranks,
				.bare = true, .transport = transports[t], .algorithm = "allreduce:direct",
				.context = &rows[i] };
			ranks_must_pass(&options, call_and_count);
		}
	}
}

/* Starts small sums until IN_FLIGHT are pending, then waits for all of them. The first round opens the endpoints. Each
 * sum is one message. */
static void start_and_count(struct rank *rank)
{
	enum { IN_FLIGHT = 8, ROUNDS = 3 };
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t sums[IN_FLIGHT];
		collet_request *requests[IN_FLIGHT];
		tried = 0;
		for (uint32_t i = 0; i < IN_FLIGHT; i++) {
			const collet_how how = { .request = &requests[i] };
			sums[i] = i + rank->rank;
			if (!rank_ok(rank, collet_allreduce(rank->comm, &sums[i], &sums[i], 1, COLLET_U32, COLLET_SUM,
				&how), "a start"))
				return;
		}
		if (!rank_ok(rank, collet_request_wait_all(requests, IN_FLIGHT), "wait_all"))
			return;
		for (uint32_t i = 0; i < IN_FLIGHT; i++)
			rank_check(rank, sums[i] == 2 * i + 1, "sum %u is %u", i, sums[i]);
		if (round > 0)
			rank_check(rank, tried == IN_FLIGHT, "round %u: %llu messages tried without the queue", round,
				(unsigned long long)tried);
	}
}

static void small_calls_in_flight_take_the_fast_path(void **state)
{
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t t = 0; t < 2; t++)
		ranks_must_pass(&(struct ranks_options){ .mode = RANKS_PROCESSES, .size = 2,
			.transport = transports[t], .algorithm = "allreduce:direct" }, start_and_count);
}

static int make_folder(void **state)
{
	strcpy(folder, "/tmp/collet-test-XXXXXX");
	if (!mkdtemp(folder))
		return 1;
	snprintf(file, sizeof(file), "%s/tuning", folder);
	return 0;
}

static int remove_folder(void **state)
{
	unlink(file);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_take_the_fast_path_up_to_the_limit),
		cmocka_unit_test(small_calls_in_flight_take_the_fast_path),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
