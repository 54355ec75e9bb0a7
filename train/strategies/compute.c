#include "strategies/compute.h"

/* One of several batches of a step. */
struct part {
	struct trainer *trainer;
	float weight;              /* its share of the step's images */
	bool first, last;
	gradient_ready ready;
	void *context;
};

/* A step's gradients are the mean over its images. The last batch's gradients are replaced by that mean, and are
 * ready. */
static bool gather(void *context, uint32_t p)
{
	const struct part *part = context;
	struct trainer *trainer = part->trainer;
	const struct backend *backend = trainer->backend;
	const uint64_t count = trainer->model.parameters[p].count;
	float *gradient = trainer->model.parameters[p].gradient, *gathered = trainer->gathered[p];
	float *sum = part->last ? gradient : gathered;
	if (!backend->add(
		    trainer->network, part->first ? sum : gradient, gradient, NULL, (double)part->weight, count) ||
		(!part->first && !backend->add(trainer->network, sum, gathered, gradient, 1, count)))
		return false;
	return !part->last || part->ready(part->context, p);
}

/* Rank 0's batch-norm statistics are what counts, so of shards the first one's. */
bool compute_batch(struct trainer *trainer, uint32_t share, const struct batch *batch, gradient_ready ready,
	void *context, struct outcome *outcome)
{
	timeline_begin(trainer->timeline, PHASE_FORWARD);
	const bool went = trainer->backend->forward(trainer->network, batch, share == 0, outcome);
	timeline_end(trainer->timeline);
	if (!went)
		return false;
	timeline_begin(trainer->timeline, PHASE_BACKWARD);
	const bool came = trainer->backend->backward(trainer->network, trainer->scaling.factor, ready, context);
	timeline_end(trainer->timeline);
	trainer->loss_sums[share] += outcome->loss;
	return came;
}

bool compute_load(struct trainer *trainer, struct batch *batch)
{
	timeline_begin(trainer->timeline, PHASE_LOAD);
	const bool came = loader_next(trainer->loader, batch);
	timeline_end(trainer->timeline);
	return came;
}

bool compute_step(struct trainer *trainer, uint32_t share, uint32_t images, gradient_ready ready, void *context,
	struct outcome *outcome)
{
	struct batch batch;
	if (trainer->options->accumulate == 1)
		return compute_load(trainer, &batch) &&
			compute_batch(trainer, share, &batch, ready, context, outcome);
	*outcome = (struct outcome){ 0 };
	for (uint32_t done = 0; done < images; done += batch.count) {
		if (!compute_load(trainer, &batch))
			return false;
		struct part part = { trainer, (float)batch.count / (float)images, done == 0,
			done + batch.count == images, ready, context };
		struct outcome one;
		if (!compute_batch(trainer, share, &batch, gather, &part, &one))
			return false;
		outcome->loss += one.loss;
		outcome->correct += one.correct;
	}
	return true;
}

bool compute_till_all(void *context, uint32_t parameter)
{
	return true;
}
