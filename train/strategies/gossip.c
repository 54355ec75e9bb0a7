/* Trains without a centre, and without a moment at which all ranks agree. Each rank mixes its values with those of its
 * two neighbours on a ring, w_i <- (w_(i-1) + w_i + w_(i+1)) / 3. Then it takes its own gradient's step. The gradient
 * is of the values before mixing, so that they are exchanged while it is computed. A step moves two models' bytes a
 * rank, for any number of ranks. (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case
 * Study for Decentralized Parallel Stochastic Gradient Descent", 2017: D-PSGD, algorithm 1.)
 *
 * Ranks' values differ. Their average is evaluated, and is the result. After an epoch each rank continues with its
 * own values. */
#include <math.h>
#include <stdlib.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/local_state.h"
#include "strategies/strategy.h"

enum { LEFT, RIGHT, SIDES };

struct gossip {
	uint32_t neighbours[SIDES];
	uint32_t sides;                       /* with two ranks both neighbours are one: 1; alone: 0 */
	float *received[SIDES];
	collet_request *requests[2 * SIDES];  /* of this step */
	uint32_t request_count;
	int64_t began_ns, ended_ns;           /* ended: 0 while any is under way */
	float *own;                           /* this rank's values, while they hold the average */
	bool averaged;
	float apart;
};

static bool gossip_create(struct trainer *trainer)
{
	struct flat *flat = trainer->work;
	struct gossip *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const uint32_t rank = collet_comm_rank(trainer->comm), size = collet_comm_size(trainer->comm);
	if (!state)
		return train_fail("no memory");
	state->neighbours[LEFT] = (rank + size - 1) % size;
	state->neighbours[RIGHT] = (rank + 1) % size;
	state->sides = size > 2 ? 2 : size - 1;
	for (uint32_t side = 0; side < state->sides; side++)
		if (!flat_allocate(flat, &state->received[side], flat->count))
			return false;
	return strategy_broadcast_values(trainer) && strategy_create_step_comm(trainer) &&
		flat_gradients(flat, &trainer->model) && flat_allocate(flat, &state->own, flat->count) &&
		strategy_state(trainer, 0, flat->count);
}

/* Exchanges values with each neighbour, in both directions; the tag tells the direction of a message on the ring. */
static bool start_exchange(struct trainer *trainer, struct gossip *state)
{
	const uint64_t count = trainer->work->count;
	state->request_count = 0;
	state->ended_ns = 0;
	if (!strategy_communicate(trainer, &state->began_ns))
		return false;
	for (uint32_t side = 0; side < state->sides; side++) {
		const uint32_t peer = state->neighbours[side], other_way = state->sides - 1 - side;
		const collet_how receive = { .request = &state->requests[state->request_count++] };
		const collet_how send = { .request = &state->requests[state->request_count++] };
		if (!train_check(collet_recv(trainer->step_comm, state->received[side], count, COLLET_F32, peer,
					 other_way, NULL, &receive),
			    "receiving a neighbour's values") ||
			!train_check(collet_send(trainer->step_comm, trainer->work->values, count, COLLET_F32, peer,
					     side, &send),
				"sending values to a neighbour"))
			return false;
	}
	timeline_end(trainer->timeline);
	return true;
}

/* Advances the exchange whenever a gradient is ready. */
static bool advance(void *context, uint32_t parameter)
{
	struct trainer *trainer = context;
	struct gossip *state = trainer->strategy_state;
	bool pending = false;
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	for (uint32_t r = 0; r < state->request_count; r++) {
		const collet_status status = collet_request_test(&state->requests[r]);
		if (status != COLLET_PENDING && !train_check(status, "exchanging values with a neighbour"))
			return false;
		pending = pending || status == COLLET_PENDING;
	}
	timeline_end(trainer->timeline);
	if (!pending && state->ended_ns == 0)
		state->ended_ns = strategy_now_ns();
	return true;
}

static bool end_exchange(struct trainer *trainer, struct gossip *state)
{
	timeline_begin(trainer->timeline, PHASE_COMMUNICATE);
	if (!train_check(collet_request_wait_all(state->requests, state->request_count),
		    "exchanging values with a neighbour"))
		return false;
	timeline_end(trainer->timeline);
	const struct transfer transfer = { state->began_ns, state->ended_ns ? state->ended_ns : strategy_now_ns(),
		trainer->work->count * sizeof(float) };
	timeline_transfers(trainer->timeline, &transfer, state->sides > 0);
	return true;
}

static bool mix(struct trainer *trainer, const struct gossip *state)
{
	const struct backend *backend = trainer->backend;
	const float *left = state->received[LEFT], *right = state->received[state->sides - 1];
	float *values = trainer->work->values;
	const uint64_t count = trainer->work->count;
	return backend->add(trainer->network, values, left, values, 1, count) &&
		backend->add(trainer->network, values, values, right, (double)(1 / 3.0F), count);
}

static bool gossip_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct gossip *state = trainer->strategy_state;
	bool take;
	if (!start_exchange(trainer, state) || !compute_step(trainer, 0, images, advance, trainer, outcome) ||
		!end_exchange(trainer, state) || !scaling_unscale_local(trainer, &take))
		return false;
	/* The gradient's computation may still read the values; the same stream orders it before the mixing. */
	return (state->sides == 0 || mix(trainer, state)) && (!take || strategy_update(trainer));
}

static bool measure_apart(struct trainer *trainer, struct gossip *state)
{
	float *own = local_state_values(trainer, state->own),
	      *mean = local_state_values(trainer, trainer->work->values);
	state->apart = 0;
	for (uint64_t i = 0; own && mean && i < trainer->work->count; i++)
		state->apart = fmaxf(state->apart, fabsf(own[i] - mean[i]));
	const bool fine = own && mean;
	free(own);
	free(mean);
	return fine;
}

static bool gossip_end_epoch(struct trainer *trainer)
{
	struct gossip *state = trainer->strategy_state;
	float *values = trainer->work->values;
	const uint64_t count = trainer->work->count;
	state->averaged = true;
	if (!strategy_copy(trainer, state->own, values, count) || !trainer->backend->wait(trainer->network) ||
		!train_check(collet_allreduce(trainer->comm, values, values, count, COLLET_F32, COLLET_AVERAGE, NULL),
		    "averaging values"))
		return false;
	return measure_apart(trainer, state);
}

static bool gossip_begin_epoch(struct trainer *trainer)
{
	struct gossip *state = trainer->strategy_state;
	const bool averaged = state->averaged;
	state->averaged = false;
	return !averaged || strategy_copy(trainer, trainer->work->values, state->own, trainer->work->count);
}

static bool gossip_save(struct trainer *trainer, void *memory, uint64_t bytes)
{
	const struct gossip *state = trainer->strategy_state;
	float *values = local_state_values(trainer, state->averaged ? state->own : trainer->work->values);
	if (values)
		local_state_save(trainer, values, memory);
	free(values);
	return values != NULL;
}

/* begin_epoch() comes next. */
static bool gossip_load(struct trainer *trainer, const void *memory, uint64_t bytes)
{
	struct gossip *state = trainer->strategy_state;
	float *values = local_state_values(trainer, state->own);
	const bool fine = values && local_state_load(trainer, values, memory, bytes) &&
		trainer->backend->array_put(trainer->work->device, state->own, values, trainer->work->count);
	state->averaged = fine;
	free(values);
	return fine;
}

static bool gossip_report(struct trainer *trainer, struct trainer_epoch *epoch)
{
	const struct gossip *state = trainer->strategy_state;
	float most = state->apart;
	if (!train_check(collet_allreduce(trainer->comm, &most, &most, 1, COLLET_F32, COLLET_MAX, NULL),
		    "comparing values"))
		return false;
	epoch->apart = most;
	return true;
}

static void gossip_destroy(struct trainer *trainer)
{
	struct gossip *state = trainer->strategy_state;
	if (!state)
		return;
	for (uint32_t side = 0; side < state->sides; side++)
		flat_free(trainer->work, state->received[side]);
	flat_free(trainer->work, state->own);
	free(state);
}

const struct strategy strategy_gossip = {
	.name = "gossip",
	.sentence = "each rank averages its values with two neighbours' and steps by its own gradient",
	.supports = SUPPORTS_ACCUMULATE | SUPPORTS_SYNC_NORM,
	.state = STATE_OWN,
	.create = gossip_create,
	.step = gossip_step,
	.begin_epoch = gossip_begin_epoch,
	.end_epoch = gossip_end_epoch,
	.destroy = gossip_destroy,
	.traffic = strategy_step_traffic,
	.report = gossip_report,
	.saved_bytes = local_state_bytes,
	.save = gossip_save,
	.load = gossip_load,
};
