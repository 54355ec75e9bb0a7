/* Trains with a synchronous parameter server. Each of the last --servers ranks owns a part of the model and of the
 * optimiser's state; the others are workers. In a step every worker sends each server its part of the gradient. A
 * server waits for all, averages in rank order, steps, and sends the new values back. It moves workers / servers
 * times the model each way. (Li et al., "Scaling Distributed Machine Learning with the Parameter Server", 2014.) */
#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/servers.h"

struct parameter_server {
	collet_request **requests;
	float *received;   /* on a server: its part of the gradients, worker by worker */
	float *mean;
};

static bool parameter_server_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	struct parameter_server *state = trainer->strategy_state = calloc(1, sizeof(*state));
	if (!state)
		return train_fail("no memory");
	if (!servers_create(trainer, &state->requests) || !flat_gradients(flat, &trainer->model))
		return false;
	if (!servers_is_one(trainer))
		return strategy_state(trainer, 0, 0);
	const struct range part = servers_own_part(trainer);
	return strategy_state(trainer, part.first, part.count) && flat_allocate(flat, &state->mean, part.count) &&
		flat_allocate(flat, &state->received, trainer->workers * part.count);
}

/* Every worker's part of the gradient, and in the end the new values to all of them. */
static bool collect(struct trainer *trainer, const struct parameter_server *state, uint64_t count)
{
	for (uint32_t w = 0; w < trainer->workers; w++) {
		const collet_how how = { .request = &state->requests[w] };
		if (!train_check(collet_recv(trainer->step_comm, state->received + w * count, count, COLLET_F32, w,
					 SERVERS_GRADIENTS, NULL, &how),
			    "receiving gradients"))
			return false;
	}
	return train_check(collet_request_wait_all(state->requests, trainer->workers), "receiving gradients");
}

static bool hand_out(struct trainer *trainer, const struct parameter_server *state, struct range part)
{
	for (uint32_t w = 0; w < trainer->workers; w++) {
		const collet_how how = { .request = &state->requests[w] };
		if (!train_check(collet_send(trainer->step_comm, trainer->work->values + part.first, part.count,
					 COLLET_F32, w, SERVERS_VALUES, &how),
			    "sending values"))
			return false;
	}
	return train_check(collet_request_wait_all(state->requests, trainer->workers), "sending values");
}

static bool serve(struct trainer *trainer, const struct parameter_server *state)
{
	const struct range part = servers_own_part(trainer);
	return collect(trainer, state, part.count) &&
		strategy_average(
			trainer, state->mean, state->received, part.count, part.count, trainer->workers) &&
		strategy_update_part(trainer, state->mean) && trainer->backend->wait(trainer->network) &&
		hand_out(trainer, state, part);
}

static bool parameter_server_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	const struct parameter_server *state = trainer->strategy_state;
	bool take;
	*outcome = (struct outcome){ 0 };
	if (servers_is_one(trainer))
		return scaling_agree(trainer, true, &take) && (!take || serve(trainer, state));
	return compute_step(trainer, 0, images, compute_till_all, NULL, outcome) && scaling_unscale(trainer, &take) &&
		(!take || servers_exchange(trainer, trainer->work->gradients, state->requests));
}

static void parameter_server_destroy(struct trainer *trainer)
{
	struct parameter_server *state = trainer->strategy_state;
	if (!state)
		return;
	flat_free(trainer->work, state->received);
	flat_free(trainer->work, state->mean);
	free(state->requests);
	free(state);
}

const struct strategy strategy_parameter_server = {
	.name = "parameter-server",
	.sentence = "the last --servers ranks each own a part of the model, and step it by the workers' gradients",
	.supports = SUPPORTS_ACCUMULATE | SUPPORTS_SERVERS,
	.state = STATE_PARTS,
	.servers = servers_count,
	.create = parameter_server_create,
	.step = parameter_server_step,
	.end_epoch = servers_share,
	.destroy = parameter_server_destroy,
	.traffic = strategy_step_traffic,
};
