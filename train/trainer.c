/* The training loop.
 *
 * Every rank draws the same first values and takes its share of the images by the distributed sampler; collet_ddp
 * averages the gradients; every rank then takes the same optimiser step, so parameters stay bitwise equal, which is
 * checked after every epoch. Batch norm's statistics are each rank's own while it trains; rank 0's are used, as in
 * PyTorch.
 *
 * With --shards N one rank does the work of N in turn, in the arithmetic of N ranks whose all-reduce adds in rank
 * order: the proof that what is distributed is the work and nothing else. */
#include "trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <collet/ddp_hook.h>
#include <collet/sampler.h>

#include "backend.h"
#include "dataset.h"
#include "error.h"

enum { EVALUATION_BATCH = 200 };

/* What one rank (or one shard of --shards) goes through in an epoch. */
struct share {
	collet_sampler sampler;
	uint64_t *indices;
	double loss_sum;
};

struct trainer {
	collet_comm *comm;
	const struct options *options;
	const struct trainer_watch *watch;
	const struct backend *backend;
	struct dataset train, test;
	struct model model;
	struct network *network;
	collet_ddp *ddp;
	struct share *shares;      /* one, or one a shard */
	uint32_t share_count;
	uint64_t share_images;     /* of each share in an epoch */
	float **shard_sums;        /* one a bucket; with shards only */
	float *gathered[MODEL_PARAMETERS];  /* what earlier batches of a step have given; with --accumulate only */
	collet_ddp_hook *hook;     /* NULL: gradients travel as they are */
	struct schedule schedule;
	float *images;             /* of one batch */
	uint8_t *labels;
	uint64_t *test_indices;
	uint32_t steps_done;       /* in all epochs */
};

static bool check(collet_status status, const char *what)
{
	return status == COLLET_OK || train_fail("%s: %s: %s", what, collet_status_name(status), collet_last_error());
}

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Setting up --------------------------------------------------------------------------------------------- */

static bool load(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	return dataset_load(&trainer->train, options->dataset, options->data, DATASET_TRAIN, options->train_samples) &&
		dataset_load(&trainer->test, options->dataset, options->data, DATASET_TEST, options->test_samples);
}

static bool allocate_floats(const struct backend *backend, float **memory, uint64_t count)
{
	*memory = backend->memory_allocate(count * sizeof(float));
	return *memory || train_fail("no memory for %" PRIu64 " numbers", count);
}

static bool build_model(struct trainer *trainer)
{
	struct model *model = &trainer->model;
	uint32_t layer_count;
	const struct layer *layers = model_table(trainer->options->model, &layer_count);
	if (!layers)
		return train_fail("there is no model %s; convnet, lenet and linear are known", trainer->options->model);
	if (!model_build(model, trainer->options->model, layers, layer_count, trainer->train.shape,
		    trainer->options->batch_norm))
		return false;
	if (model_classes(model) != trainer->train.classes)
		return train_fail("model %s tells %u classes apart, %s has %u", model->name, model_classes(model),
			trainer->options->dataset, trainer->train.classes);
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		struct parameter *parameter = &model->parameters[p];
		if (!allocate_floats(trainer->backend, &parameter->value, parameter->count) ||
			!allocate_floats(trainer->backend, &parameter->velocity, parameter->count) ||
			(trainer->options->optimiser == OPTIMISER_ADAMW &&
				!allocate_floats(trainer->backend, &parameter->squares, parameter->count)) ||
			(trainer->options->accumulate > 1 &&
				!allocate_floats(trainer->backend, &trainer->gathered[p], parameter->count)))
			return false;
	}
	for (uint32_t s = 0; s < model->statistics_count; s++)
		if (!allocate_floats(trainer->backend, &model->statistics[s].mean, model->statistics[s].channels) ||
			!allocate_floats(
				trainer->backend, &model->statistics[s].variance, model->statistics[s].channels))
			return false;
	model_initialise(model, trainer->options->seed);
	return true;
}

/* Only now is it known where gradients live, and a network can be built over them. */
static bool build_network(struct trainer *trainer)
{
	struct model *model = &trainer->model;
	collet_ddp_parameter parameters[MODEL_PARAMETERS];
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		const struct parameter *parameter = &model->parameters[p];
		parameters[p] = (collet_ddp_parameter){ .name = parameter->name, .value = parameter->value,
			.shape = parameter->shape, .dimensions = parameter->dimensions, .dtype = COLLET_F32 };
	}
	/* The network is built over the gradients' addresses, and marks them in the buckets' order anyway. */
	const char *words = trainer->options->compress;
	if (words && !check(collet_ddp_hook_create(&trainer->hook, words, trainer->options->seed), "--compress"))
		return false;
	const collet_ddp_options options = {
		.algorithm = trainer->options->algorithm, .hook = trainer->hook, .keep_order = true };
	if (!check(collet_ddp_create(&trainer->ddp, trainer->comm, parameters, model->parameter_count, &options),
		"comparing the model across ranks"))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].gradient = collet_ddp_gradient(trainer->ddp, p);
	trainer->network = trainer->backend->create(model);
	return trainer->network != NULL;
}

static bool prepare_shares(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint32_t rank = collet_comm_rank(trainer->comm), size = collet_comm_size(trainer->comm);
	if (options->shards > 1 && size > 1)
		return train_fail("--shards is for one rank; there are %u", size);
	trainer->share_count = options->shards;
	trainer->shares = calloc(trainer->share_count, sizeof(*trainer->shares));
	for (uint32_t s = 0; trainer->shares && s < trainer->share_count; s++) {
		struct share *share = &trainer->shares[s];
		share->sampler = (collet_sampler){ .sample_count = trainer->train.count, .rank = size > 1 ? rank : s,
			.world_size = size > 1 ? size : options->shards, .seed = options->seed };
		trainer->share_images = collet_sampler_count(&share->sampler);
		share->indices = calloc(trainer->share_images, sizeof(*share->indices));
		if (!share->indices)
			return train_fail("no memory for the order of %u images", trainer->train.count);
	}
	return trainer->shares != NULL || train_fail("no memory for %u shards", options->shards);
}

static bool prepare_shard_sums(struct trainer *trainer)
{
	if (trainer->share_count == 1)
		return true;
	const uint32_t buckets = collet_ddp_bucket_count(trainer->ddp);
	trainer->shard_sums = calloc(buckets, sizeof(*trainer->shard_sums));
	if (!trainer->shard_sums)
		return train_fail("no memory for %u buckets", buckets);
	for (uint32_t b = 0; b < buckets; b++) {
		collet_ddp_bucket bucket;
		if (!check(collet_ddp_bucket_get(trainer->ddp, b, &bucket), "a bucket") ||
			!allocate_floats(trainer->backend, &trainer->shard_sums[b], bucket.count))
			return false;
	}
	return true;
}

static collet_sampler test_sampler(const struct trainer *trainer)
{
	return (collet_sampler){ .sample_count = trainer->test.count, .rank = collet_comm_rank(trainer->comm),
		.world_size = collet_comm_size(trainer->comm), .tail = COLLET_SAMPLER_EXACT, .in_order = true };
}

static uint32_t batch_at(uint64_t total, uint64_t first, uint32_t batch_size)
{
	const uint64_t left = total - first;
	return left < batch_size ? (uint32_t)left : batch_size;
}

/* Networks for every batch size there will be, so that no step has to build one. */
static bool prepare_batches(struct trainer *trainer, uint64_t count, uint32_t batch_size, bool training)
{
	const uint32_t rest = (uint32_t)(count % batch_size);
	return (count < batch_size || trainer->backend->prepare(trainer->network, batch_size, training)) &&
		(rest == 0 || trainer->backend->prepare(trainer->network, rest, training));
}

static uint64_t steps_of_an_epoch(const struct trainer *trainer)
{
	const uint64_t images = (uint64_t)trainer->options->batch_size * trainer->options->accumulate;
	return (trainer->share_images + images - 1) / images;
}

static void prepare_schedule(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint64_t an_epoch = steps_of_an_epoch(trainer), all = an_epoch * options->epochs;
	const uint32_t shares = collet_comm_size(trainer->comm) * trainer->share_count;
	trainer->schedule = (struct schedule){ .kind = options->schedule, .warmup = options->warmup,
		.rate = options->learning_rate * (options->scale_rate ? (float)shares : 1),
		.steps = options->steps > 0 && options->steps < all ? options->steps : all,
		.every = an_epoch * options->decay_every, .factor = options->decay_factor };
}

static bool prepare(struct trainer *trainer)
{
	if (!prepare_shares(trainer) || !prepare_shard_sums(trainer))
		return false;
	prepare_schedule(trainer);
	const collet_sampler sampler = test_sampler(trainer);
	const uint64_t test_images = collet_sampler_count(&sampler);
	const uint32_t largest =
		trainer->options->batch_size > EVALUATION_BATCH ? trainer->options->batch_size : EVALUATION_BATCH;
	const struct shape shape = trainer->train.shape;
	trainer->test_indices = calloc(test_images + 1, sizeof(*trainer->test_indices));
	trainer->labels = calloc(largest, 1);
	if (!trainer->test_indices || !trainer->labels)
		return train_fail("no memory for a batch of %u", largest);
	return allocate_floats(trainer->backend, &trainer->images,
		       (uint64_t)largest * shape.channels * shape.height * shape.width) &&
	       check(collet_sampler_fill(&sampler, 0, trainer->test_indices), "dealing out the test images") &&
	       prepare_batches(trainer, trainer->share_images, trainer->options->batch_size, true) &&
	       prepare_batches(trainer, test_images, EVALUATION_BATCH, false);
}

static void trainer_deinit(struct trainer *trainer)
{
	const struct backend *backend = trainer->backend;
	backend->destroy(trainer->network);
	for (uint32_t b = 0; trainer->shard_sums && b < collet_ddp_bucket_count(trainer->ddp); b++)
		backend->memory_free(trainer->shard_sums[b]);
	free(trainer->shard_sums);
	if (trainer->ddp)
		collet_ddp_destroy(&trainer->ddp);
	if (trainer->hook)
		collet_ddp_hook_destroy(&trainer->hook);
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++) {
		backend->memory_free(trainer->model.parameters[p].value);
		backend->memory_free(trainer->model.parameters[p].velocity);
		backend->memory_free(trainer->model.parameters[p].squares);
		backend->memory_free(trainer->gathered[p]);
	}
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		backend->memory_free(trainer->model.statistics[s].mean);
		backend->memory_free(trainer->model.statistics[s].variance);
	}
	for (uint32_t s = 0; trainer->shares && s < trainer->share_count; s++)
		free(trainer->shares[s].indices);
	free(trainer->shares);
	free(trainer->test_indices);
	free(trainer->labels);
	backend->memory_free(trainer->images);
	dataset_deinit(&trainer->train);
	dataset_deinit(&trainer->test);
}

/* ---- One step ----------------------------------------------------------------------------------------------- */

static bool mark_ready(void *context, uint32_t parameter)
{
	struct trainer *trainer = context;
	return check(collet_ddp_ready(trainer->ddp, parameter), "averaging gradients");
}

static bool mark_nothing(void *context, uint32_t parameter)
{
	return true;
}

/* One of several batches of a step. */
struct part {
	struct trainer *trainer;
	float weight;      /* its share of the step's images */
	bool first, last;
};

/* Gradients of a step are the mean over its images; the last batch's stay in place, and are ready. */
static bool gather(void *context, uint32_t p)
{
	const struct part *part = context;
	const struct parameter *parameter = &part->trainer->model.parameters[p];
	float *restrict gradient = parameter->gradient, *restrict gathered = part->trainer->gathered[p];
	for (uint64_t i = 0; i < parameter->count; i++) {
		const float mine = gradient[i] * part->weight;
		gathered[i] = part->first ? mine : gathered[i] + mine;
	}
	if (!part->last)
		return true;
	memcpy(gradient, gathered, parameter->count * sizeof(*gradient));
	return mark_ready(part->trainer, p);
}

/* Forward and backward of one share's batch. */
static bool compute(struct trainer *trainer, uint32_t s, uint64_t first, uint32_t count, gradient_ready ready,
	void *context, struct outcome *outcome)
{
	struct share *share = &trainer->shares[s];
	dataset_batch(&trainer->train, share->indices + first, count, trainer->images, trainer->labels);
	const struct batch batch = { trainer->images, trainer->labels, count };
	if (!trainer->backend->forward(trainer->network, &batch, s == 0, outcome) ||
		!trainer->backend->backward(trainer->network, ready, context))
		return false;
	share->loss_sum += outcome->loss;
	return true;
}

/* sum += gradients (the first shard's are the sum so far); after the last shard, gradients = sum x 1/shards. */
static void add_shard(float *restrict sum, float *restrict gradients, uint64_t count, uint32_t s, uint32_t shards)
{
	for (uint64_t i = 0; i < count; i++)
		sum[i] = s == 0 ? gradients[i] : sum[i] + gradients[i];
	const float share = 1 / (float)shards;
	for (uint64_t i = 0; s == shards - 1 && i < count; i++)
		gradients[i] = sum[i] * share;
}

static bool compute_shards(struct trainer *trainer, uint64_t first, uint32_t count, struct outcome *outcome)
{
	for (uint32_t s = 0; s < trainer->share_count; s++) {
		if (!compute(trainer, s, first, count, mark_nothing, NULL, outcome))
			return false;
		for (uint32_t b = 0; b < collet_ddp_bucket_count(trainer->ddp); b++) {
			collet_ddp_bucket bucket;
			if (!check(collet_ddp_bucket_get(trainer->ddp, b, &bucket), "a bucket"))
				return false;
			add_shard(trainer->shard_sums[b], bucket.gradients, bucket.count, s, trainer->share_count);
		}
	}
	for (uint32_t p = trainer->model.parameter_count; p-- > 0;)
		if (!mark_ready(trainer, p))
			return false;
	return true;
}

/* The batches of one step, one after the other. *outcome: of all of them. */
static bool compute_parts(struct trainer *trainer, uint64_t first, uint32_t count, struct outcome *outcome)
{
	const uint32_t batch_size = trainer->options->batch_size;
	*outcome = (struct outcome){ 0 };
	for (uint32_t done = 0; done < count; done += batch_size) {
		const uint32_t images = batch_at(count, done, batch_size);
		struct part part = { trainer, (float)images / (float)count, done == 0, done + images == count };
		struct outcome one;
		if (!compute(trainer, 0, first + done, images, gather, &part, &one))
			return false;
		outcome->loss += one.loss;
		outcome->correct += one.correct;
	}
	return true;
}

/* With shards or without, in one batch or several. */
static bool compute_step(struct trainer *trainer, uint64_t first, uint32_t count, struct outcome *outcome)
{
	if (trainer->share_count > 1)
		return compute_shards(trainer, first, count, outcome);
	if (trainer->options->accumulate > 1)
		return compute_parts(trainer, first, count, outcome);
	return compute(trainer, 0, first, count, mark_ready, trainer, outcome);
}

static bool take_step(struct trainer *trainer, uint64_t first, uint32_t count, struct outcome *outcome)
{
	const struct options *options = trainer->options;
	double norm;
	if (!compute_step(trainer, first, count, outcome) ||
		!check(collet_ddp_wait(trainer->ddp), "averaging gradients") ||
		(options->clip > 0 && !check(collet_ddp_clip(trainer->ddp, options->clip, &norm), "--clip")))
		return false;
	const struct descent descent = { .optimiser = options->optimiser, .weight_decay = options->weight_decay,
		.rate = schedule_rate(&trainer->schedule, trainer->steps_done), .momentum = options->momentum,
		.nesterov = options->nesterov, .step = trainer->steps_done + 1 };
	trainer->backend->descend(trainer->network, &descent);
	trainer->steps_done++;
	return true;
}

/* ---- One epoch ---------------------------------------------------------------------------------------------- */

static bool out_of_steps(const struct trainer *trainer)
{
	return trainer->options->steps > 0 && trainer->steps_done >= trainer->options->steps;
}

/* Trains; *images is how many this rank has seen. */
static bool train_epoch(struct trainer *trainer, uint32_t epoch, uint64_t *images, double *seconds)
{
	const uint32_t size = collet_comm_size(trainer->comm);
	const uint32_t step_images = trainer->options->batch_size * trainer->options->accumulate;
	const uint64_t steps = steps_of_an_epoch(trainer);
	for (uint32_t s = 0; s < trainer->share_count; s++) {
		trainer->shares[s].loss_sum = 0;
		if (!check(collet_sampler_fill(&trainer->shares[s].sampler, epoch, trainer->shares[s].indices),
			    "dealing out images"))
			return false;
	}
	const double start = now_s();
	*images = 0;
	for (uint64_t step = 0; step < steps && !out_of_steps(trainer); step++) {
		struct outcome outcome;
		const uint64_t first = step * step_images;
		const uint32_t count = batch_at(trainer->share_images, first, step_images);
		if (!take_step(trainer, first, count, &outcome))
			return false;
		*images += (uint64_t)count * trainer->share_count;
		if (!trainer->watch->step)
			continue;
		const struct trainer_progress progress = {epoch + 1, (uint32_t)(step + 1), (uint32_t)steps,
			outcome.loss / count, (double)(*images * size) / (now_s() - start)};
		trainer->watch->step(trainer->watch->context, &progress);
	}
	*seconds = now_s() - start;
	return true;
}

/* Rank 0's statistics everywhere: else what a test image is taken for would depend on the rank that looks at it. */
static bool share_statistics(struct trainer *trainer)
{
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		struct statistics *statistics = &trainer->model.statistics[s];
		if (!check(collet_broadcast(trainer->comm, statistics->mean, statistics->mean, statistics->channels,
				   COLLET_F32, 0, NULL),
			    "sharing statistics") ||
			!check(collet_broadcast(trainer->comm, statistics->variance, statistics->variance,
				       statistics->channels, COLLET_F32, 0, NULL),
				"sharing statistics"))
			return false;
	}
	return true;
}

static bool evaluate(struct trainer *trainer, double *accuracy)
{
	const collet_sampler sampler = test_sampler(trainer);
	const uint64_t images = collet_sampler_count(&sampler);
	uint64_t counts[2] = { 0, images };  /* correct, seen */
	for (uint64_t first = 0; first < images; first += EVALUATION_BATCH) {
		const uint32_t count = batch_at(images, first, EVALUATION_BATCH);
		struct outcome outcome;
		dataset_batch(&trainer->test, trainer->test_indices + first, count, trainer->images, trainer->labels);
		const struct batch batch = { trainer->images, trainer->labels, count };
		if (!trainer->backend->evaluate(trainer->network, &batch, &outcome))
			return false;
		counts[0] += outcome.correct;
	}
	if (!check(collet_allreduce(trainer->comm, counts, counts, 2, COLLET_U64, COLLET_SUM, NULL),
		    "adding up correct answers"))
		return false;
	*accuracy = (double)counts[0] / (double)counts[1];
	return true;
}

/* The loss over all ranks' images. */
static bool reduce_loss(struct trainer *trainer, uint64_t images, double *loss)
{
	double sums[2] = { 0, (double)images };
	for (uint32_t s = 0; s < trainer->share_count; s++)
		sums[0] = s == 0 ? trainer->shares[s].loss_sum : sums[0] + trainer->shares[s].loss_sum;
	if (!check(collet_allreduce(trainer->comm, sums, sums, 2, COLLET_F64, COLLET_SUM, NULL), "adding up losses"))
		return false;
	*loss = sums[0] / sums[1];
	/* Every rank has the same sum, so all stop here. */
	return isfinite(*loss) || train_fail("the loss is not a number any more: try a lower --lr");
}

static bool compare_parameters(struct trainer *trainer, uint64_t *checksum)
{
	const uint32_t size = collet_comm_size(trainer->comm);
	uint64_t *all = calloc(size, sizeof(*all));
	*checksum = model_checksum(&trainer->model);
	bool equal = all || train_fail("no memory for %u checksums", size);
	equal = equal &&
		check(collet_allgather(trainer->comm, checksum, all, 1, COLLET_U64, NULL), "comparing parameters");
	for (uint32_t rank = 1; equal && rank < size; rank++)
		if (all[rank] != all[0])
			equal = train_fail("the parameters of rank %u (%016" PRIx64
					   ") differ from rank 0's (%016" PRIx64 ")",
				rank, all[rank], all[0]);
	free(all);
	return equal;
}

static bool run_epoch(struct trainer *trainer, uint32_t epoch)
{
	struct trainer_epoch result = { .epoch = epoch + 1 };
	uint64_t images;
	double seconds;
	if (!train_epoch(trainer, epoch, &images, &seconds) || !reduce_loss(trainer, images, &result.loss) ||
		!compare_parameters(trainer, &result.checksum) || !share_statistics(trainer) ||
		!evaluate(trainer, &result.test_accuracy))
		return false;
	result.images_per_s = (double)(images * collet_comm_size(trainer->comm)) / seconds;
	return !trainer->watch->epoch || trainer->watch->epoch(trainer->watch->context, &result);
}

static bool dump_parameters(const struct trainer *trainer, const char *path)
{
	FILE *file = fopen(path, "wb");
	bool complete = file != NULL;
	for (uint32_t p = 0; complete && p < trainer->model.parameter_count; p++) {
		const struct parameter *parameter = &trainer->model.parameters[p];
		complete = fwrite(parameter->value, sizeof(float), parameter->count, file) == parameter->count;
	}
	if (file && fclose(file) != 0)
		complete = false;
	return complete || train_fail("%s: cannot be written", path);
}

bool trainer_run(collet_comm *comm, const struct options *options, const struct trainer_watch *watch)
{
	struct trainer *trainer = calloc(1, sizeof(*trainer));
	if (!trainer)
		return train_fail("no memory");
	*trainer = (struct trainer){ .comm = comm, .options = options, .watch = watch, .backend = &backend_onednn };
	bool fine = load(trainer) && build_model(trainer) && build_network(trainer) && prepare(trainer);
	for (uint32_t epoch = 0; fine && epoch < options->epochs && !out_of_steps(trainer); epoch++)
		fine = run_epoch(trainer, epoch);
	if (fine && options->dump_parameters && collet_comm_rank(comm) == 0)
		fine = dump_parameters(trainer, options->dump_parameters);
	trainer_deinit(trainer);
	free(trainer);
	return fine;
}
