/* Matches thousands of messages with thousands of receives. Messages of one pair and tag match receives in order, a
 * receive from any source takes the message that came first, and no match costs more because others wait: the test
 * counts the queues that the engine looks at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/comm.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/match_table.h"
#include "ranks.h"

/* ---- The table, compared with a list ---- */

enum { ENTRIES = 3000, STEPS = 40000, RANKS = 5 };

struct waiting {
	struct collet_match_entry entry;
	uint32_t rank, tag;
	uint64_t added;              /* 0: it is not in the table */
};

static struct waiting waiting[ENTRIES];

/* Returns the entry that was added first, by looking at all. */
static struct waiting *first_of_list(uint32_t rank, uint32_t tag)
{
	struct waiting *first = NULL;
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct waiting *one = &waiting[i];
		if (one->added && one->rank == rank && one->tag == tag && (!first || one->added < first->added))
			first = one;
	}
	return first;
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;  /* Knuth */
	return (uint32_t)(*seed >> 33) % below;
}

static void the_table_finds_the_first(void **state)
{
	static const uint32_t tags[] = { 1, 7, 100000 };  /* few, some, and mostly different tags */
	const uint32_t steps = ranks_are_slow() ? STEPS / 10 : STEPS;
	for (size_t t = 0; t < sizeof(tags) / sizeof(tags[0]); t++) {
		struct collet_match_table table = { 0 };
		uint64_t seed = 1 + t;
		memset(waiting, 0, sizeof(waiting));
		for (uint32_t step = 1; step <= steps; step++) {
			struct waiting *one = &waiting[draw(&seed, ENTRIES)];
			if (one->added) {
				assert_ptr_equal(collet_match_first(&table, one->rank, one->tag),
					&first_of_list(one->rank, one->tag)->entry);
				collet_match_remove(&one->entry);
				collet_match_remove(&one->entry);  /* a second call is fine */
				one->added = 0;
			} else {
				one->rank = draw(&seed, RANKS);
				one->tag = draw(&seed, tags[t]);
				one->added = step;
				assert_int_equal(
					collet_match_add(&table, &one->entry, one->rank, one->tag), COLLET_OK);
			}
		}
		/* A few queues share a bucket. */
		assert_true(table.visit_count < 4 * (uint64_t)steps);
		assert_true(table.bucket_count < 4 * ENTRIES);
		collet_match_deinit(&table);
	}
}

/* ---- Ranks ---- */

enum { LAST_TAG = 1 << 30, LARGE_BYTES = 300000, LARGE_COUNT = 200, EVENT_POSTED = 0 };

struct row {
	const char *name, *transport;
	bool unexpected;             /* all messages have arrived when the receives are posted */
	bool tags, reversed;         /* each message has a tag of its own; receives are in the opposite order */
	bool any;                    /* receives from any source; two ranks send */
	bool large;
};

static const struct row rows[] = {
	{ .name = "posted", .transport = "shm" },
	{ .name = "posted", .transport = "tcp" },
	{ .name = "posted, tags", .transport = "shm", .tags = true, .reversed = true },
	{ .name = "posted, any", .transport = "shm", .any = true },
	{ .name = "posted, any, tags", .transport = "tcp", .any = true, .tags = true, .reversed = true },
	{ .name = "unexpected", .transport = "shm", .unexpected = true },
	{ .name = "unexpected, tags", .transport = "tcp", .unexpected = true, .tags = true, .reversed = true },
	{ .name = "unexpected, any", .transport = "shm", .unexpected = true, .any = true },
	{ .name = "unexpected, any, tags", .transport = "shm", .unexpected = true, .any = true, .tags = true },
	{ .name = "large", .transport = "shm", .large = true },
	{ .name = "large, tags", .transport = "tcp", .large = true, .tags = true, .reversed = true },
	{ .name = "large, unexpected", .transport = "shm", .large = true, .unexpected = true, .any = true },
};

struct messages {
	uint32_t count;
	size_t bytes;                /* of each */
	char *data;
	collet_request **requests;
	collet_received *received;
};

static bool create_messages(struct rank *rank, struct messages *messages, uint32_t senders)
{
	const struct row *row = rank->options->context;
	const uint32_t each = row->large ? LARGE_COUNT : ranks_are_slow() ? 1000 : 8000;
	*messages = (struct messages){ .count = each * senders, .bytes = row->large ? LARGE_BYTES : sizeof(uint64_t) };
	messages->data = calloc(messages->count, messages->bytes);
	messages->requests = calloc(messages->count, sizeof(*messages->requests));
	messages->received = calloc(messages->count, sizeof(*messages->received));
	return rank_check(rank, messages->data && messages->requests && messages->received, "no memory");
}

static void free_messages(struct messages *messages)
{
	free(messages->data);
	free(messages->requests);
	free(messages->received);
}

/* The i-th message of a pair says i. */
static void send_all(struct rank *rank, struct messages *messages)
{
	const struct row *row = rank->options->context;
	bool ok = true;
	for (uint64_t i = 0; i < messages->count && ok; i++) {
		char *data = messages->data + i * messages->bytes;
		const collet_how how = { .request = &messages->requests[i] };
		memcpy(data, &i, sizeof(i));
		ok = rank_ok(rank, collet_send(rank->comm, data, messages->bytes, COLLET_U8, 0,
			row->tags ? (uint32_t)i : 0, &how), "send");
	}
	(void)(ok && rank_ok(rank, collet_send(rank->comm, NULL, 0, COLLET_U8, 0, LAST_TAG, NULL), "last send") &&
		rank_ok(rank, collet_request_wait_all(messages->requests, messages->count), "wait for sends"));
}

static bool receive_last(struct rank *rank, uint32_t senders)
{
	bool ok = true;
	for (uint32_t from = 1; from <= senders && ok; from++)
		ok = rank_ok(rank, collet_recv(rank->comm, NULL, 0, COLLET_U8, from, LAST_TAG, NULL, NULL),
			"last receive");
	return ok;
}

static bool post_receives(struct rank *rank, struct messages *messages, uint32_t senders)
{
	const struct row *row = rank->options->context;
	for (uint32_t k = 0; k < messages->count; k++) {
		const uint32_t i = row->reversed ? messages->count - 1 - k : k;
		const collet_how how = { .request = &messages->requests[i] };
		if (!rank_ok(rank, collet_recv(rank->comm, messages->data + i * messages->bytes, messages->bytes,
			COLLET_U8, row->any ? COLLET_ANY_SOURCE : 1, row->tags ? i / senders : 0,
			&messages->received[i], &how), "receive"))
			return false;
	}
	return true;
}

/* Checks that each sender's messages are in order. */
static void check_messages(struct rank *rank, const struct messages *messages, uint32_t senders)
{
	const struct row *row = rank->options->context;
	uint64_t next[3] = { 0 };
	for (uint32_t i = 0; i < messages->count; i++) {
		const collet_received *received = &messages->received[i];
		uint64_t value;
		memcpy(&value, messages->data + i * messages->bytes, sizeof(value));
		if (!rank_check(rank, received->source >= 1 && received->source <= senders &&
				received->count == messages->bytes, "message %u is from rank %u", i, received->source))
			return;
		const uint64_t wanted = row->tags ? i / senders : next[received->source]++;
		if (!rank_check(rank, value == wanted, "receive %u took message %llu of rank %u, not %llu", i,
				(unsigned long long)value, received->source, (unsigned long long)wanted))
			return;
	}
}

/* Checks that the engine has looked at a few queues for each message. */
static void check_visits(struct rank *rank, const struct messages *messages)
{
	enum { VISITS_A_MESSAGE = 16 };
	const struct collet_p2p *p2p = rank->comm->state.p2p;
	const uint64_t visits = p2p->receives.visit_count + p2p->unexpected.visit_count + p2p->sends.visit_count +
				p2p->rendezvous.visit_count;
	rank_check(rank, visits < (uint64_t)VISITS_A_MESSAGE * messages->count, "%llu visits for %u messages",
		(unsigned long long)visits, messages->count);
}

static void exchange(struct rank *rank)
{
	const struct row *row = rank->options->context;
	const uint32_t senders = row->any ? 2 : 1;
	struct messages messages = { 0 };
	if (rank->rank > senders || !create_messages(rank, &messages, rank->rank == 0 ? senders : 1)) {
		free_messages(&messages);
		return;
	}
	if (rank->rank != 0) {
		if (row->unexpected || rank_await(rank, EVENT_POSTED, 1))
			send_all(rank, &messages);
	} else {
		bool ok = !row->unexpected || receive_last(rank, senders);
		ok = ok && post_receives(rank, &messages, senders);
		rank_post(rank, EVENT_POSTED);
		ok = ok && rank_ok(rank, collet_request_wait_all(messages.requests, messages.count), "wait");
		if (ok && (row->unexpected || receive_last(rank, senders)))
			check_messages(rank, &messages, senders);
	}
	check_visits(rank, &messages);
	free_messages(&messages);
}

static void thousands_of_messages_match(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("%s, %s\n", rows[i].name, rows[i].transport);
		ranks_must_pass(&(struct ranks_options){
			.size = 3, .transport = rows[i].transport, .context = &rows[i] }, exchange);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_finds_the_first),
		cmocka_unit_test(thousands_of_messages_match),
	};
	return cmocka_run_group_tests_name("matching", tests, NULL, NULL);
}
