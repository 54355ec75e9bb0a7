#include "strategies/local_state.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "strategies/strategy.h"

static uint64_t state_bytes(const struct trainer *trainer)
{
	return trainer->flat.state_count * sizeof(float);
}

static uint64_t value_bytes(const struct trainer *trainer)
{
	return trainer->flat.count * sizeof(float);
}

/* The loss scale in f16, which each rank updates by itself. */
static uint64_t scaling_bytes(const struct trainer *trainer)
{
	return trainer->scaling.dynamic ? sizeof(trainer->scaling) : 0;
}

float *local_state_values(struct trainer *trainer, const float *array)
{
	float *values = malloc(value_bytes(trainer));
	if (!values)
		train_fail("no memory for a copy of the model");
	if (values && trainer->backend->array_get(trainer->work->device, values, array, trainer->work->count))
		return values;
	free(values);
	return NULL;
}

bool local_state_bytes(struct trainer *trainer, uint64_t *bytes)
{
	*bytes = value_bytes(trainer) + state_bytes(trainer) * (trainer->flat.squares ? 2 : 1) +
		scaling_bytes(trainer);
	return true;
}

void local_state_save(const struct trainer *trainer, const float *values, void *state)
{
	unsigned char *at = state;
	memcpy(at, values, value_bytes(trainer));
	at += value_bytes(trainer);
	memcpy(at, trainer->flat.velocity, state_bytes(trainer));
	at += state_bytes(trainer);
	if (trainer->flat.squares) {
		memcpy(at, trainer->flat.squares, state_bytes(trainer));
		at += state_bytes(trainer);
	}
	memcpy(at, &trainer->scaling, scaling_bytes(trainer));
}

bool local_state_load(struct trainer *trainer, float *values, const void *state, uint64_t bytes)
{
	const unsigned char *at = state;
	uint64_t expected;
	local_state_bytes(trainer, &expected);
	if (bytes != expected)
		return train_fail("the checkpoint is of another strategy than %s, or of other servers",
			trainer->strategy->name);
	memcpy(values, at, value_bytes(trainer));
	at += value_bytes(trainer);
	memcpy(trainer->flat.velocity, at, state_bytes(trainer));
	at += state_bytes(trainer);
	if (trainer->flat.squares) {
		memcpy(trainer->flat.squares, at, state_bytes(trainer));
		at += state_bytes(trainer);
	}
	memcpy(&trainer->scaling, at, scaling_bytes(trainer));
	return true;
}
