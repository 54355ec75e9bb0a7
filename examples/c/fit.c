/* The smallest data-parallel trainer: fits y = 3a - 2b + 1 by stochastic gradient descent, on all ranks together.
 *
 *   cc fit.c $(pkg-config --cflags --libs collet) -o fit
 *   collet-run -n 2 ./fit
 *
 * A network has other gradients and another optimiser. The rest stays; train/ has such a trainer. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <collet/collet.h>
#include <collet/ddp.h>
#include <collet/sampler.h>

enum { SAMPLES = 2000, BATCH = 20, EPOCHS = 3 };
static const float RATE = 0.1f;

struct model {
	float weights[2], bias[1];
};
enum { WEIGHTS, BIAS }; /* numbers of the parameters */

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

/* Adds the gradients of a batch's squared errors to the buckets. Returns the sum of these errors. */
static double compute_gradients(const struct model *model, const collet_ddp *ddp, const uint64_t *samples)
{
	float *of_weights = collet_ddp_gradient(ddp, WEIGHTS), *of_bias = collet_ddp_gradient(ddp, BIAS);
	double loss = 0;
	for (int i = 0; i < BATCH; i++) {
		const float a = input(samples[i], 0), b = input(samples[i], 1);
		const float error =
			model->weights[0] * a + model->weights[1] * b + model->bias[0] - (3 * a - 2 * b + 1);
		loss += (double)error * (double)error;
		of_weights[0] += 2 * error * a / BATCH;
		of_weights[1] += 2 * error * b / BATCH;
		of_bias[0] += 2 * error / BATCH;
	}
	return loss;
}

static void update(struct model *model, const collet_ddp *ddp)
{
	const float *of_weights = collet_ddp_gradient(ddp, WEIGHTS), *of_bias = collet_ddp_gradient(ddp, BIAS);
	model->weights[0] -= RATE * of_weights[0];
	model->weights[1] -= RATE * of_weights[1];
	model->bias[0] -= RATE * of_bias[0];
}

/* Trains once on this rank's samples. Writes the sum of their losses. */
static bool train(struct model *model, collet_ddp *ddp, const uint64_t *samples, uint64_t count, double *loss)
{
	*loss = 0;
	for (uint64_t first = 0; first + BATCH <= count; first += BATCH) {
		if (collet_ddp_zero(ddp) != COLLET_OK)
			return false;
		*loss += compute_gradients(model, ddp, samples + first);
		/* A gradient starts to travel as soon as it is complete. wait() leaves the ranks' average in it. */
		if (collet_ddp_ready(ddp, BIAS) != COLLET_OK || collet_ddp_ready(ddp, WEIGHTS) != COLLET_OK ||
			collet_ddp_wait(ddp) != COLLET_OK)
			return false;
		update(model, ddp);
	}
	return true;
}

int main(void)
{
	collet_comm *comm;
	if (collet_comm_create(&comm, NULL) != COLLET_OK)
		return fail();

	/* Creation gives every rank the values of rank 0. */
	struct model model = { { 0, 0 }, { 0 } };
	const uint64_t two[] = { 2 }, one[] = { 1 };
	const collet_ddp_parameter parameters[] = {
		[WEIGHTS] = { "weights", model.weights, two, 1, COLLET_F32 },
		[BIAS] = { "bias", model.bias, one, 1, COLLET_F32 },
	};
	collet_ddp *ddp;
	if (collet_ddp_create(&ddp, comm, parameters, 2, NULL) != COLLET_OK)
		return fail();

	const collet_sampler sampler = { .sample_count = SAMPLES, .rank = collet_comm_rank(comm),
		.world_size = collet_comm_size(comm) };
	const uint64_t count = collet_sampler_count(&sampler);
	uint64_t *samples = malloc(count * sizeof(*samples));
	if (!samples)
		return 1;
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		double loss;
		if (collet_sampler_fill(&sampler, epoch, samples) != COLLET_OK ||
			!train(&model, ddp, samples, count, &loss) ||
			collet_allreduce(comm, &loss, &loss, 1, COLLET_F64, COLLET_SUM, NULL) != COLLET_OK)
			return fail();
		if (sampler.rank == 0)
			printf("epoch %llu: loss %.6f, y = %.4f a + %.4f b + %.4f\n", (unsigned long long)epoch + 1,
				loss / SAMPLES, (double)model.weights[0], (double)model.weights[1],
				(double)model.bias[0]);
	}
	free(samples);
	if (collet_ddp_destroy(&ddp) != COLLET_OK || collet_comm_destroy(&comm) != COLLET_OK)
		return fail();
	return 0;
}
