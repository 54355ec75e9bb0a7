/* Leaves thousands of calls pending while one rank is late, differs or dies. The others wait for the late rank, name
 * the different call, and are told of a death as soon as with one call. What they ask and visit meanwhile does not grow
 * with the number of calls: the linker wraps the control plane's sends, and this file counts the questions. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/comm.h"
#include "control/control.h"
#include "engine/control_msg.h"
#include "ranks.h"

enum { SIZE = 4, COMMS_MOST = 8, EVENT_ASKED = 0, EVENT_STARTED, EVENT_ENDED, TOLD_WITHIN_MS = 5000 };

struct row {
	const char *name, *transport;
	uint32_t comms;              /* communicators that share the calls */
	uint32_t different;          /* the call that rank 1 makes differently */
};

static const struct row rows[] = {
	{ .name = "shm", .transport = "shm", .comms = 1 },
	{ .name = "tcp", .transport = "tcp", .comms = 1 },
	{ .name = "shm, communicators", .transport = "shm", .comms = COMMS_MOST },
	{ .name = "tcp, communicators", .transport = "tcp", .comms = COMMS_MOST },
};

static uint32_t call_count(void)
{
	return ranks_are_slow() ? 1600 : 16000;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Questions of this process, which is one rank ---- */

static struct {
	struct rank *rank;
	_Atomic uint64_t questions;
	uint64_t enough;             /* EVENT_ASKED is posted at so many */
	uint64_t farewells;          /* ends and leaves of communicators */
} sent;

void __real_collet_control_send(struct collet_control *, uint32_t, uint32_t, const void *, size_t);
void __wrap_collet_control_send(struct collet_control *, uint32_t, uint32_t, const void *, size_t);
void __real_collet_control_send_droppable(struct collet_control *, uint32_t, uint32_t, const void *, size_t);
void __wrap_collet_control_send_droppable(struct collet_control *, uint32_t, uint32_t, const void *, size_t);

void __wrap_collet_control_send(
	struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes)
{
	if (to == 3 || to == COLLET_CONTROL_ALL_RANKS)
		sent.farewells += type == COLLET_CONTROL_MSG_END || type == COLLET_CONTROL_MSG_DESTROYED;
	__real_collet_control_send(control, to, type, data, bytes);
}

void __wrap_collet_control_send_droppable(
	struct collet_control *control, uint32_t to, uint32_t type, const void *data, size_t bytes)
{
	if (type == COLLET_CONTROL_MSG_QUERY && ++sent.questions == sent.enough)
		rank_post(sent.rank, EVENT_ASKED);
	__real_collet_control_send_droppable(control, to, type, data, bytes);
}

/* ---- Many calls ---- */

struct calls {
	collet_comm *comms[COMMS_MOST];
	uint32_t comm_count, count;
	collet_request **requests;
	int64_t *in, *out;
};

static void free_calls(struct rank *rank, struct calls *calls)
{
	for (uint32_t i = 1; i < calls->comm_count; i++)
		rank_ok(rank, collet_comm_destroy(&calls->comms[i]), "destroy");
	free(calls->requests);
	free(calls->in);
	free(calls->out);
}

static bool create_calls(struct rank *rank, struct calls *calls)
{
	const struct row *row = rank->options->context;
	const uint32_t count = call_count();
	*calls = (struct calls){ .comms = { rank->comm }, .comm_count = 1, .count = count,
		.requests = calloc(count, sizeof(*calls->requests)), .in = calloc(count, sizeof(*calls->in)),
		.out = calloc((size_t)count * SIZE, sizeof(*calls->out)) };
	bool created = rank_check(rank, calls->requests && calls->in && calls->out, "no memory");
	for (; created && calls->comm_count < row->comms; calls->comm_count += created)
		created = rank_ok(rank, collet_comm_split(rank->comm, 0, rank->rank,
			&calls->comms[calls->comm_count]), "split");
	sent.rank = rank;
	return created;
}

/* Starts a gather to each rank in turn. */
static collet_status start_call(struct rank *rank, struct calls *calls, uint32_t i, collet_dtype dtype,
	int64_t timeout_ns)
{
	const collet_how how = { .request = &calls->requests[i], .timeout_ns = timeout_ns };
	calls->in[i] = 1000 * (int64_t)i + rank->rank;
	return collet_gather(calls->comms[i % calls->comm_count], &calls->in[i], &calls->out[(size_t)i * SIZE], 1,
		dtype, i % SIZE, &how);
}

static bool start_calls(struct rank *rank, struct calls *calls, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!rank_ok(rank, start_call(rank, calls, i, COLLET_I64, 0), "start"))
			return false;
	return true;
}

static bool finish_calls(struct rank *rank, struct calls *calls)
{
	bool right = rank_ok(rank, collet_request_wait_all(calls->requests, calls->count), "wait_all");
	for (uint32_t i = rank->rank; i < calls->count && right; i += SIZE)
		for (uint32_t from = 0; from < SIZE; from++)
			right &= rank_check(rank, calls->out[(size_t)i * SIZE + from] == 1000 * (int64_t)i + from,
				"call %u received %lld from rank %u", i,
				(long long)calls->out[(size_t)i * SIZE + from], from);
	return right;
}

/* Checks that it has asked, and looked at its requests, as if few were pending. */
static void check_work(struct rank *rank, const struct calls *calls, int64_t took_ms)
{
	/* The oldest call of each communicator may ask all other ranks every 100 ms. */
	const uint64_t most = (uint64_t)calls->comm_count * (SIZE - 1) * ((uint64_t)took_ms / 100 + 1);
	uint64_t visits = 0;
	for (uint32_t i = 0; i < calls->comm_count; i++)
		visits += calls->comms[i]->state.pending.visit_count;
	rank_check(rank, sent.questions <= most, "it asked %llu times in %lld ms", (unsigned long long)sent.questions,
		(long long)took_ms);
	rank_check(rank, visits == 0, "the watchdog visited %llu requests, though no deadline was near",
		(unsigned long long)visits);
}

/* Rank 0 starts when each other rank has asked several times. */
static void wait_for_late_rank(struct rank *rank)
{
	struct calls calls;
	const int64_t started_ms = now_ms();
	if (create_calls(rank, &calls)) {
		sent.enough = 5 * calls.comm_count;
		if (rank->rank == 0)
			rank_await(rank, EVENT_ASKED, SIZE - 1);
		if (start_calls(rank, &calls, calls.count) && finish_calls(rank, &calls))
			check_work(rank, &calls, now_ms() - started_ms);
	}
	free_calls(rank, &calls);
}

static void a_late_rank_is_not_lost(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("%s\n", rows[i].name);
		ranks_must_pass(&(struct ranks_options){
			.size = SIZE, .transport = rows[i].transport, .context = &rows[i] }, wait_for_late_rank);
	}
}

/* ---- A different call, the first, the last, or one in the middle; rank 0 makes none ---- */

/* Starts the calls and waits for them. Returns the first failure: the others may find the difference meanwhile. */
static collet_status start_different(struct rank *rank, struct calls *calls, uint32_t different)
{
	collet_status status = COLLET_OK;
	for (uint32_t i = 0; i < calls->count && status == COLLET_OK; i++)
		status = start_call(
			rank, calls, i, rank->rank == 1 && i == different ? COLLET_U64 : COLLET_I64, 0);
	return status == COLLET_OK ? collet_request_wait_all(calls->requests, calls->count) : status;
}

static void differ(struct rank *rank)
{
	const struct row *row = rank->options->context;
	struct calls calls;
	char wanted[2][80];
	if (!create_calls(rank, &calls))
		return;
	if (rank->rank == 0) {
		rank_await(rank, EVENT_ENDED, SIZE - 1);
	} else {
		rank_status(rank, start_different(rank, &calls, row->different), COLLET_ERR_MISMATCH, "the calls");
		snprintf(wanted[0], sizeof(wanted[0]), "gather of 1 i64 root %u (call %u,", row->different % SIZE,
			row->different);
		snprintf(wanted[1], sizeof(wanted[1]), "gather of 1 u64 root %u (call %u,", row->different % SIZE,
			row->different);
		for (uint32_t i = 0; i < 2; i++)
			rank_check(rank, strstr(collet_last_error(), wanted[i]) != NULL, "no \"%s\" in: %s", wanted[i],
				collet_last_error());
		rank_post(rank, EVENT_ENDED);
	}
	free_calls(rank, &calls);
}

static void a_different_call_among_thousands_is_named(void **state)
{
	/* Calls whose root is rank 0, so that no message is received. */
	const uint32_t different[] = { 0, call_count() / 2, call_count() - SIZE };
	for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++) {
		const struct row row = { .comms = 1, .different = different[i] };
		print_message("call %u of %u\n", row.different, call_count());
		ranks_must_pass(&(struct ranks_options){ .size = SIZE, .context = &row }, differ);
	}
}

/* ---- Deadlines and deaths ---- */

/* The last call of each rank has a short deadline, those before have none. */
static void time_out(struct rank *rank)
{
	struct calls calls;
	char wanted[80];
	if (!create_calls(rank, &calls))
		return;
	const uint32_t last = calls.count - 1;
	if (rank->rank == 0) {
		rank_await(rank, EVENT_ENDED, SIZE - 1);
	} else if (start_calls(rank, &calls, last)) {
		rank_post(rank, EVENT_STARTED);
		rank_await(rank, EVENT_STARTED, SIZE - 1);
		/* Another rank's may have timed out. */
		collet_status status = start_call(rank, &calls, last, COLLET_I64, 200 * 1000000);
		if (status == COLLET_OK)
			status = collet_request_wait_all(calls.requests, calls.count);
		rank_status(rank, status, COLLET_ERR_TIMEOUT, "the last call");
		snprintf(wanted, sizeof(wanted), "(call %u, ", last);
		rank_check(rank, strstr(rank->comm->state.error_text, wanted) != NULL, "no \"%s\" in: %s", wanted,
			rank->comm->state.error_text);
		rank_post(rank, EVENT_ENDED);
	}
	free_calls(rank, &calls);
}

static void the_first_deadline_ends_all_calls(void **state)
{
	const struct row row = { .comms = 1 };
	ranks_must_pass(&(struct ranks_options){ .size = SIZE, .context = &row }, time_out);
}

/* Rank 2 dies when the others have started. */
static void lose_rank(struct rank *rank)
{
	struct calls calls;
	int64_t *died_ms = rank->shared;
	if (!create_calls(rank, &calls))
		return;
	if (rank->rank == 2) {
		rank_await(rank, EVENT_STARTED, SIZE - 1);
		*died_ms = now_ms();
		raise(SIGKILL);
	}
	if (!start_calls(rank, &calls, calls.count))
		return;
	rank_post(rank, EVENT_STARTED);
	rank_status(rank, collet_request_wait_all(calls.requests, calls.count), COLLET_ERR_PEER_LOST, "wait_all");
	const int64_t took_ms = now_ms() - *died_ms;
	rank_check(rank, took_ms < TOLD_WITHIN_MS * (ranks_are_slow() ? 4 : 1), "it took %lld ms", (long long)took_ms);
	rank_check(rank, strstr(collet_last_error(), "rank 2 on ") != NULL, "not named: %s", collet_last_error());
	free_calls(rank, &calls);
}

static void a_death_is_told_at_once(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = { .size = SIZE, .transport = rows[i].transport,
			.context = &rows[i], .shared_bytes = sizeof(int64_t) };
		struct ranks *ranks = ranks_start(&options, lose_rank);
		const bool ended = ranks_wait(ranks);
		for (uint32_t r = 0; r < SIZE; r++) {
			const struct rank_report *report = ranks_report(ranks, r);
			if (r == 2 ? report->end != RANK_KILLED : report->failed || report->end != RANK_RETURNED)
				fail_msg("%s: rank %u, %s: %s", rows[i].name, r, report->doing, report->sentence);
		}
		ranks_free(&ranks);
		assert_true(ended);
	}
}

/* ---- The end of a communicator concerns its members only ---- */

static void end_without_rank_3(struct rank *rank)
{
	for (uint32_t i = 0; i < 10; i++) {
		collet_comm *comm;
		if (!rank_ok(rank, collet_comm_split(rank->comm, rank->rank == 3, rank->rank, &comm), "split"))
			return;
		sent.farewells = 0;
		if (i % 2 && rank->rank == 1)
			collet_comm_abort(comm);
		rank_ok(rank, collet_comm_destroy(&comm), "destroy");
		rank_check(rank, sent.farewells == 0, "it told rank 3 of a communicator without it");
	}
}

static void only_members_are_told_of_an_end(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = SIZE }, end_without_rank_3);
}

/* ---- The flight recorder ---- */

/* Call 0 has ended and so may be forgotten. All others are pending, and are known however many they are. */
static void the_recorder_knows_what_is_pending(void **state)
{
	struct collet_recorder recorder;
	struct collet_record record;
	const uint64_t count = 5000;
	assert_int_equal(collet_recorder_init(&recorder), COLLET_OK);
	for (uint64_t i = 0; i < count; i++) {
		const struct collet_call call = { .sequence = i, .count = 7 * i };
		const uint64_t signature = collet_call_signature(&call);
		collet_recorder_start(&recorder, &call, signature, i + 1, 1);
		if (i == 0)
			collet_recorder_end(&recorder, 0, COLLET_OK, 1, 2);
		assert_true(!collet_recorder_find(&recorder, 0, &record) || record.history_hash == 1);
	}
	for (uint64_t i = 1; i < count; i++) {
		assert_true(collet_recorder_find(&recorder, i, &record));
		assert_int_equal(record.call.count, 7 * i);
		assert_int_equal(record.history_hash, i + 1);
		assert_int_equal(record.status, COLLET_PENDING);
		collet_recorder_end(&recorder, i, COLLET_OK, 1, 2);
	}
	/* Ended ones are overwritten again. */
	for (uint64_t i = count; i < 10 * count; i++) {
		const struct collet_call call = { .sequence = i };
		collet_recorder_start(&recorder, &call, collet_call_signature(&call), i + 1, 1);
		collet_recorder_end(&recorder, i, COLLET_OK, 1, 2);
	}
	assert_false(collet_recorder_find(&recorder, count, &record));
	assert_true(collet_recorder_find(&recorder, 10 * count - COLLET_RECORDS, &record));
	collet_recorder_deinit(&recorder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_recorder_knows_what_is_pending),
		cmocka_unit_test(a_late_rank_is_not_lost),
		cmocka_unit_test(a_different_call_among_thousands_is_named),
		cmocka_unit_test(the_first_deadline_ends_all_calls),
		cmocka_unit_test(a_death_is_told_at_once),
		cmocka_unit_test(only_members_are_told_of_an_end),
	};
	return cmocka_run_group_tests_name("pending", tests, NULL, NULL);
}
