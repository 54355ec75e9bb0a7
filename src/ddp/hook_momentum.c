/* Momentum before compression: goes around another hook, which is given each rank's own velocity instead of its
 * gradients. The optimiser then needs none: without compression the two are the same sum. With it they are not: what
 * error feedback delivers late comes into a momentum that the optimiser has meanwhile built up without it; here what is
 * late is already the smooth sum. (Lin et al., "Deep Gradient Compression", 2018, section 3.1.) */
#include <stdlib.h>

#include "ddp/hooks.h"

struct momentum {
	const collet_ddp_hook *inner;
	void *state; /* the inner hook's */
	float *velocity;
	float keeps;
};

static void momentum_close(void *state)
{
	struct momentum *momentum = state;
	if (momentum->state && momentum->inner->close)
		momentum->inner->close(momentum->state);
	free(momentum->velocity);
	free(momentum);
}

static collet_status momentum_open(const collet_ddp_hook *hook, const collet_ddp_task *task, void **state)
{
	collet_status status = collet_ddp_needs_f32(hook, task);
	if (status != COLLET_OK)
		return status;
	struct momentum *momentum = calloc(1, sizeof(*momentum));
	float *velocity = calloc((size_t)task->bucket.count, sizeof(*velocity));
	if (!momentum || !velocity) {
		free(momentum);
		free(velocity);
		return collet_ddp_hook_no_memory(hook, task);
	}
	const collet_ddp_hook *inner = hook->context;
	const struct collet_ddp_words *words = inner->context;
	*momentum = (struct momentum){ .inner = inner, .velocity = velocity, .keeps = words->momentum };
	status = inner->open ? inner->open(inner, task, &momentum->state) : COLLET_OK;
	if (status == COLLET_OK)
		*state = momentum;
	else
		momentum_close(momentum);
	return status;
}

static collet_status momentum_start(void *state, const collet_ddp_task *task, uint32_t stage, collet_request **request)
{
	struct momentum *momentum = state;
	float *restrict gradients = task->bucket.gradients, *restrict velocity = momentum->velocity;
	for (uint64_t i = 0; stage == 0 && i < task->bucket.count; i++)
		gradients[i] = velocity[i] = momentum->keeps * velocity[i] + gradients[i];
	return momentum->inner->start(momentum->state, task, stage, request);
}

static collet_status momentum_finish(void *state, const collet_ddp_task *task)
{
	const struct momentum *momentum = state;
	return momentum->inner->finish ? momentum->inner->finish(momentum->state, task) : COLLET_OK;
}

/* ---- Checkpoints: the velocity, then what the inner hook remembers ---------------------------------------------- */

static uint64_t velocity_bytes(const collet_ddp_task *task)
{
	return task->bucket.count * sizeof(float);
}

static uint64_t momentum_saved_bytes(const void *state, const collet_ddp_task *task)
{
	const struct momentum *momentum = state;
	const collet_ddp_hook *inner = momentum->inner;
	return velocity_bytes(task) + (inner->saved_bytes ? inner->saved_bytes(momentum->state, task) : 0);
}

static void momentum_save(const void *state, const collet_ddp_task *task, void *saved)
{
	const struct momentum *momentum = state;
	memcpy(saved, momentum->velocity, velocity_bytes(task));
	if (momentum->inner->save)
		momentum->inner->save(momentum->state, task, (char *)saved + velocity_bytes(task));
}

static void momentum_load(void *state, const collet_ddp_task *task, const void *saved)
{
	struct momentum *momentum = state;
	memcpy(momentum->velocity, saved, velocity_bytes(task));
	if (momentum->inner->load)
		momentum->inner->load(momentum->state, task, (const char *)saved + velocity_bytes(task));
}

/* stages: the inner hook's. */
const collet_ddp_hook collet_ddp_momentum = { .open = momentum_open,
	.start = momentum_start,
	.finish = momentum_finish,
	.close = momentum_close,
	.saved_bytes = momentum_saved_bytes,
	.save = momentum_save,
	.load = momentum_load };
