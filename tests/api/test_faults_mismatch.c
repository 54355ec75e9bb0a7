/* Tests ranks that call different things. Every rank gets COLLET_ERR_MISMATCH, from its pending call or its next
 * one, with a sentence that names both calls. No rank's memory receives data that does not fit. Rows cover every
 * collective and every property that must agree.
 *
 * Each row has a communicator of its own, split off one that lives on: a mistake ends only its communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "calls.h"
#include "ranks.h"
#include "sample.h"

/* PATIENCE_MS lies above what a starved machine takes, and below the deadline of the run. */
enum { PATIENCE_MS = 30 * 1000, CANARY = 0x55 };

enum property { COUNT, DTYPE, OP, ROOT, ALGORITHM, USER_NAME, LISTED_COUNT, COLLECTIVE, ORDER, CUT, PROPERTIES };
static const char *const property_names[] = {
	"count", "dtype", "op", "root", "algorithm", "user operation's name", "own count", "collective", "order",
	"cut"};

/* Says how a row runs. */
struct variant {
	uint32_t odd;        /* the rank whose call differs */
	uint32_t good_calls; /* before it */
	uint64_t count;
	bool requests;
	bool one_form; /* all-reduce only */
};

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static bool full(void)
{
	const char *text = getenv("COLLET_TEST_FULL");
	return text && *text && strcmp(text, "0") != 0;
}

/* Fills the common call and the odd rank's call; false if the form has no such property. */
static bool fill_row(enum form form, enum property property, const struct variant *variant, uint32_t size,
	struct call *common, struct call *odd)
{
	const struct form_traits *traits = &form_traits[form];
	*common = (struct call){ .form = form, .count = variant->count, .dtype = COLLET_I32, .op = COLLET_SUM };
	*odd = *common;
	switch (property) {
	case COUNT: odd->count++; return traits->has_count && !traits->is_vector;
	case DTYPE: odd->dtype = COLLET_F32; return traits->has_count;
	case OP: odd->op = COLLET_MAX; return traits->is_reduction;
	case ROOT: odd->root = 1; return traits->has_root;
	case ALGORITHM:
		common->algorithm = traits->algorithm;
		odd->algorithm = traits->other_algorithm;
		return traits->algorithm;
	case USER_NAME:
		common->op = odd->op = COLLET_USER;
		common->user_name = "mine";
		odd->user_name = "theirs";
		return traits->is_reduction;
	case LISTED_COUNT:
		/* The differing count must travel between the odd rank and another: where there is a root, between
		 * it and the root. */
		odd->more = 1;
		odd->longer = traits->has_root && variant->odd != 0 ? variant->odd : (variant->odd + 1) % size;
		return traits->is_vector;
	case COLLECTIVE: odd->form = (form + 1) % FORMS; return true;
	case CUT:
		odd->segment_bytes = variant->count % 2 ? 4096 : 0;
		odd->channels = variant->count % 2 ? 0 : 2;
		return true;
	case ORDER:
		/* Call one after the other, and in reverse order. */
		odd->form = form == FORM_BARRIER ? FORM_ALLREDUCE : FORM_BARRIER;
		return true;
	default: return false;
	}
}

/* Makes the calls of a row one after the other, until one fails. */
static collet_status make_calls(collet_comm *comm, const struct call *first, const struct call *second, bool request,
	struct call_buffers *buffers)
{
	static const struct call barrier = { .form = FORM_BARRIER };
	const struct call *const calls[] = {first, second, &barrier};
	collet_status status = COLLET_OK;
	for (size_t i = 0; i < 3 && status == COLLET_OK; i++) {
		collet_request *pending = NULL;
		if (!calls[i])
			continue;
		status = call_make(comm, calls[i], buffers, request ? &pending : NULL);
		if (status == COLLET_OK && request)
			status = collet_request_wait(&pending);
	}
	return status;
}

static bool names_rank(const char *sentence, uint32_t rank)
{
	char text[32];
	snprintf(text, sizeof(text), "rank %u on ", rank);
	return strstr(sentence, text) != NULL;
}

static void check_sentence(struct rank *rank, const char *row, const struct variant *variant, uint32_t call)
{
	char number[32], sentence[1200];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	uint32_t named = 0;
	for (uint32_t r = 0; r < rank->size; r++)
		named += names_rank(sentence, r);
	snprintf(number, sizeof(number), "(call %u", call);
	rank_check(rank, names_rank(sentence, variant->odd) && named >= 2, "%s: both ranks are to be named: %s", row,
		sentence);
	rank_check(rank, strstr(sentence, number) != NULL, "%s: \"%s\" is missing: %s", row, number, sentence);
}

/* No message fits between two ranks: a buffer holds only its old content and this rank's own data. */
static void check_memory(struct rank *rank, const char *row, const struct call_buffers *buffers)
{
	const unsigned char own = (unsigned char)(0xa0 + rank->rank);
	size_t at = 0;
	while (rank->size == 2 && at < sizeof(buffers->recv) &&
		(buffers->recv[at] == CANARY || buffers->recv[at] == own))
		at++;
	rank_check(rank, rank->size != 2 || at == sizeof(buffers->recv), "%s: byte %zu of recv is %02x", row, at,
		at < sizeof(buffers->recv) ? buffers->recv[at] : 0);
}

static void run_row(struct rank *rank, enum form form, enum property property, const struct variant *variant,
	struct call_buffers *buffers, double *slowest_ms)
{
	struct call common, odd;
	char row[160];
	if (!fill_row(form, property, variant, rank->size, &common, &odd) || !sample_has(form * PROPERTIES + property))
		return;
	snprintf(row, sizeof(row), "%s/%s/n%u/odd%u%s", form_traits[form].name, property_names[property], rank->size,
		variant->odd, variant->requests ? "/request" : "");
	rank_doing(rank, "%s", row);
	collet_comm *comm;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &comm), row))
		return;
	const struct call good = { .form = FORM_ALLREDUCE, .count = 1, .dtype = COLLET_I32, .op = COLLET_SUM };
	for (uint32_t i = 0; i < variant->good_calls; i++)
		rank_ok(rank, call_make(comm, &good, buffers, NULL), row);
	/* Else a rank might learn of the mistake in the last good call. */
	rank_ok(rank, collet_barrier(rank->comm, NULL), row);
	memset(buffers->send, 0xa0 + (int)rank->rank, sizeof(buffers->send));
	memset(buffers->recv, CANARY, sizeof(buffers->recv));
	const bool is_odd = rank->rank == variant->odd;
	const struct call *first = is_odd ? &odd : &common, *second = is_odd ? &common : &odd;
	const double before = now_ms();
	collet_status status = make_calls(comm, first, property == ORDER ? second : NULL, variant->requests, buffers);
	const double took = now_ms() - before;
	if (rank_status(rank, status, COLLET_ERR_MISMATCH, row))
		check_sentence(rank, row, variant, variant->good_calls);
	*slowest_ms = took > *slowest_ms ? took : *slowest_ms;
	rank_check(rank, took < PATIENCE_MS * (ranks_are_slow() ? 4 : 1), "%s: took %.0f ms", row, took);
	/* Ranks that disagree about one rank's count may agree about others'. */
	if (property != LISTED_COUNT)
		check_memory(rank, row, buffers);
	/* It is sticky. */
	rank_status(rank, collet_comm_error(comm), COLLET_ERR_MISMATCH, row);
	rank_status(rank, collet_barrier(comm, NULL), COLLET_ERR_MISMATCH, row);
	rank_ok(rank, collet_comm_destroy(&comm), row);
}

static void run_all(struct rank *rank)
{
	const struct variant *variant = rank->options->context;
	const enum form forms = variant->one_form ? FORM_ALLREDUCE + 1 : FORMS;
	struct call_buffers *buffers = calloc(1, sizeof(*buffers));
	double slowest_ms = 0;
	for (enum form form = 0; form < forms && buffers; form++)
		for (enum property property = 0; property < PROPERTIES; property++)
			run_row(rank, form, property, variant, buffers, &slowest_ms);
	if (rank->rank == 0)
		printf("%s, %u ranks: the slowest of all rows was known after %.1f ms\n", rank->options->transport,
			rank->size, slowest_ms);
	fflush(stdout);
	rank_check(rank, buffers != NULL, "no memory");
	free(buffers);
}

static void run_world(enum ranks_mode mode, const char *transport, uint32_t size, struct variant variant)
{
	const struct ranks_options options = {
		.mode = mode, .size = size, .transport = transport, .context = &variant, .deadline_ms = 100 * 1000};
	ranks_must_pass(&options, run_all);
}

static void threads_over_shm(void **state)
{
	run_world(RANKS_THREADS, "shm", 2, (struct variant){ .odd = 0, .count = 3 });
	run_world(RANKS_THREADS, "shm", 3, (struct variant){ .odd = 1, .count = 3 });
}

static void threads_over_tcp(void **state)
{
	run_world(RANKS_THREADS, "tcp", 2, (struct variant){ .odd = 1, .count = 3 });
	run_world(RANKS_THREADS, "tcp", 4, (struct variant){ .odd = 2, .count = 3, .requests = true });
}

static void processes_over_shm(void **state)
{
	run_world(RANKS_PROCESSES, "shm", 2, (struct variant){ .odd = 1, .count = 4000, .good_calls = 1 });
	run_world(RANKS_PROCESSES, "shm", 4, (struct variant){ .odd = 3, .count = 3, .requests = true });
}

static void processes_over_tcp(void **state)
{
	run_world(RANKS_PROCESSES, "tcp", 3, (struct variant){ .odd = 0, .count = 4000, .good_calls = 1 });
}

static void after_hundreds_of_good_calls(void **state)
{
	run_world(
		RANKS_PROCESSES, "shm", 2,
		(struct variant){ .odd = 1, .count = 3, .good_calls = 600, .one_form = true });
	run_world(
		RANKS_THREADS, "tcp", 3, (struct variant){ .odd = 2, .count = 3, .good_calls = 600, .one_form = true });
}

enum { ONE_WAY_CALLS = 40 };

/* Ranks 0 and 1 only send, and each completes its calls alone; no rank receives these messages. */
static void send_past_each_other(struct rank *rank)
{
	struct call_buffers *buffers = calloc(1, sizeof(*buffers));
	struct call call = {
		.form = FORM_BROADCAST, .count = 1, .dtype = COLLET_I32, .root = rank->rank, .algorithm = "direct"};
	collet_status status = COLLET_OK;
	for (uint32_t i = 0; i < ONE_WAY_CALLS && buffers && status == COLLET_OK; i++)
		status = call_make(rank->comm, &call, buffers, NULL);
	call.form = FORM_BARRIER;
	if (status == COLLET_OK && buffers)
		status = call_make(rank->comm, &call, buffers, NULL);
	if (rank_status(rank, status, COLLET_ERR_MISMATCH, "the first call in which the ranks meet"))
		check_sentence(rank, "broadcasts from different roots", &(struct variant){ .odd = 0 }, 0);
	free(buffers);
}

static void ranks_that_only_send_find_out_when_they_meet(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};
	for (size_t i = 0; i < 2; i++) {
		const struct ranks_options options = { .mode = RANKS_THREADS, .size = 2, .transport = transports[i] };
		ranks_must_pass(&options, send_past_each_other);
	}
}

static void every_odd_rank_in_every_world(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};
	for (size_t t = 0; t < 2; t++)
		for (uint32_t size = 2; size <= 5; size++)
			for (uint32_t odd = 0; odd < size; odd++)
				for (uint32_t way = 0; way < 4; way++)
					run_world(way & 1 ? RANKS_THREADS : RANKS_PROCESSES, transports[t], size,
						(struct variant){ .odd = odd,
							.count = 3,
							.good_calls = odd,
							.requests = way & 2 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_over_shm),
		cmocka_unit_test(threads_over_tcp),
		cmocka_unit_test(processes_over_shm),
		cmocka_unit_test(processes_over_tcp),
		cmocka_unit_test(after_hundreds_of_good_calls),
		cmocka_unit_test(ranks_that_only_send_find_out_when_they_meet),
		cmocka_unit_test(every_odd_rank_in_every_world),
	};
	if (!full())
		cmocka_set_skip_filter("every_odd_rank_in_every_world");
	return cmocka_run_group_tests_name("mismatch", tests, NULL, NULL);
}
