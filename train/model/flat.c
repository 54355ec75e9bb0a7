#include "model/flat.h"

#include <assert.h>
#include <inttypes.h>

#include "error.h"

enum { ALIGNMENT = 16 };  /* elements: 64 bytes */

static uint64_t round_up(uint64_t count, uint64_t to)
{
	return (count + to - 1) / to * to;
}

bool flat_allocate(struct flat *flat, float **memory, uint64_t count)
{
	*memory = flat->backend->array_allocate(flat->device, count * sizeof(float));
	if (!*memory)
		return train_fail("no memory for %" PRIu64 " numbers", count);
	flat->bytes += count * sizeof(float);
	return true;
}

void flat_free(const struct flat *flat, float *memory)
{
	if (memory)
		flat->backend->array_free(flat->device, memory);
}

bool flat_init(struct flat *flat, const struct model *model, const struct backend *backend, struct cuda_device *device,
	uint32_t ranks)
{
	*flat = (struct flat){ .backend = backend, .device = device };
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		flat->first[p] = flat->count;
		flat->count += round_up(model->parameters[p].count, ALIGNMENT);
	}
	flat->count = round_up(flat->count, (uint64_t)ALIGNMENT * ranks);
	return flat_allocate(flat, &flat->values, flat->count);
}

bool flat_gradients(struct flat *flat, struct model *model)
{
	if (!flat_allocate(flat, &flat->gradients, flat->count))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].gradient = flat->gradients + flat->first[p];
	return true;
}

bool flat_state(struct flat *flat, enum optimiser optimiser, uint64_t first, uint64_t count)
{
	assert(first + count <= flat->count);
	flat->state_first = first;
	flat->state_count = count;
	return flat_allocate(flat, &flat->velocity, count) &&
		(optimiser != OPTIMISER_ADAMW || flat_allocate(flat, &flat->squares, count));
}

bool flat_has_all_state(const struct flat *flat)
{
	return flat->velocity && flat->state_count == flat->count;
}

bool flat_update(
	const struct flat *flat, struct network *network, const float *gradients, const struct optimiser_inputs *inputs)
{
	const struct element_range range = { .value = flat->values + flat->state_first, .gradient = gradients,
		.velocity = flat->velocity, .squares = flat->squares, .count = flat->state_count };
	return flat->backend->update_range(network, &range, inputs);
}

void flat_deinit(struct flat *flat)
{
	flat_free(flat, flat->values);
	flat_free(flat, flat->gradients);
	flat_free(flat, flat->velocity);
	flat_free(flat, flat->squares);
	*flat = (struct flat){ 0 };
}
