#include "model/flat.h"

#include <assert.h>
#include <inttypes.h>

#include "error.h"

enum { ALIGNMENT = 16 };  /* elements: 64 bytes */

static uint64_t round_up(uint64_t count, uint64_t to)
{
	return (count + to - 1) / to * to;
}

bool flat_allocate(struct flat *flat, const struct backend *backend, float **memory, uint64_t count)
{
	*memory = backend->memory_allocate(count * sizeof(float));
	if (!*memory)
		return train_fail("no memory for %" PRIu64 " numbers", count);
	flat->bytes += count * sizeof(float);
	return true;
}

bool flat_init(struct flat *flat, struct model *model, const struct backend *backend, uint32_t ranks)
{
	*flat = (struct flat){ 0 };
	for (uint32_t p = 0; p < model->parameter_count; p++) {
		flat->first[p] = flat->count;
		flat->count += round_up(model->parameters[p].count, ALIGNMENT);
	}
	flat->count = round_up(flat->count, (uint64_t)ALIGNMENT * ranks);
	if (!flat_allocate(flat, backend, &flat->values, flat->count))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].value = flat->values + flat->first[p];
	return true;
}

bool flat_gradients(struct flat *flat, struct model *model, const struct backend *backend)
{
	if (!flat_allocate(flat, backend, &flat->gradients, flat->count))
		return false;
	for (uint32_t p = 0; p < model->parameter_count; p++)
		model->parameters[p].gradient = flat->gradients + flat->first[p];
	return true;
}

bool flat_state(struct flat *flat, struct model *model, const struct backend *backend, enum optimiser optimiser,
	uint64_t first, uint64_t count)
{
	assert(first + count <= flat->count);
	flat->state_first = first;
	flat->state_count = count;
	if (!flat_allocate(flat, backend, &flat->velocity, count) ||
		(optimiser == OPTIMISER_ADAMW && !flat_allocate(flat, backend, &flat->squares, count)))
		return false;
	for (uint32_t p = 0; count == flat->count && p < model->parameter_count; p++) {
		model->parameters[p].velocity = flat->velocity + flat->first[p];
		model->parameters[p].squares = flat->squares ? flat->squares + flat->first[p] : NULL;
	}
	return true;
}

void flat_descend(
	const struct flat *flat, const struct backend *backend, const float *gradients, const struct descent *descent)
{
	const struct stretch stretch = { .value = flat->values + flat->state_first, .gradient = gradients,
		.velocity = flat->velocity, .squares = flat->squares, .count = flat->state_count };
	backend->descend_stretch(&stretch, descent);
}

void flat_deinit(struct flat *flat, const struct backend *backend)
{
	backend->memory_free(flat->values);
	backend->memory_free(flat->gradients);
	backend->memory_free(flat->velocity);
	backend->memory_free(flat->squares);
	*flat = (struct flat){ 0 };
}
