/* Tests IPv6: ranks that listen on ::1 meet there, and their data travel there. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"
#include "skip.h"

enum { RANKS = 3, DESCRIPTORS = 256 };

/* A single message; one that is longer than an endpoint's buffer; one in many segments. */
static const uint64_t counts[] = { 0, 1, 5000, 3000017 };

/* Counts the TCP connections of this process over a family. */
static int connections(int family)
{
	int count = 0;
	for (int fd = 0; fd < DESCRIPTORS; fd++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t bytes = sizeof(peer);
		count += getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && peer.ss_family == family;
	}
	return count;
}

static bool sum(struct rank *rank, collet_comm *comm, uint64_t count)
{
	float *values = malloc((count + 1) * sizeof(float));
	if (!rank_check(rank, values != NULL, "no memory"))
		return false;
	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)(i % 1000) + (float)rank->rank;
	bool right =
		rank_ok(rank, collet_allreduce(comm, values, values, count, COLLET_F32, COLLET_SUM, NULL), "allreduce");
	for (uint64_t i = 0; i < count && right; i++)
		right = rank_check(rank, values[i] == (float)(RANKS * (i % 1000) + RANKS * (RANKS - 1) / 2),
			"of %llu, element %llu is wrong", (unsigned long long)count, (unsigned long long)i);
	free(values);
	return right;
}

/* Passes tagged messages round a ring. */
static bool pass_on(struct rank *rank, collet_comm *comm)
{
	const uint32_t right = (rank->rank + 1) % RANKS, left = (rank->rank + RANKS - 1) % RANKS;
	uint32_t mine[3000], got[3000];
	for (uint32_t i = 0; i < 3000; i++)
		mine[i] = 3000 * rank->rank + i;
	if (!rank_ok(rank, collet_sendrecv(comm, mine, 3000, right, 7, got, 3000, left, 7, COLLET_U32, NULL, NULL),
		"sendrecv"))
		return false;
	for (uint32_t i = 0; i < 3000; i++)
		if (!rank_check(rank, got[i] == 3000 * left + i, "element %u came wrong", i))
			return false;
	return true;
}

static void talk_over_ipv6(struct rank *rank)
{
	collet_comm *comm = NULL;
	collet_options options;
	char store[64];
	rank_fill_options(rank, 0, &options, store);
	options.interface = "::1/128";
	if (!rank_ok(rank, collet_comm_create(&comm, &options), "collet_comm_create"))
		return;
	bool right = true;
	for (size_t i = 0; right && i < sizeof(counts) / sizeof(counts[0]); i++)
		right = sum(rank, comm, counts[i]);
	right = right && pass_on(rank, comm);
	if (right) {
		rank_check(rank, connections(AF_INET6) >= RANKS - 1, "only %d connections over IPv6",
			connections(AF_INET6));
		rank_check(rank, connections(AF_INET) == 0, "%d connections over IPv4", connections(AF_INET));
	}
	rank_ok(rank, collet_comm_destroy(&comm), "collet_comm_destroy");
}

static bool has_ipv6(void)
{
	const struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0;
	if (fd >= 0)
		close(fd);
	return has;
}

static void data_travels_over_ipv6(void **state)
{
	if (!has_ipv6())
		skip_because("this machine has no ::1");
	const struct ranks_options options = { .size = RANKS, .transport = "tcp", .bare = true };
	ranks_must_pass(&options, talk_over_ipv6);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(data_travels_over_ipv6) };
	return cmocka_run_group_tests_name("ipv6", tests, NULL, NULL);
}
