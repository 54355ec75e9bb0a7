/* Tests by which channels bytes went, as collet_comm_stats() counts them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

enum { ROWS_MOST = 256, KIB = 1024, MIB = 1024 * KIB };

struct row {
	const char *transport;
	uint32_t size;
	uint64_t bytes;
	bool several;                /* a pair uses several sockets */
};

/* Data of the endpoints with one peer. */
struct traffic {
	uint32_t channels;           /* with bytes in both directions */
	uint64_t sent, most_sent;    /* by all of them, by one */
};

static struct traffic traffic_with(const collet_stat *rows, size_t count, const char *transport, uint32_t peer)
{
	struct traffic traffic = { 0 };
	for (size_t i = 0; i < count; i++) {
		if (rows[i].kind != COLLET_STAT_ENDPOINT || rows[i].peer != peer ||
			strcmp(rows[i].name, transport) != 0)
			continue;
		traffic.channels += rows[i].bytes_sent > 0 && rows[i].bytes_received > 0;
		traffic.sent += rows[i].bytes_sent;
		if (rows[i].bytes_sent > traffic.most_sent)
			traffic.most_sent = rows[i].bytes_sent;
	}
	return traffic;
}

/* Checks that the transport's own row is the sum over its endpoints. */
static void check_sum(struct rank *rank, const collet_stat *rows, size_t count, uint64_t sent)
{
	const char *transport = rank->options->transport;
	for (size_t i = 0; i < count; i++)
		if (rows[i].kind == COLLET_STAT_TRANSPORT && strcmp(rows[i].name, transport) == 0)
			rank_check(rank, rows[i].bytes_sent == sent, "%s sent %llu bytes, its endpoints %llu",
				transport, (unsigned long long)rows[i].bytes_sent, (unsigned long long)sent);
}

static void reduce_and_look(struct rank *rank)
{
	const struct row *row = rank->options->context;
	static _Thread_local collet_stat rows[ROWS_MOST];
	float *data = calloc(row->bytes / sizeof(*data), sizeof(*data));
	size_t count = 0;
	uint64_t sent = 0;
	rank_doing(rank, "an all-reduce of %llu bytes over %s", (unsigned long long)row->bytes, row->transport);
	if (!rank_check(rank, data != NULL, "no memory"))
		return;
	const collet_how how = { .channels = row->several ? 2 : 0 };
	const bool done = rank_ok(rank, collet_allreduce(rank->comm, data, data, row->bytes / sizeof(*data), COLLET_F32,
		COLLET_SUM, &how), "allreduce");
	free(data);
	if (!done || !rank_ok(rank, collet_comm_stats(rank->comm, rows, ROWS_MOST, &count), "stats")
		|| !rank_check(rank, count <= ROWS_MOST, "%zu rows of statistics", count))
		return;
	for (uint32_t peer = 0; peer < rank->size; peer++) {
		const struct traffic traffic = traffic_with(rows, count, row->transport, peer);
		sent += traffic.sent;
		if (peer == rank->rank)
			continue;
		rank_check(rank, (traffic.channels > 1) == row->several && traffic.channels > 0,
			"%llu bytes over %s used %u channels with rank %u", (unsigned long long)row->bytes,
			row->transport, traffic.channels, peer);
		rank_check(rank, !row->several || traffic.most_sent <= traffic.sent / 4 * 3,
			"one of %u channels with rank %u carried %llu of %llu bytes", traffic.channels, peer,
			(unsigned long long)traffic.most_sent, (unsigned long long)traffic.sent);
	}
	/* The minimum of any all-reduce. */
	const uint64_t least = row->bytes / row->size * 2 * (row->size - 1);
	rank_check(rank, sent >= least, "%llu bytes sent, %llu at least must be", (unsigned long long)sent,
		(unsigned long long)least);
	check_sum(rank, rows, count, sent);
}

static void run(const struct row *row)
{
	const struct ranks_options options = { .mode = RANKS_THREADS, .size = row->size, .transport = row->transport,
		.context = row };
	ranks_must_pass(&options, reduce_and_look);
}

static void a_message_takes_the_sockets_that_it_is_told_to(void **state)
{
	run(&(struct row){ "tcp", 2, 16 * MIB, true });
}

static void a_small_message_takes_one(void **state)
{
	run(&(struct row){ "tcp", 2, 4 * KIB, false });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_takes_the_sockets_that_it_is_told_to),
		cmocka_unit_test(a_small_message_takes_one),
	};
	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
