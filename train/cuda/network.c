#include "cuda/network.h"

#include <stdlib.h>

#include "error.h"

/* Images come from a few places in host memory that stay for the run: one for each batch that a loader makes ahead. */
enum { PLACES = 2 * (2 * 64 + 1), PAGE_BYTES = 4096 };

/* A batch in the GPU's memory. */
struct slot {
	void *pixels, *places;
	void *images, *labels;
	uint32_t count;
	gpu_event read;          /* on the copying stream: the host's memory has been */
	gpu_event came;          /* there, too: images are made */
	gpu_event used;          /* on the computing one: nothing reads it any more */
};

struct network {
	struct cuda_device *device;
	const struct layers_table *table;
	struct layers *layers;
	const struct model *model;
	struct flat *host_flat, *device_flat;
	struct layers_setup setup;
	size_t image_pixels;
	uint32_t largest;        /* batch that slots hold */
	struct slot slots[2];    /* one computes while the other one fills */
	uint32_t staged, current;
	struct layers_outcome *outcome_there;   /* in the GPU's memory */
	struct layers_outcome *outcome;         /* a page of the host's, locked */
	bool outcome_locked;
	gpu_event told;          /* outcome has come */
	uint32_t *wrong;         /* in the GPU's memory */
	double *sums;            /* there, too: one an array */
	struct place {
		void *first;
		size_t bytes;
	} places[PLACES];        /* page-locked */
	uint32_t place_count;
};

/* ---- The model, there and back ------------------------------------------------------------------------------ */

/* Copies state between host and GPU; the list is the same in both directions. */
static bool move_all(const struct network *n, bool get)
{
	const struct flat *host_flat = n->host_flat, *device_flat = n->device_flat;
	const struct {
		float *host_flat, *device_flat;
		uint64_t count;
	} rows[] = { { host_flat->values, device_flat->values, host_flat->count },
		{ host_flat->velocity, device_flat->velocity, host_flat->state_count },
		{ host_flat->squares, device_flat->squares, host_flat->state_count } };
	bool fine = true;
	for (int i = 0; fine && i < 3; i++)
		if (rows[i].host_flat)
			fine = get ? cuda_get(n->device, rows[i].host_flat, rows[i].device_flat,
					     rows[i].count * sizeof(float))
				   : cuda_put(n->device, rows[i].device_flat, rows[i].host_flat,
					     rows[i].count * sizeof(float));
	return fine;
}

static bool move_statistics(const struct network *n, bool get)
{
	const struct cuda_device *d = n->device;
	bool fine = true;
	for (uint32_t s = 0; fine && s < n->model->statistics_count; s++) {
		const struct statistics *statistics = &n->model->statistics[s];
		const size_t bytes = statistics->channels * sizeof(float);
		fine = get ? cuda_get(d, statistics->mean, n->setup.means[s], bytes) &&
				cuda_get(d, statistics->variance, n->setup.variances[s], bytes) :
			cuda_put(d, n->setup.means[s], statistics->mean, bytes) &&
				cuda_put(d, n->setup.variances[s], statistics->variance, bytes);
	}
	return fine;
}

static bool cuda_wait(struct network *n)
{
	return cuda_check(n->device, n->device->gpu.gpu.cuStreamSynchronize(n->device->compute), "computing");
}

static bool cuda_fetch(struct network *n)
{
	return cuda_wait(n) && move_all(n, true) && move_statistics(n, true);
}

/* ---- Making one --------------------------------------------------------------------------------------------- */

static bool allocate_floats(struct network *n, float **memory, uint64_t count)
{
	void *allocated;
	const bool fine = cuda_allocate(n->device, &allocated, count * sizeof(float));
	*memory = allocated;
	return fine;
}

static bool allocate_model(struct network *n)
{
	const struct model *model = n->model;
	bool fine = true;
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		n->setup.values[p] = n->device_flat->values + n->device_flat->first[p];
		n->setup.gradients[p] = model->parameters[p].gradient;
	}
	for (uint32_t s = 0; fine && s < model->statistics_count; s++)
		fine = allocate_floats(n, &n->setup.means[s], model->statistics[s].channels) &&
			allocate_floats(n, &n->setup.variances[s], model->statistics[s].channels);
	return fine;
}

static bool allocate_outcome(struct network *n)
{
	void *outcome, *wrong, *sums = NULL;
	const bool fine = cuda_allocate(n->device, &outcome, sizeof(*n->outcome_there));
	n->outcome_there = outcome;
	if (!fine)
		return false;
	const bool all = cuda_allocate(n->device, &wrong, sizeof(*n->wrong)) &&
		cuda_allocate(n->device, &sums, MODEL_PARAMETERS * sizeof(*n->sums));
	n->wrong = wrong;
	n->sums = sums;
	n->outcome = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
	if (!n->outcome)
		return train_fail("no memory");
	/* Without page-locking, copies to it are slower. */
	n->outcome_locked = n->device->gpu.gpu.cuMemHostRegister(n->outcome, PAGE_BYTES, 0) == GPU_OK;
	return all && cuda_event(n->device, &n->told, false);
}

static void free_images(const struct cuda_device *device, struct slot *slot)
{
	void **const all[] = { &slot->pixels, &slot->places, &slot->images, &slot->labels };
	for (int i = 0; i < 4; i++) {
		cuda_free(device, *all[i]);
		*all[i] = NULL;
	}
}

static bool allocate_images(const struct network *n, struct slot *slot, uint32_t count)
{
	return cuda_allocate(n->device, &slot->pixels, count * n->image_pixels) &&
		cuda_allocate(n->device, &slot->places, count * sizeof(struct placement)) &&
		cuda_allocate(n->device, &slot->images, count * n->image_pixels * sizeof(float)) &&
		cuda_allocate(n->device, &slot->labels, count);
}

static void cuda_destroy(struct network *n)
{
	if (!n)
		return;
	const struct gpu *gpu = &n->device->gpu.gpu;
	(void)gpu->cuStreamSynchronize(n->device->copy);
	(void)gpu->cuStreamSynchronize(n->device->compute);
	n->table->destroy(n->layers);
	for (uint32_t i = 0; i < n->place_count; i++)
		if (n->places[i].bytes > 0)
			(void)gpu->cuMemHostUnregister(n->places[i].first);
	for (int s = 0; s < 2; s++) {
		free_images(n->device, &n->slots[s]);
		cuda_event_free(n->device, n->slots[s].read);
		cuda_event_free(n->device, n->slots[s].came);
		cuda_event_free(n->device, n->slots[s].used);
	}
	for (uint32_t s = 0; s < n->model->statistics_count; s++) {
		cuda_free(n->device, n->setup.means[s]);
		cuda_free(n->device, n->setup.variances[s]);
	}
	if (n->outcome_locked)
		(void)gpu->cuMemHostUnregister(n->outcome);
	free(n->outcome);
	cuda_free(n->device, n->outcome_there);
	cuda_free(n->device, n->wrong);
	cuda_free(n->device, n->sums);
	cuda_event_free(n->device, n->told);
	free(n);
}

struct network *cuda_network_create(const struct cuda_network_setup *setup)
{
	struct network *n = calloc(1, sizeof(*n));
	struct cuda_device *device = setup->device;
	const struct shape input = setup->model->input;
	if (!n) {
		train_fail("no memory for a network");
		return NULL;
	}
	*n = (struct network){ .device = device,
		.table = setup->table,
		.model = setup->model,
		.host_flat = setup->host_flat,
		.device_flat = setup->device_flat,
		.image_pixels = (size_t)input.channels * input.height * input.width,
		.setup = { .model = setup->model,
			.precision = setup->precision,
			.tf32 = setup->tf32,
			.stream = device->compute,
			.sync = setup->sync } };
	dataset_normals(setup->set, n->setup.normals);
	bool fine = allocate_model(n) && allocate_outcome(n) && move_all(n, false) && move_statistics(n, false);
	for (int s = 0; fine && s < 2; s++)
		fine = cuda_event(device, &n->slots[s].read, false) && cuda_event(device, &n->slots[s].came, false) &&
			cuda_event(device, &n->slots[s].used, false);
	n->layers = fine ? n->table->create(&n->setup) : NULL;
	if (n->layers)
		return n;
	cuda_destroy(n);
	return NULL;
}

static bool grow_slots(struct network *n, uint32_t count)
{
	for (int s = 0; s < 2; s++) {
		free_images(n->device, &n->slots[s]);
		if (!allocate_images(n, &n->slots[s], count))
			return false;
	}
	n->largest = count;
	return true;
}

static bool cuda_prepare(struct network *n, uint32_t batch_count, bool training)
{
	return (batch_count <= n->largest || grow_slots(n, batch_count)) &&
		n->table->prepare(n->layers, batch_count, training);
}

/* ---- Passes ------------------------------------------------------------------------------------------------- */

/* Page-locks the memory of a batch, so that the GPU copies while the host continues. Copies work without it, too. A
 * place whose first batch was small is locked again: no place may be locked in part. */
static bool lock_place(struct network *n, const struct batch *batch)
{
	const struct gpu *gpu = &n->device->gpu.gpu;
	const size_t bytes = batch->count * n->image_pixels;
	union {
		const uint8_t *given;
		void *taken;
	} pixels = { batch->pixels };
	struct place *place = n->places;
	while (place < n->places + n->place_count && place->first != pixels.taken)
		place++;
	if (place == n->places + PLACES)
		return true;
	if (place == n->places + n->place_count)
		n->place_count++;
	if (place->bytes >= bytes && place->first)
		return true;
	if (place->bytes > 0 &&
		(!cuda_check(n->device, gpu->cuStreamSynchronize(n->device->copy), "copying images") ||
			!cuda_check(n->device, gpu->cuMemHostUnregister(place->first), "unlocking a page")))
		return false;
	*place = (struct place){ pixels.taken, gpu->cuMemHostRegister(pixels.taken, bytes, 0) == GPU_OK ? bytes : 0 };
	return true;
}

static bool bring(const struct network *n, void *to, const void *from, size_t bytes, const char *what)
{
	return cuda_check(n->device,
		n->device->gpu.gpu.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, n->device->copy), what);
}

bool cuda_network_stage(struct network *n, const struct batch *batch)
{
	const struct cuda_device *d = n->device;
	n->staged = 1 - n->current;
	struct slot *slot = &n->slots[n->staged];
	slot->count = batch->count;
	return lock_place(n, batch) && cuda_follow(d, d->copy, slot->used) &&
		bring(n, slot->pixels, batch->pixels, batch->count * n->image_pixels, "copying images") &&
		bring(n, slot->places, batch->places, batch->count * sizeof(*batch->places), "copying places") &&
		bring(n, slot->labels, batch->labels, batch->count, "copying labels") &&
		cuda_record(d, slot->read, d->copy) &&
		n->table->make_images(n->layers, slot->images, slot->pixels, slot->places, batch->count, d->copy) &&
		cuda_record(d, slot->came, d->copy);
}

bool cuda_network_staged(struct network *n)
{
	return cuda_await(n->device, n->slots[n->staged].read);
}

static bool pass_forward(struct network *n, enum layers_pass pass)
{
	const struct cuda_device *d = n->device;
	n->current = n->staged;
	const struct slot *slot = &n->slots[n->current];
	return cuda_follow(d, d->compute, slot->came) &&
		n->table->forward(n->layers, slot->images, slot->labels, slot->count, pass, n->outcome_there) &&
		cuda_check(d, d->gpu.gpu.cuMemcpyAsync((uintptr_t)n->outcome, (uintptr_t)n->outcome_there,
			sizeof(*n->outcome), d->compute), "fetching the loss") &&
		cuda_record(d, n->told, d->compute) &&
		(pass != LAYERS_EVALUATE || cuda_record(d, slot->used, d->compute));
}

bool cuda_network_forward(struct network *n, bool update)
{
	return pass_forward(n, update ? LAYERS_TRAIN_AND_FOLLOW : LAYERS_TRAIN);
}

bool cuda_network_backward(struct network *n, float scale, gradient_ready ready, void *context)
{
	return n->table->backward(n->layers, scale, ready, context) &&
		cuda_record(n->device, n->slots[n->current].used, n->device->compute);
}

bool cuda_network_outcome(struct network *n, struct outcome *outcome)
{
	if (!cuda_await(n->device, n->told))
		return false;
	*outcome = (struct outcome){ n->outcome->loss, (uint32_t)n->outcome->correct };
	return true;
}

static enum precision precision_of(collet_dtype dtype)
{
	return dtype == COLLET_F16 ? PRECISION_F16 : PRECISION_BF16;
}

bool cuda_network_narrow(struct network *n, collet_dtype dtype, void *to, const float *from, uint64_t count)
{
	return n->table->narrow(n->layers, precision_of(dtype), to, from, count);
}

bool cuda_network_widen(struct network *n, collet_dtype dtype, float *to, const void *from, uint64_t count)
{
	return n->table->widen(n->layers, precision_of(dtype), to, from, count);
}

/* ---- Arrays ------------------------------------------------------------------------------------------------- */

static void *cuda_array_allocate(struct cuda_device *device, size_t bytes)
{
	void *memory;
	if (cuda_allocate(device, &memory, bytes))
		return memory;
	cuda_free(device, memory);
	return NULL;
}

static void cuda_array_free(struct cuda_device *device, void *memory)
{
	cuda_free(device, memory);
}

static bool cuda_array_get(struct cuda_device *device, float *to, const float *from, uint64_t count)
{
	return cuda_get(device, to, from, count * sizeof(*to));
}

static bool cuda_array_put(struct cuda_device *device, float *to, const float *from, uint64_t count)
{
	return cuda_put(device, to, from, count * sizeof(*to));
}

/* One range would do if gradients had the layout of values; they need not. */
static bool cuda_update(struct network *n, const struct optimiser_inputs *inputs)
{
	const struct flat *device_flat = n->device_flat;
	bool fine = true;
	for (uint32_t p = 0; fine && p < n->model->parameter_count; p++) {
		const uint64_t first = device_flat->first[p];
		const struct element_range range = { device_flat->values + first, device_flat->velocity + first,
			device_flat->squares ? device_flat->squares + first : NULL, n->setup.gradients[p],
			n->model->parameters[p].count };
		fine = n->table->update(n->layers, &range, inputs);
	}
	return fine;
}

static bool cuda_update_range(
	struct network *n, const struct element_range *range, const struct optimiser_inputs *inputs)
{
	return n->table->update(n->layers, range, inputs);
}

static bool cuda_add(struct network *n, float *to, const float *a, const float *b, double scale, uint64_t count)
{
	return n->table->add(n->layers, to, a, b, scale, count);
}

static bool cuda_squares(struct network *n, const struct array *arrays, uint32_t array_count, double *sum)
{
	double sums[MODEL_PARAMETERS];
	bool fine = array_count <= MODEL_PARAMETERS || train_fail("squares of %u arrays", array_count);
	for (uint32_t a = 0; fine && a < array_count; a++)
		fine = n->table->squares(n->layers, arrays[a].first, arrays[a].count, n->sums + a);
	if (!fine || !cuda_wait(n) || !cuda_get(n->device, sums, n->sums, array_count * sizeof(*sums)))
		return false;
	*sum = 0;
	for (uint32_t a = 0; a < array_count; a++)
		*sum += sums[a];
	return true;
}

static bool cuda_unscale(struct network *n, float factor, bool *finite)
{
	const struct cuda_device *d = n->device;
	uint32_t wrong = 0;
	if (!cuda_check(d, d->gpu.gpu.cuMemsetD8Async((uintptr_t)n->wrong, 0, sizeof(wrong), d->compute), "a flag") ||
		!n->table->unscale(n->layers, factor, n->wrong) || !cuda_wait(n) ||
		!cuda_get(d, &wrong, n->wrong, sizeof(wrong)))
		return false;
	*finite = wrong == 0;
	return true;
}

/* ---- As the trainer knows it -------------------------------------------------------------------------------- */

/* The statistics are those that the host has now: rank 0's, for all. */
static bool cuda_evaluate(struct network *n, const struct batch *batch, struct outcome *outcome)
{
	return cuda_wait(n) && move_statistics(n, false) && cuda_network_stage(n, batch) &&
		pass_forward(n, LAYERS_EVALUATE) && cuda_network_outcome(n, outcome);
}

static bool cuda_forward(struct network *n, const struct batch *batch, bool update, struct outcome *outcome)
{
	return cuda_network_stage(n, batch) && cuda_network_forward(n, update) && cuda_network_outcome(n, outcome);
}

static void *host_memory(size_t bytes)
{
	return backend_onednn.memory_allocate(bytes);
}

const struct backend backend_cuda = {
	.name = "cuda",
	.makes_images = true,
	.memory_allocate = host_memory,
	.memory_free = free,
	.array_allocate = cuda_array_allocate,
	.array_free = cuda_array_free,
	.array_get = cuda_array_get,
	.array_put = cuda_array_put,
	.destroy = cuda_destroy,
	.prepare = cuda_prepare,
	.evaluate = cuda_evaluate,
	.forward = cuda_forward,
	.backward = cuda_network_backward,
	.update = cuda_update,
	.update_range = cuda_update_range,
	.add = cuda_add,
	.squares = cuda_squares,
	.unscale = cuda_unscale,
	.wait = cuda_wait,
	.fetch = cuda_fetch,
};
