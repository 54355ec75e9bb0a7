/* Averages gradients over all ranks by all-reduce, bucket by bucket, while backward goes on (collet_ddp). Every rank
 * has all values and takes the same step, so parameters stay bitwise equal. */
#include <stdlib.h>

#include <collet/ddp.h>
#include <collet/ddp_hook.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/shards.h"
#include "strategies/strategy.h"

/* The library's own first one, unless all are smaller. */
#define FIRST_BUCKET_BYTES (UINT64_C(1) << 20)

struct allreduce {
	struct timeline *timeline;
	collet_ddp *ddp;
	collet_ddp_hook *hook;     /* NULL: gradients are sent as they are */
	struct shards *shards;     /* with --shards only */
};

static bool create_ddp(struct trainer *trainer, struct allreduce *state)
{
	struct model *model = &trainer->model;
	collet_ddp_parameter parameters[MODEL_PARAMETERS];
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		parameters[p] = (collet_ddp_parameter){ .name = parameter->name, .value = parameter->value,
			.shape = parameter->shape, .dimensions = parameter->dimensions, .dtype = COLLET_F32 };
	}
	/* Keeps the buckets' first layout. The network is built over the gradients' addresses. It marks them in the
	 * buckets' order, last to first, for any model (test_layers.c). So another layout would not be better. */
	const uint64_t bytes = trainer->options->bucket_bytes;
	const collet_ddp_options options = { .algorithm = trainer->options->algorithm, .hook = state->hook,
		.first_bucket_bytes = bytes < FIRST_BUCKET_BYTES ? bytes : FIRST_BUCKET_BYTES, .bucket_bytes = bytes,
		.keep_order = true };
	if (!train_check(
		    collet_ddp_create(&state->ddp, trainer->comm, parameters, model->parameter_count, &options),
		    "comparing the model across ranks"))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].gradient = collet_ddp_gradient(state->ddp, p);
	for (uint32_t b = 0; b < collet_ddp_bucket_count(state->ddp); b++) {
		collet_ddp_bucket bucket;
		if (!train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket"))
			return false;
		trainer->work->bytes += bucket.count * sizeof(float);
	}
	return true;
}

/* Returns the hook for gradients: the requested one, else that of the layers' precision. NULL: none. */
static const char *hook_words(const struct trainer *trainer)
{
	static const char *const words[] = { [PRECISION_BF16] = "bf16", [PRECISION_F16] = "f16" };
	if (trainer->options->compress || collet_comm_size(trainer->comm) == 1)
		return trainer->options->compress;
	return words[trainer->options->precision];
}

static bool create_shards(struct trainer *trainer, struct allreduce *state)
{
	struct array gradients[MODEL_PARAMETERS];
	const uint32_t buckets = collet_ddp_bucket_count(state->ddp);
	for (uint32_t b = 0; b < buckets; b++) {
		collet_ddp_bucket bucket;
		if (!train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket"))
			return false;
		gradients[b] = (struct array){ bucket.gradients, bucket.count };
	}
	state->shards = shards_create(trainer, gradients, buckets);
	return state->shards != NULL;
}

static bool allreduce_create(struct trainer *trainer)
{
	struct allreduce *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const char *words = hook_words(trainer);
	if (!state)
		return train_fail("no memory");
	state->timeline = trainer->timeline;
	if (words &&
		!train_check(collet_ddp_hook_create(&state->hook, words, trainer->options->seed), "--compress"))
		return false;
	if (!create_ddp(trainer, state) ||
		!strategy_state(trainer, 0, trainer->flat.count))
		return false;
	return trainer->share_count == 1 || create_shards(trainer, state);
}

static bool mark_ready(void *context, uint32_t parameter)
{
	struct allreduce *state = context;
	timeline_begin(state->timeline, PHASE_COMMUNICATE);
	const collet_status status = collet_ddp_ready(state->ddp, parameter);
	timeline_end(state->timeline);
	return train_check(status, "averaging gradients");
}

/* With --no-overlap: in the order in which backward would have done it. */
static bool mark_all(struct trainer *trainer)
{
	for (uint32_t p = trainer->model.parameter_count; p-- > 0;)
		if (!mark_ready(trainer->strategy_state, p))
			return false;
	return true;
}

/* Then every gradient is the average, and the timeline knows when. */
static bool wait_for_all(const struct allreduce *state)
{
	struct transfer transfers[MODEL_PARAMETERS];
	const uint32_t buckets = collet_ddp_bucket_count(state->ddp);
	timeline_begin(state->timeline, PHASE_COMMUNICATE);
	bool fine = train_check(collet_ddp_wait(state->ddp), "averaging gradients");
	timeline_end(state->timeline);
	for (uint32_t b = 0; fine && b < buckets; b++) {
		collet_ddp_interval transfer;
		collet_ddp_bucket bucket;
		fine = train_check(collet_ddp_last_travel(state->ddp, b, &transfer), "a bucket's times") &&
			train_check(collet_ddp_bucket_get(state->ddp, b, &bucket), "a bucket");
		transfers[b] = (struct transfer){ transfer.began_ns, transfer.ended_ns,
			bucket.count * collet_dtype_bytes(bucket.dtype) };
	}
	if (fine)
		timeline_transfers(state->timeline, transfers, buckets);
	return fine;
}

static bool allreduce_traffic(struct trainer *trainer, struct traffic *traffic)
{
	const struct allreduce *state = trainer->strategy_state;
	collet_ddp_traffic moved;
	if (!train_check(collet_ddp_traffic_get(state->ddp, &moved), "counting bytes"))
		return false;
	*traffic = (struct traffic){ moved.bytes_sent, moved.bytes_received };
	return true;
}

static bool allreduce_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct allreduce *state = trainer->strategy_state;
	const float clip = trainer->options->clip;
	double norm;
	bool take;
	const gradient_ready ready = trainer->options->no_overlap ? compute_till_all : mark_ready;
	const bool computed = state->shards ? shards_compute(state->shards, images, mark_ready, state, outcome) :
		compute_step(trainer, 0, images, ready, state, outcome);
	if (!computed || (ready == compute_till_all && !state->shards && !mark_all(trainer)) || !wait_for_all(state) ||
		!scaling_unscale(trainer, &take))
		return false;
	if (!take)
		return true;
	if (clip > 0 && !train_check(collet_ddp_clip(state->ddp, clip, &norm), "--clip"))
		return false;
	return strategy_update(trainer);
}

/* Without a hook nothing is remembered from step to step, and a checkpoint fits any number of ranks. */
static bool allreduce_saved_bytes(struct trainer *trainer, uint64_t *bytes)
{
	const struct allreduce *state = trainer->strategy_state;
	*bytes = 0;
	return !state->hook || train_check(collet_ddp_state_bytes(state->ddp, bytes), "a checkpoint");
}

static bool allreduce_save(struct trainer *trainer, void *saved, uint64_t bytes)
{
	const struct allreduce *state = trainer->strategy_state;
	return train_check(collet_ddp_state_save(state->ddp, saved, bytes), "a checkpoint");
}

static bool allreduce_load(struct trainer *trainer, const void *saved, uint64_t bytes)
{
	const struct allreduce *state = trainer->strategy_state;
	return train_check(collet_ddp_state_load(state->ddp, saved, bytes), "--resume");
}

static void allreduce_destroy(struct trainer *trainer)
{
	struct allreduce *state = trainer->strategy_state;
	if (!state)
		return;
	shards_destroy(state->shards);
	if (state->ddp)
		collet_ddp_destroy(&state->ddp);
	if (state->hook)
		collet_ddp_hook_destroy(&state->hook);
	free(state);
	trainer->strategy_state = NULL;
}

const struct strategy strategy_allreduce = {
	.name = "allreduce",
	.sentence = "gradients are averaged by all-reduce, in buckets, while backward goes on",
	.supports = SUPPORTS_COMPRESS | SUPPORTS_ALGORITHM | SUPPORTS_CLIP | SUPPORTS_ACCUMULATE | SUPPORTS_SHARDS |
		SUPPORTS_BUCKETS | SUPPORTS_SYNC_NORM,
	.state = STATE_ALIKE,
	.create = allreduce_create,
	.step = allreduce_step,
	.destroy = allreduce_destroy,
	.saved_bytes = allreduce_saved_bytes,
	.save = allreduce_save,
	.load = allreduce_load,
	.traffic = allreduce_traffic,
};
