/* Drives the two ends of an endpoint pair by two threads, spinning and asleep. It is also run under ThreadSanitizer.
 * Threads do not assert; they report what went wrong, and the test asserts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract.h"
#include "sample.h"

typedef bool complete(struct end *end, const struct collet_transfer *transfer);

struct worker {
	struct end *end;
	complete *complete;
	unsigned rounds;
	size_t bytes;
	bool first;               /* ping-pong: this end sends first */
	uint64_t jitter;          /* if not 0: spins for a pseudo-random time before it sends */
	const char *failure;        /* what went wrong; NULL if nothing */
	char error[512];          /* `failure` may point here: a thread's last error ends with the thread */
	uint8_t *out, *in;
};

static const char *last_error(struct worker *worker)
{
	snprintf(worker->error, sizeof(worker->error), "%s", collet_last_error());
	return worker->error;
}

/* Spins for a random time (xorshift), which sooner or later hits the moment between the other end's last poll and its
 * sleep. */
static void spin_randomly(uint64_t *random)
{
	if (!*random)
		return;
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	for (volatile uint64_t spin = *random % 4096; spin > 0;)
		spin = spin - 1;
}

static const char *send_one(struct worker *worker, uint64_t sequence)
{
	struct end *end = worker->end;
	struct collet_transfer send = transfer_of(sequence, worker->out, worker->bytes);
	pattern_fill(worker->out, worker->bytes, sequence);
	spin_randomly(&worker->jitter);
	end->endpoint->transport->post_send(end->endpoint, &send);
	if (!worker->complete(end, &send))
		return "a send did not complete in time";
	return send.status == COLLET_OK ? NULL : last_error(worker);
}

static const char *receive_one(struct worker *worker, uint64_t sequence)
{
	struct end *end = worker->end;
	struct collet_transfer receive = transfer_of(sequence, worker->in, worker->bytes);
	end->endpoint->transport->post_recv(end->endpoint, &receive);
	if (!worker->complete(end, &receive))
		return "a receive did not complete in time: a wake-up was lost";
	if (receive.status != COLLET_OK)
		return last_error(worker);
	return pattern_is(worker->in, worker->bytes, sequence) ? NULL : "wrong bytes";
}

static void *ping_pong(void *argument)
{
	struct worker *worker = argument;
	for (uint64_t round = 0; round < worker->rounds && !worker->failure; round++) {
		if (worker->first)
			worker->failure = send_one(worker, round);
		if (!worker->failure)
			worker->failure = receive_one(worker, round);
		if (!worker->failure && !worker->first)
			worker->failure = send_one(worker, round);
	}
	return NULL;
}

/* Keeps sends and receives pending both ways. */
static void *exchange(void *argument)
{
	struct worker *worker = argument;
	struct end *end = worker->end;
	for (uint64_t round = 0; round < worker->rounds && !worker->failure; round++) {
		struct collet_transfer send = transfer_of(round, worker->out, worker->bytes);
		struct collet_transfer receive = transfer_of(round, worker->in, worker->bytes);
		receive.flags = round % 2 ? COLLET_TRANSFER_VIEW : 0;
		pattern_fill(worker->out, worker->bytes, round);
		end->endpoint->transport->post_recv(end->endpoint, &receive);
		end->endpoint->transport->post_send(end->endpoint, &send);
		if (!worker->complete(end, &receive))
			worker->failure = "a receive did not complete in time";
		else if (receive.status != COLLET_OK)
			worker->failure = last_error(worker);
		else if (!pattern_is(receive.flags ? receive.view : worker->in, worker->bytes, round))
			worker->failure = "wrong bytes";
		/* Release first: the view may be of the peer's own memory, and its send waits for this end as ours does
		 * for it. */
		if (receive.flags)
			end->endpoint->transport->release_view(end->endpoint, &receive);
		if (!worker->failure && !worker->complete(end, &send))
			worker->failure = "a send did not complete in time";
		else if (!worker->failure && send.status != COLLET_OK)
			worker->failure = last_error(worker);
	}
	return NULL;
}

static void *one_way(void *argument)
{
	struct worker *worker = argument;
	for (uint64_t round = 0; round < worker->rounds && !worker->failure; round++)
		worker->failure = worker->first ? send_one(worker, round) : receive_one(worker, round);
	return NULL;
}

struct row {
	const char *name;
	void *(*run)(void *);
	bool asleep, jitter;
	unsigned rounds;
	size_t bytes;
};

static const struct row rows[] = {
	{ "ping_pong/8", ping_pong, false, false, 2000, 8 },
	{ "ping_pong_asleep/8", ping_pong, true, true, 4000, 8 },
	{ "ping_pong_asleep/40000", ping_pong, true, true, 500, 40000 },
	{ "exchange/1", exchange, false, false, 2000, 1 },
	{ "exchange/100000", exchange, false, false, 200, 100000 },
	{ "exchange/3000000", exchange, false, false, 20, 3000000 },
	{ "exchange_asleep/100", exchange, true, true, 2000, 100 },
	{ "exchange_asleep/3000000", exchange, true, true, 20, 3000000 },
	{ "one_way/64", one_way, false, false, 5000, 64 },
	{ "one_way_asleep/64", one_way, true, true, 5000, 64 },
	{ "one_way_asleep/5000000", one_way, true, true, 20, 5000000 },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]), TRANSPORTS = 16 };

struct case_of {
	const char *transport;
	const struct row *row;
};

/* Returns the number of rounds: of a sample its share, and one. */
static unsigned rounds_of(const struct case_of *this)
{
	const unsigned share = (unsigned)sample_share(this->row->rounds);
	return share < this->row->rounds ? share + 1 : share;
}

static void threads_talk(void **state)
{
	const struct case_of *this = *state;
	const struct row *row = this->row;
	struct pair pair = { 0 };
	pair_open(&pair, this->transport);
	struct worker workers[2];
	pthread_t threads[2];
	for (int i = 0; i < 2; i++) {
		workers[i] = (struct worker){ .end = &pair.ends[i],
			.complete = row->asleep ? end_complete_asleep : end_complete,
			.rounds = rounds_of(this),
			.bytes = row->bytes,
			.first = i == 0,
			.jitter = row->jitter ? 88172645463325252u + (unsigned)i : 0,
			.out = malloc(row->bytes),
			.in = malloc(row->bytes) };
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, row->run, &workers[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++) {
		if (workers[i].failure)
			print_error("end %d: %s\n", i, workers[i].failure);
		assert_null(workers[i].failure);
		free(workers[i].out);
		free(workers[i].in);
	}
	pair_close(&pair);
}

int contract_threads(const struct subject *subjects)
{
	static char row_names[TRANSPORTS * ROWS][80];
	static struct case_of cases[TRANSPORTS * ROWS];
	static struct CMUnitTest tests[TRANSPORTS * ROWS];
	size_t count = 0;
	for (unsigned t = 0; subjects[t].name && t < TRANSPORTS; t++) {
		if (!(subjects[t].has & HAS_PEERS))
			continue;
		for (unsigned r = 0; r < ROWS; r++, count++) {
			cases[count] = (struct case_of){ subjects[t].name, &rows[r] };
			snprintf(row_names[count], sizeof(row_names[count]), "%s/%s", subjects[t].name, rows[r].name);
			tests[count] = (struct CMUnitTest){ .name = row_names[count], .test_func = threads_talk,
				.initial_state = &cases[count] };
		}
	}
	return _cmocka_run_group_tests("transport contract: threads", tests, count, NULL, NULL);
}
