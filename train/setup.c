/* Images, model, memory, strategy, network, loaders: in the order in which each needs the ones before. */
#include "setup.h"

#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "cuda/choose.h"
#include "cuda/network.h"
#include "data/order.h"
#include "data/prepare.h"
#include "error.h"
#include "evaluate.h"
#include "strategies/strategy.h"

static bool allocate_parameters(struct trainer *trainer)
{
	struct model *model = &trainer->model;
	const uint32_t ranks = collet_comm_size(trainer->comm);
	trainer->work = trainer->device ? &trainer->device_flat : &trainer->flat;
	if (!flat_init(&trainer->flat, model, &backend_onednn, NULL, ranks) ||
		(trainer->device && !flat_init(&trainer->device_flat, model, trainer->backend, trainer->device, ranks)))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].value = trainer->flat.values + trainer->flat.first[p];
	for (uint32_t p = 0; trainer->options->accumulate > 1 && p < model->parameter_count; p++)
		if (!flat_allocate(trainer->work, &trainer->gathered[p], model->parameters[p].count))
			return false;
	return true;
}

static bool allocate_statistics(struct trainer *trainer)
{
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		struct statistics *statistics = &trainer->model.statistics[s];
		if (!flat_allocate(&trainer->flat, &statistics->mean, statistics->channels) ||
			!flat_allocate(&trainer->flat, &statistics->variance, statistics->channels))
			return false;
	}
	return true;
}

static bool build_model(struct trainer *trainer)
{
	struct model *model = &trainer->model;
	uint32_t layer_count;
	const struct layer *layers = model_table(trainer->options->model, &layer_count);
	if (!layers)
		return train_fail("there is no model %s", trainer->options->model);
	if (!model_build(model, trainer->options->model, layers, layer_count, trainer->train.shape,
		    trainer->options->batch_norm))
		return false;
	if (model_classes(model) != trainer->train.classes)
		return train_fail("model %s tells %u classes apart, %s has %u", model->name, model_classes(model),
			trainer->options->dataset, trainer->train.classes);
	if (!allocate_parameters(trainer) || !allocate_statistics(trainer))
		return false;
	model_initialise(model, trainer->options->seed);
	return true;
}

static bool gather_norm(void *context, const float *mine, float *all, uint32_t count)
{
	const struct trainer *trainer = context;
	return train_check(
		collet_allgather(trainer->comm, mine, all, count, COLLET_F32, NULL), "batch norm over all ranks");
}

/* Only a strategy knows where gradients live, and a network is built over them. */
static bool build_network(struct trainer *trainer)
{
	if (!trainer->strategy->create(trainer) || !checkpoint_resume(trainer))
		return false;
	trainer->norm_sync = (struct norm_sync){ collet_comm_size(trainer->comm), gather_norm, trainer };
	const struct norm_sync *sync = trainer->options->sync_batch_norm ? &trainer->norm_sync : NULL;
	if (trainer->device)
		trainer->network = cuda_network_create(&(struct cuda_network_setup){ .device = trainer->device,
			.table = trainer->layers, .model = &trainer->model, .host_flat = &trainer->flat,
			.device_flat = trainer->work, .precision = trainer->options->precision,
			.tf32 = trainer->options->tf32, .set = &trainer->train, .sync = sync });
	else
		trainer->network = trainer->backend->create(&trainer->model, trainer->options->precision, sync);
	return trainer->network != NULL;
}

/* Networks for every batch size there will be, so that no step has to build one. */
static bool prepare_batches(struct trainer *trainer, uint64_t images, uint32_t batch_size, bool training)
{
	const uint32_t rest = (uint32_t)(images % batch_size);
	return (images < batch_size || trainer->backend->prepare(trainer->network, batch_size, training)) &&
		(rest == 0 || trainer->backend->prepare(trainer->network, rest, training));
}

static uint64_t images_of(const struct order *order)
{
	uint64_t images = 0;
	for (uint64_t b = 0; b < order->batch_count; b++)
		images += order->counts[b];
	return images;
}

static void prepare_schedule(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const uint64_t an_epoch = order_steps(trainer), all = an_epoch * options->epochs;
	const uint32_t shares = trainer->workers * options->shards;
	trainer->schedule = (struct schedule){ .kind = options->schedule, .warmup = options->warmup,
		.rate = options->learning_rate * (options->scale_rate ? (float)shares : 1),
		.steps = options->steps > 0 && options->steps < all ? options->steps : all,
		.every = an_epoch * options->decay_every, .factor = options->decay_factor };
}

static bool prepare_loaders(struct trainer *trainer)
{
	const struct options *options = trainer->options;
	const struct loader_options training = { options->workers, options->augment, options->seed };
	const struct loader_options test = { .workers = options->workers };
	trainer->loader = loader_create(trainer->backend, &trainer->train, order_largest_batch(trainer), &training);
	trainer->test_loader = loader_create(trainer->backend, &trainer->test, EVALUATION_BATCH, &test);
	return trainer->loader && trainer->test_loader;
}

bool setup_init(struct trainer *trainer)
{
	const uint32_t batch_size = trainer->options->batch_size;
	const char *trace = trainer->options->trace;
	trainer->timeline = timeline_create(trace != NULL);
	if (!trainer->timeline || (trace && collet_comm_rank(trainer->comm) == 0 && !timeline_can_write(trace)))
		return false;
	trainer->strategy = strategy_find(trainer->options->strategy);
	scaling_init(&trainer->scaling, trainer->options->precision == PRECISION_F16);
	if (!device_choose(trainer) ||
		!prepare_images(trainer->comm, trainer->options, &trainer->train, &trainer->test) ||
		!build_model(trainer) || !order_init(trainer) || !build_network(trainer))
		return false;
	prepare_schedule(trainer);
	return prepare_loaders(trainer) &&
		(trainer->share_count == 0 || prepare_batches(trainer, trainer->share_images, batch_size, true)) &&
		prepare_batches(trainer, images_of(&trainer->test_order), EVALUATION_BATCH, false);
}

void setup_deinit(struct trainer *trainer)
{
	const struct backend *backend = trainer->backend;
	/* It may have locked the loaders' memory, and be reading it. */
	backend->destroy(trainer->network);
	loader_destroy(trainer->loader);
	loader_destroy(trainer->test_loader);
	/* First, so that nothing is under way in the memory that goes next. */
	if (trainer->step_comm)
		collet_comm_destroy(&trainer->step_comm);
	if (trainer->strategy && trainer->strategy->destroy)
		trainer->strategy->destroy(trainer);
	order_deinit(trainer);
	for (uint32_t p = 0; p < trainer->model.parameter_count; p++)
		flat_free(trainer->work, trainer->gathered[p]);
	for (uint32_t s = 0; s < trainer->model.statistics_count; s++) {
		flat_free(&trainer->flat, trainer->model.statistics[s].mean);
		flat_free(&trainer->flat, trainer->model.statistics[s].variance);
	}
	flat_deinit(&trainer->flat);
	flat_deinit(&trainer->device_flat);
	dataset_deinit(&trainer->train);
	dataset_deinit(&trainer->test);
	timeline_destroy(trainer->timeline);
	cuda_device_close(trainer->device);
}
