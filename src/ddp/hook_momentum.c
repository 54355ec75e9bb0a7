/* Momentum before compression: wraps another hook, and gives it each rank's velocity instead of its gradients. The
 * optimiser then needs no momentum. Without compression the two sums are equal. With it they differ: what error
 * feedback delays would meet a momentum that the optimiser has built up without it. Here the delayed part is already
 * the smooth sum. (Lin et al., "Deep Gradient Compression", 2018, section 3.1.) */
#include <stdlib.h>

#include "ddp/hooks.h"

struct momentum {
	const collet_ddp_hook *inner;
	void *state; /* state of the inner hook */
	float *velocity;
	float coefficient;
};

static void momentum_close(void *state)
{
	struct momentum *momentum = state;
	if (momentum->state && momentum->inner->close)
		momentum->inner->close(momentum->state);
	free(momentum->velocity);
	free(momentum);
}

static collet_status momentum_open(const collet_ddp_hook *hook, const collet_ddp_hook_args *args, void **state)
{
	collet_status status = collet_ddp_hook_check_f32(hook, args);
	if (status != COLLET_OK)
		return status;
	struct momentum *momentum = calloc(1, sizeof(*momentum));
	float *velocity = calloc((size_t)args->bucket.count, sizeof(*velocity));
	if (!momentum || !velocity) {
		free(momentum);
		free(velocity);
		return collet_ddp_hook_no_memory(hook, args);
	}
	const collet_ddp_hook *inner = hook->context;
	const struct collet_ddp_hook_spec *spec = inner->context;
	*momentum = (struct momentum){ .inner = inner, .velocity = velocity, .coefficient = spec->momentum };
	status = inner->open ? inner->open(inner, args, &momentum->state) : COLLET_OK;
	if (status == COLLET_OK)
		*state = momentum;
	else
		momentum_close(momentum);
	return status;
}

static collet_status momentum_start(
	void *state, const collet_ddp_hook_args *args, uint32_t stage, collet_request **request)
{
	struct momentum *momentum = state;
	float *restrict gradients = args->bucket.gradients, *restrict velocity = momentum->velocity;
	for (uint64_t i = 0; stage == 0 && i < args->bucket.count; i++)
		gradients[i] = velocity[i] = momentum->coefficient * velocity[i] + gradients[i];
	return momentum->inner->start(momentum->state, args, stage, request);
}

static collet_status momentum_finish(void *state, const collet_ddp_hook_args *args)
{
	const struct momentum *momentum = state;
	return momentum->inner->finish ? momentum->inner->finish(momentum->state, args) : COLLET_OK;
}

/* ---- Checkpoints: the velocity, then what the inner hook remembers ---------------------------------------------- */

static uint64_t velocity_bytes(const collet_ddp_hook_args *args)
{
	return args->bucket.count * sizeof(float);
}

static uint64_t momentum_saved_bytes(const void *state, const collet_ddp_hook_args *args)
{
	const struct momentum *momentum = state;
	const collet_ddp_hook *inner = momentum->inner;
	return velocity_bytes(args) + (inner->saved_bytes ? inner->saved_bytes(momentum->state, args) : 0);
}

static void momentum_save(const void *state, const collet_ddp_hook_args *args, void *saved)
{
	const struct momentum *momentum = state;
	memcpy(saved, momentum->velocity, velocity_bytes(args));
	if (momentum->inner->save)
		momentum->inner->save(momentum->state, args, (char *)saved + velocity_bytes(args));
}

static void momentum_load(void *state, const collet_ddp_hook_args *args, const void *saved)
{
	struct momentum *momentum = state;
	memcpy(momentum->velocity, saved, velocity_bytes(args));
	if (momentum->inner->load)
		momentum->inner->load(momentum->state, args, (const char *)saved + velocity_bytes(args));
}

/* The number of stages is the inner hook's. */
const collet_ddp_hook collet_ddp_hook_momentum = { .open = momentum_open,
	.start = momentum_start,
	.finish = momentum_finish,
	.close = momentum_close,
	.saved_bytes = momentum_saved_bytes,
	.save = momentum_save,
	.load = momentum_load };
