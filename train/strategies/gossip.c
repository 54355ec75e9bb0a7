/* No centre and no moment at which all ranks agree: each rank mixes its values with those of its two neighbours on a
 * ring, w_i <- (w_(i-1) + w_i + w_(i+1)) / 3, and takes its own gradient's step from there. The gradient is of the
 * values before mixing, so that they travel while it is computed. Two models' bytes a step and rank, however many ranks
 * there are. (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for
 * Decentralized Parallel Stochastic Gradient Descent", 2017: D-PSGD, algorithm 1.)
 *
 * Ranks' values differ. What is evaluated, and left in the end, is their average; after an epoch each goes on with its
 * own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "strategies/compute.h"
#include "strategies/own.h"
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
	struct flat *flat = &trainer->flat;
	struct gossip *state = trainer->strategy_state = calloc(1, sizeof(*state));
	const uint32_t rank = collet_comm_rank(trainer->comm), size = collet_comm_size(trainer->comm);
	if (!state)
		return train_fail("no memory");
	state->neighbours[LEFT] = (rank + size - 1) % size;
	state->neighbours[RIGHT] = (rank + 1) % size;
	state->sides = size > 2 ? 2 : size - 1;
	for (uint32_t side = 0; side < state->sides; side++)
		if (!flat_allocate(flat, trainer->backend, &state->received[side], flat->count))
			return false;
	return strategy_share_values(trainer) && strategy_open_lane(trainer) &&
		flat_gradients(flat, &trainer->model, trainer->backend) &&
		flat_allocate(flat, trainer->backend, &state->own, flat->count) &&
		flat_state(flat, &trainer->model, trainer->backend, trainer->options->optimiser, 0, flat->count);
}

/* Both ways with each neighbour; the tag says which way round the ring a message goes. */
static bool start_exchange(struct trainer *trainer, struct gossip *state)
{
	const uint64_t count = trainer->flat.count;
	state->request_count = 0;
	state->began_ns = strategy_communicate(trainer);
	state->ended_ns = 0;
	for (uint32_t side = 0; side < state->sides; side++) {
		const uint32_t peer = state->neighbours[side], other_way = state->sides - 1 - side;
		const collet_how receive = { .request = &state->requests[state->request_count++] };
		const collet_how send = { .request = &state->requests[state->request_count++] };
		if (!train_check(collet_recv(trainer->lane, state->received[side], count, COLLET_F32, peer, other_way,
					 NULL, &receive),
			    "receiving a neighbour's values") ||
			!train_check(collet_send(trainer->lane, trainer->flat.values, count, COLLET_F32, peer, side,
					     &send),
				"sending values to a neighbour"))
			return false;
	}
	timeline_end(trainer->timeline);
	return true;
}

/* Whenever a gradient is ready, what travels gets on. */
static bool advance(void *context, uint32_t parameter)
{
	struct trainer *trainer = context;
	struct gossip *state = trainer->strategy_state;
	bool pending = false;
	strategy_communicate(trainer);
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
	strategy_communicate(trainer);
	if (!train_check(collet_request_wait_all(state->requests, state->request_count),
		    "exchanging values with a neighbour"))
		return false;
	timeline_end(trainer->timeline);
	const struct travel travel = { state->began_ns, state->ended_ns ? state->ended_ns : strategy_now_ns(),
		trainer->flat.count * sizeof(float) };
	timeline_travels(trainer->timeline, &travel, state->sides > 0);
	return true;
}

static void mix(const struct gossip *state, float *restrict values, uint64_t count)
{
	const float *left = state->received[LEFT], *right = state->received[state->sides - 1];
	const float third = 1 / 3.0F;
	for (uint64_t i = 0; i < count; i++)
		values[i] = (left[i] + values[i] + right[i]) * third;
}

static bool gossip_step(struct trainer *trainer, uint32_t images, struct outcome *outcome)
{
	struct gossip *state = trainer->strategy_state;
	bool take;
	if (!start_exchange(trainer, state) || !compute_step(trainer, 0, images, advance, trainer, outcome) ||
		!end_exchange(trainer, state) || !scaling_settle_alone(trainer, &take))
		return false;
	if (state->sides > 0)
		mix(state, trainer->flat.values, trainer->flat.count);
	if (take)
		strategy_descend(trainer);
	return true;
}

static bool gossip_end_epoch(struct trainer *trainer)
{
	struct gossip *state = trainer->strategy_state;
	float *values = trainer->flat.values;
	const uint64_t count = trainer->flat.count;
	memcpy(state->own, values, count * sizeof(*values));
	state->averaged = true;
	if (!train_check(collet_allreduce(trainer->comm, values, values, count, COLLET_F32, COLLET_AVERAGE, NULL),
		    "averaging values"))
		return false;
	state->apart = 0;
	for (uint64_t i = 0; i < count; i++)
		state->apart = fmaxf(state->apart, fabsf(state->own[i] - values[i]));
	return true;
}

static bool gossip_begin_epoch(struct trainer *trainer)
{
	struct gossip *state = trainer->strategy_state;
	if (state->averaged)
		memcpy(trainer->flat.values, state->own, trainer->flat.count * sizeof(float));
	state->averaged = false;
	return true;
}

static bool gossip_save(struct trainer *trainer, void *memory, uint64_t bytes)
{
	const struct gossip *state = trainer->strategy_state;
	own_save(trainer, state->averaged ? state->own : trainer->flat.values, memory);
	return true;
}

/* begin_epoch() comes next. */
static bool gossip_load(struct trainer *trainer, const void *memory, uint64_t bytes)
{
	struct gossip *state = trainer->strategy_state;
	state->averaged = true;
	return own_load(trainer, state->own, memory, bytes);
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
		trainer->backend->memory_free(state->received[side]);
	trainer->backend->memory_free(state->own);
	free(state);
}

const struct strategy strategy_gossip = {
	.name = "gossip",
	.sentence = "each rank averages its values with two neighbours' and steps by its own gradient",
	.takes = TAKES_ACCUMULATE | TAKES_SYNC_NORM,
	.state = STATE_OWN,
	.create = gossip_create,
	.step = gossip_step,
	.begin_epoch = gossip_begin_epoch,
	.end_epoch = gossip_end_epoch,
	.destroy = gossip_destroy,
	.traffic = strategy_lane_traffic,
	.report = gossip_report,
	.saved_bytes = own_bytes,
	.save = gossip_save,
	.load = gossip_load,
};
