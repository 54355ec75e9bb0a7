/* Program that hosts.sh starts on each of its hosts, by collet-run.
 *
 * check HOSTS   tests that the ranks detect so many hosts, and that every algorithm of every collective is right
 * loop          runs all-reduces until one fails, as hosts.sh kills a host, and prints why. Prints "going" first
 *
 * Exit status 0: the test passed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <collet/collet.h>
#include <collet/tools.h>

enum { MOST = 100003, ALGORITHMS_MOST = 128 };

struct self {
	collet_comm *comm;
	uint32_t rank, size;
	int32_t *send, *recv;
};

static int complain(const struct self *self, const char *what)
{
	fprintf(stderr, "rank %u: %s: %s\n", self->rank, what, collet_last_error());
	return 1;
}

/* Counts the hosts: each rank adds one over the number of its host's ranks. */
static int count_hosts(const struct self *self, double *hosts)
{
	const double share = 1.0 / collet_comm_local_size(self->comm);
	if (collet_allreduce(self->comm, &share, hosts, 1, COLLET_F64, COLLET_SUM, NULL) != COLLET_OK)
		return complain(self, "counting hosts");
	return 0;
}

/* Returns element i of rank r. */
static int32_t value(uint32_t r, uint64_t i)
{
	return (int32_t)(r * 1000003u + (uint32_t)i * 7u);
}

static int32_t total(const struct self *self, uint64_t i)
{
	uint32_t sum = 0;
	for (uint32_t r = 0; r < self->size; r++)
		sum += (uint32_t)value(r, i);
	return (int32_t)sum;
}

static collet_status call(const struct self *self, const char *collective, uint64_t count, uint32_t root,
	const collet_how *how)
{
	collet_comm *c = self->comm;
	if (strcmp(collective, "allreduce") == 0)
		return collet_allreduce(c, self->send, self->recv, count, COLLET_I32, COLLET_SUM, how);
	if (strcmp(collective, "reduce") == 0)
		return collet_reduce(c, self->send, self->recv, count, COLLET_I32, COLLET_SUM, root, how);
	if (strcmp(collective, "broadcast") == 0)
		return collet_broadcast(c, self->send, self->recv, count, COLLET_I32, root, how);
	if (strcmp(collective, "barrier") == 0)
		return collet_barrier(c, how);
	if (strcmp(collective, "allgather") == 0)
		return collet_allgather(c, self->send, self->recv, count, COLLET_I32, how);
	if (strcmp(collective, "reduce_scatter") == 0)
		return collet_reduce_scatter(c, self->send, self->recv, count, COLLET_I32, COLLET_SUM, how);
	if (strcmp(collective, "gather") == 0)
		return collet_gather(c, self->send, self->recv, count, COLLET_I32, root, how);
	if (strcmp(collective, "scatter") == 0)
		return collet_scatter(c, self->send, self->recv, count, COLLET_I32, root, how);
	return collet_alltoall(c, self->send, self->recv, count, COLLET_I32, how);
}

/* Returns the expected element i of recv. */
static int32_t wanted(const struct self *self, const char *collective, uint64_t count, uint32_t root, uint64_t i)
{
	if (strcmp(collective, "allreduce") == 0 || strcmp(collective, "reduce") == 0)
		return total(self, i);
	if (strcmp(collective, "broadcast") == 0)
		return value(root, i);
	if (strcmp(collective, "reduce_scatter") == 0)
		return total(self, self->rank * count + i);
	if (strcmp(collective, "scatter") == 0)
		return value(root, self->rank * count + i);
	if (strcmp(collective, "alltoall") == 0)
		return value((uint32_t)(i / count), self->rank * count + i % count);
	return value((uint32_t)(i / count), i % count);  /* allgather, gather */
}

static uint64_t received(const struct self *self, const char *collective, uint64_t count, uint32_t root)
{
	const bool rooted = strcmp(collective, "reduce") == 0 || strcmp(collective, "gather") == 0;
	if (strcmp(collective, "barrier") == 0 || (rooted && self->rank != root))
		return 0;
	const bool blocks = strcmp(collective, "allgather") == 0 || strcmp(collective, "gather") == 0 ||
		strcmp(collective, "alltoall") == 0;
	return blocks ? self->size * count : count;
}

static int check_algorithm(
	const struct self *self, const collet_algorithm_info *algorithm, uint64_t count, uint32_t root)
{
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = algorithm->name;
	memset(self->recv, 0xee, (size_t)self->size * MOST * sizeof(*self->recv));
	const collet_status status = call(self, algorithm->collective, count, root, &how);
	if (status == COLLET_ERR_UNSUPPORTED)
		return 0;  /* not with so many ranks or elements */
	if (status != COLLET_OK)
		return complain(self, algorithm->name);
	const uint64_t elements = received(self, algorithm->collective, count, root);
	for (uint64_t i = 0; i < elements; i++) {
		if (self->recv[i] == wanted(self, algorithm->collective, count, root, i))
			continue;
		fprintf(stderr, "rank %u: %s %s of %llu, root %u: element %llu is %d, not %d\n", self->rank,
			algorithm->collective, algorithm->name, (unsigned long long)count, root, (unsigned long long)i,
			self->recv[i], wanted(self, algorithm->collective, count, root, i));
		return 1;
	}
	return 0;
}

static int check(const struct self *self, int hosts)
{
	static const uint64_t counts[] = { 0, 1, 1000, MOST };
	collet_algorithm_info algorithms[ALGORITHMS_MOST];
	size_t count;
	double found;
	if (count_hosts(self, &found) != 0)
		return 1;
	if (found < hosts - 0.01 || found > hosts + 0.01) {
		fprintf(stderr, "rank %u: %.3g hosts, but there are %d\n", self->rank, found, hosts);
		return 1;
	}
	if (collet_algorithm_list(NULL, algorithms, ALGORITHMS_MOST, &count) != COLLET_OK || count > ALGORITHMS_MOST)
		return complain(self, "the list");
	for (size_t a = 0; a < count; a++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
			if (check_algorithm(self, &algorithms[a], counts[c], (uint32_t)(a + c) % self->size) != 0)
				return 1;
	printf("rank %u of %u on %d hosts: %zu algorithms are right\n", self->rank, self->size, hosts, count);
	return 0;
}

static collet_status allreduce(const struct self *self)
{
	return collet_allreduce(self->comm, self->send, self->recv, 1000, COLLET_I32, COLLET_SUM, NULL);
}

/* hosts.sh checks the survivors' sentences. Whoever is in the second barrier has all connections that the loop uses: a
 * host that goes away while one is opened is another error. */
static int loop(const struct self *self)
{
	collet_status status = allreduce(self);
	for (int i = 0; i < 2 && status == COLLET_OK; i++)
		status = collet_barrier(self->comm, NULL);
	if (status == COLLET_OK && self->rank == 0) {
		printf("going\n");
		fflush(stdout);
	}
	while (status == COLLET_OK)
		status = allreduce(self);
	printf("rank %u: %s: %s\n", self->rank, collet_status_name(status), collet_last_error());
	return status != COLLET_ERR_PEER_LOST;
}

int main(int argc, char **argv)
{
	struct self self = { 0 };
	const bool checks = argc == 3 && strcmp(argv[1], "check") == 0;
	if (!checks && !(argc == 2 && strcmp(argv[1], "loop") == 0)) {
		fprintf(stderr, "usage: hosts_main check HOSTS | loop\n");
		return 2;
	}
	if (collet_comm_create(&self.comm, NULL) != COLLET_OK)
		return complain(&self, "creating");
	self.rank = collet_comm_rank(self.comm);
	self.size = collet_comm_size(self.comm);
	self.send = calloc((size_t)self.size * MOST, sizeof(*self.send));
	self.recv = calloc((size_t)self.size * MOST, sizeof(*self.recv));
	if (!self.send || !self.recv)
		return 1;
	for (uint64_t i = 0; i < (uint64_t)self.size * MOST; i++)
		self.send[i] = value(self.rank, i);
	const int bad = checks ? check(&self, atoi(argv[2])) : loop(&self);
	collet_comm_destroy(&self.comm);
	free(self.send);
	free(self.recv);
	return bad;
}
