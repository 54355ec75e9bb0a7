/* Averages gradients by all-reduce, the core of data-parallel training: fits y = 3a - 2b + 1 on all ranks together.
 *
 *   cc average.c $(pkg-config --cflags --libs collet) -o average
 *   collet-run -n 2 ./average
 *
 * All gradients lie in one array, with the loss behind them, so a step needs one call. fit.c overlaps it with
 * computing. */
#include <stdint.h>
#include <stdio.h>

#include <collet/collet.h>

enum { WEIGHTS = 3, BATCH = 20, STEPS = 100 };
static const float RATE = 0.1f;

static int fail(void)
{
	fprintf(stderr, "%s\n", collet_last_error());
	return 1;
}

/* Returns input k of a sample, the same on every rank: a number from -1 to 1. */
static float input(uint64_t sample, uint64_t k)
{
	const uint64_t hash = (2 * sample + k + 1) * 0x9e3779b97f4a7c15u;
	return (float)(hash >> 40) / (float)(1 << 23) - 1;
}

/* Writes the gradients of a batch's mean squared error, and behind them this error. */
static void compute_gradients(const float weights[WEIGHTS], uint64_t first, float gradients[WEIGHTS + 1])
{
	for (int w = 0; w <= WEIGHTS; w++)
		gradients[w] = 0;
	for (uint64_t sample = first; sample < first + BATCH; sample++) {
		const float a = input(sample, 0), b = input(sample, 1);
		const float error = weights[0] * a + weights[1] * b + weights[2] - (3 * a - 2 * b + 1);
		gradients[0] += 2 * error * a / BATCH;
		gradients[1] += 2 * error * b / BATCH;
		gradients[2] += 2 * error / BATCH;
		gradients[WEIGHTS] += error * error / BATCH;
	}
}

int main(void)
{
	collet_comm *comm;
	if (collet_comm_create(&comm, NULL) != COLLET_OK)
		return fail();
	const uint32_t rank = collet_comm_rank(comm), size = collet_comm_size(comm);

	/* All ranks begin with the same weights, and add the same averages: they stay equal, bit for bit. */
	float weights[WEIGHTS] = { 0 }, gradients[WEIGHTS + 1];
	for (uint64_t step = 0; step < STEPS; step++) {
		compute_gradients(weights, (step * size + rank) * BATCH, gradients);
		if (collet_allreduce(comm, gradients, gradients, WEIGHTS + 1, COLLET_F32, COLLET_AVERAGE, NULL) !=
			COLLET_OK)
			return fail();
		for (int w = 0; w < WEIGHTS; w++)
			weights[w] -= RATE * gradients[w];
		if (rank == 0 && (step + 1) % 20 == 0)
			printf("step %d: loss %.6f\n", (int)step + 1, (double)gradients[WEIGHTS]);
	}
	return collet_comm_destroy(&comm) == COLLET_OK ? 0 : fail();
}
