/* A request: an all-reduce is in progress while the program sends to its right neighbour.
 *
 *   cc requests.c $(pkg-config --cflags --libs collet) -o requests
 *   collet-run -n 3 ./requests */
#include <stdint.h>
#include <stdio.h>

#include <collet/collet.h>

static int fail(void)
{
	fprintf(stderr, "%s\n", collet_last_error());
	return 1;
}

int main(void)
{
	collet_comm *comm;
	if (collet_comm_create(&comm, NULL) != COLLET_OK)
		return fail();
	const uint32_t rank = collet_comm_rank(comm), size = collet_comm_size(comm);
	const uint32_t right = (rank + 1) % size, left = (rank + size - 1) % size, tag = 7;
	const int64_t mine = 10 * (int64_t)rank;
	int64_t sum, received;

	collet_request *request;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &request;
	how.timeout_ns = 5000000000; /* 5 s; the default is 30 minutes */
	if (collet_allreduce(comm, &mine, &sum, 1, COLLET_I64, COLLET_SUM, &how) != COLLET_OK)
		return fail();

	/* Until the request has ended, its buffers belong to the library. Reading mine is fine. */
	if (collet_sendrecv(comm, &mine, 1, right, tag, &received, 1, left, tag, COLLET_I64, NULL, NULL) != COLLET_OK)
		return fail();
	if (collet_request_wait(&request) != COLLET_OK)
		return fail();

	printf("rank %u: got %lld from rank %u, the sum is %lld\n", rank, (long long)received, left, (long long)sum);
	return collet_comm_destroy(&comm) == COLLET_OK ? 0 : fail();
}
