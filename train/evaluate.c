#include "evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "error.h"

bool evaluate_loss(struct trainer *trainer, uint64_t images, double *loss)
{
	double sums[2] = { 0, (double)images };
	for (uint32_t s = 0; s < trainer->share_count; s++)
		sums[0] = s == 0 ? trainer->loss_sums[s] : sums[0] + trainer->loss_sums[s];
	if (!train_check(
		    collet_allreduce(trainer->comm, sums, sums, 2, COLLET_F64, COLLET_SUM, NULL), "adding up losses"))
		return false;
	*loss = sums[0] / sums[1];
	/* Every rank has the same sum, so all stop here. */
	return isfinite(*loss) || train_fail("the loss is not a number any more: try a lower --lr");
}

bool evaluate_equality(struct trainer *trainer, uint64_t *checksum)
{
	const uint32_t size = collet_comm_size(trainer->comm);
	uint64_t *all = calloc(size, sizeof(*all));
	*checksum = model_checksum(&trainer->model);
	bool equal = all || train_fail("no memory for %u checksums", size);
	equal = equal &&
		train_check(
			collet_allgather(trainer->comm, checksum, all, 1, COLLET_U64, NULL), "comparing parameters");
	for (uint32_t rank = 1; equal && rank < size; rank++)
		if (all[rank] != all[0])
			equal = train_fail("the parameters of rank %u (%016" PRIx64
					   ") differ from rank 0's (%016" PRIx64 ")",
				rank, all[rank], all[0]);
	free(all);
	return equal;
}

/* Copies rank 0's statistics to all ranks. Otherwise an image's class would depend on the rank that tests it. */
static bool share_statistics(struct trainer *trainer)
{
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		struct statistics *statistics = &trainer->model.statistics[s];
		float *const rows[] = { statistics->mean, statistics->variance };
		for (int i = 0; i < 2; i++)
			if (!train_check(collet_broadcast(trainer->comm, rows[i], rows[i], statistics->channels,
						 COLLET_F32, 0, NULL),
				    "sharing statistics"))
				return false;
	}
	return true;
}

bool evaluate_accuracy(struct trainer *trainer, double *accuracy)
{
	const struct order *order = &trainer->test_order;
	uint64_t counts[2] = { 0, 0 };  /* correct, seen */
	if (!share_statistics(trainer) ||
		!loader_epoch(trainer->test_loader, 0, order->indices, order->counts, order->batch_count))
		return false;
	for (uint64_t b = 0; b < order->batch_count; b++) {
		struct batch batch;
		struct outcome outcome;
		if (!loader_next(trainer->test_loader, &batch) ||
			!trainer->backend->evaluate(trainer->network, &batch, &outcome))
			return false;
		counts[0] += outcome.correct;
		counts[1] += batch.count;
	}
	if (!train_check(collet_allreduce(trainer->comm, counts, counts, 2, COLLET_U64, COLLET_SUM, NULL),
		    "adding up correct answers"))
		return false;
	*accuracy = (double)counts[0] / (double)counts[1];
	return true;
}
