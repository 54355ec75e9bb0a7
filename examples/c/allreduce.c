/* The least that a program which uses collet has: every rank gives its number plus one, every rank gets the sum.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs collet) -o allreduce
 *   collet-run -n 4 ./allreduce
 *
 * It also runs under mpirun, and alone: a world of one rank. It is C and C++ alike. */
#include <collet/collet.h>

#include <stdint.h>
#include <stdio.h>

static int fail(void)
{
	fprintf(stderr, "%s\n", collet_last_error());
	return 1;
}

int main(void)
{
	collet_comm *comm;
	if (collet_comm_create(&comm, NULL) != COLLET_OK) /* NULL: who we are and where to meet is in the environment */
		return fail();

	float numbers[4], sums[4];
	for (uint32_t i = 0; i < 4; i++)
		numbers[i] = (float)(collet_comm_rank(comm) + 1) * (float)(i + 1);

	if (collet_allreduce(comm, numbers, sums, 4, COLLET_F32, COLLET_SUM, NULL) != COLLET_OK)
		return fail();

	printf("rank %u of %u: %g %g %g %g\n", collet_comm_rank(comm), collet_comm_size(comm), (double)sums[0],
		(double)sums[1], (double)sums[2], (double)sums[3]);
	return collet_comm_destroy(&comm) == COLLET_OK ? 0 : fail();
}
